"""The end of a story waits as long as jobs come to their end one after the other, and tells what stands still."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from fallow.shared.events.base import replace
from fallow.shared.events.fields.values import JobSpec, VirtualRun
from fallow.shared.events.jobs import JobAdmitted
from fallow.simulator.drain import LONGEST_MS, STANDSTILL_MS, Standstill
from fallow.simulator.history.of_world import judge_history
from fallow.simulator.history.record import EPOCH_MS, History
from fallow.simulator.storage.broker import Message, message_of
from fallow.simulator.world import FAULTS_END_MS, World

ALONE_MS = FAULTS_END_MS + STANDSTILL_MS
"""When a drain ends that sees nothing come to its end."""


def told(*jobs: JobSpec) -> History:
    """A world without faults in which only these jobs are admitted, when faults would end."""
    world = World(5, random.Random(5), faults=(), keep_items=frozenset())
    file = world.first_file
    cell, tenant = file.cells[0], file.tenants[0]
    for job in jobs:
        spec = replace(job, tenant=tenant.name, cell=cell.name, queue=cell.queues[0].name, pools=(cell.pools[0].name,))
        event = JobAdmitted(cell=cell.name, spec=spec, submit_ms=EPOCH_MS, digest="d" * 32)
        world.engine.at(FAULTS_END_MS - 1, partial(_land, world, message_of(event, cell.ordinal)))
    return world.run()


def _land(world: World, message: Message) -> None:
    world.broker.land(message)


def virtual(job: str, run_ms: int, **wishes: Any) -> JobSpec:
    return JobSpec(id=job, tenant="ada", run=VirtualRun(duration_ms=run_ms), **wishes)


def test_an_array_that_runs_one_element_at_a_time_comes_to_its_end_however_long_it_takes() -> None:
    history = told(virtual("slow", 60_000, array=3, array_max_running=1))
    assert history.end_ms > ALONE_MS
    assert (history.stuck, history.drained) == ((), True)
    assert history.violations == []
    assert [violation.text for violation in judge_history(history)] == [
        "job slow is admitted otherwise than it was submitted"  # it is put behind admission here
    ]


def test_a_job_that_waits_for_long_is_told_of_though_others_came_to_their_end() -> None:
    history = told(virtual("late", 100, not_before_ms=EPOCH_MS + 500_000), virtual("first", 5_000))
    assert not history.drained
    assert [violation.invariant for violation in history.violations] == ["I9"]
    assert [text.split(" is ")[0] for text in history.stuck] == ["late"]
    assert ALONE_MS < history.end_ms < ALONE_MS + 10_000


def test_an_end_or_a_further_attempt_is_progress_and_what_comes_new_is_none() -> None:
    still = Standstill(0)
    for at_ms, things, progress in (
        (1, [("a", 1), ("b", 1)], False),
        (2, [("a", 1), ("b", 1), ("c", 0)], False),
        (3, [("a", 1), ("c", 0)], True),
        (4, [("a", 2), ("c", 0)], True),
        (5, [("a", 2), ("c", 0)], False),
    ):
        still.look(at_ms, things)
        assert (still.since_ms == at_ms) is progress


def test_what_stands_still_is_over_and_so_is_what_goes_on_for_ever() -> None:
    still = Standstill(1_000)
    assert not still.is_over(1_000 + STANDSTILL_MS - 1)
    assert still.is_over(1_000 + STANDSTILL_MS)
    for attempt in range(1, 100):
        still.look(1_000 + attempt * LONGEST_MS // 100, [("a", attempt)])
    assert not still.is_over(1_000 + LONGEST_MS - 1)
    assert still.is_over(1_000 + LONGEST_MS)
