"""Which topics there must be, and how what is there differs. Pure: `topic_admin.py` asks Kafka.

The topics are declared in `deploy/kafka/topics.yaml`, with the reason for each number beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fallow.shared.events.validation.mistakes_told import mistakes_in
from fallow.shared.runtime.errors.several_lines import ErrorOfSeveralLines
from fallow.shared.runtime.files.yaml_text import YamlTextError, read_yaml

TOPIC_NAME_CHARS_MAX = 249
MS_PER_HOUR = 3_600_000
FOR_EVER = "-1"
"""Kafka's word for a retention without an end, in time or in bytes."""

RETENTION = "retention.ms"
RECORD_BYTES = "max.message.bytes"
TO_MAKE_ANEW = "Kafka cannot shrink it: make it anew as docs/operations.md says"

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicsFileError(ErrorOfSeveralLines, ValueError):
    """topics.yaml cannot be used, or does not fit the tenants; names the field, the value and the rule."""


class TopicDeclaration(BaseModel):
    """One entry of topics.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    partitions: Annotated[int, Field(ge=1)] | Literal["per_cell"]
    per_tenant: bool = False
    unpacked: bool = False
    kept_by_snapshots: bool = False
    cleanup: Literal["delete", "compact"]
    retention_hours: Annotated[int, Field(ge=1)] | None = None
    record_bytes_max: Annotated[int, Field(ge=1024, le=2_000_000)]

    @model_validator(mode="after")
    def _retention_belongs_to_delete(self) -> TopicDeclaration:
        if (self.cleanup == "delete") != (self.retention_hours is not None):
            raise ValueError("retention_hours must be there where cleanup is delete, and only there")
        if self.kept_by_snapshots and self.cleanup != "delete":
            raise ValueError("kept_by_snapshots is for topics whose cleanup is delete")
        return self


class TopicsFile(BaseModel):
    """All of topics.yaml, in the order of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    topics: dict[str, TopicDeclaration]

    def retention_ms(self, name: str) -> int | None:
        """How long a topic keeps its records; None where it is compacted."""
        hours = self.topics[name].retention_hours
        return None if hours is None else hours * MS_PER_HOUR

    def with_retention(self, hours: Mapping[str, int]) -> TopicsFile:
        """These topics with the retention that an operator has set, by topic. Raises TopicsFileError for a topic that
        is not declared or has no retention.
        """
        topics = dict(self.topics)
        for name, value in hours.items():
            found = topics.get(name)
            if found is None or found.retention_hours is None:
                known = ", ".join(name for name, each in topics.items() if each.retention_hours is not None)
                raise TopicsFileError(f"retention_hours.{name}: no topic with a retention; these have one: {known}")
            topics[name] = found.model_copy(update={"retention_hours": value})
        return TopicsFile(topics=topics)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it must be. `may_grow`: more partitions do no harm, since no key is hashed over them."""

    name: str
    partitions: int
    config: tuple[tuple[str, str], ...]
    may_grow: bool


@dataclass(frozen=True, slots=True)
class ActualTopic:
    """One topic as Kafka has it; `config` holds at least those settings that a spec names, or is None if not known."""

    partitions: int
    config: Mapping[str, str] | None


class DifferenceKind(StrEnum):
    """In what a topic differs."""

    MISSING = "missing"
    TOO_FEW_PARTITIONS = "too_few_partitions"
    TOO_MANY_PARTITIONS = "too_many_partitions"
    CONFIG = "config"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, in words for people. `is_growable`: creating the topics again puts it right. `is_harmless`:
    services work with it; what is kept is kept for another time than it should be, or some partitions are of cells that
    the cell file does not have.
    """

    topic: str
    kind: DifferenceKind
    text: str
    is_growable: bool = False
    is_harmless: bool = False

    @property
    def is_settable(self) -> bool:
        """Whether `fallow topics create` sets it right where the topic is."""
        return self.is_harmless and self.kind is DifferenceKind.CONFIG


def parse_topics(text: str) -> TopicsFile:
    """Read topics.yaml. Raises TopicsFileError with one line for each mistake."""
    try:
        return TopicsFile.model_validate(read_yaml(text))
    except YamlTextError as error:
        raise TopicsFileError(f"topics file: {error}") from error
    except ValidationError as error:
        raise TopicsFileError("\n".join(mistakes_in("topics file", error.errors(include_url=False)))) from error


