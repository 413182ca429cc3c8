"""A cell as it was: its log folded to a version or a time, from the nearest snapshot before it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from fallow.cli.access import Access
from fallow.cli.cell.now import cell_now_ms
from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.cli.log.read_back import records_between
from fallow.cli.output.durations import moment
from fallow.cli.output.when import MOMENT_RULE, moment_of
from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import CALENDAR_FROM_MS
from fallow.shared.events.decisions import Decision
from fallow.shared.events.snapshots import SnapshotManifest
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.keys.signers import Signers
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, Record
from fallow.shared.log.reading import event_of, log_record
from fallow.shared.log.snapshots import nearest_snapshot
from fallow.shared.runtime.clocks import wall_ms


@dataclass(frozen=True, slots=True)
class Then:
    """A moment in a cell's life: behind the decision of a version, or behind all decisions up to a cell time."""

    version: int | None = None
    at_ms: int | None = None

    def includes(self, version: int, at_ms: int) -> bool:
        """Whether this decision had been made by then."""
        if self.version is not None:
            return version <= self.version
        return self.at_ms is None or at_ms <= self.at_ms

    def is_behind(self, manifest: SnapshotManifest) -> bool:
        """Whether the snapshot had been there by then. Decisions of its own cell time may come after it."""
        return self.includes(manifest.version, manifest.at_ms)

    def __str__(self) -> str:
        """As the user may have written it."""
        return f"version {self.version}" if self.at_ms is None else moment(self.at_ms)


def then(name: str, text: str) -> Then:
    """The moment of a command line's word; `name` is its option or argument. Ends the command where it is none."""
    if text.isascii() and text.isdecimal() and len(text) < len(str(2**53)):
        return Then(version=int(text))
    at_ms = moment_of(text)
    if at_ms is None:
        refuse(name, text, f"must be {MOMENT_RULE}")
    return Then(at_ms=at_ms)


class Companion(Protocol):
    """What is shown each record of a fold."""

    def before(self, state: CellState, at_ms: int) -> None:
        """The state up to the next decision, of `at_ms`."""

    def take(self, state: CellState, decision: Decision) -> object:
        """The decision, and the state behind it."""


class Past:
    """Reads one cell's log forward, from moment to moment."""

    def __init__(
        self,
        state: CellState,
        records: AsyncGenerator[Record, None],
        signers: Signers,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        self.state = state
        self._records, self._signers = records, signers
        self._wall = wall
        self._held: Record | None = None
        self._is_end_proven = True

    async def go_to(self, then: Then, companion: Companion | None = None, *, may_be_before: bool = False) -> CellState:
        """The state then; the same object each time. `companion` is told of each decision on the way. Ends the command
        where the log does not reach there: at a version or a time before its first (a time may be, with
        `may_be_before`), at a later version than its last, and at a time that has not come. Raises DamagedLog,
        LogUnavailable, LogTruncated.
        """
        while (record := await self._next()) is not None:
            entry = log_record(record, self._signers.of(self.state.cell))
            if entry.is_forged(self.state.version):
                self._signers.skipped(self.state.cell, [record.offset])
                fold(self.state, entry)
                self._is_end_proven = False
                continue
            decision = entry.decision
            is_next = isinstance(decision, Decision) and decision.version == self.state.version + 1
            if is_next and isinstance(decision, Decision) and not then.includes(decision.version, decision.at_ms):
                self._held = record
                break
            version = self.state.version
            if companion is not None and is_next and isinstance(decision, Decision):
                companion.before(self.state, decision.at_ms)
            fold(self.state, entry)
            self._is_end_proven = self._is_end_proven or self.state.version != version
            if companion is not None and isinstance(decision, Decision) and self.state.version != version:
                companion.take(self.state, decision)
        if then.version is not None and self.state.version != then.version:
            side = "ends" if self.state.version < then.version else "begins"
            end_with(Exit.NO, f"fallow: the log {side} at version {self.state.version}, not at {then.version}")
        if then.at_ms is not None and (self.state.version or not may_be_before):
            self._end_unless_lived(then.at_ms)
        return self.state

    def _end_unless_lived(self, at_ms: int) -> None:
        """End the command where the cell had made no decision by this time, or where the time has not come for it.
        Where its clock is not that of this machine, the command cannot know how far it is since its last decision: each
        later time may have come, but for one of the calendar in a cell that counts from an origin of its own.
        """
        cell, version = self.state.cell, self.state.version
        first = None if self._held is None else event_of(self._held)
        if not version and isinstance(first, Decision):
            begin = f"{moment(first.at_ms)}, version {first.version}"
            end_with(Exit.NO, f"fallow: {moment(at_ms)} is before the log begins: {begin}")
        if not version:
            end_with(Exit.NO, f"fallow: the log of cell {cell} holds no decision yet")
        latest_ms = CALENDAR_FROM_MS - 1 if self.state.at_ms < CALENDAR_FROM_MS else self._wall()
        if at_ms > latest_ms >= self.state.at_ms:
            end = f"{moment(self.state.at_ms)}, version {version}"
            end_with(Exit.NO, f"fallow: {moment(at_ms)} has not come: the log ends at {end}")

    @property
    def is_end_proven(self) -> bool:
        """Whether no record was passed over for want of a key behind the last decision of the state."""
        return self._is_end_proven

    @property
    def goes_on(self) -> bool:
        """Whether the log is known to tell of later moments too."""
        return self._held is not None

    @property
    def now_ms(self) -> int:
        """The cell's time now, for a reader of its whole log."""
        return cell_now_ms(self.state.at_ms, self._wall)

    async def _next(self) -> Record | None:
        held, self._held = self._held, None
        return held or await anext(self._records, None)


@asynccontextmanager
async def past_of(access: Access, cell: str, first: Then) -> AsyncIterator[Past]:
    """The cell's past, from the nearest snapshot before `first` on. Raises LogUnavailable, NoUsableSnapshot."""
    log, layout = KafkaLog(access.kafka_access, "fallow-cli"), access.layout()
    await log.start()
    try:
        async with open_past(log, layout, cell, first) as past:
            yield past
    finally:
        await log.stop()


@asynccontextmanager
async def open_past(
    log: Log, layout: Layout, cell: str, first: Then, *, wall: Callable[[], int] = wall_ms
) -> AsyncIterator[Past]:
    """Follow the past on any started log."""
    tp = layout.tp("decisions", cell)
    state = await nearest_snapshot(log, layout, cell, first.is_behind) or CellState(cell)
    ends = await log.end_offsets([tp])
    wanted = {tp: state.offset + 1} if state.offset + 1 < ends[tp] else {}
    async with aclosing(records_between(log, wanted, ends)) as records:
        yield Past(state, records, layout.signers, wall)
