"""Whose release the decision log of a cell is: for whoever writes for a cell, and does not fold its log.

Each record is judged as the fold judges it, which needs the version and the chain alone of all that was before. Where
the whole log is not read, both are taken from one of its last records: from that one which most of those behind it
continue, since whoever may write the topic may have put others between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from fallow.shared.cluster.fold.fold import BY_ANOTHER_RELEASE, DamagedLog, LogRecord, OtherRelease, Verdict, judge
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from fallow.shared.events.encoding import TYPE_HEADER, UNREAD, OfAnotherRelease, Undecodable, of_another_release
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.machine.signatures import CellKeys
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable, Reader, Record, TopicPartition
from fallow.shared.log.reading import header, unproven_from

LAST_RECORDS = 64
"""So many of the last records are looked at: strangers, and writers that did not know the newest state, have left far
fewer between decisions.
"""

POLL_MS, POLLS_MOST = 250, 40
NOT_THE_CELLS = Undecodable(DeadLetterReason.UNKNOWN_TYPE, "is no decision that this release can read")


Judged = tuple[Record, int | None]
"""A record, and from which version on it is forged, if it is."""


class _Named(msgspec.Struct):
    """What is read of a decision."""

    cell: str
    version: int


_NAMED = msgspec.json.Decoder(_Named)


class Trail:
    """Up to where a cell's log is known, without its state."""

    def __init__(self, cell: str, version: int = 0, chain: str = CHAIN_START) -> None:
        self._state = CellState(cell)
        self._state.version, self._state.chain = version, chain

    def follow(self, record: Record, unproven: int | None) -> bool:
        """Whether the record continues the log. `unproven` is from which version on it is forged, if it is.

        Raises OtherRelease where another release has written it, and DamagedLog on what no honest log holds.
        """
        entry = LogRecord(record.offset, record.value or b"", header(record, CHAIN_HEADER), _named(record), unproven)
        if judge(self._state, entry) is not Verdict.EXTENDS:
            return False
        self._state.version, self._state.chain = self._state.version + 1, entry.chain
        return True


def names_another_release(record: Record) -> bool:
    """Whether the record says that it is of another release; a stranger's may say so, too."""
    return isinstance(_named(record), OfAnotherRelease)


async def trails_of(
    log: Log, decisions: Mapping[str, TopicPartition], keys: Mapping[str, CellKeys | None]
) -> dict[str, Trail | OtherRelease | None]:
    """How far the log of each cell goes, by its last records; an OtherRelease for a log of another release, None where
    the records tell nothing. Raises LogUnavailable.
    """
    begins, ends = await asyncio.gather(
        log.begin_offsets([*decisions.values()]), log.end_offsets([*decisions.values()])
    )
    starts = {tp: max(begins[tp], end - LAST_RECORDS) for tp, end in ends.items()}
    records = await _records_between(log, {tp: at for tp, at in starts.items() if at < ends[tp]}, ends)
    return {
        cell: _trail(cell, records.get(tp, ()), keys[cell], is_whole=starts[tp] == 0) for cell, tp in decisions.items()
    }


async def _records_between(
    log: Log, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[Record]]:
    """What stands between these offsets and can be read."""
    found = {tp: list[Record]() for tp in starts}
    if not starts:
        return found
    reader = log.reader(starts, patient_ms=POLL_MS)
    try:
        await reader.start()
        for _ in range(POLLS_MOST):
            positions = reader.positions()
            if all(positions[tp] >= ends[tp] for tp in starts):
                return found
            for record in await _polled(reader):
                if record.offset < ends[record.topic, record.partition]:
                    found[record.topic, record.partition].append(record)
    finally:
        await reader.stop()
    raise LogUnavailable("the last decisions do not come")


async def _polled(reader: Reader) -> Sequence[Record]:
    try:
        return await reader.poll(wait_ms=POLL_MS)
    except LogTruncated as error:  # or what stands there cannot be read
        reader.seek(error.tp, error.begin)
        return ()


def _trail(
    cell: str, records: Sequence[Record], keys: CellKeys | None, *, is_whole: bool
) -> Trail | OtherRelease | None:
    """Judged from the beginning where these are all, else from the record that most of the others continue."""
    judged = [(record, unproven_from(record, keys)) for record in records]
    if is_whole:
        trail = Trail(cell)
        _, end = _length(trail, judged)
        if end is None or isinstance(end, OtherRelease):
            return end or trail
    most, best = _others_in_a_row(judged)
    for trail, rest in _begun(cell, judged):
        length, end = _length(trail, rest)
        if 1 + length > most or (1 + length == most and not isinstance(best, Trail)):
            most, best = 1 + length, end if isinstance(end, OtherRelease) else trail
    return best


def _begun(cell: str, judged: Sequence[Judged]) -> list[tuple[Trail, Sequence[Judged]]]:
    """From each decision that may be the cell's, with what stands behind it: from those that a key proves, if any."""
    found = [
        (unproven is None, Trail(cell, named.version, header(record, CHAIN_HEADER)), judged[number + 1 :])
        for number, (record, unproven) in enumerate(judged)
        if isinstance(named := _named(record), Decision)
        and named.cell == cell
        and (unproven is None or named.version < unproven)
    ]
    proven = [(trail, rest) for is_proven, trail, rest in found if is_proven]
    return proven or [(trail, rest) for _, trail, rest in found]


def _length(trail: Trail, records: Sequence[Judged]) -> tuple[int, DamagedLog | None]:
    """How many of the records continue it, and why no more do: another release's is one of them."""
    length = 0
    for record, unproven in records:
        try:
            length += trail.follow(record, unproven)
        except OtherRelease as other:
            return length + 1, other
        except DamagedLog as damaged:
            return length, damaged
    return length, None


def _others_in_a_row(
    records: Sequence[Judged],
) -> tuple[int, Trail | OtherRelease | None]:
    """How many records of another release continue the one before: of a log that has been another's for long."""
    length, last = 0, None
    for (before, _), (record, unproven) in pairwise(records):
        named, chain = _named(record), next_chain(header(before, CHAIN_HEADER), record.value or b"")
        if isinstance(named, OfAnotherRelease) and unproven is None and header(record, CHAIN_HEADER) == chain:
            length, last = length + 1, OtherRelease(f"offset {record.offset}: {named}; {BY_ANOTHER_RELEASE}")
    return length, last


def _named(record: Record) -> Decision | Undecodable:
    """The decision as far as it is judged by: only its cell and version are read of it."""
    type_ = header(record, TYPE_HEADER)
    if type_ != Decision.type:
        return of_another_release(type_) or NOT_THE_CELLS
    try:
        named = _NAMED.decode(record.value or b"")
    except UNREAD:
        return NOT_THE_CELLS
    return Decision(cell=named.cell, version=named.version, epoch=0, at_ms=0, inputs={}, effects=())
