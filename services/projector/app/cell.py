"""Projects one cell: folds its log, and brings its view to where the fold is."""

from __future__ import annotations

from fallow.services.projector.app.machine import Projection
from fallow.services.projector.app.metrics import CellMetrics, ProjectorMetrics
from fallow.services.projector.app.steps import Outcome, Took, take_step
from fallow.services.projector.service import Lag, Pace, Patience
from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.runtime.process import Context, wait_for
from fallow.shared.runtime.settings import ClockKind
from fallow.shared.view.keys import keys_of
from fallow.shared.view.library import LIBRARY
from fallow.shared.view.store import CellView, Functions, ViewMisused, ViewUnavailable

POLL_WALL_MS = 250
"""How long to wait for news while the view is not where the fold is, or is not known to be."""

STANDBY_WALL_MS = 2_500
FETCH_WALL_MS = 10
LOG_AWAY_FIRST_S = 0.25
STEPPED_PAUSE_S = 0.1
CHECK_WALL_MS = 1_000
"""How often the view is looked at while nothing happens: so a flush of Redis is noticed in a quiet cell, too."""

SETBACKS = (Outcome.BUSY, Outcome.REBUILD_LOST)
"""Another projector is at work on the view: come back a little later."""

LOUD = {
    Outcome.BEHIND: "the view has lost its tail",
    Outcome.NOT_READY: "the view is gone",
    Outcome.REBUILT: "the view is built",
    Outcome.REBUILD_LOST: "the view that was being built is lost",
}
"""What people should read of."""


