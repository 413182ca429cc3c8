"""What the jobs of a simulated trace tell of how long they will run: the truth, a limit as users set it, a guess that
errs, or nothing. Everything is drawn from a seed and the job's id, so that all policies get the same estimates, and so
does a part of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite
from random import Random

from fallow.cli.errors.failures import refuse
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.digits import is_written_with_digits
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, VirtualRun
from fallow.shared.events.operations import EstimatorKind
from fallow.simulator.trace.run import Arrival

KINDS = "exact, limits:FACTOR (such as limits:3), noise:SIGMA (such as noise:1.0), learned, none"
SILENT = ("none", "learned")
"""With these jobs tell nothing."""

SIGMA_MAX = 10.0
FACTOR_MAX = 1_000.0


@dataclass(frozen=True, slots=True)
class Estimates:
    """`limits` tells the run time times a factor drawn evenly from 1 to `amount`, as a limit that stops no job; `noise`
    the run time times a log-normal factor with median 1 and sigma `amount`. `learned` tells nothing: the cell expects
    what earlier jobs have taught it.
    """

    kind: str
    amount: float = 0.0

    def on(self, arrivals: Sequence[Arrival], seed: int) -> list[Arrival]:
        """These arrivals with these estimates and no others."""
        return [self._told(arrival, seed) for arrival in arrivals]

    def by(self, file: CellFile) -> CellFile:
        """This cell file, with the estimator of these estimates."""
        cells = [
            part.model_copy(update={"policy": replace(part.policy, estimator=self.estimator)}) for part in file.cells
        ]
        return file.model_copy(update={"cells": tuple(cells)})

    @property
    def name(self) -> str:
        """As a user names them."""
        return f"{self.kind}:{self.amount:g}" if self.amount else self.kind

    @property
    def estimator(self) -> EstimatorKind:
        """By what the cell expects how long jobs run."""
        return EstimatorKind.LEARNED if self.kind == "learned" else EstimatorKind.DECLARED

    def _told(self, arrival: Arrival, seed: int) -> Arrival:
        job = arrival.command.job
        estimate_ms = self._estimate_ms(job, Random(f"{seed} {job.id}"))  # noqa: S311 - a load is no secret
        told = replace(job, estimate_run_ms=estimate_ms, max_run_ms=None if self.kind in SILENT else job.max_run_ms)
        return Arrival(arrival.at_ms, replace(arrival.command, job=told))

    def _estimate_ms(self, job: JobSpec, chance: Random) -> int | None:
        run_ms = run_time_ms(job)
        if self.kind in SILENT or run_ms is None:
            return None
        if self.kind == "limits":
            run_ms = round(run_ms * chance.uniform(1.0, self.amount))
        elif self.kind == "noise":
            run_ms = round(run_ms * exp(chance.gauss(0.0, self.amount)))
        return min(max(run_ms, 1), LARGEST_INTEGER)


def run_time_ms(job: JobSpec) -> int | None:
    """How long the first attempt of a job will run; None where it runs without end, or in real processes."""
    run = job.run
    if not isinstance(run, VirtualRun):
        return None
    return min((ms for ms in (run.duration_ms, run.fail_at_ms) if ms is not None), default=None)


def estimates_of(text: str) -> Estimates:
    """The estimates that a user names. Ends the command where there are none of that name."""
    kind, colon, number = text.partition(":")
    if kind in ("limits", "noise") and colon:
        least, most, name = (1.0, FACTOR_MAX, "FACTOR") if kind == "limits" else (0.0, SIGMA_MAX, "SIGMA")
        return Estimates(kind, _number(text, number, least, most, name))
    if text not in ("exact", *SILENT):
        refuse("--estimates", text, f"it must be one of {KINDS}")
    return Estimates(text)


def _number(text: str, number: str, least: float, most: float, name: str) -> float:
    found = float(number) if is_written_with_digits(number, float) else float("nan")
    if not isfinite(found) or not least <= found <= most:
        refuse("--estimates", text, f"{name} must be a number from {least:g} to {most:g}")
    return found
