"""The snapshot process: folds the cells that it owns by itself, and writes their states to the topic `snapshots`.

Beside the writer and not in it, since to write 150,000 jobs takes seconds. It decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import Field

from services.queueing.app.retention import delete_old
from shared.cluster.model.config import CellFile
from shared.events.snapshots import SnapshotManifest
from shared.log.follower import Follower
from shared.log.layout import Layout
from shared.log.machine.snapshot import CHUNK_BYTES_MOST, Catalogue
from shared.log.opening import OpenLog, layout_of, open_log, topics_file
from shared.log.port import Log, LogUnavailable
from shared.log.sharing.cell_tasks import Tenure
from shared.log.sharing.owned_cells import work_on_owned_cells
from shared.log.snapshots import read_catalogue, write_snapshot
from shared.runtime.backoff import BackOff
from shared.runtime.process import Context, wait_for
from shared.runtime.settings import ClockKind, ServiceSettings

PATIENT_MS = 500
POLL_MS = 2_500
POLL_RECORDS = 100
REST = 20
"""So many times as long as a snapshot took to write none is written: it costs a twentieth of a core at most."""

STEPPED_PAUSE_S = 0.1
LAST_BOUND_S = 12.0
"""So long a snapshot at an orderly stop may take: the process has 20 seconds to end."""

UNWRITTEN_FIRST_S, UNWRITTEN_MOST_S = 1.0, 60.0
"""A snapshot that does not get into the log is tried again later and later: each try cuts the whole state."""

WRITE_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class SnapshotSettings(ServiceSettings):
    """When a snapshot is due: after so many versions, or after so long if anything changed."""

    snapshot_versions: int = Field(5_000, ge=1, description="a snapshot after so many versions")
    snapshot_wall_ms: int = Field(300_000, ge=100, description="or after so long, if the version changed at all")
    snapshot_chunk_bytes: int = Field(
        CHUNK_BYTES_MOST, ge=2_000, le=CHUNK_BYTES_MOST, description="the size of one record of a snapshot at most"
    )


class SnapshotMetrics:
    """What the snapshot process counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.written = Counter("fallow_snapshots_total", "Snapshots written", ["cell"], registry=registry)
        self.failed = Counter("fallow_snapshot_failures_total", "Snapshots begun in vain", ["cell"], registry=registry)
        self.seconds = Histogram(
            "fallow_snapshot_seconds", "Writing one snapshot", buckets=WRITE_SECONDS, registry=registry
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
        if version == self.version or now_ms - self.at_ms < REST * self.took_ms:
            return False
        return version - self.version >= self.versions or (
            self.wall_ms is not None and now_ms - self.at_ms >= self.wall_ms
        )


@dataclass(slots=True)
class Unwritten:
    """Until when (monotonic) no snapshot is tried, since the last one did not get into the log."""

    pause: BackOff
    until_ms: int = 0


def declared_retention_ms(file: CellFile) -> int | None:
    """For how long decisions are kept that a snapshot covers; None for ever."""
    return topics_file(file).retention_ms("decisions")


async def main(
    context: Context[SnapshotSettings],
    opening: OpenLog = open_log,
    retention_ms_of: Callable[[CellFile], int | None] = declared_retention_ms,
) -> None:
    """Take snapshots of the owned cells until told to stop."""
    settings = context.settings
    if settings.embedded:
        context.logger.info("snapshots are off: the embedded broker does not compact")
        return
    file = context.host.cell_file(settings.cell_file)
    log = await opening(context, file)
    if log is None:
        return
    layout, metrics = layout_of(file, settings.namespace), SnapshotMetrics(context.registry)
    retention_ms = retention_ms_of(file)

    async def work(tenure: Tenure) -> None:
        await keep(context, log, layout, metrics, tenure, retention_ms)

    try:
        await work_on_owned_cells(context, log, layout, "snapshots", work)
    finally:
        await log.stop()


async def keep(
    context: Context[SnapshotSettings],
    log: Log,
    layout: Layout,
    metrics: SnapshotMetrics,
    tenure: Tenure,
    retention_ms: int | None = None,
) -> None:
    """Follow one cell, write a snapshot of it whenever one is due and at an orderly stop, and delete decisions that are
    older than `retention_ms` and that no kept snapshot needs.
    """
    follower = Follower(log, layout, tenure.cell, patient_ms=PATIENT_MS, service=context.service)
    what = f"the log of {tenure.cell}"
    try:
        if not await wait_for(context, what, lambda: _following(follower), (LogUnavailable,), about=tenure.cell):
            return
        context.health.ready()
        keeper = Keeper(context, log, layout, metrics, tenure, follower)
        try:
            while not context.stopping.is_set():
                if await keeper.turn():
                    await keeper.delete_old(retention_ms)
        except asyncio.CancelledError:
            await keeper.last_one()
            raise
        await keeper.last_one()
    finally:
        await follower.stop()


class Keeper:
    """The snapshots of one cell, whose state the follower folds."""

    def __init__(
        self,
        context: Context[SnapshotSettings],
        log: Log,
        layout: Layout,
        metrics: SnapshotMetrics,
        tenure: Tenure,
        follower: Follower,
    ) -> None:
        self._context, self._log, self._layout, self._metrics = context, log, layout, metrics
        self._tenure, self._follower, self._host = tenure, follower, context.host
        settings = context.settings
        self._stepped = settings.clock is ClockKind.STEPPED
        longest_ms = None if self._stepped else settings.snapshot_wall_ms
        version = follower.state.version
        self._pace = Pace(settings.snapshot_versions, longest_ms, version, self._host.monotonic_ms())
        self._unwritten = Unwritten(context.back_off(UNWRITTEN_FIRST_S, UNWRITTEN_MOST_S))
        self._away = context.back_off()
        self._catalogue: Catalogue | None = None

    async def turn(self) -> bool:
        """Fold what has come, and write a snapshot if one is due. Whether one was written."""
        try:
            found = await self._follower.poll(0 if self._stepped else POLL_MS, POLL_RECORDS)
        except LogUnavailable as error:
            self._context.logger.warning("cannot read", cell=self._tenure.cell, reason=str(error))
            await self._context.pause(self._away.next_s())
            return False
        self._away.reset()
        if not found and self._stepped:
            # A stepped replay waits for nobody who only follows: many records at once cost less than each alone.
            await self._context.pause(STEPPED_PAUSE_S)
        _show(self._context, self._layout, self._follower)
        if not self._tenure.holds:
            self._catalogue = None  # whoever holds the cell meanwhile writes what this one would not know of
            return False
        now_ms = self._host.monotonic_ms()
        is_due = self._pace.is_due(self._follower.state.version, now_ms) and now_ms >= self._unwritten.until_ms
        return is_due and await self._write_next(now_ms)

    async def _write_next(self, begin_ms: int) -> bool:
        version = self._follower.state.version
        self._catalogue = await self._write()
        if self._catalogue is None:
            self._unwritten.until_ms = self._host.monotonic_ms() + round(1_000 * self._unwritten.pause.next_s())
            return False
        self._unwritten.pause.reset()
        self._pace.written(version, begin_ms, self._host.monotonic_ms())
        return True

    async def last_one(self) -> None:
        """A cell that rests from now on is to be found again, however long it rests."""
        is_new = self._follower.state.version != self._pace.version
        if self._context.stopping.is_set() and self._tenure.holds and is_new and not self._stepped:
            with contextlib.suppress(TimeoutError):  # the decisions are all there: the next start takes longer
                async with asyncio.timeout(LAST_BOUND_S):
                    await self._write()

    async def delete_old(self, retention_ms: int | None) -> None:
        """Once behind each snapshot. What cannot be deleted now can be behind the next one."""
        if retention_ms is None or self._catalogue is None:
            return
        cell, wall_ms = self._tenure.cell, self._host.wall_ms()
        try:
            count = await delete_old(self._log, self._layout, cell, self._catalogue, retention_ms, wall_ms)
        except LogUnavailable as error:
            self._context.logger.warning("old decisions are not deleted", cell=cell, reason=str(error))
        else:
            if count:
                self._context.logger.info("old decisions deleted", cell=cell, records=count)

    async def _write(self) -> Catalogue | None:
        """Write one, where the log has none of this state; None if the log was away: then what is there must be read
        anew, and it is tried again later.
        """
        context, state, catalogue = self._context, self._follower.state, self._catalogue
        begin_ms = self._host.monotonic_ms()
        context.health.progress.busy = True
        try:
            if catalogue is None:
                catalogue = await read_catalogue(self._log, self._layout, state.cell)
                if catalogue.reaches(state):
                    return catalogue  # by the process that had the cell before
            manifest = await write_snapshot(
                self._log,
                self._layout,
                state,
                catalogue,
                writer=context.instance,
                wall_ms=self._host.wall_ms(),
                chunk_bytes_most=context.settings.snapshot_chunk_bytes,
            )
        except LogUnavailable as error:
            self._metrics.failed.labels(state.cell).inc()
            context.logger.warning("snapshot not written", cell=state.cell, version=state.version, reason=str(error))
            context.health.not_ready(f"snapshots are not written: {error}", f"snapshots of {state.cell}")
            return None
        finally:
            context.health.progress.busy = False
        context.health.ready(f"snapshots of {state.cell}")
        self._tell(manifest, self._host.monotonic_ms() - begin_ms)
        return catalogue

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


async def _following(follower: Follower) -> str | None:
    await follower.start()
    return None


def _show(context: Context[SnapshotSettings], layout: Layout, follower: Follower) -> None:
    topic, partition = layout.tp("decisions", follower.state.cell)
    context.health.handled(topic, partition, follower.next_offset)
    context.health.progress.version[follower.state.cell] = follower.state.version
    context.health.turned()
