"""Jobs that start together in one walk leave their line together: whatever ends the walk between two of them, the line
is the one of who still waits.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

import pytest

from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import CycleResult, Start, schedule_queues
from fallow.services.placement.search.gang import Places
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.queue_order import Order
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.queue import QueueDiscipline
from tests.placement.worlds.networks import Machine, gang, network

JOBS = 70
"""More than start together at most, and than a row keeps places of jobs that are gone for."""


class Broken(Exception):
    """What a start raises here."""


def alike(number: int) -> JobSpec:
    """Each like the one before it."""
    return gang(f"job-{number:02}")


def of_two_tenants(number: int) -> JobSpec:
    """Two tenants' jobs that need the same room, in two rows: three of one, then one of the other."""
    return replace(alike(number), tenant="bob" if number % 4 == 3 else "ada")


def with_larger_ones(number: int) -> JobSpec:
    """Each tenth one needs other room, so that those behind it may not start before it."""
    return gang(f"job-{number:02}", 2 if number % 10 == 9 else 1)


def of_one_tenant_in_the_end(number: int) -> JobSpec:
    """The same, and the first ones are of two tenants: places found for both are left when one has nobody left."""
    return replace(with_larger_ones(number), tenant="bob" if number in (1, 4, 7) else "ada")


MIXES: tuple[Callable[[int], JobSpec], ...] = (alike, of_two_tenants, with_larger_ones, of_one_tenant_in_the_end)


def cell_of(spec_of: Callable[[int], JobSpec]) -> CellState:
    """A cell with room for all of the jobs, which wait."""
    state = network([Machine("a", gpus=32) for _ in range(3)], "best-fit")
    for number in range(JOBS):
        apply(state, e.JobEnqueued(spec=spec_of(number), submit_ms=number, digest="0" * 32), 0)
    return state


class Starts:
    """Starts jobs, and in place of the start with this number does what breaks it off: once."""

    def __init__(self, state: CellState, at: int, breaks_off: str) -> None:
        self.state, self.at, self.breaks_off = state, at, breaks_off
        self.started: list[str] = []

    def __call__(self, job: Job, places: Places, _: str) -> bool:
        is_it = len(self.started) == self.at
        if is_it:
            self.at = -1
            if self.breaks_off == "raises":
                raise Broken
            if self.breaks_off == "has no room for it":
                return False
        apply(self.state, e.JobStarted(job=job.id, attempt=1, workers=places), 0)
        self.started.append(job.id)
        return not is_it


def walk(state: CellState, lines: Lines, start: Start) -> CycleResult | None:
    try:
        return schedule_queues(state, lines, 0, start)
    except Broken:
        return None


def lines_of(state: CellState, discipline: QueueDiscipline) -> Lines:
    found = Lines((Queue(name="default", discipline=discipline),))
    found.follow(state, (), 0)
    return found


def in_line(lines: Lines) -> list[tuple[list[Order], Order | None, Order | None]]:
    """Who stands in each row, who is the first of it, and who is the first of all that need its room."""
    found = []
    for row in (row for queue in lines.in_order() for line in queue for row in line.rows.values()):
        first = row.rows.first()
        found.append((row.orders(JOBS), row.first, None if first is None else first.first))
    return sorted(found, key=itemgetter(0))


def is_line_of_who_waits(state: CellState, lines: Lines, discipline: QueueDiscipline) -> None:
    """The line is the one that is made anew, and holds no job that has started."""
    assert in_line(lines) == in_line(lines_of(state, discipline))
    waits = [job.id for job in state.jobs.values() if job.status is JobStatus.QUEUED]
    assert [job for job in state.jobs if lines.place_of(job) is not None] == waits
    fresh = {job for queue in lines.in_order() for line in queue for job in line.fresh}
    assert fresh <= set(waits)
    assert check_state(state) == []


@pytest.mark.parametrize("discipline", [QueueDiscipline.BEST_EFFORT_FIFO, QueueDiscipline.STRICT_FIFO])
@pytest.mark.parametrize("spec_of", MIXES)
@pytest.mark.parametrize("breaks_off", ["raises", "has no room for it", "has room for no more"])
def test_whatever_breaks_a_walk_off_the_line_is_of_those_that_wait_and_the_next_walk_goes_on(
    breaks_off: str, spec_of: Callable[[int], JobSpec], discipline: QueueDiscipline
) -> None:
    for at in (0, 1, 3, 8, 9, 10, 40, 65, JOBS - 1):
        state = cell_of(spec_of)
        lines, start = lines_of(state, discipline), Starts(state, at, breaks_off)
        found = walk(state, lines, start)
        assert len(start.started) == at + (breaks_off == "has room for no more")
        assert found is None or not found.is_whole
        is_line_of_who_waits(state, lines, discipline)
        assert walk(state, lines, start) is not None
        is_line_of_who_waits(state, lines, discipline)
        assert start.started == list(state.jobs)
