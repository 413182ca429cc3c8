"""Whether jobs would wait for each other: searched from both ends, in a bounded number of steps.

A circle can only be closed by a job for which others wait before it is there. The search goes up from what the job
would wait for and down from what waits for it, level by level and always where fewer steps were taken: it ends when one
side does. So it is short where either side is, and what it finds does not depend on the order of any table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from fallow.shared.cluster.model.arrays import elements_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec

STEPS_MAX = 10_000
"""So many waits each of the two sides of a search may follow."""


class Found(NamedTuple):
    """A job that would wait for the new one and for which that one would wait, or None. With `is_cut` the search had no
    more steps left to tell; `steps` is how many waits it followed.
    """

    job: str | None
    is_cut: bool = False
    steps: int = 0


@dataclass(slots=True)
class _Side:
    """All that was reached so far, and what of it was reached last."""

    reached: dict[str, None]
    level: list[str]
    steps: int
    follow: Callable[[str], Collection[str]]
    named: Callable[[str], tuple[str, ...]]
    is_cut: bool = False

    @property
    def is_over(self) -> bool:
        """Whether all was reached that can be."""
        return not self.level and not self.is_cut

    def go_on(self) -> list[str]:
        """The next level; nothing where that takes too many steps."""
        found = [self.follow(job_id) for job_id in self.level]
        steps = self.steps + len(self.level) + sum(map(len, found))
        if steps > STEPS_MAX:
            self.is_cut, self.level = True, []
            return []
        self.steps = steps
        return self.reach(job_id for each in found for job_id in each)

    def reach(self, job_ids: Iterable[str]) -> list[str]:
        """Those of them that are new, under all of their names, are the next level."""
        before = len(self.reached)
        for job_id in job_ids:
            if job_id not in self.reached:
                self.reached.update(dict.fromkeys(self.named(job_id)))
        self.level = list(islice(self.reached, before, None))
        return self.level


def circle(state: CellState, spec: JobSpec, ids: tuple[str, ...]) -> Found:
    """Whether the new job, whose ids these are, would wait for itself."""
    above = _above(state, spec)
    for job_id in ids:
        if job_id in above.reached:
            return Found(job_id)
    below = _below(state, spec, ids)
    fresh, other = below.level, above
    while True:
        common = [job_id for job_id in fresh if job_id in other.reached]
        is_cut, steps = above.is_cut and below.is_cut, above.steps + below.steps
        if common or is_cut or above.is_over or below.is_over:
            return Found(min(common, default=None), is_cut, steps)
        side, other = _shorter(above, below)
        fresh = side.go_on()


def _shorter(one: _Side, other: _Side) -> tuple[_Side, _Side]:
    """The side that goes on, and the other."""
    goes_on = other.is_cut or (not one.is_cut and one.steps <= other.steps)
    return (one, other) if goes_on else (other, one)


def _above(state: CellState, spec: JobSpec) -> _Side:
    """What the job names."""
    side = _Side({}, [], 0, lambda job_id: _waited_for(state, job_id), lambda job_id: (job_id,))
    side.reach(dependency.job for dependency in spec.after)
    return side


def _waited_for(state: CellState, job_id: str) -> Collection[str]:
    """What a job waits for. All elements of an array wait for the same."""
    array = state.arrays.get(job_id)
    job = state.jobs.get(job_id) if array is None else next(elements_of(state, array), None)
    return () if job is None else job.waits_for


def _below(state: CellState, spec: JobSpec, ids: tuple[str, ...]) -> _Side:
    """The jobs of the same tenant that wait for it; those of others will not get ready, whatever they name."""
    side = _Side({}, [], 0, lambda job_id: state.dependents.get(job_id, ()), lambda job_id: _names(state, job_id))
    own = (
        follower
        for job_id in ids
        for follower in state.dependents.get(job_id, ())
        if state.jobs[follower].spec.tenant == spec.tenant
    )
    first = list(islice(own, STEPS_MAX + 1))
    if len(first) > STEPS_MAX:
        side.is_cut = True
    else:
        side.reach(first)
        side.steps = len(first)
    return side


def _names(state: CellState, job_id: str) -> tuple[str, ...]:
    """What others may name to wait for this job."""
    array = state.jobs[job_id].spec.array_of
    return (job_id,) if array is None else (job_id, array)
