"""The work of loaning on one cell: follow its log, look for who yields when something has changed, and propose it."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fallow.services.loaning.app.resting import Resting
from fallow.services.loaning.service import LoaningService
from fallow.services.loaning.settings import LoaningSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import part_in_force
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import ProposalRefused, RoomHeld
from fallow.shared.events.operations import PreemptionMode
from fallow.shared.events.proposals import PreemptionProposed
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Outgoing, RecordTooLarge
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.runtime.clocks import SteppedCellClock
from fallow.shared.runtime.process import Context, wait_for

PATIENT_MS = 30
"""So long may decisions gather before they are read: a job waits for the room."""

POLL_WAIT_MS = 2_500
POLL_RECORDS = 200
AWAY_FIRST_S = 0.25
STEPPED_PAUSE_S = 0.1

BUDGET_PERCENT = 50
"""Looks take no more of the time than this: the fold goes on between them."""


class LoaningMetrics:
    """What the loaning process counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.proposed = Counter(
            "fallow_preemptions_proposed_total", "Proposals that jobs yield", ["cell", "cause"], registry=registry
        )
        self.accepted = Counter(
            "fallow_preemptions_accepted_total", "Proposals that were carried out", ["cell"], registry=registry
        )
        self.refused = Counter(
            "fallow_preemptions_refused_total", "Proposals that were not", ["cell", "code"], registry=registry
        )
        self.missing = Gauge(
            "fallow_preemption_jobs_unhelped",
            "Waiting jobs that may preempt, for which too little could become free",
            ["cell"],
            registry=registry,
        )
        self.seconds = Histogram(
            "fallow_preemption_look_seconds",
            "What a look for who may yield took",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=registry,
        )


