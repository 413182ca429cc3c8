"""The work of queueing on one cell: follow its log, publish now and then which jobs are next and when jobs that do not
fit would start, and have snapshots of the state written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fallow.services.queueing.app.snapshots import Keeper
from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.forecast_error import ForecastError
from fallow.services.queueing.policy.plan import in_parts, plan_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import part_in_force
from fallow.shared.events.decisions import Decision
from fallow.shared.events.queue import PlannedStart, QueuePlan, QueuePlanned, StartsPlanned
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Outgoing, RecordTooLarge
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.runtime.clocks import SteppedCellClock
from fallow.shared.runtime.process import Context, wait_for

PATIENT_MS = 500
"""So long may decisions gather before they are read: no service waits for a plan."""

POLL_WAIT_MS = 2_500
POLL_RECORDS = 50
AWAY_FIRST_S = 0.25
STEPPED_PAUSE_S = 0.1

SAID_AGAIN_WALL_MS = 60_000
"""A plan is made anew after so long though nothing was decided: what was used counts less by then, and pauses end."""

CONFIRMED_WALL_MS = 2_000
"""The time while starts are planned: what is kept for them lapses unless it is confirmed, and estimates are outlived.
"""

BUDGET_PERCENT = 5
"""To plan takes no more of the time than this: with 100,000 jobs that wait a plan comes every few seconds."""


class QueueingMetrics:
    """What the queueing process counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.plans = Counter("fallow_queue_plans_total", "Plans of the queues published", ["cell"], registry=registry)
        self.waiting = Gauge("fallow_queue_jobs", "Jobs that wait in a queue", ["cell", "queue"], registry=registry)
        self.planned = Gauge(
            "fallow_queue_planned_starts", "Waiting jobs that have a planned start", ["cell"], registry=registry
        )
        self.too_large = Counter(
            "fallow_queue_too_large_total", "Records too large for topic queue", ["cell"], registry=registry
        )
        self.error = Histogram(
            "fallow_queue_planned_start_error_seconds",
            "How far from its first planned start a job started, in cell time",
            ["cell", "side"],
            buckets=(1, 10, 60, 300, 900, 3_600, 14_400, 86_400),
            registry=registry,
        )


Keeping = Callable[[Follower], Keeper]
"""Begins to keep the snapshots of the cell that is followed."""


