"""Which principal may do what at Kafka, and how what is in force differs. Pure: `access_admin.py` asks Kafka.

The rights are declared in `deploy/kafka/access.yaml`. Words are those of Kafka's ACLs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from fallow.shared.events.codec.encoding import written
from fallow.shared.events.validation.mistakes_told import mistakes_in
from fallow.shared.runtime.errors.several_lines import ErrorOfSeveralLines
from fallow.shared.runtime.files.yaml_text import YamlTextError, read_yaml

PER_TENANT = "submissions"
"""The topic of which a tenant may have one of its own."""

TENANT_PREFIX = "tenant-"
"""Before a tenant's name: the principal that may write that tenant's topic."""

ANY_HOST = "*"
WILDCARD = "*"
"""As the name of a resource: every one."""

PrincipalName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]


class Resource(IntEnum):
    """What a rule is about; the numbers of Kafka's protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


class Pattern(IntEnum):
    """Whether a rule names one resource, or all whose names begin alike."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a rule is about. Reading and writing each bring DESCRIBE with them; ALL brings everything."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


HARMLESS_ON_CLUSTER = frozenset({Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.IDEMPOTENT_WRITE})
"""A rule on the cluster that allows nothing but these gives no way into a cell."""


class AccessFileError(ErrorOfSeveralLines, ValueError):
    """access.yaml cannot be used; names the field, the value and the rule."""


class Rights(BaseModel):
    """One entry of access.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    read: Literal["all"] | list[str] = []
    write: list[str] = []
    delete: list[str] = []
    groups: list[PrincipalName] = []


class AccessFile(BaseModel):
    """All of access.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    principals: dict[PrincipalName, Rights]
    tenants: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One principal may, or must not, do one thing with one resource. `operation` is Kafka's number."""

    principal: str
    operation: int
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    host: str = ANY_HOST
    is_allowed: bool = True

    def __str__(self) -> str:
        """In words: `placement may write fallow.decisions`."""
        known = {each.value: each.name.lower().replace("_", " ") for each in Operation}
        what = known.get(self.operation, f"do operation {self.operation} on")
        kind = "" if self.resource is Resource.TOPIC else f"{self.resource.name.lower()} "
        where = "" if self.host == ANY_HOST else f" from {self.host}"
        name = f"{self.name}{'*' if self.pattern is Pattern.PREFIXED else ''}"
        return f"{self.principal} may {'' if self.is_allowed else 'not '}{what} {kind}{name}{where}"

    def concerns(self, resource: Resource, name: str) -> bool:
        """Whether the rule is about this resource, as Kafka matches names."""
        if self.resource is not resource:
            return False
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


@dataclass(frozen=True, slots=True)
class AccessDifferences:
    """How the rules in force differ from the declared ones.

    `too_many` are rules on the topics and groups of this installation, by their names, for principals of the file and
    for tenants, also on topics of tenants that are gone: `fallow topics create` removes them. `beside` is whatever else
    gives a principal access to these topics and groups, or keeps one of the file away from them: a person has to look
    at it.
    """

    missing: tuple[Rule, ...] = ()
    too_many: tuple[Rule, ...] = ()
    beside: tuple[Rule, ...] = ()

    def lines(self) -> list[str]:
        """Each difference in words."""
        return [
            *(f"not in force: {rule}" for rule in self.missing),
            *(f"not declared: {rule}" for rule in self.too_many),
            *(f"beside the file: {rule}" for rule in self.beside),
        ]


def parse_access(text: str, topics: Iterable[str]) -> AccessFile:
    """Read access.yaml; `topics` are those that topics.yaml declares. Raises AccessFileError, one line a mistake."""
    try:
        file = AccessFile.model_validate(read_yaml(text))
    except YamlTextError as error:
        raise AccessFileError(f"access file: {error}") from error
    except ValidationError as error:
        raise AccessFileError("\n".join(mistakes_in("access file", error.errors(include_url=False)))) from error
    mistakes = [*_unknown_topics(file, frozenset(topics)), *_reserved_names(file)]
    if mistakes:
        raise AccessFileError("\n".join(mistakes))
    return file


def _unknown_topics(file: AccessFile, known: frozenset[str]) -> Iterator[str]:
    for principal, rights in file.principals.items():
        named = {"read": [] if rights.read == "all" else rights.read, "write": rights.write, "delete": rights.delete}
        for field, topics in named.items():
            for topic in topics:
                if topic not in known:
                    rule = f"is not declared in topics.yaml: {', '.join(sorted(known))}"
                    yield f"access file: principals.{principal}.{field} = {written(topic)}: {rule}"


