"""The snapshot process: folds the cells that it owns by itself, and writes their states to the topic `snapshots`.

Beside the writer and not in it, since to write 150,000 jobs takes seconds. It decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import Field

from services.placement.app.retention import delete_old
from shared.log.cell_tasks import Tenure
from shared.log.follower import Follower
from shared.log.layout import Layout
from shared.log.machine.snapshot import Catalogue
from shared.log.opening import layout_of, open_log, topics_file
from shared.log.owned_cells import work_on_owned_cells
from shared.log.port import Log, LogUnavailable
from shared.log.snapshots import read_catalogue, write_snapshot
from shared.runtime.backoff import BackOff
from shared.runtime.cell_file import load_cell_file
from shared.runtime.clocks import monotonic_ms, wall_ms
from shared.runtime.process import Context, wait_for
from shared.runtime.settings import ClockKind, ServiceSettings

PATIENT_MS = 500
POLL_MS = PATIENT_MS + 100
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


async def main(context: Context[SnapshotSettings]) -> None:
    """Take snapshots of the owned cells until told to stop."""
    settings = context.settings
    if settings.embedded:
        context.logger.info("snapshots are off: the embedded broker does not compact")
        return
    file = load_cell_file(settings.cell_file)
    log = await open_log(context, file)
    if log is None:
        return
    layout, metrics = layout_of(file, settings.namespace), SnapshotMetrics(context.registry)
    retention_ms = topics_file(file).retention_ms("decisions")

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
    follower, settings = Follower(log, layout, tenure.cell, patient_ms=PATIENT_MS), context.settings
    if not await wait_for(
        context, f"the log of {tenure.cell}", lambda: _following(follower), (LogUnavailable,), about=tenure.cell
    ):
        return
    context.health.ready()
    stepped = settings.clock is ClockKind.STEPPED
    pace = Pace(
        settings.snapshot_versions,
        None if stepped else settings.snapshot_wall_ms,
        follower.state.version,
        monotonic_ms(),
    )
    catalogue: Catalogue | None = None
    away, unwritten = BackOff(), Unwritten(BackOff(UNWRITTEN_FIRST_S, UNWRITTEN_MOST_S))

    async def last_one(known: Catalogue | None) -> None:
        """A cell that rests from now on is to be found again, however long it rests."""
        if context.stopping.is_set() and tenure.holds and follower.state.version != pace.version and not stepped:
            with contextlib.suppress(TimeoutError):  # the decisions are all there: the next start takes longer
                async with asyncio.timeout(LAST_BOUND_S):
                    await _write(context, log, layout, metrics, follower, known)

    try:
        while not context.stopping.is_set():
            try:
                found = await follower.poll(0 if stepped else POLL_MS, POLL_RECORDS)
            except LogUnavailable as error:
                context.logger.warning("cannot read", cell=tenure.cell, reason=str(error))
                await context.pause(away.next_s())
                continue
            away.reset()
            if not found and stepped:
                # A stepped replay waits for nobody who only follows: many records at once cost less than each alone.
                await context.pause(STEPPED_PAUSE_S)
            _show(context, layout, follower)
            if not tenure.holds:
                catalogue = None  # whoever holds the cell meanwhile writes what this one would not know of
            elif pace.is_due(follower.state.version, begin_ms := monotonic_ms()) and begin_ms >= unwritten.until_ms:
                catalogue = await _write(context, log, layout, metrics, follower, catalogue)
                if catalogue is None:
                    unwritten.until_ms = monotonic_ms() + round(1_000 * unwritten.pause.next_s())
                else:
                    unwritten.pause.reset()
                    pace.written(follower.state.version, begin_ms, monotonic_ms())
                    await _delete_old(context, log, layout, catalogue, tenure.cell, retention_ms)
    except asyncio.CancelledError:
        await last_one(catalogue)
        raise
    else:
        await last_one(catalogue)
    finally:
        await follower.stop()


async def _delete_old(
    context: Context[SnapshotSettings],
    log: Log,
    layout: Layout,
    catalogue: Catalogue,
    cell: str,
    retention_ms: int | None,
) -> None:
    """Once behind each snapshot. What cannot be deleted now can be behind the next one."""
    if retention_ms is None:
        return
    try:
        count = await delete_old(log, layout, cell, catalogue, retention_ms)
    except LogUnavailable as error:
        context.logger.warning("old decisions are not deleted", cell=cell, reason=str(error))
    else:
        if count:
            context.logger.info("old decisions deleted", cell=cell, records=count)


async def _following(follower: Follower) -> str | None:
    await follower.start()
    return None


def _show(context: Context[SnapshotSettings], layout: Layout, follower: Follower) -> None:
    topic, partition = layout.tp("decisions", follower.state.cell)
    context.health.handled(topic, partition, follower.next_offset)
    context.health.progress.version[follower.state.cell] = follower.state.version
    context.health.turned()


async def _write(
    context: Context[SnapshotSettings],
    log: Log,
    layout: Layout,
    metrics: SnapshotMetrics,
    follower: Follower,
    catalogue: Catalogue | None,
) -> Catalogue | None:
    """Write one; None if the log was away: then what is there must be read anew, and it is tried again later."""
    state, begin_ms = follower.state, monotonic_ms()
    context.health.progress.busy = True
    try:
        if catalogue is None:
            catalogue = await read_catalogue(log, layout, state.cell)
        manifest = await write_snapshot(log, layout, state, catalogue, writer=context.instance, wall_ms=wall_ms())
    except LogUnavailable as error:
        metrics.failed.labels(state.cell).inc()
        context.logger.warning("snapshot not written", cell=state.cell, version=state.version, reason=str(error))
        context.health.not_ready(f"snapshots are not written: {error}", f"snapshots of {state.cell}")
        return None
    finally:
        context.health.progress.busy = False
    context.health.ready(f"snapshots of {state.cell}")
    took_ms = monotonic_ms() - begin_ms
    metrics.seconds.observe(took_ms / 1000)
    metrics.written.labels(state.cell).inc()
    metrics.version.labels(state.cell).set(manifest.version)
    context.logger.info(
        "snapshot written",
        cell=state.cell,
        version=manifest.version,
        offset=manifest.offset,
        chunks=manifest.parts,
        took_ms=took_ms,
    )
    return catalogue
