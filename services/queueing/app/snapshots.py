"""The snapshots of the cells that queueing owns: their states, written to the topic `snapshots` now and then, and at an
orderly stop; behind each one old decisions are deleted.

A snapshot is cut whole between two turns of the cell's loop, and written beside the turns that follow. So planned
starts are confirmed however long the log takes for it, and what hinders a snapshot hinders no plan.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fallow.services.queueing.app.retention import delete_old
from fallow.services.queueing.app.snapshots_lost import Lost, lost_snapshots
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.events.snapshots import SnapshotManifest
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import NEWEST, Catalogue, Cut, cut_whole
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.log.snapshots import read_catalogue, write_cut
from fallow.shared.runtime.process import Context
from fallow.shared.runtime.settings import ClockKind
from fallow.shared.runtime.tasks.backoff import BackOff

T = TypeVar("T")

REST = 20
"""So many times as long as a snapshot took to write none is written: it costs a twentieth of a core at most."""

LOOK_EVERY_MS = 10_000
"""So often (wall time) queueing looks whether the topic still holds what it knows of."""

GONE = "the snapshots are gone from their topic; a new one is written"

LAST_BOUND_S = 12.0
"""So long a snapshot at an orderly stop may take: the process has 20 seconds to end."""

UNWRITTEN_FIRST_S, UNWRITTEN_MAX_S = 1.0, 60.0
"""A snapshot that does not get into the log is tried again later and later: each try cuts the whole state."""

WRITE_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class SnapshotMetrics:
    """What is counted of snapshots."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.written = Counter("fallow_snapshots_total", "Snapshots written", ["cell"], registry=registry)
        self.failed = Counter("fallow_snapshot_failures_total", "Snapshots begun in vain", ["cell"], registry=registry)
        self.lost = Counter(
            "fallow_snapshots_lost_total", "Times that known snapshots were gone", ["cell"], registry=registry
        )
        self.seconds = Histogram(
            "fallow_snapshot_seconds", "Cutting and writing one snapshot", buckets=WRITE_SECONDS, registry=registry
        )
        self.version = Gauge("fallow_snapshot_version", "Version of the newest one", ["cell"], registry=registry)


@dataclass(slots=True)
class Pace:
    """Says when the next snapshot is due. `version` and `at_ms` are those of the last one, which took `took_ms`."""

    versions: int
    wall_ms: int | None
    version: int
    at_ms: int
    took_ms: int = 0

    def written(self, version: int, begin_ms: int, now_ms: int) -> None:
        """One of this version was begun and is done."""
        self.version, self.at_ms, self.took_ms = version, now_ms, now_ms - begin_ms

    def is_due(self, version: int, now_ms: int) -> bool:
        """Only after a change, and then by count or by time, whichever comes first; but never without a rest."""
        if version == self.version or not self.has_rested(now_ms):
            return False
        return version - self.version >= self.versions or (
            self.wall_ms is not None and now_ms - self.at_ms >= self.wall_ms
        )

    def has_rested(self, now_ms: int) -> bool:
        """Whether the last one is so long ago that another may take as long."""
        return now_ms - self.at_ms >= REST * self.took_ms


@dataclass(slots=True)
class Unwritten:
    """Until when (monotonic) no snapshot is tried, since the last one did not get into the log."""

    pause: BackOff
    until_ms: int = 0


@dataclass(slots=True)
class Looks:
    """When (monotonic) the next look at the topic is due, and what the last one has found that is not mended yet."""

    next_ms: int
    lost: Lost | None = None

    def done(self, lost: Lost | None, begin_ms: int, now_ms: int) -> None:
        """One that has found this was begun and is done. Mostly it costs a fetch; else it reads the whole topic."""
        self.lost, self.next_ms = lost, now_ms + max(LOOK_EVERY_MS, REST * (now_ms - begin_ms))


