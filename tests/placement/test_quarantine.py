"""Nodes on which one job after another fails are taken out of use, visibly; jobs that fail everywhere take out few."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.placement.policy.quarantine import FAILURES
from shared.events import effects as e
from shared.events.operations import RemoveNode, Uncordon
from shared.events.values import NodeStatus, Resources, RetryPolicy
from tests.placement.world import (
    CELL,
    Fate,
    World,
    admitted,
    cell_with,
    failed,
    finished,
    is_ready,
    joined,
    lost,
    spec_of,
    started,
)


def end_badly(world: World, *jobs: str) -> list[e.AnyEffect]:
    """Each of these jobs runs on its node and fails there."""
    made: list[e.AnyEffect] = []
    for job in jobs:
        world.tell(admitted(spec_of(job)))
        world.start_all()
        made += world.tell(failed(job, world.nodes_of(job)[0]))
    return made


def names(first: int, end: int) -> list[str]:
    return [f"job-{number}" for number in range(first, end)]


def test_a_node_on_which_five_jobs_failed_in_a_row_is_cordoned_and_says_why() -> None:
    world = cell_with(joined("n1"))
    end_badly(world, *names(1, FAILURES))
    assert is_ready(world, "n1")
    (change,) = [x for x in end_badly(world, f"job-{FAILURES}") if isinstance(x, e.NodeChanged)]
    assert (change.status, change.spec.id) == (NodeStatus.CORDONED, "n1")
    assert change.reason == "quarantined: 5 different jobs in a row failed here: job-1, job-2, job-3, job-4, job-5"


def test_a_job_that_ends_well_begins_the_row_anew() -> None:
    world = cell_with(joined("n1"))
    end_badly(world, *names(1, FAILURES))
    world.run(spec_of("good"))
    world.tell(finished("good"))
    end_badly(world, *names(10, 9 + FAILURES))
    assert is_ready(world, "n1")
    end_badly(world, "last")
    assert not is_ready(world, "n1")


def test_one_job_that_fails_again_and_again_tells_nothing_of_its_node() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("stubborn", retry=RetryPolicy(budget=100, backoff_ms=1))))
    for attempt in range(1, 2 * FAILURES):
        world.pass_time(2_000)
        world.start_all()
        world.tell(failed("stubborn", attempt=attempt))
    assert world.job("stubborn").failures == 2 * FAILURES - 1
    assert is_ready(world, "n1")


def test_a_loss_by_infrastructure_is_no_failure() -> None:
    world = cell_with(joined("n1"))
    world.run(*(spec_of(job) for job in names(1, FAILURES + 1)))
    world.tell(*(failed(job, infrastructure=True) for job in names(1, FAILURES + 1)))
    assert is_ready(world, "n1")


def test_what_fails_because_its_gang_failed_elsewhere_is_not_held_against_its_node() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    for job in names(1, FAILURES + 1):
        world.run(spec_of(job, 8, workers=2))
        world.tell(failed(job, "n1"))
        world.tell(failed(job, "n2"))
    assert not is_ready(world, "n1")
    assert is_ready(world, "n2")


def test_an_uncordoned_node_begins_with_an_empty_row() -> None:
    world = cell_with(joined("n1"))
    end_badly(world, *names(1, FAILURES + 1))
    world.tell(Uncordon(cell=CELL, node="n1"))
    end_badly(world, *names(10, 9 + FAILURES))
    assert is_ready(world, "n1")
    end_badly(world, "last")
    assert not is_ready(world, "n1")


@pytest.mark.parametrize(("nodes", "shut"), [(4, 1), (20, 2), (39, 3)])
def test_jobs_that_fail_wherever_they_run_take_out_a_tenth_of_the_pool_at_most(nodes: int, shut: int) -> None:
    world = cell_with(*(joined(f"n{number}", gpus=1) for number in range(nodes)))
    end_badly(world, *names(1, 10 * FAILURES))
    assert sum(not is_ready(world, f"n{number}") for number in range(nodes)) == shut


def test_a_decision_that_did_not_get_into_the_log_counts_nothing() -> None:
    world = cell_with(joined("n1"))
    world.run(*(spec_of(job) for job in names(1, FAILURES)))
    fates = iter([Fate.LOST, Fate.LATE, Fate.LOST])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(*(failed(job) for job in names(1, FAILURES)))
    assert is_ready(world, "n1")
    end_badly(world, "job-9")
    world.check()


def test_a_stepped_cell_shuts_no_node() -> None:
    world = cell_with(joined("n1"), stepped=True)
    end_badly(world, *names(1, 3 * FAILURES))
    assert is_ready(world, "n1")


def test_the_first_words_about_a_gangs_failure_outlive_the_record_in_which_they_came() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(admitted(spec_of("gang", 8, workers=2)))
    world.start_all()
    world.tell(started("gang", "n1"), started("gang", "n2"))
    world.tell(failed("gang", "n1", text="out of memory"))
    (end,) = [x for x in world.tell(failed("gang", "n2", text="lost n1")) if isinstance(x, e.JobFailed)]
    assert end.text == "out of memory"


def test_a_node_that_was_removed_out_of_quarantine_takes_the_place_of_no_other() -> None:
    world = cell_with(joined("n1"))
    end_badly(world, *names(0, FAILURES))
    assert not is_ready(world, "n1")
    world.tell(lost("n1"), RemoveNode(cell=CELL, node="n1", by="operator"))
    world.tell(joined("n2"))
    end_badly(world, *names(10, 10 + FAILURES))
    assert world.state.nodes["n2"].status is NodeStatus.CORDONED


def test_a_broken_array_is_one_cause_however_many_of_its_elements_fail() -> None:
    world = cell_with(*(joined(f"n{number:02}") for number in range(20)))
    world.tell(admitted(spec_of("broken", array=200)))
    while living := list(world.state.jobs.values()):
        world.tell(*(failed(job.id, job.workers[0].node) for job in living if job.workers))
    assert all(is_ready(world, node) for node in world.state.nodes)
    assert world.state.nodes["n00"].failed_jobs == ("broken",)


SMALL = Resources(gpu_milli=100)


@settings(max_examples=25, deadline=None)
@given(causes=st.lists(st.integers(0, 2 * FAILURES), min_size=1, max_size=16))
def test_a_node_is_out_when_so_many_different_causes_failed_on_it(causes: list[int]) -> None:
    """Each number is a job of its own, or (the even ones) an array with further elements to fail."""
    world = cell_with(joined("n1"))
    arrays = {cause: 0 for cause in causes if cause % 2 == 0}
    world.tell(*(admitted(spec_of(f"c{cause}", array=causes.count(cause), resources=SMALL)) for cause in arrays))
    for cause in causes:
        if cause in arrays:
            job, arrays[cause] = f"c{cause}.{arrays[cause]}", arrays[cause] + 1
        else:
            job = f"c{cause}"
            if job in world.state.over:
                continue
            world.tell(admitted(spec_of(job, resources=SMALL)))
        if not world.nodes_of(job):
            break  # the node is out already
        world.tell(failed(job))
    assert is_ready(world, "n1") is (len(set(causes)) < FAILURES)


def test_the_fifth_failure_on_a_node_that_has_become_another_ends_its_job_and_takes_the_node_out() -> None:
    world = cell_with(joined("n1"))
    world.run(*(spec_of(job, retry=RetryPolicy(budget=0)) for job in names(1, FAILURES + 1)))
    world.tell(joined("n1", 4))
    for job in names(1, FAILURES + 1):
        world.tell(failed(job))
    node = world.state.nodes["n1"]
    assert (world.unwritable, list(world.state.jobs)) == ([], [])
    assert (node.status, node.quarantined, node.spec.gpus, node.offered) == (NodeStatus.CORDONED, True, 4, None)
