"""Follows one cell's decision log in a simulated process: the newest snapshot, then every record, folded in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.simulator.history.record import Logged
from services.simulator.process import Inbox, Process, Waker
from shared.cluster.fold import LogRecord, fold
from shared.cluster.state import CellState
from shared.events.decisions import Decision
from shared.events.encoding import Undecodable
from shared.events.reasons import DeadLetterReason
from shared.events.snapshots import SnapshotChunk, SnapshotManifest
from shared.log.machine.snapshot import Collector, state_of
from shared.log.port import LogTruncated

BeforeFold = Callable[[CellState, LogRecord], None]

RECORDS_FIRST = 16
"""So many of the last records of `snapshots` are looked at first."""

NO_DECISION = Undecodable(DeadLetterReason.UNKNOWN_TYPE, "is no decision", "ce_type")


def log_record(record: Logged) -> LogRecord:
    """A record of `decisions` as the fold takes it."""
    event = record.event()
    decision = event if isinstance(event, Decision | Undecodable) else NO_DECISION
    return LogRecord(record.offset, record.value or b"", record.chain, decision)


class Follower:
    """The folded state of one cell in one process, and how it gets on. Raises DamagedLog, LogTruncated."""

    def __init__(self, process: Process, cell: str, waker: Waker, before_fold: BeforeFold | None = None) -> None:
        world = process.world
        self._world, self._before_fold = world, before_fold
        self.tp = ("decisions", world.ordinal(cell))
        self.state = newest_state(world.broker.log.get(("snapshots", self.tp[1]), []), cell)
        self.inbox = Inbox(process, waker, {self.tp: self.next_offset})

    @property
    def next_offset(self) -> int:
        """The offset of the next record to fold."""
        return self.state.offset + 1

    def poll(self, most: int = 50) -> list[Decision]:
        """Fold what has come; the decisions that extended the state."""
        return [] if self.inbox.is_held(self.tp) else self._fold(most)

    def _fold(self, most: int) -> list[Decision]:
        accepted: list[Decision] = []
        for logged in self._world.broker.read(self.tp, self.next_offset, most):
            record, version = log_record(logged), self.state.version
            if self._before_fold is not None:
                self._before_fold(self.state, record)
            fold(self.state, record)
            if self.state.version != version and isinstance(record.decision, Decision):
                accepted.append(record.decision)
        return accepted

    def catch_up(self) -> list[Decision]:
        """Fold to the end of the log as it is at this moment. Raises LogUnavailable, LogTruncated."""
        end, accepted = self._world.broker.end(self.tp), list[Decision]()
        if end < self.next_offset:
            raise LogTruncated(self.tp, asked=self.next_offset, begin=0, end=end)
        for logged in self._world.broker.read(self.tp, max(0, self.state.offset), 1):
            fold(self.state, log_record(logged))  # the last one that is known: it may be another by now
        while self.next_offset < end:
            accepted += self._fold(500)
        return accepted

    def close(self) -> None:
        """Read no more."""
        self.inbox.close()


def newest_state(records: Sequence[Logged], cell: str) -> CellState:
    """The state of the newest whole snapshot among these records, or the empty one. The newest stands at the end."""
    for start in (max(0, len(records) - RECORDS_FIRST), 0):
        collector = Collector()
        for record in records[start:]:
            _collect(collector, record)
        if collector.newest is not None:
            return state_of(collector.newest)
    return CellState(cell)


def _collect(collector: Collector, record: Logged) -> None:
    event = None if record.value is None else record.event()
    if event is None:
        collector.add_tombstone(record.key)
    elif isinstance(event, SnapshotChunk):
        collector.add_chunk(event)
    elif isinstance(event, SnapshotManifest):
        collector.add_manifest(event)