class CellProjector:
    """One cell in a projector process. While another process owns the cell it folds along and leaves the view alone."""

    def __init__(
        self,
        context: Context[ProjectorSettings],
        log: Log,
        layout: Layout,
        functions: Functions,
        metrics: ProjectorMetrics,
        tenure: Tenure,
    ) -> None:
        self._context, self._log, self._tenure = context, log, tenure
        self._functions, self._cell, self._host = functions, tenure.cell, context.host
        self._metrics = CellMetrics(metrics, self._cell)
        self._projection, self._patience = Projection(), Patience()
        self._pace = Pace(context.settings.gather_wall_ms, context.settings.poll_records)
        self._lag = Lag(context.settings.view_lag_records, context.settings.view_lag_wall_ms)
        self._tp = layout.tp("decisions", self._cell)
        self._view = CellView(functions, keys_of(context.settings.namespace, self._cell))
        self._follower = Follower(
            log,
            layout,
            self._cell,
            snapshots=not context.settings.embedded,
            before_fold=self._projection.before_fold,
            service=context.service,
        )
        self._stepped = context.settings.clock is ClockKind.STEPPED
        self._complaint: str | None = None
        self._away_for: str | None = None
        self._away = context.back_off(LOG_AWAY_FIRST_S)
        self._has_gathered = False
        self._steps = 0
        self._shown = 0
        self._check_at_ms = 0

    async def run(self) -> None:
        """Until told to stop. Raises DamagedLog, LogTruncated: then the truth cannot be known here."""
        try:
            if not await wait_for(
                self._context, f"the log of {self._cell}", self._begun, (LogUnavailable,), about=self._cell
            ):
                return
            self._context.health.ready()
            while not self._context.stopping.is_set():
                began_ms, records = self._host.monotonic_ms(), await self._poll()
                rows = 0
                if self._tenure.holds:
                    rows = await self._bring_view()
                    self._report()
                else:
                    self._has_no_complaint()
                if records:
                    self._pace.stepped(records, rows, began_ms)
                    await self._gather()
        finally:
            self._has_no_complaint()
            await self._follower.stop()

    def _has_no_complaint(self) -> None:
        """The view is another process's matter now, and so is what hinders it."""
        self._complaint = self._away_for = None
        self._context.health.ready(f"redis of {self._cell}")
        self._context.health.ready(self._cell)

    async def _begun(self) -> str | None:
        """Ask first where the view stands: what is folded behind that is what it lacks, so no rebuild is needed.

        No more than ask: there is no state yet that could be put, and when the log is away this is done again.
        """
        if self._projection.is_unasked:
            await self._try_step()
        await self._follower.start()
        self._projection.loaded()
        await self._follower.catch_up()
        return None

    async def _poll(self) -> int:
        """Fold what has come; how many decisions."""
        most, poll = self._pace.records, self._follower.poll
        try:
            records = len(await poll(0 if self._stepped else self._wait_ms(), most))
            if self._has_gathered and 0 < records < most:
                # That lay ready since the pause began; what came in the pause is still to be fetched.
                records += len(await poll(FETCH_WALL_MS, most - records))
            if not records and self._stepped:
                # A stepped replay waits for no service that only follows: many records at once cost less than each
                # alone.
                await self._context.pause(STEPPED_PAUSE_S)
        except LogUnavailable as error:
            self._context.logger.warning("the log is away", cell=self._cell, reason=str(error))
            await self._context.pause(self._away.next_s())
            return 0
        self._away.reset()
        return records

    def _wait_ms(self) -> int:
        """Until the view is to be looked at again. While another process owns the cell, nothing waits for this one."""
        if not self._tenure.holds:
            return STANDBY_WALL_MS
        now_ms = self._host.monotonic_ms()
        if self._projection.shown != self._follower.next_offset:
            return max(1, min(self._patience.not_before_ms - now_ms, POLL_WALL_MS))
        return max(1, self._check_at_ms - now_ms)

    async def _gather(self) -> None:
        pause_ms = 0 if self._stepped else self._pace.pause_ms(self._host.monotonic_ms())
        self._has_gathered = pause_ms > 0
        if pause_ms:
            await self._context.pause(pause_ms / 1000)

    async def _bring_view(self) -> int:
        """Take steps until the view is where the fold is, or until Redis needs a pause: then the fold goes on. How many
        rows were put.
        """
        rows = 0
        if self._host.monotonic_ms() >= self._check_at_ms:
            self._projection.look_again()
            self._check_at_ms = self._host.monotonic_ms() + CHECK_WALL_MS
        while self._host.monotonic_ms() >= self._patience.not_before_ms and not self._context.stopping.is_set():
            took = await self._try_step()
            if took is None or took.outcome in SETBACKS or took.outcome is Outcome.RESTED:
                return rows
            rows += took.rows
            if took.outcome is Outcome.LOOK_FOR_END:
                end = await self._log_end()
                if end is None:
                    return rows
                self._projection.log_ends_at(end)
        return rows

    async def _try_step(self) -> Took | None:
        """One step; None when Redis is away."""
        host, state = self._host, self._follower.state
        begin_ms = host.monotonic_ms()
        self._steps += 1
        # Behind the owner's name something new each time: a late row of a broken attempt must not get into the next.
        rebuild_id = f"{self._context.instance}/{host.wall_ms()}-{self._steps}"
        try:
            took = await take_step(
                self._view, self._projection, state, rebuild_id=rebuild_id, wall_ms=self._host.wall_ms
            )
        except (ViewUnavailable, ViewMisused) as error:
            # Also what Redis refuses for good: the fold goes on, the reason is told, a person mends it.
            self._is_away(str(error))
            return None
        self._count(took, self._host.monotonic_ms() - begin_ms)
        if took.outcome in SETBACKS:
            self._patience.failed(self._host.monotonic_ms(), self._host.chance())
        else:
            self._is_back()
        return took

    def _is_away(self, reason: str) -> None:
        self._metrics.step("away")
        if reason != self._away_for:
            self._away_for = reason
            self._context.logger.warning("Redis is away, folding goes on", cell=self._cell, reason=reason)
            self._context.health.not_ready(f"waiting for Redis: {reason}", f"redis of {self._cell}", cell=self._cell)
        self._patience.failed(self._host.monotonic_ms(), self._host.chance())

    def _is_back(self) -> None:
        if self._away_for is not None:
            self._away_for = None
            self._context.logger.info("Redis answers again", cell=self._cell, attempts=self._patience.failures)
            self._context.health.ready(f"redis of {self._cell}")
        self._patience.succeeded()

    def _count(self, took: Took, took_ms: int) -> None:
        if took.outcome is Outcome.RESTED:
            return
        self._metrics.step(took.outcome.value)
        self._metrics.rows.inc(took.rows)
        if took.outcome is Outcome.APPLIED:
            self._metrics.apply_seconds.observe(took_ms / 1000)
        if took.outcome is Outcome.REBUILT:
            self._metrics.rebuild_seconds.observe(took_ms / 1000)
        if took.outcome in LOUD:
            self._context.logger.info(
                LOUD[took.outcome],
                cell=self._cell,
                version=self._follower.state.version,
                rows=took.rows,
                why=took.why,
                took_ms=took_ms,
                library=LIBRARY,
            )

    async def _log_end(self) -> int | None:
        try:
            return (await self._log.end_offsets([self._tp]))[self._tp]
        except LogUnavailable as error:
            self._context.logger.warning("the log is away", cell=self._cell, reason=str(error))
            return None

    def _report(self) -> None:
        """Tell how far the view is. It is what counts here: what is only folded has not reached any reader."""
        cursor, shown, now_ms = self._follower.next_offset, self._projection.shown, self._host.monotonic_ms()
        health, (topic, partition) = self._context.health, self._tp
        if shown is not None:
            self._shown = min(shown, cursor)
        self._lag.is_at(max(cursor - self._shown, int(shown is None)), now_ms)
        self._metrics.lag_records.set(self._lag.records)
        self._metrics.lag_seconds.set(self._lag.wall_ms(now_ms) / 1000)
        if shown is not None:
            health.handled(topic, partition, self._shown)
        if shown == cursor:
            health.progress.version[self._cell] = self._follower.state.version
        complaint = self._lag.complaint(now_ms)
        if complaint is not None:
            health.not_ready(f"{self._cell}: {complaint}", self._cell, cell=self._cell)
        elif self._complaint is not None:
            health.ready(self._cell)
        self._complaint = complaint
