"""Arrays: jobs that were submitted many at once, and how far they are. An array is over with its last element."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow.shared.cluster.fold.errors import require
from fallow.shared.cluster.model.job import Job, JobStatus

if TYPE_CHECKING:
    from fallow.shared.cluster.model.state import CellState


@dataclass(slots=True)
class ArrayJob:
    """An array of which some elements are not over: `left` of `elements`. `holding` of them hold places now, of which
    there may be `max_running`; for `making_room` others room is held, in which they will start. `failed` and
    `cancelled` came to such an end. Its submission came at `came_ms`.
    """

    id: str
    tenant: str
    digest: str
    elements: int
    max_running: int | None = None
    left: int = 0
    holding: int = 0
    failed: int = 0
    cancelled: int = 0
    came_ms: int = 0
    making_room: int = 0

    @property
    def is_full(self) -> bool:
        """Whether so many elements run that no further one may start."""
        return self.max_running is not None and self.holding >= self.max_running

    @property
    def starts_left(self) -> int | None:
        """How many more elements may start, or get room that is held for them; None where no limit says so."""
        if self.max_running is None:
            return None
        return max(0, self.max_running - self.holding - self.making_room)

    @property
    def outcome(self) -> JobStatus:
        """What the array has come to, with what is over of it: a failure tells more than a cancel."""
        if self.failed:
            return JobStatus.FAILED
        return JobStatus.CANCELLED if self.cancelled else JobStatus.FINISHED


def element_id(array: str, index: int) -> str:
    """The id of one element."""
    return f"{array}.{index}"


def elements_of(state: CellState, array: ArrayJob) -> Iterator[Job]:
    """Those that are not over, in the order of their indices."""
    for index in range(array.elements):
        job = state.jobs.get(element_id(array.id, index))
        if job is not None and job.spec.array_of == array.id:
            yield job


def enter(state: CellState, job: Job) -> None:
    """One element more waits. The first one makes the array known."""
    spec = job.spec
    assert spec.array_of is not None, "an element names its array"
    array = state.arrays.get(spec.array_of)
    if array is None:
        require(
            spec.array_of not in state.jobs and spec.array_of not in state.finished,
            f"job {spec.array_of} exists already",
        )
        most, came_ms = spec.array_max_running, job.came_ms
        array = ArrayJob(spec.array_of, spec.tenant, job.digest, spec.array or 1, most, came_ms=came_ms)
        state.undo_log.put(state.arrays, array.id, array)
    state.undo_log.set(array, "left", array.left + 1)


def hold(state: CellState, array_id: str, change: int) -> None:
    """An element takes its places (+1), or gives them back (-1)."""
    array = state.arrays[array_id]
    state.undo_log.set(array, "holding", array.holding + change)


def hold_room(state: CellState, array_id: str, change: int) -> None:
    """Room is held for an element (+1), or not any more (-1)."""
    array = state.arrays[array_id]
    state.undo_log.set(array, "making_room", array.making_room + change)


def leave(state: CellState, array_id: str, status: JobStatus) -> ArrayJob | None:
    """An element is over. The array, if that was its last one."""
    array, journal = state.arrays[array_id], state.undo_log
    journal.set(array, "left", array.left - 1)
    if status is JobStatus.FAILED:
        journal.set(array, "failed", array.failed + 1)
    elif status is JobStatus.CANCELLED:
        journal.set(array, "cancelled", array.cancelled + 1)
    if array.left:
        return None
    journal.drop(state.arrays, array_id)
    return array


def is_named_as_element(job_id: str) -> bool:
    """Whether the id ends in a dot and a number. The cell alone gives such ids, and only to elements."""
    _, dot, index = job_id.rpartition(".")
    return bool(dot) and index.isdecimal()


def arrays_among(over: Iterable[str], jobs: Iterable[str]) -> frozenset[str]:
    """Those of the ids of what is over that are no jobs but arrays: an element of each of them is among the jobs."""
    return frozenset(over) & {job_id.rpartition(".")[0] for job_id in jobs if is_named_as_element(job_id)}


def is_element_of(job_id: str, array: str) -> bool:
    """Whether a job of the cell is an element of this array: its id tells, since no other job is named so."""
    return is_named_as_element(job_id) and job_id.rpartition(".")[0] == array
