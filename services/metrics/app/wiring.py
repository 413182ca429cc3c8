"""The metrics process: follows the log of each cell that it owns, and lets Prometheus read what it makes of it."""

from __future__ import annotations

from collections.abc import Mapping

from fallow.services.metrics.collector import CellCollector, Watched
from fallow.services.metrics.service import MetricsService
from fallow.services.metrics.settings import MetricsSettings
from fallow.shared.cluster.checks.invariants import Offence
from fallow.shared.cluster.fold.fold import LogRecord
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.opening import OpenLog, layout_for, open_log
from fallow.shared.log.port import Log, LogUnavailable
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.log.sharing.owned_cells import work_on_owned_cells
from fallow.shared.runtime.collector import loading
from fallow.shared.runtime.process import Context, wait_for
from fallow.shared.runtime.settings import ClockKind

PATIENT_MS = 500
POLL_WAIT_MS = 2_500
POLL_RECORDS = 50
CHECK_PAUSE_MS_MIN = 1_000
OFFENCE = "an invariant does not hold"
"""What the log of the process says of each decision and each check that has found something."""

AWAY_FIRST_S = 0.25
STEPPED_PAUSE_S = 0.1


async def main(context: Context[MetricsSettings], opening: OpenLog = open_log) -> None:
    """Measure the owned cells until told to stop. A cell whose log cannot be trusted has no figures."""
    file = context.host.cell_file(context.settings.cell_file)
    log = await opening(context, file)
    if log is not None:
        try:
            await measure(context, log, layout_for(context, file))
        finally:
            await log.stop()


async def measure(context: Context[MetricsSettings], log: Log, layout: Layout) -> None:
    """Measure the cells on any started log."""
    cells: dict[str, CellMetrics] = {}

    async def work(tenure: Tenure) -> None:
        cells[tenure.cell] = CellMetrics(context, log, layout, tenure)
        try:
            await cells[tenure.cell].run()
        finally:
            del cells[tenure.cell]

    named = context.settings.tenants_named
    context.registry.register(CellCollector(lambda: _watched(cells), named, layout.ordinals))
    await work_on_owned_cells(context, log, layout, "metrics", work)


def _watched(cells: Mapping[str, CellMetrics]) -> dict[str, Watched]:
    return {name: watched for name, cell in sorted(cells.items()) if (watched := cell.watched()) is not None}


class CellMetrics:
    """One cell in a metrics process. A lost cell is followed on for a while, but only its new owner shows it."""

    def __init__(self, context: Context[MetricsSettings], log: Log, layout: Layout, tenure: Tenure) -> None:
        self._context, self._tenure, self._host = context, tenure, context.host
        self._tp = layout.tp("decisions", tenure.cell)
        self._follower = Follower(
            log,
            layout,
            tenure.cell,
            snapshots=not context.settings.embedded,
            before_fold=self._before_fold,
            patient_ms=PATIENT_MS,
            service=context.service,
        )
        self._service: MetricsService | None = None
        self._away = context.back_off(AWAY_FIRST_S)
        self._check_at_ms = self._host.monotonic_ms() + CHECK_PAUSE_MS_MIN
        self._stepped = context.settings.clock is ClockKind.STEPPED

    def watched(self) -> Watched | None:
        """Its figures up to now; None while it is not ours or not loaded yet."""
        if self._service is None or not self._tenure.holds:
            return None
        self._service.look(self._follower.state)
        return Watched(self._service, max(self._follower.state.at_ms, self._context.clock.now_ms()))

    async def run(self) -> None:
        """Until cancelled."""
        what = f"the log of cell {self._tenure.cell}"
        if not await wait_for(self._context, what, self._begin, (LogUnavailable, OSError), about=self._tenure.cell):
            return
        self._context.health.ready()
        try:
            while True:
                await self._turn()
        finally:
            await self._follower.stop()

    async def _begin(self) -> None:
        await self._follower.stop()
        await self._follower.start()
        with loading(f"{self._context.service}: figures of {self._tenure.cell}"):
            self._service = MetricsService(self._follower.state, self._context.settings.tenants_named)

    def _before_fold(self, state: CellState, record: LogRecord) -> None:
        if self._service is not None and isinstance(record.decision, Decision):
            self._service.before(state, record.decision.at_ms)

    async def _turn(self) -> None:
        assert self._service is not None, "_begin() comes first"
        state = self._follower.state
        try:
            decisions = await self._follower.poll(0 if self._stepped else POLL_WAIT_MS, POLL_RECORDS)
        except LogUnavailable as error:
            self._context.logger.warning("cannot read", cell=self._tenure.cell, reason=str(error))
            await self._context.pause(self._away.next_s())
            return
        self._away.reset()
        if self._stepped and not decisions:
            # A stepped replay waits for no service that only follows: many records at once cost less than each one
            # alone.
            await self._context.pause(STEPPED_PAUSE_S)
        for decision in decisions:
            self._tell("the log", self._service.take(state, decision))
        self._context.health.handled(*self._tp, self._follower.next_offset)
        self._context.health.progress.version[self._tenure.cell] = state.version
        self._check()

    def _check(self) -> None:
        """A check of the whole state takes what it takes; the pause behind it keeps to the budget."""
        percent, begun_ms = self._context.settings.check_budget_percent, self._host.monotonic_ms()
        if self._service is None or not percent or begun_ms < self._check_at_ms:
            return
        name, offence = self._service.watch.check_next(self._follower.state)
        self._tell(name, offence)
        ended_ms = self._host.monotonic_ms()
        self._context.telemetry.step.labels(f"check {name}").observe((ended_ms - begun_ms) / 1000)
        self._check_at_ms = ended_ms + max(CHECK_PAUSE_MS_MIN, (ended_ms - begun_ms) * 100 // percent)

    def _tell(self, where: str, offence: Offence | None) -> None:
        if offence is not None:
            self._context.logger.error(
                OFFENCE,
                cell=self._tenure.cell,
                version=self._follower.state.version,
                found_in=where,
                invariant=offence.invariant,
                text=offence.text,
            )