class CellPlanner:
    """One cell in a queueing process. While another process owns the cell it folds along and says nothing. It folds
    once, for the plans and for the snapshots, and each of them goes on where the other fails.
    """

    def __init__(
        self,
        context: Context[QueueingSettings],
        log: Log,
        layout: Layout,
        file: CellFile,
        tenure: Tenure,
        metrics: QueueingMetrics,
        keeping: Keeping | None = None,
    ) -> None:
        """Without `keeping` there are no snapshots."""
        self._context, self._log, self._layout, self._metrics = context, log, layout, metrics
        self._host, self._tenure, self._part = context.host, tenure, file.cell(tenure.cell)
        self._tp = layout.tp("decisions", tenure.cell)
        self._follower = Follower(log, layout, tenure.cell, patient_ms=PATIENT_MS, service=context.service)
        self._stepped = isinstance(context.clock, SteppedCellClock)
        self._away = context.back_off(AWAY_FIRST_S)
        self._writer = f"{context.instance}-{self._host.wall_ms()}"
        self._plans = 0
        self._has_planned = True  # what a process before this one planned is to end
        self._planned_version: int | None = None
        self._is_unsaid = False
        """Whether the log did not take the last plan: until it takes one, the process is not ready."""
        self._plan_at_ms = self._again_at_ms = self._host.monotonic_ms()
        self._shown: tuple[str, ...] = ()
        self._error = ForecastError()
        self._keeping = keeping
        self._keeper: Keeper | None = None

    async def run(self) -> None:
        """Until told to stop, or the task is cancelled. An exception means that the log cannot be trusted."""
        cell, is_orderly = self._tenure.cell, False
        try:
            if await wait_for(self._context, f"the log of cell {cell}", self._begin, (LogUnavailable,), about=cell):
                self._context.health.ready()
                while not self._context.stopping.is_set():
                    await self._turn()
                is_orderly = True
        except asyncio.CancelledError:
            is_orderly = True  # no plan is half made: the state is whole
            raise
        finally:
            if self._keeper is not None:
                await self._keeper.end(is_orderly=is_orderly)
            await self._follower.stop()
            self._context.health.ready(cell)
            self._context.health.ready(f"plans of {cell}")
            self._count([])

    async def _begin(self) -> None:
        await self._follower.start()
        if self._keeping is not None and self._keeper is None:
            self._keeper = self._keeping(self._follower)
        await self._follower.catch_up()

    async def _turn(self) -> None:
        """Fold what has come, begin a snapshot if one is due, and publish a plan if one is due."""
        try:
            decisions = await self._follower.poll(0 if self._stepped else self._wait_ms(), POLL_RECORDS)
            self._show(decisions)
            if self._keeper is not None:
                await self._keeper.turn()  # before the plan: however that ends, the next start has less to fold
            if not self._tenure.holds:
                self._is_unsaid = False
                self._context.health.ready(f"plans of {self._tenure.cell}")
                self._count([])  # the figures are another process's now
            elif self._wait_ms() == 0:
                await self._publish()
        except LogUnavailable as error:
            self._context.health.not_ready(f"Kafka is away: {error}", self._tenure.cell, cell=self._tenure.cell)
            self._context.logger.warning("the log is away", cell=self._tenure.cell, reason=str(error))
            await self._context.pause(self._away.next_s())
            return
        if not self._is_unsaid:
            self._away.reset()
            self._context.health.ready(self._tenure.cell)
        if self._stepped and not decisions:
            # A stepped replay waits for no service that only follows: many records at once cost less than each one
            # alone.
            await self._context.pause(STEPPED_PAUSE_S)

    def _wait_ms(self) -> int:
        """How long the next plan has time; 0 when it is due."""
        if not self._tenure.holds:
            return POLL_WAIT_MS
        is_news = self._follower.state.version != self._planned_version
        rest_ms = (self._plan_at_ms if is_news else self._again_at_ms) - self._host.monotonic_ms()
        return max(0, min(rest_ms, POLL_WAIT_MS))

    async def _publish(self) -> None:
        """Make a plan and bring it into the log. Raises LogUnavailable."""
        begun_ms, version = self._host.monotonic_ms(), self._follower.state.version
        state, part = self._follower.state, part_in_force(self._follower.state.cell_file, self._part)
        at_ms = max(state.at_ms, self._context.clock.now_ms())

        def work() -> tuple[list[QueuePlan], tuple[PlannedStart, ...]]:
            most = state.policy.reservations_max
            return plan_of(state, part.queues, at_ms), plan_starts(state, part.queues, at_ms, most, estimator_of(state))

        # The state is changed and put back meanwhile: only this task folds it, and it waits here.
        plans, starts = await self._host.beside(work, f"plan of {self._tenure.cell}", may_be_long=True)
        ended_ms = self._host.monotonic_ms()
        self._pace(begun_ms, ended_ms)
        self._planned_version, self._is_unsaid = None, True  # where it is not taken, the next one is due without news
        await self._say(self._records(plans, starts, version, at_ms))
        self._is_unsaid = False
        self._error.planned(starts)
        self._planned_version = version
        self._metrics.plans.labels(self._tenure.cell).inc()
        self._count(plans, len(starts))

    async def _say(self, records: list[Outgoing]) -> None:
        """Bring these into the log, except for what the topic will never take: then the process is not ready. Raises
        LogUnavailable.
        """
        too_large = ""
        try:
            await self._log.publish(records)
        except RecordTooLarge:
            for record in records:
                too_large = await self._say_one(record) or too_large
        about = f"plans of {self._tenure.cell}"
        if too_large:
            self._context.health.not_ready(
                f"part of the plan is left unsaid: {too_large}", about, cell=self._tenure.cell
            )
        else:
            self._context.health.ready(about)

    async def _say_one(self, record: Outgoing) -> str:
        """Nothing, or why the topic does not take it."""
        try:
            await self._log.publish([record])
        except RecordTooLarge as error:
            self._metrics.too_large.labels(self._tenure.cell).inc()
            self._context.logger.warning("left unsaid: too large", cell=self._tenure.cell, reason=str(error))
            return f"topic {record.topic} refuses a record for its size: {error}"
        return ""

    def _pace(self, begun_ms: int, ended_ms: int) -> None:
        """When the next plan is due, after one that was made in this time."""
        rest_ms = (ended_ms - begun_ms) * 100 // BUDGET_PERCENT
        self._plan_at_ms = ended_ms + max(self._context.settings.plan_every_wall_ms, rest_ms)
        again_ms = CONFIRMED_WALL_MS if self._follower.state.reservations else SAID_AGAIN_WALL_MS
        self._again_at_ms = max(self._plan_at_ms, ended_ms + again_ms)

    def _records(
        self, plans: list[QueuePlan], starts: tuple[PlannedStart, ...], version: int, at_ms: int
    ) -> list[Outgoing]:
        self._plans += 1
        cell, writer, plan = self._tenure.cell, self._writer, self._plans
        parts = in_parts(plans)
        events: list[QueuePlanned | StartsPlanned] = [
            QueuePlanned(
                cell=cell,
                writer=writer,
                plan=plan,
                part=number,
                parts=len(parts),
                version=version,
                at_ms=at_ms,
                queues=queues,
            )
            for number, queues in enumerate(parts)
        ]
        if starts or self._has_planned:
            events.append(
                StartsPlanned(cell=cell, writer=writer, plan=plan, version=version, at_ms=at_ms, starts=starts)
            )
        self._has_planned = bool(starts)
        source, wall_ms = self._context.instance, self._host.wall_ms()
        return [
            self._layout.outgoing(event, id=f"{writer}/{plan}/{number}", source=source, wall_ms=wall_ms)
            for number, event in enumerate(events)
        ]

    def _count(self, plans: list[QueuePlan], planned: int = 0) -> None:
        cell = self._tenure.cell
        self._metrics.planned.labels(cell).set(planned)
        for queue in set(self._shown) - {plan.queue for plan in plans}:
            self._metrics.waiting.remove(cell, queue)
        for plan in plans:
            self._metrics.waiting.labels(cell, plan.queue).set(plan.waiting)
        self._shown = tuple(plan.queue for plan in plans)

    def _show(self, decisions: Sequence[Decision]) -> None:
        health, cell = self._context.health, self._tenure.cell
        for decision in decisions:
            for side, ms in self._error.note(decision):
                self._metrics.error.labels(cell, side).observe(ms / 1_000)
        health.handled(*self._tp, self._follower.next_offset)
        health.progress.version[cell] = self._follower.state.version
