"""What every record is: a value that knows its type, its topic and its key."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta
from pydantic import Field, StringConstraints

from fallow.shared.events.fields.value import Value, ValueMeta, plain, replace

__all__ = [
    "CALENDAR_FROM_MS",
    "LANGUAGE",
    "LARGEST_INTEGER",
    "LATEST_MS",
    "TYPES",
    "Attempt",
    "CellEvent",
    "Command",
    "Count",
    "Event",
    "EventMeta",
    "JobId",
    "Label",
    "Line",
    "Millis",
    "Name",
    "NodeId",
    "Text",
    "Value",
    "later",
    "plain",
    "replace",
]

LANGUAGE = "v3"
"""The version in the type of each record that services and agents write for each other. It is raised whenever what one
of these means changes, also where no field does: a reader takes none of another version, and its cell is fenced by one
in the log. `v1` named jobs by their ids alone; the signature of a `v2` decision was not of its type. What others write
(`submissions`, `operations`, `demand`) has versions of its own.
"""

LARGEST_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""Tenants, pools, cells and queues: a DNS label, so that it can be part of a topic, a host or a file name."""

JobId = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$")
]
"""A job: `TENANT/ID`, by which the cell knows it, or the ID alone that its tenant chose (`job_ids.py`). It is unique
for as long as the cell remembers it.
"""

NodeId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$")]
"""A node's id: in practice its host name."""

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$")]
"""GPU types, topology positions, label keys and values, taints."""

TEXT_CHARACTERS_MAX = 500
Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX), Field(max_length=TEXT_CHARACTERS_MAX)]
"""Words for people. No code reads it."""

CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f"
"""What a terminal obeys instead of showing it (C0, DEL and C1), as it stands in a pattern."""

LINE_PATTERN = rf"^[^{CONTROL_CHARACTERS}\u2028\u2029]*$"
"""One line for every reader: some take U+2028 and U+2029 for the end of one."""

Line = Annotated[
    str, Meta(max_length=TEXT_CHARACTERS_MAX), StringConstraints(pattern=LINE_PATTERN, max_length=TEXT_CHARACTERS_MAX)
]
"""Words for people that a command brings. What a node or a service says is `Text`: what it tells is needed, whatever
the words are in which it does.
"""

Count = Annotated[int, Meta(ge=0, le=LARGEST_INTEGER), Field(ge=0, le=LARGEST_INTEGER)]
"""Something counted, from 0."""

CALENDAR_FROM_MS = 10**11
"""Cell time above this (in 1973) counts from the Unix epoch; below it, from an origin of its own."""

LATEST_MS = 2**60
"""The latest cell time. A clock of speed 100,000 that counts from 1970 is there after three centuries; a reader that
keeps numbers as floats is wrong by a quarter of a second at the most.
"""

Millis = Annotated[int, Meta(ge=0, le=LATEST_MS), Field(ge=0, le=LATEST_MS)]
"""Milliseconds: a time (of the cell's clock unless the name says wall) or a duration."""

Attempt = Annotated[int, Meta(ge=1, le=LARGEST_INTEGER), Field(ge=1, le=LARGEST_INTEGER)]
"""The number of a job's start: 1, 2, 3, ..."""


def later(at_ms: int, by_ms: int) -> int:
    """So much later, and never later than the latest time: what is due then is due when cell time ends."""
    return min(at_ms + by_ms, LATEST_MS)


TYPES: dict[str, type[Event]] = {}
"""The one table: CloudEvents type -> class. A class enters it by being defined."""


class EventMeta(ValueMeta):
    """Enters a class into `TYPES` that names its type and its topic."""

    def __new__(  # noqa: PYI034 - it returns the class that msgspec makes
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], type: str = "", topic: str = "", **kw: Any
    ) -> EventMeta:
        """The class, known by its type from now on."""
        if type in TYPES:
            raise TypeError(f"{type} is the type of {TYPES[type].__name__} already")
        cls: Any = super().__new__(mcs, name, bases, namespace, **kw)
        if type:
            cls.type, cls.topic = type, topic
            TYPES[type] = cls
        return cls  # type: ignore[no-any-return]


class Event(Value, metaclass=EventMeta):
    """One record of one topic.

    A subclass names its CloudEvents type and its topic when it is defined:
    ``class CancelJob(Command, type="fallow.job.cancel.v1", topic="submissions")``.
    """

    type: ClassVar[str]
    topic: ClassVar[str]
    is_command: ClassVar[bool] = False
    names_only_known: ClassVar[bool] = False
    """Whether every name in it is only looked up among those that the state knows already."""

    def key(self) -> str:
        """The Kafka key: what this record is about. Records of one key keep their order."""
        raise TypeError(f"{self.__class__.__name__} has no key")

    def home(self) -> str | None:
        """The cell whose partition this record belongs to, or None where the key chooses the partition."""
        return getattr(self, "cell", None)


class Command(Event):
    """A wish from outside. Fields that it does not know are an error, so that a misspelt wish is never half obeyed."""

    is_command: ClassVar[bool] = True


class CellEvent(Event):
    """A record of a topic with one partition per cell."""

    cell: Name

    def key(self) -> str:
        """One partition holds one cell, so the cell is the key unless a subclass says better."""
        return self.cell
