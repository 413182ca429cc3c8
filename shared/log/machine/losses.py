"""Whether a topic still holds what was read from it: pure, from what the log says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fallow.shared.log.port import TopicPartition, cannot_be_read

SAID_ONCE = frozenset({"jobs", "proposals", "operations"})
"""Inputs of a cell that say a thing once. In `nodes` a newer record says again what a deleted one has said: nodes
report in full every few seconds.
"""


class LossKind(StrEnum):
    """How a topic shows that it is not the one that was read."""

    BEYOND_END = "beyond_end"
    OTHER_RECORD = "other_record"
    DELETED_UNREAD = "deleted_unread"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a partition was read: the next offset, and the checksum of the last record before it where that is known.
    Between the two may stand what a transaction has left.
    """

    next_offset: int
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A partition that does not continue what was read from it. It was read to `next_offset`, and holds the records
    from `begin` to `end`. `checksum` names the last record that was read before `next_offset`, where that is known.
    Of one that is UNREADABLE at `next_offset`, `begin` is the next offset that can be read (`end` where none can be
    told), and `why` is what the reading says.
    """

    kind: LossKind
    tp: TopicPartition
    next_offset: int
    begin: int
    end: int
    checksum: int | None = None
    why: str = ""

    @property
    def place(self) -> Place:
        """The place that the partition does not continue."""
        return Place(self.next_offset, self.checksum)

    def __str__(self) -> str:
        where = f"{self.tp[0]}/{self.tp[1]}"
        match self.kind:
            case LossKind.BEYOND_END:
                return f"{where} was read to offset {self.next_offset} and ends at {self.end}: records are lost"
            case LossKind.OTHER_RECORD:
                last = self.next_offset - 1
                return f"{where} holds another record at offset {last} than the one that was read: records are lost"
            case LossKind.DELETED_UNREAD:
                count = self.begin - self.next_offset
                return f"{where} begins at {self.begin} and was read to {self.next_offset}: {count} were deleted unread"
            case LossKind.UNREADABLE:
                return cannot_be_read(self.tp, self.next_offset, self.begin, self.end, self.why)


def fences(name: str, loss: Loss) -> bool:
    """Whether the input of this name is read no further until a person decides; else it is read on at its beginning."""
    return loss.kind is not LossKind.DELETED_UNREAD or name in SAID_ONCE


def loss_of(tp: TopicPartition, place: Place, begin: int, end: int, found: int | None) -> Loss | None:
    """What is wrong with a partition that holds `begin` to `end`, or None. `found` is the checksum of the last record
    before the place, None where the log holds none there: the record was deleted by its age, and what is left before
    the place is the end of a transaction.
    """
    kind: LossKind | None = None
    if place.next_offset > end:
        kind = LossKind.BEYOND_END
    elif place.next_offset < begin:
        kind = LossKind.DELETED_UNREAD
    elif place.checksum is not None and found is not None and found != place.checksum:
        kind = LossKind.OTHER_RECORD
    return None if kind is None else Loss(kind, tp, place.next_offset, begin, end, place.checksum)
