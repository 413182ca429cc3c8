"""A decision that takes long costs the process no place in its group: it is made beside the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from fallow.services.placement.service import KINDS_FEW, WAITERS_FEW
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, Dependency, JobSpec, Resources
from fallow.shared.events.jobs import AdmittedJob, JobsAdmitted
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.runtime.host import Host
from tests.contract.eventually import eventually
from tests.placement.worlds.world import CELL, DIGEST, World, admitted, joined, spec_of
from tests.placement.worlds.writers import PlacementProcess, cluster

T = TypeVar("T")


class WatchedHost(Host):
    """The machine itself, which tells what was done beside the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, bool]] = []

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:
        found = await super().beside(work, kind, may_be_long=may_be_long)
        if isinstance(work, partial):
            self.done.append((work.func.__name__, may_be_long))
        return found


async def test_what_looks_at_the_whole_state_is_done_beside_the_loop_and_what_follows_on_it() -> None:
    host = WatchedHost()
    process = PlacementProcess(MemoryLog(cluster()), "one", host)
    await process.start()
    await eventually(lambda: ("decide", False) in host.done)
    of_the_cell = [each for each in host.done if each[0] in ("take_over", "decide")]
    assert of_the_cell[:2] == [("take_over", True), ("decide", True)]
    assert process.metric("fallow_is_writer") == 1
    await process.stop()


def waiting(jobs: list[JobSpec]) -> World:
    """A cell that has taken these in, and has no room for any of them."""
    world = World()
    world.tell(joined("n1", 1), admitted(spec_of("first")))
    for begin in range(0, len(jobs), 500):
        world.tell(*(admitted(job) for job in jobs[begin : begin + 500]))
    world.rest()
    return world


def kinds(number: int) -> list[JobSpec]:
    wants = [Resources(gpu_milli=GPU, cpu_milli=each + 1) for each in range(number)]
    return [replace(spec_of(f"j{each:05}"), resources=want) for each, want in enumerate(wants)]


def handed_over(jobs: list[JobSpec]) -> Event:
    """What admission says of them, in one record."""
    return JobsAdmitted(cell=CELL, jobs=tuple(AdmittedJob(spec=job, submit_ms=0, digest=DIGEST) for job in jobs))


def test_a_decision_is_quick_however_many_like_jobs_wait_and_may_be_long_where_many_kinds_do() -> None:
    assert not waiting([spec_of(f"j{number:05}") for number in range(2_000)]).service.may_decide_long
    assert not waiting(kinds(KINDS_FEW - 1)).service.may_decide_long
    assert waiting(kinds(KINDS_FEW + 1)).service.may_decide_long


@pytest.mark.parametrize(("number", "may_be_long"), [(KINDS_FEW, True), (10, False)])
def test_a_decision_may_be_long_that_takes_in_many_kinds_of_jobs_at_once(number: int, *, may_be_long: bool) -> None:
    world = waiting([spec_of("j1")])
    world.hand_over(handed_over([*(spec_of(f"like{each}") for each in range(500)), *kinds(number)]))
    assert world.service.may_decide_long is may_be_long


def test_a_decision_may_be_long_in_which_a_job_can_end_that_many_others_wait_for() -> None:
    after = [spec_of(f"j{number:05}", after=(Dependency(job="first"),)) for number in range(WAITERS_FEW + 1)]
    assert not waiting(after[:-1]).service.may_decide_long
    assert waiting(after).service.may_decide_long
