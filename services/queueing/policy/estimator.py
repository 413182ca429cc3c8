"""The port through which the planner asks how long jobs run, and what stands behind it: nothing, what jobs tell of
themselves, or what the cell has learned from those that are over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.run_time import end_estimate_ms, expected_run_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.operations import EstimatorKind


class Estimator(Protocol):
    """Guesses run times. It may be wrong: placement relies on none of its answers."""

    def run_ms(self, state: CellState, spec: JobSpec) -> int | None:
        """How long a run of the job would take; None where nothing is known."""

    def end_ms(self, state: CellState, job: Job, place: WorkerPlace, now_ms: int) -> int | None:
        """When a worker of a job that holds places will be over, not before `now_ms`; None where nothing is known."""


@dataclass(frozen=True, slots=True)
class EstimatorOf:
    """The estimator of this kind. By `learned` what jobs tell counts where of their kind nothing is known."""

    kind: EstimatorKind

    def run_ms(self, state: CellState, spec: JobSpec) -> int | None:
        """How long a run of the job would take; None where nothing is known."""
        return expected_run_ms(state, spec, self.kind)

    def end_ms(self, state: CellState, job: Job, place: WorkerPlace, now_ms: int) -> int | None:
        """When a worker of a job that holds places will be over, not before `now_ms`; None where nothing is known."""
        return end_estimate_ms(state, job, place, now_ms, self.kind)


def estimator_of(state: CellState) -> Estimator:
    """The estimator that the policy of the cell names."""
    return EstimatorOf(state.policy.estimator)
