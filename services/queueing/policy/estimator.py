"""The port through which the planner asks how long jobs run, and what stands behind it so far."""

from __future__ import annotations

from typing import Protocol

from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.run_time import end_estimate_ms, run_estimate_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, WorkerPlace


class Estimator(Protocol):
    """Guesses run times. It may be wrong: placement relies on none of its answers."""

    def run_ms(self, state: CellState, spec: JobSpec) -> int | None:
        """How long a run of the job would take; None where nothing is known."""

    def end_ms(self, state: CellState, job: Job, place: WorkerPlace, now_ms: int) -> int | None:
        """When a worker of a job that holds places will be over, not before `now_ms`; None where nothing is known."""


class Declared:
    """Goes by what jobs tell of themselves: their guess, their limit, or what the cell assumes of all others."""

    def run_ms(self, state: CellState, spec: JobSpec) -> int | None:
        """How long a run of the job would take; None where nothing is known."""
        return run_estimate_ms(state, spec)

    def end_ms(self, state: CellState, job: Job, place: WorkerPlace, now_ms: int) -> int | None:
        """When a worker of a job that holds places will be over, not before `now_ms`; None where nothing is known."""
        return end_estimate_ms(state, job, place, now_ms)