def _reserved_names(file: AccessFile) -> Iterator[str]:
    for principal in file.principals:
        if principal.startswith(TENANT_PREFIX):
            yield f"access file: principals.{principal}: names with {TENANT_PREFIX} are those of tenants"


def expected_rules(file: AccessFile, namespace: str, topics: Iterable[str], tenants: Sequence[str]) -> frozenset[Rule]:
    """Every rule of this installation. `topics` are the declared names without the namespace, `tenants` those that
    have topics of their own. Each rule names one topic or group: a prefix would reach into a namespace that begins
    like this one.
    """
    names = [(topic, full) for topic in topics for full in _full_names(topic, namespace, tenants)]
    rules = {rule for name, rights in file.principals.items() for rule in _rules_of(name, rights, namespace, names)}
    if file.tenants:
        own = Operation.WRITE, Resource.TOPIC
        rules |= {Rule(f"{TENANT_PREFIX}{tenant}", *own, f"{namespace}.{PER_TENANT}.{tenant}") for tenant in tenants}
    return frozenset(rules)


def _full_names(topic: str, namespace: str, tenants: Sequence[str]) -> list[str]:
    full = f"{namespace}.{topic}"
    return [full, *(f"{full}.{tenant}" for tenant in tenants)] if topic == PER_TENANT else [full]


def _rules_of(principal: str, rights: Rights, namespace: str, names: Sequence[tuple[str, str]]) -> Iterator[Rule]:
    for topic, full in names:
        about = Resource.TOPIC, full
        yield Rule(principal, Operation.DESCRIBE, *about)
        yield Rule(principal, Operation.DESCRIBE_CONFIGS, *about)
        if rights.read == "all" or topic in rights.read:
            yield Rule(principal, Operation.READ, *about)
        if topic in rights.write:
            yield Rule(principal, Operation.WRITE, *about)
        if topic in rights.delete:
            yield Rule(principal, Operation.DELETE, *about)
    for group in rights.groups:
        yield Rule(principal, Operation.READ, Resource.GROUP, f"{namespace}.{group}")


def access_differences(
    expected: frozenset[Rule], actual: Iterable[Rule], there: Collection[str] | None = None
) -> AccessDifferences:
    """What is missing, and what is in force beside the declared rules. `there` are the topics that Kafka has, None
    where that is unknown.

    Of a tenant that has no topic of its own any more the rights stay for as long as that topic is there, since it is
    read so long; then they are too many: a user who makes it anew would find them in force.
    """
    in_force, is_gone = frozenset(actual), _gone_among(expected, there)
    principals = {rule.principal for rule in expected}
    resources = sorted({(rule.resource, rule.name) for rule in expected})
    too_many, beside = list[Rule](), list[Rule]()
    for rule in sorted(in_force - expected):
        is_of_ours = rule.principal in principals or rule.principal.startswith(TENANT_PREFIX)
        is_by_name = rule.pattern is Pattern.LITERAL and ((rule.resource, rule.name) in resources or is_gone(rule))
        if is_of_ours and is_by_name:
            too_many.append(rule)
        elif _matters(rule, resources):
            beside.append(rule)
    return AccessDifferences(tuple(sorted(expected - in_force)), tuple(too_many), tuple(beside))


def _gone_among(expected: frozenset[Rule], there: Collection[str] | None) -> Callable[[Rule], bool]:
    """Whether a rule is about the own topic of a tenant, which is not there. To a user who does not see all that is
    declared Kafka may hide that one, too.
    """
    topics = {rule.name for rule in expected if rule.resource is Resource.TOPIC}
    common = min((name for name in topics if name.endswith(f".{PER_TENANT}")), key=len, default=None)
    if common is None or there is None or not topics <= set(there):
        return lambda _: False
    # Another namespace may be called as this topic: what is declared there is called as what is declared here.
    declared = {name.removeprefix(common.removesuffix(PER_TENANT)) for name in topics}

    def is_gone(rule: Rule) -> bool:
        tenant = rule.name.removeprefix(f"{common}.")
        is_own = rule.resource is Resource.TOPIC and tenant != rule.name and "." not in tenant
        return is_own and tenant not in declared and rule.name not in there

    return is_gone


def _matters(rule: Rule, resources: Sequence[tuple[Resource, str]]) -> bool:
    if rule.resource is Resource.CLUSTER:
        return rule.is_allowed and rule.operation not in HARMLESS_ON_CLUSTER
    return any(rule.concerns(*resource) for resource in resources)
