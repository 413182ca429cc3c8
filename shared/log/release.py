"""The release whose decision log a cell has: for processes that write for a cell and do not fold its log.

Each record is judged as the fold judges it, which needs the version and the chain alone of all that was before. What a
decision holds is not read: one of this language with an effect of a later release counts as the cell's own, for that
release reads what this one writes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import msgspec

from fallow.shared.cluster.fold.fold import DamagedLog, LogRecord, OtherRelease, Verdict, judge
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import TYPE_HEADER, UNREAD, Undecodable, of_another_release
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable, Record, TopicPartition
from fallow.shared.log.reading import UNPROVEN, event_of, header, unproven_from
from fallow.shared.log.snapshots import NoUsableSnapshot, OtherReleasesSnapshots, newest_manifest

POLL_RECORDS, POLL_MS, IDLE_POLLS_MAX = 64, 250, 40
NO_DECISION = Undecodable(DeadLetterReason.UNKNOWN_TYPE, "is no decision that this release can read")


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
        named = UNPROVEN if unproven is not None and unproven <= 1 else _named(record)
        entry = LogRecord(record.offset, record.value or b"", header(record, CHAIN_HEADER), named, unproven)
        if not isinstance(named, Decision) or self._is_next(entry):
            is_next = judge(self._state, entry) is Verdict.EXTENDS
        else:
            # What cannot be read to its end is judged by its chain, whatever version it names.
            is_next = judge(self._state, replace(entry, decision=_whole(record))) is Verdict.EXTENDS
        if is_next:
            self._state.version, self._state.chain = self._state.version + 1, entry.chain
        return is_next

    def _is_next(self, entry: LogRecord) -> bool:
        try:
            return judge(self._state, entry) is Verdict.EXTENDS
        except DamagedLog:
            return False


def _whole(record: Record) -> Decision | Undecodable:
    event = event_of(record)
    return event if isinstance(event, Decision | Undecodable) else NO_DECISION


async def trail_of(log: Log, layout: Layout, cell: str) -> Trail | None:
    """How far the log of a cell goes: from the newest snapshot on, whose manifest alone is read, each decision is
    judged. None where the readers that fold the log are fenced, and tell why. Raises OtherRelease, LogUnavailable.
    """
    try:
        manifest = await newest_manifest(log, layout, cell)
    except OtherReleasesSnapshots as other:
        raise OtherRelease(str(other)) from other
    except NoUsableSnapshot:
        return None
    trail = Trail(cell) if manifest is None else Trail(cell, manifest.version, manifest.chain)
    tp, keys = layout.tp("decisions", cell), layout.signers.of(cell)
    start, end = 0 if manifest is None else manifest.offset + 1, (await log.end_offsets([tp]))[tp]
    try:
        async with aclosing(_records(log, tp, start, end)) as records:
            async for record in records:
                trail.follow(record, unproven_from(record, keys))
    except OtherRelease:
        raise
    except (DamagedLog, LogTruncated):  # or what stands there cannot be read
        return None
    return trail


async def _records(log: Log, tp: TopicPartition, start: int, end: int) -> AsyncGenerator[Record, None]:
    """What stands between two offsets. Raises LogTruncated; LogUnavailable where nothing comes."""
    if start >= end:
        return
    reader, idle = log.reader({tp: start}, patient_ms=POLL_MS), 0
    try:
        await reader.start()
        while reader.positions()[tp] < end and idle < IDLE_POLLS_MAX:
            records = await reader.poll(POLL_RECORDS, wait_ms=POLL_MS)
            idle = 0 if records else idle + 1
            for record in records:
                yield record
    finally:
        await reader.stop()
    if idle == IDLE_POLLS_MAX:
        raise LogUnavailable("the decisions do not come")


def _named(record: Record) -> Decision | Undecodable:
    """The decision as far as it is judged by: only its cell and version are read of it."""
    type_ = header(record, TYPE_HEADER)
    if type_ != Decision.type:
        return of_another_release(type_) or NO_DECISION
    try:
        named = _NAMED.decode(record.value or b"")
    except UNREAD:
        return NO_DECISION
    return Decision(cell=named.cell, version=named.version, epoch=0, at_ms=0, inputs={}, effects=())
