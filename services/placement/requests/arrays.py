"""Arrays: one submission that becomes many jobs, accepted whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from fallow.shared.cluster.model.arrays import element_id
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec


def elements(spec: JobSpec) -> Iterator[JobSpec]:
    """The jobs that an array stands for."""
    for index in range(spec.array or 0):
        yield replace(spec, id=element_id(spec.id, index), array_of=spec.id, array_index=index)


def ids(spec: JobSpec) -> tuple[str, ...]:
    """The job's id, and those of its elements."""
    return (spec.id, *(element_id(spec.id, index) for index in range(spec.array or 0)))


def id_in_use(state: CellState, spec: JobSpec) -> str | None:
    """The first of an array's elements whose id some job has already, or None."""
    for job_id in ids(spec)[1:]:
        if job_id in state.jobs or job_id in state.finished or job_id in state.arrays:
            return job_id
    return None


def may_start_one_more(state: CellState, spec: JobSpec) -> bool:
    """Whether the array of this element lets another one run. One for which room is held counts as if it ran already,
    and so may start in its room.
    """
    array = state.arrays.get(spec.array_of or "")
    return array is None or array.starts_left != 0 or spec.id in state.rooms