class CellProposer:
    """One cell in a loaning process. While another process owns the cell it folds along and says nothing; while the
    policy lets no job yield it rests.
    """

    def __init__(
        self,
        context: Context[LoaningSettings],
        log: Log,
        layout: Layout,
        file: CellFile,
        tenure: Tenure,
        metrics: LoaningMetrics,
    ) -> None:
        self._context, self._log, self._layout, self._metrics = context, log, layout, metrics
        self._host, self._tenure, self._part = context.host, tenure, file.cell(tenure.cell)
        self._tp = layout.tp("decisions", tenure.cell)
        self._follower = Follower(log, layout, tenure.cell, patient_ms=PATIENT_MS, service=context.service)
        self._stepped = isinstance(context.clock, SteppedCellClock)
        self._away = context.back_off(AWAY_FIRST_S)
        self._service = LoaningService(f"loaning-{self._host.wall_ms()}-{tenure.cell}")
        self._held = False
        self._resting: Resting | None = None
        self._look_at_ms = self._host.monotonic_ms()

    async def run(self) -> None:
        """Until told to stop, or the task is cancelled. An exception means that the log cannot be trusted."""
        cell = self._tenure.cell
        try:
            if await wait_for(self._context, f"the log of cell {cell}", self._begin, (LogUnavailable,), about=cell):
                self._context.health.ready()
                while not self._context.stopping.is_set():
                    await self._turn()
        finally:
            await self._end_rest()
            await self._follower.stop()
            self._context.health.ready(cell)
            self._metrics.missing.labels(cell).set(0)

    async def _begin(self) -> None:
        await self._follower.start()
        await self._follower.catch_up()

    async def _turn(self) -> None:
        """Fold what has come, and propose if a look is due; or rest."""
        cell, decisions = self._tenure.cell, list[Decision]()
        try:
            if self._is_off and not self._stepped:
                await self._rest()
            else:
                decisions = await self._follower.poll(0 if self._stepped else self._wait_ms(), POLL_RECORDS)
                self._note(decisions)
                if self._is_due():
                    await self._propose()
        except LogUnavailable as error:
            self._context.health.not_ready(f"Kafka is away: {error}", cell, cell=cell)
            self._context.logger.warning("the log is away", cell=cell, reason=str(error))
            await self._context.pause(self._away.next_s())
            return
        self._away.reset()
        self._context.health.ready(cell)
        if self._stepped and not decisions:
            await self._context.pause(STEPPED_PAUSE_S)

    @property
    def _is_off(self) -> bool:
        """Whether no job may yield, by the newest policy that was folded."""
        return self._follower.state.policy.preemption is PreemptionMode.OFF

    async def _rest(self) -> None:
        """Read on without a look into the records, and follow the cell again when one may have set a policy. Raises as
        the follower does.
        """
        if self._resting is None:
            await self._follower.rest()
            resting = Resting(self._log, self._tp, self._follower.next_offset)
            await resting.start()
            self._resting = resting
            self._context.health.progress.version[self._tenure.cell] = self._follower.state.version
        is_over = await self._resting.is_over(POLL_WAIT_MS)
        self._context.health.handled(*self._tp, self._resting.next_offset)
        if is_over:
            await self._end_rest()
            await self._begin()
            self._service.on_take_over()  # of what was decided meanwhile it knows nothing

    async def _end_rest(self) -> None:
        resting, self._resting = self._resting, None
        if resting is not None:
            await resting.stop()

    def _note(self, decisions: Sequence[Decision]) -> None:
        health, cell, metrics = self._context.health, self._tenure.cell, self._metrics
        for decision in decisions:
            self._service.on_folded(decision)
            for effect in decision.effects:
                if isinstance(effect, RoomHeld):
                    metrics.accepted.labels(cell).inc()
                elif isinstance(effect, ProposalRefused):
                    metrics.refused.labels(cell, effect.code.value).inc()
        health.handled(*self._tp, self._follower.next_offset)
        health.progress.version[cell] = self._follower.state.version
        if self._tenure.holds and not self._held:
            self._service.on_take_over()
        self._held = self._tenure.holds

    def _now_ms(self) -> int:
        return max(self._follower.state.at_ms, self._context.clock.now_ms())

    def _is_due(self) -> bool:
        """Whether to look now. Under a stepped clock nobody yields: a replay comes to the same starts each time,
        whenever a look is made.
        """
        if self._is_off or self._stepped or not self._tenure.holds:
            return False
        return self._host.monotonic_ms() >= self._look_at_ms and self._service.is_due(self._now_ms())

    def _wait_ms(self) -> int:
        """How long until the next look could be due, if nothing comes."""
        next_ms = self._service.next_ms()
        if self._is_off or not self._tenure.holds:
            return POLL_WAIT_MS
        rest_ms = max(0, self._look_at_ms - self._host.monotonic_ms())
        if self._service.is_due(self._now_ms()):
            return min(rest_ms, POLL_WAIT_MS)
        due_ms = POLL_WAIT_MS if next_ms is None else next_ms - self._now_ms()
        return max(rest_ms, min(due_ms, POLL_WAIT_MS))

    async def _propose(self) -> None:
        """Look, and bring what is found into the log. Raises LogUnavailable."""
        begun_ms, cell, state = self._host.monotonic_ms(), self._tenure.cell, self._follower.state
        part, now_ms = part_in_force(state.cell_file, self._part), self._now_ms()

        def work() -> list[PreemptionProposed]:
            return self._service.propose(state, part.queues, now_ms)

        # The state is changed and put back meanwhile: only this task folds it, and it waits here.
        proposals = await self._host.beside(work, f"look at {cell}", may_be_long=True)
        took_ms = self._host.monotonic_ms() - begun_ms
        rest_ms = took_ms * (100 - BUDGET_PERCENT) // BUDGET_PERCENT
        self._look_at_ms = begun_ms + took_ms + max(self._context.settings.look_every_wall_ms, rest_ms)
        self._metrics.seconds.observe(took_ms / 1_000)
        self._metrics.missing.labels(cell).set(len(self._service.seen.missing))
        for proposal in proposals:
            await self._say(proposal)

    async def _say(self, proposal: PreemptionProposed) -> None:
        """Bring a proposal into the log. One that the topic will never take is given up by and by, as one without an
        answer. Raises LogUnavailable.
        """
        cell = self._tenure.cell
        self._metrics.proposed.labels(cell, proposal.cause.value).inc()
        try:
            await self._log.publish([self._record(proposal)])
        except RecordTooLarge as error:
            self._context.logger.warning("a proposal is too large", cell=cell, reason=str(error))

    def _record(self, proposal: PreemptionProposed) -> Outgoing:
        source, wall_ms = self._context.instance, self._host.wall_ms()
        return self._layout.outgoing(proposal, id=proposal.proposal, source=source, wall_ms=wall_ms)
