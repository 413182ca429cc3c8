"""The snapshot process of one cell in the simulated world: folds by itself and writes the state in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from services.simulator.broker import Message
from services.simulator.faults import Fault
from services.simulator.follower import Follower
from services.simulator.process import Process, Waker
from shared.cluster.state import CellState
from shared.events.base import Event, replace
from shared.events.snapshots import SnapshotChunk, SnapshotManifest
from shared.log.machine.snapshot import NEWEST, RowsDigest, cut, manifest_of, snapshot_id
from shared.log.port import LogUnavailable

ROWS_PER_CHUNK = 12
VERSIONS_FEWEST, VERSIONS_MOST = 12, 40
AGAIN_MS = 1_000


class SnapshotsPart:
    """One cell in a snapshot process."""

    joins_by_itself = False

    def __init__(self, process: Process, cell: str) -> None:
        self._process, self._world, self._cell = process, process.world, cell
        self._ordinal = self._world.ordinal(cell)
        self._waker = Waker(process, self._step)
        self._follower: Follower | None = None
        self._holds = self._is_writing = False
        self._every = self._world.engine.between(VERSIONS_FEWEST, VERSIONS_MOST)
        self._version = 0

    def begin(self) -> None:
        """Follow from the newest snapshot on."""
        self._follower = Follower(self._process, self._cell, self._waker)
        self._version = self._follower.state.version

    def end(self) -> None:
        """Hear no more; what is half written has no manifest."""
        if self._follower is not None:
            self._follower.close()

    def told(self, owned: frozenset[int]) -> None:
        """Write while the cell is ours."""
        self._holds = self._ordinal in owned
        self._waker.within(1)

    def _step(self) -> None:
        if self._follower is None or self._is_writing:
            return
        self._follower.poll()
        if self._holds and self._follower.state.version - self._version >= self._every:
            self._is_writing = True
            self._version = self._follower.state.version
            self._write(self._records(self._follower.state))

    def _records(self, state: CellState) -> list[Event]:
        """Chunks, then the manifest; or less, or in another order, or not as it was."""
        snapshot, digest = snapshot_id(state, f"{self._process.name}-{self._process.incarnation}"), RowsDigest()
        chunks = list(_in_chunks(state, snapshot))
        for chunk in chunks:
            digest.add(chunk.rows)
        manifest = manifest_of(state, snapshot, slot=NEWEST, parts=len(chunks), digest=digest.hexdigest())
        if not self._world.faults.happens(Fault.SNAPSHOT, f"{snapshot} of {self._cell}"):
            return [*chunks, manifest]
        return self._torn(chunks, manifest)

    def _torn(self, chunks: list[SnapshotChunk], manifest: SnapshotManifest) -> list[Event]:
        at = self._world.engine.chance.randrange(0, len(chunks))
        match self._world.engine.between(0, 3):
            case 0:
                return [*chunks[:at], *chunks[at + 1 :], manifest]
            case 1:
                return [manifest, *chunks]
            case 2:
                return [*chunks]
        rows = chunks[at].rows
        return [*chunks[:at], replace(chunks[at], rows=rows[:-1]), *chunks[at + 1 :], manifest]

    def _write(self, left: list[Event]) -> None:
        """One record at a time, each confirmed before the next."""
        message: Message = self._world.message(left[0], self._process)
        done = self._world.reply(self._process, partial(self._written, left=left))
        self._world.broker.publish(self._process.name, [message], done)

    def _written(self, error: LogUnavailable | None, left: list[Event]) -> None:
        if error is None and len(left) > 1:
            self._write(left[1:])
            return
        self._is_writing = False
        self._waker.within(1 if error is None else AGAIN_MS)


def _in_chunks(state: CellState, snapshot: str) -> Iterator[SnapshotChunk]:
    """Smaller chunks than in production, so that a small state has several."""
    rows = [row for chunk in cut(state, snapshot) for row in chunk.rows]
    for part, start in enumerate(range(0, len(rows), ROWS_PER_CHUNK)):
        some = tuple(rows[start : start + ROWS_PER_CHUNK])
        yield SnapshotChunk(cell=state.cell, snapshot=snapshot, part=part, rows=some)
