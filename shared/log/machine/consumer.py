"""The consumer recipe: a batch of records becomes items and dead letters, and no record stops the next.

What cannot be decoded is set aside as a value. When too much of it comes, that is said as a value too: then the fault
is more likely ours (a wrong topic, an old version) than the senders', and a person should look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from fallow.shared.log.port import Record, TopicPartition, bytes_of

T = TypeVar("T")

DECODER_FAILED = "decoder_failed"
"""The reason of a record on which the decoder itself broke down: a bug to mend, but not at the next record's cost."""

TEXT_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Bad:
    """A decoder's answer for a record that it cannot accept: a reason code that programs read, and words for people.
    Of one that is beyond its sender's limit no more than the begin is kept.
    """

    reason: str
    text: str
    is_one_too_many: bool = False


@dataclass(frozen=True, slots=True)
class Handled(Generic[T]):
    """A record that was understood, and what it says."""

    record: Record
    item: T


@dataclass(frozen=True, slots=True)
class Dead:
    """A record that was not understood, and why."""

    record: Record
    reason: str
    text: str
    is_one_too_many: bool = False


class Excess(StrEnum):
    """Which limit on dead letters is exceeded."""

    RATIO = "ratio"
    CONSECUTIVE = "consecutive"


@dataclass(frozen=True, slots=True)
class TooManyDead:
    """Something is misconfigured: stop and let a person look."""

    excess: Excess
    text: str


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted so far; `handled` and `dead` fade, so that a long good past does not excuse a bad present."""

    handled: int = 0
    dead: int = 0
    dead_in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """How much may be set aside: this share of the last `window_records` (judged from `ratio_after_records` on), and
    this many in a row. A limit of None is none.
    """

    dead_percent_max: int | None = 50
    dead_in_a_row_max: int | None = 1_000
    ratio_after_records: int = 1_000
    window_records: int = 10_000

    def __post_init__(self) -> None:
        """Refuse limits that mean nothing."""
        if self.dead_percent_max is not None and not 0 <= self.dead_percent_max <= 100:  # noqa: PLR2004 - percent
            raise ValueError(f"dead_percent_max: {self.dead_percent_max}, must be 0 to 100")
        if self.dead_in_a_row_max is not None and self.dead_in_a_row_max < 1:
            raise ValueError(f"dead_in_a_row_max: {self.dead_in_a_row_max}, must be at least 1")
        if not 1 <= self.ratio_after_records <= self.window_records // 2:
            raise ValueError(f"ratio_after_records: {self.ratio_after_records}, must be 1 to half of window_records")

    def judge(self, tally: Tally) -> TooManyDead | None:
        """None while all is well."""
        total = tally.handled + tally.dead
        if self.dead_in_a_row_max is not None and tally.dead_in_a_row > self.dead_in_a_row_max:
            text = f"{tally.dead_in_a_row} records in a row could not be read, at most {self.dead_in_a_row_max} may"
            return TooManyDead(Excess.CONSECUTIVE, text)
        if self.dead_percent_max is None or total < self.ratio_after_records:
            return None
        if 100 * tally.dead > self.dead_percent_max * total:
            text = f"{tally.dead} of {total} records could not be read, at most {self.dead_percent_max} % may"
            return TooManyDead(Excess.RATIO, text)
        return None

    def count_good(self, tally: Tally, records: int) -> Tally:
        """The tally after so many more records that were understood."""
        while records:
            room = self.window_records - tally.handled - tally.dead
            handled, dead = tally.handled + min(room, records), tally.dead
            if room <= records:
                handled, dead = handled // 2, dead // 2
            tally, records = Tally(handled, dead), records - min(room, records)
        return tally

    def count(self, tally: Tally, *, is_dead: bool) -> Tally:
        """The tally after one more record."""
        handled, dead = tally.handled + (not is_dead), tally.dead + is_dead
        if handled + dead >= self.window_records:
            handled, dead = handled // 2, dead // 2
        return Tally(handled, dead, tally.dead_in_a_row + 1 if is_dead else 0)


@dataclass(frozen=True, slots=True)
class Taken(Generic[T]):
    """A batch, taken apart. `handled` and `dead` each keep the batch's order.

    `next_offsets` is where reading goes on once the consequences of the whole batch, dead letters included, are in the
    log. `stop` does not undo the batch: it says that no further one should be taken.
    """

    handled: tuple[Handled[T], ...]
    dead: tuple[Dead, ...]
    next_offsets: Mapping[TopicPartition, int]
    tally: Tally
    stop: TooManyDead | None


def take_batch(
    records: Sequence[Record], decode: Callable[[Record], T | Bad], limit: DeadLetterLimit, tally: Tally
) -> Taken[T]:
    """Decode each record by itself. Never raises on content, whatever the bytes are."""
    handled: list[Handled[T]] = []
    dead: list[Dead] = []
    stop: TooManyDead | None = None
    good = 0
    for record in records:
        answer = _decode(record, decode)
        if isinstance(answer, Bad):
            tally, good = limit.count(limit.count_good(tally, good), is_dead=True), 0
            stop = stop or limit.judge(tally)
            dead.append(Dead(record, answer.reason, answer.text[:TEXT_CHARS_MAX], answer.is_one_too_many))
        else:
            good += 1
            handled.append(Handled(record, answer))
    tally = limit.count_good(tally, good)
    return Taken(tuple(handled), tuple(dead), next_offsets(records), tally, stop or limit.judge(tally))


def in_parts(records: Sequence[Record], bytes_max: int) -> Iterator[Sequence[Record]]:
    """The records in the same order, as parts of so many bytes, or of one record that has more."""
    start = size_bytes = 0
    for number, record in enumerate(records):
        record_bytes = bytes_of(record)
        if number > start and size_bytes + record_bytes > bytes_max:
            yield records[start:number]
            start, size_bytes = number, 0
        size_bytes += record_bytes
    if records:
        yield records[start:]


def joined(parts: Sequence[Taken[T]], tally: Tally) -> Taken[T]:
    """The batch that was taken in these parts. `tally` is what was counted with the last one."""
    handled = tuple(one for part in parts for one in part.handled)
    dead = tuple(one for part in parts for one in part.dead)
    stop = next((part.stop for part in parts if part.stop is not None), None)
    offsets: dict[TopicPartition, int] = {}
    for part in parts:
        for tp, offset in part.next_offsets.items():
            offsets[tp] = max(offset, offsets.get(tp, 0))
    return Taken(handled, dead, offsets, tally, stop)


def next_offsets(records: Sequence[Record]) -> dict[TopicPartition, int]:
    """Where each partition goes on after these records: one behind its highest offset."""
    offsets: dict[TopicPartition, int] = {}
    for record in records:
        tp, offset = (record.topic, record.partition), record.offset
        if offset >= offsets.get(tp, 0):
            offsets[tp] = offset + 1
    return offsets


def _decode(record: Record, decode: Callable[[Record], T | Bad]) -> T | Bad:
    try:
        return decode(record)
    except Exception as error:  # noqa: BLE001 - hostile bytes find every gap in a decoder; each is one dead letter
        return Bad(DECODER_FAILED, f"{type(error).__name__}: {error}")
