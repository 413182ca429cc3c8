"""What every record is: a frozen pydantic class that knows its type, its topic and its key."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

LARGEST_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""Tenants, pools, cells and queues: a DNS label, so that it can be part of a topic, a host or a file name."""

JobId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$")]
"""A job's id, chosen by its submitter, unique for as long as the cell remembers it."""

NodeId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$")]
"""A node's id: in practice its host name."""

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$")]
"""GPU types, topology positions, label keys and values, taints."""

Text = Annotated[str, StringConstraints(max_length=500)]
"""Words for people. No code reads it."""

Count = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
"""Something counted, from 0."""

Millis = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
"""Milliseconds: a time (of the cell's clock unless the name says wall) or a duration."""

Attempt = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
"""The number of a job's start: 1, 2, 3, ..."""


class Value(BaseModel):
    """A part of a record. Frozen and strict: no string becomes a number, no float an integer."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


V = TypeVar("V", bound=Value)


def replace(value: V, **changes: Any) -> V:
    """The same value with these fields changed. The caller answers for them: they are not checked."""
    return value.model_copy(update=changes)


TYPES: dict[str, type[Event]] = {}
"""The one table: CloudEvents type -> class. A class enters it by being defined."""


class Event(Value):
    """One record of one topic.

    A subclass names its CloudEvents type and its topic when it is defined:
    ``class CancelJob(Command, type="fallow.job.cancel.v1", topic="submissions")``.
    """

    type: ClassVar[str]
    topic: ClassVar[str]
    is_command: ClassVar[bool] = False

    def __init_subclass__(cls, *, type: str = "", topic: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not type:
            return
        if type in TYPES:
            raise TypeError(f"{type} is the type of {TYPES[type].__name__} already")
        cls.type = type
        cls.topic = topic
        TYPES[type] = cls

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