def expected_topics(
    file: TopicsFile, namespace: str, cells: int, tenants: Sequence[str], *, replicas: int = 1
) -> tuple[TopicSpec, ...]:
    """All topics for this many cells and these tenants, in the order of the file, tenants' own topics in theirs.

    `tenants` are those that have topics of their own. Raises TopicsFileError for a name that Kafka does not take.
    """
    if cells < 1:
        raise TopicsFileError(f"cells: {cells}, there must be at least one")
    specs = tuple(
        _spec(name, declaration, cells, replicas)
        for base, declaration in file.topics.items()
        for name in _names(f"{namespace}.{base}", declaration, tenants)
    )
    _check_names([spec.name for spec in specs])
    return specs


def differences(expected: Sequence[TopicSpec], actual: Mapping[str, ActualTopic]) -> tuple[Difference, ...]:
    """What is not as expected, in the order of `expected`; unexpected topics are ignored."""
    return tuple(found for spec in expected for found in _compare(spec, actual.get(spec.name)))


def _names(base: str, declaration: TopicDeclaration, tenants: Sequence[str]) -> list[str]:
    return [base, *(f"{base}.{tenant}" for tenant in tenants)] if declaration.per_tenant else [base]


def _spec(name: str, declaration: TopicDeclaration, cells: int, replicas: int) -> TopicSpec:
    config = {
        "cleanup.policy": declaration.cleanup,
        "compression.type": "uncompressed" if declaration.unpacked else "producer",
        RECORD_BYTES: str(declaration.record_bytes_max),
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(max(1, replicas - 1)),
        "unclean.leader.election.enable": "false",
    }
    if declaration.retention_hours is not None:
        by_age = str(declaration.retention_hours * MS_PER_HOUR)
        config[RETENTION] = FOR_EVER if declaration.kept_by_snapshots else by_age
        config["retention.bytes"] = FOR_EVER
    per_cell = declaration.partitions == "per_cell"
    partitions = cells if declaration.partitions == "per_cell" else declaration.partitions
    return TopicSpec(name=name, partitions=partitions, config=tuple(sorted(config.items())), may_grow=per_cell)


def _check_names(names: Sequence[str]) -> None:
    """Kafka takes few characters, and no two names that differ only in dots and underscores."""
    seen: dict[str, str] = {}
    for name in names:
        if not _LEGAL_NAME.fullmatch(name) or len(name) > TOPIC_NAME_CHARS_MAX:
            raise TopicsFileError(
                f"topic {name!r}: at most {TOPIC_NAME_CHARS_MAX} of letters, digits, '.', '_' and '-'"
            )
        earlier = seen.setdefault(name.replace("_", "."), name)
        if earlier != name or names.count(name) > 1:
            raise TopicsFileError(f"topic {name!r}: collides with {earlier!r} in Kafka, which takes '_' for '.'")


def _compare(spec: TopicSpec, actual: ActualTopic | None) -> Iterator[Difference]:
    if actual is None:
        text = f"{spec.name} is missing; it should have {spec.partitions} partitions"
        yield Difference(spec.name, DifferenceKind.MISSING, text, is_growable=True)
        return
    if actual.partitions < spec.partitions:
        why = "it may grow" if spec.may_grow else "it cannot grow: keys would change their partition"
        text = f"{spec.name} has {actual.partitions} partitions, {spec.partitions} are needed; {why}"
        yield Difference(spec.name, DifferenceKind.TOO_FEW_PARTITIONS, text, is_growable=spec.may_grow)
    if actual.partitions > spec.partitions:
        what = "those of cells that are not in the cell file do no harm" if spec.may_grow else TO_MAKE_ANEW
        text = f"{spec.name} has {actual.partitions} partitions, only {spec.partitions} are used; {what}"
        kind = DifferenceKind.TOO_MANY_PARTITIONS
        yield Difference(spec.name, kind, text, is_harmless=spec.may_grow)
    if actual.config is None:
        return
    for key, wanted in spec.config:
        found = actual.config.get(key)
        if found != wanted:
            text = f"{spec.name} has {key}={found if found is not None else 'nothing'}, it should be {wanted}"
            is_time = key == RETENTION and wanted != FOR_EVER
            yield Difference(spec.name, DifferenceKind.CONFIG, text, is_harmless=is_time)
