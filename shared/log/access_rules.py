"""Which principal may do what at Kafka, and how what is in force differs. Pure: `access_admin.py` asks Kafka.

The rights are declared in `deploy/kafka/access.yaml`. Words are those of Kafka's ACLs: a rule allows one principal one
operation on one resource, from any host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.runtime.yaml_text import YamlTextError, field_name, read_yaml

PER_TENANT = "submissions"
"""The topic of which a tenant may have one of its own."""

ANY_HOST = "*"


class Resource(IntEnum):
    """What a rule is about; the numbers of Kafka's protocol."""

    TOPIC = 2
    GROUP = 3


class Pattern(IntEnum):
    """Whether a rule names one resource, or all whose names begin alike."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a rule allows. Reading and writing each bring DESCRIBE with them."""

    READ = 3
    WRITE = 4
    DELETE = 6
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


class AccessFileError(ValueError):
    """access.yaml cannot be used; names the field, the value and the rule."""


class Rights(BaseModel):
    """One entry of access.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    read: Literal["all"] | list[str] = []
    write: list[str] = []
    delete: list[str] = []
    groups: list[str] = []


class AccessFile(BaseModel):
    """All of access.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    principals: dict[str, Rights]
    tenants: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One principal may do one thing with one resource. `operation` is a number of Kafka's where we have no word."""

    principal: str
    operation: int
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL

    def __str__(self) -> str:
        """In words: `placement may write fallow.decisions`."""
        known = {each.value: each.name.lower().replace("_", " ") for each in Operation}
        what = known.get(self.operation, f"do operation {self.operation} on")
        kind = "group " if self.resource is Resource.GROUP else ""
        return f"{self.principal} may {what} {kind}{self.name}{'*' if self.pattern is Pattern.PREFIXED else ''}"


@dataclass(frozen=True, slots=True)
class AccessDifferences:
    """How the rules in force differ from the declared ones.

    `missing` and `too_many` concern principals of the file; `of_others` are rules on topics and groups of this
    namespace for principals that the file does not name.
    """

    missing: tuple[Rule, ...] = ()
    too_many: tuple[Rule, ...] = ()
    of_others: tuple[Rule, ...] = ()

    def lines(self) -> list[str]:
        """Each difference in words."""
        return [
            *(f"not in force: {rule}" for rule in self.missing),
            *(f"not declared: {rule}" for rule in self.too_many),
            *(f"beside the file: {rule}" for rule in self.of_others),
        ]


def parse_access(text: str, topics: Iterable[str]) -> AccessFile:
    """Read access.yaml; `topics` are those that topics.yaml declares. Raises AccessFileError, one line a mistake."""
    try:
        file = AccessFile.model_validate(read_yaml(text))
    except YamlTextError as error:
        raise AccessFileError(f"access file: {error}") from error
    except ValidationError as error:
        lines = [f"{field_name(e['loc']) or 'access file'}: {e['msg']}" for e in error.errors()]
        raise AccessFileError("\n".join(lines)) from error
    unknown = list(_unknown_topics(file, frozenset(topics)))
    if unknown:
        raise AccessFileError("\n".join(unknown))
    return file


def _unknown_topics(file: AccessFile, known: frozenset[str]) -> Iterator[str]:
    for principal, rights in file.principals.items():
        named = {"read": [] if rights.read == "all" else rights.read, "write": rights.write, "delete": rights.delete}
        for field, topics in named.items():
            for topic in topics:
                if topic not in known:
                    rule = f"is not declared in topics.yaml: {', '.join(sorted(known))}"
                    yield f"principals.{principal}.{field} = {topic!r}: {rule}"


def expected_rules(file: AccessFile, namespace: str, tenants: Sequence[str]) -> frozenset[Rule]:
    """Every rule of this namespace. `tenants` are those that have topics of their own."""
    rules = {rule for name, rights in file.principals.items() for rule in _rules_of(name, rights, namespace, tenants)}
    if file.tenants:
        own = Operation.WRITE, Resource.TOPIC
        rules |= {Rule(f"tenant-{tenant}", *own, f"{namespace}.{PER_TENANT}.{tenant}") for tenant in tenants}
    return frozenset(rules)


def _rules_of(principal: str, rights: Rights, namespace: str, tenants: Sequence[str]) -> Iterator[Rule]:
    everything = Resource.TOPIC, f"{namespace}.", Pattern.PREFIXED
    yield Rule(principal, Operation.DESCRIBE, *everything)
    yield Rule(principal, Operation.DESCRIBE_CONFIGS, *everything)
    if rights.read == "all":
        yield Rule(principal, Operation.READ, *everything)
    named = {Operation.READ: rights.read, Operation.WRITE: rights.write, Operation.DELETE: rights.delete}
    for operation, topics in named.items():
        for topic in [] if topics == "all" else topics:
            yield Rule(principal, operation, Resource.TOPIC, f"{namespace}.{topic}")
            if topic == PER_TENANT:
                for tenant in tenants:
                    yield Rule(principal, operation, Resource.TOPIC, f"{namespace}.{topic}.{tenant}")
    for group in rights.groups:
        yield Rule(principal, Operation.READ, Resource.GROUP, f"{namespace}.{group}")


def access_differences(expected: frozenset[Rule], actual: Iterable[Rule], namespace: str) -> AccessDifferences:
    """What is missing, and what is in force beside the declared rules on resources of this namespace."""
    ours = {rule.principal for rule in expected}
    here = {rule for rule in actual if rule.name.startswith(f"{namespace}.")}
    beside = here - expected
    return AccessDifferences(
        missing=tuple(sorted(expected - here)),
        too_many=tuple(sorted(rule for rule in beside if rule.principal in ours)),
        of_others=tuple(sorted(rule for rule in beside if rule.principal not in ours)),
    )
