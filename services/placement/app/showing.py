"""What a placement process shows of one cell: to its health, to its metrics, and to a person."""

from __future__ import annotations

from collections.abc import Mapping

from fallow.services.placement.app.metrics import CellMetrics
from fallow.services.placement.decision.failures import Failures
from fallow.services.placement.service import PlacementService
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.layout import Layout
from fallow.shared.runtime.process import Context

HELD = "job held by a defect"
"""What the log of the process says of each job that the decision in force does without."""


class Showing:
    """Of one cell, whose inputs have these names in decisions, by topic."""

    def __init__(
        self,
        context: Context[PlacementSettings],
        layout: Layout,
        cell: str,
        sources: Mapping[str, str],
        metrics: CellMetrics,
    ) -> None:
        self.cell = cell
        self._decisions, self._sources = layout.tp("decisions", cell), sources
        self._health, self._metrics, self._logger = context.health, metrics, context.logger
        self._shown: tuple[int, ...] = ()
        self._plans_passed_over = self._plan_ahead_ms = 0

    def show(self, service: PlacementService, *, goes_on: bool) -> None:
        """How far the cell is read and decided. `goes_on`: there is more to decide at once."""
        state, health = service.state, self._health
        topic, partition = self._decisions
        health.handled(topic, partition, state.offset + 1)
        read = service.read
        for topic, source in self._sources.items():
            if source in read:
                health.handled(topic, partition, read[source])
        health.progress.version[self.cell] = state.version
        health.progress.next_due_ms = service.next_cell_ms()
        health.progress.busy = service.has_pending or goes_on
        shown = (state.version, state.epoch, state.waiting, len(state.jobs), service.leases_frozen, len(state.silent))
        if shown != self._shown:
            self._shown = shown
            self._metrics.show(*shown)

    def tell(self, service: PlacementService) -> None:
        """What a person should know of the cell; only the process that writes it tells that."""
        self._health.noted(self._silent_note, _many_silent(self.cell, service.state))
        self._health.noted(self._failed_note, _failed(self.cell, service.failures))
        self._health.noted(self._held_note, _held(self.cell, service.failures))
        for refusal in service.take_without():
            self._logger.error(HELD, cell=self.cell, job=refusal.job, reason=refusal.rule)
            self._metrics.held.inc()
        self._show_plans(service)

    def left(self) -> None:
        """The cell is another process's to write: what a person should know of it is told there."""
        self._health.noted(self._silent_note)
        self._health.noted(self._failed_note)
        self._health.noted(self._held_note)
        self._health.noted(self._plans_note)
        self._plan_ahead_ms = 0

    def _show_plans(self, service: PlacementService) -> None:
        plans = service.reservations
        count = plans.plans_passed_over
        if count != self._plans_passed_over:
            self._metrics.plans_ahead.inc(count - self._plans_passed_over)
            self._plans_passed_over = count
        if plans.plan_ahead_ms != self._plan_ahead_ms:
            self._plan_ahead_ms = plans.plan_ahead_ms
            ahead_s = plans.plan_ahead_ms // 1_000
            text = f"queueing's clock is {ahead_s} s of cell time ahead of placement's: its planned starts are ignored"
            self._health.noted(self._plans_note, text if ahead_s else None)

    @property
    def _silent_note(self) -> str:
        return f"silent nodes of {self.cell}"

    @property
    def _failed_note(self) -> str:
        return f"failed inputs of {self.cell}"

    @property
    def _held_note(self) -> str:
        return f"jobs held by defects in {self.cell}"

    @property
    def _plans_note(self) -> str:
        return f"clock of queueing for {self.cell}"


def _failed(cell: str, failures: Failures) -> str | None:
    """What a person should report: a defect of ours."""
    count = failures.count
    if not count:
        return None
    inputs = "1 input was" if count == 1 else f"{count} inputs were"
    return f"cell {cell}: {inputs} set aside because decisions failed; the newest: {failures.newest}"


def _held(cell: str, failures: Failures) -> str | None:
    """What a person should report of the jobs that the state refused to start."""
    count = failures.jobs
    if not count:
        return None
    jobs = "1 job was" if count == 1 else f"{count} jobs were"
    return f"cell {cell}: {jobs} held since the state refused the start; the newest: {failures.newest_job}"


def _many_silent(cell: str, state: CellState) -> str | None:
    """What a person should know while many nodes are silent at once."""
    held, per_minute = state.evictions, state.policy.breaker_nodes_per_minute
    if held is None:
        return None
    if held.held_wall_ms < state.policy.breaker_wait_wall_ms:
        wait_s = state.policy.breaker_wait_wall_ms // 1_000
        how = f"node loss paused for {wait_s} s, then limited to {per_minute} a minute"
    else:
        how = f"node loss limited to {per_minute} a minute"
    return f"cell {cell}: {held.silent} {'node' if held.silent == 1 else 'nodes'} silent; {how}"