class Keeper:
    """The snapshots of one cell, whose state the follower folds for the plans as well."""

    def __init__(
        self,
        context: Context[QueueingSettings],
        log: Log,
        layout: Layout,
        metrics: SnapshotMetrics,
        tenure: Tenure,
        retention_ms: int | None,
        follower: Follower,
    ) -> None:
        """The follower has just begun: what it folds from here on no snapshot holds. Decisions that are older than
        `retention_ms` are deleted, None: none ever.
        """
        self._context, self._log, self._layout, self._metrics = context, log, layout, metrics
        self._tenure, self._follower, self._host = tenure, follower, context.host
        self._retention_ms = retention_ms
        settings, self._what = context.settings, f"snapshots of {tenure.cell}"
        self._stepped = settings.clock is ClockKind.STEPPED
        longest_ms = None if self._stepped else settings.snapshot_wall_ms
        version = follower.state.version
        now_ms = self._host.monotonic_ms()
        self._pace, self._looks = Pace(settings.snapshot_versions, longest_ms, version, now_ms), Looks(now_ms)
        self._looks.done(None, now_ms, now_ms)
        self._unwritten = Unwritten(context.back_off(UNWRITTEN_FIRST_S, UNWRITTEN_MAX_S))
        self._catalogue: Catalogue | None = None
        self._task: asyncio.Task[None] | None = None
        tenure.on_change = self._on_change
        for counted in (metrics.failed, metrics.lost):
            counted.labels(tenure.cell)

    async def turn(self) -> None:
        """Begin a snapshot if one is due, or a look. Nothing is folded while this waits."""
        now_ms, is_busy = self._host.monotonic_ms(), self._task is not None and not self._task.done()
        if not self._tenure.holds or is_busy or now_ms < self._unwritten.until_ms:
            return
        if self._is_due(now_ms):
            cut = await self._tried(self._cut)
            if cut is not None and self._tenure.holds:
                self._task = asyncio.create_task(self._tried(partial(self._write, cut, now_ms)), name=self._what)
        elif self._looks.lost is None and now_ms >= self._looks.next_ms and not self._stepped:
            self._task = asyncio.create_task(self._tried(self._look), name=f"look at the {self._what}")

    def _is_due(self, now_ms: int) -> bool:
        is_lost = self._looks.lost is not None and self._pace.has_rested(now_ms)
        return is_lost or self._pace.is_due(self._follower.state.version, now_ms)

    async def end(self, *, is_orderly: bool) -> None:
        """Let what is being written come to its end. At an orderly stop also write what has changed since: a cell that
        rests from now on is to be found again, however long it rests.
        """
        with contextlib.suppress(TimeoutError):  # the decisions are all there: the next start takes longer
            async with asyncio.timeout(LAST_BOUND_S):
                if self._task is not None:
                    await asyncio.wait([self._task])
                if is_orderly and self._context.stopping.is_set():
                    await self._write_last()
        self._drop()

    async def _write_last(self) -> None:
        if self._stepped or not self._tenure.holds:
            return
        is_news = self._follower.state.version != self._pace.version
        if not is_news:
            await self._tried(self._look)
        if is_news or self._looks.lost is not None:
            begin_ms, cut = self._host.monotonic_ms(), await self._tried(self._cut)
            if cut is not None and self._tenure.holds:
                await self._tried(partial(self._write, cut, begin_ms))

    async def _look(self) -> None:
        """Whether the topic still holds what this process knows of: it alone may have the state by now."""
        begin_ms, lost = self._host.monotonic_ms(), self._looks.lost
        try:
            lost = await self._find_lost()
        except (LogUnavailable, LogTruncated) as error:
            self._context.logger.warning("snapshots not looked at", cell=self._tenure.cell, reason=str(error))
        self._looks.done(lost, begin_ms, self._host.monotonic_ms())

    async def _find_lost(self) -> Lost | None:
        """What is gone is told. Raises LogUnavailable, LogTruncated."""
        cell, follower = self._tenure.cell, self._follower
        lost = await lost_snapshots(self._log, self._layout, cell, self._pace.version, follower.next_offset)
        if lost is not None:
            self._catalogue = None
            self._metrics.lost.labels(cell).inc()
            self._context.logger.error(GONE, cell=cell, reason=lost.reason)
            self._context.health.not_ready(f"its snapshots are gone: {lost.reason}", self._what, cell=cell)
        return lost

    def _on_change(self) -> None:
        """The process that has the cell meanwhile writes what this one would not know of."""
        if not self._tenure.holds:
            self._drop()

    def _drop(self) -> None:
        self._catalogue = self._looks.lost = None
        if self._task is not None:
            self._task.cancel()
        self._context.health.ready(self._what)

    async def _cut(self) -> Cut:
        """In a thread, as plans are made: the loop goes on, but not the fold of this cell.

        Not at a place behind which forged records stand: were only a key missing here, they would be none, and who
        begins with such a snapshot would miss them.
        """
        begin = 0 if self._looks.lost is None else self._looks.lost.begin
        state, most = self._follower.confirmed(begin), self._context.settings.snapshot_chunk_bytes
        work = partial(cut_whole, state, self._context.instance, most)
        return await self._host.beside(work, self._what, may_be_long=True)

    async def _write(self, cut: Cut, begin_ms: int) -> None:
        """Write this one, where the log has none of its state that serves, and delete what is old. Raises
        LogUnavailable.
        """
        context, cell, catalogue = self._context, self._tenure.cell, self._catalogue
        if catalogue is None:
            catalogue = await read_catalogue(self._log, self._layout, cell)
        # One that reaches so far is by the process that had the cell before.
        if self._looks.lost is not None or not catalogue.reaches(cut.head):
            wall_ms = self._host.wall_ms()
            await write_cut(self._log, self._layout, cut, catalogue, writer=context.instance, wall_ms=wall_ms)
            self._tell(catalogue.manifests[NEWEST], self._host.monotonic_ms() - begin_ms)
        self._catalogue = catalogue
        self._looks.lost = None
        self._pace.written(cut.head.version, begin_ms, self._host.monotonic_ms())
        self._unwritten.pause.reset()
        context.health.ready(self._what)
        await self._delete_old(catalogue)

    async def _delete_old(self, catalogue: Catalogue) -> None:
        """Once behind each snapshot that the topic holds. What cannot be deleted now can be behind the next one."""
        if self._retention_ms is None:
            return
        cell, wall_ms = self._tenure.cell, self._host.wall_ms()
        try:
            self._looks.lost = await self._find_lost()
            if self._looks.lost is not None:
                return
            count = await delete_old(self._log, self._layout, cell, catalogue, self._retention_ms, wall_ms)
        except (LogUnavailable, LogTruncated) as error:
            self._context.logger.warning("old decisions are not deleted", cell=cell, reason=str(error))
        else:
            if count:
                self._context.logger.info("old decisions deleted", cell=cell, records=count)

    async def _tried(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do a part of the work on a snapshot; None if it failed: then what is there is read anew, later. A defect is
        told and ends no plans: a cut does not change the state. Where its task ends
        before it begins, the part is never begun.
        """
        try:
            return await work()
        except (LogUnavailable, LogTruncated) as error:  # topic `snapshots` may lose its end: the log is the truth
            self._failed(error)
        except Exception as error:
            self._host.cell_ended(self._tenure.cell, error)
            self._context.logger.exception("snapshot failed", cell=self._tenure.cell)
            self._failed(error)
        return None

    def _failed(self, error: Exception) -> None:
        cell, version = self._tenure.cell, self._follower.state.version
        self._catalogue = None
        self._unwritten.until_ms = self._host.monotonic_ms() + round(1_000 * self._unwritten.pause.next_s())
        self._metrics.failed.labels(cell).inc()
        self._context.logger.warning("snapshot not written", cell=cell, version=version, reason=str(error))
        self._context.health.not_ready(f"snapshots are not written: {error}", self._what, cell=cell)

    def _tell(self, manifest: SnapshotManifest, took_ms: int) -> None:
        cell = manifest.cell
        self._metrics.seconds.observe(took_ms / 1000)
        self._metrics.written.labels(cell).inc()
        self._metrics.version.labels(cell).set(manifest.version)
        self._context.logger.info(
            "snapshot written",
            cell=cell,
            version=manifest.version,
            offset=manifest.offset,
            chunks=manifest.parts,
            took_ms=took_ms,
        )
