"""What is backfilled delays no reservation, where estimates are exact."""

from __future__ import annotations

from random import Random

from hypothesis import given

from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.operations import PlanMaintenance
from fallow.shared.events.values import JobSpec, Level, Position, TopologyRequest, Wish
from tests.hypothesis_profile import Story, reaches, stories
from tests.placement.planned import BACKFILL, Planned, file_of
from tests.placement.world import CELL, joined, spec_of

ROUNDS_MOST = 7
BEHIND = Queue(name="behind", aging_ms=0, aging_max_ms=0)


def cell(random: Random) -> Planned:
    """Some small nodes of one or two types in two racks, and two queues; maintenance is known from the beginning."""
    nodes = [
        joined(f"n{number}", random.choice((2, 4)), position=Position(leaf="ab"[number % 2]), gpu_type="gpu")
        for number in range(random.randint(1, 5))
    ]
    planned = Planned(file_of(BACKFILL, BEHIND), *nodes)
    for number in range(len(nodes)):
        if random.random() < 0.3:
            begin_ms = random.randint(1, 200)
            planned.tell(
                PlanMaintenance(
                    cell=CELL, node=f"n{number}", begin_ms=begin_ms, end_ms=begin_ms + random.choice((5, 40, 200))
                )
            )
    return planned


def job(random: Random, number: int) -> JobSpec:
    """A job of a random shape that says exactly how long it runs, or that does not say."""
    gpus, workers = random.choice(((1, 1), (2, 1), (4, 1), (2, 2), (1, 3), (2, 4)))
    wish = random.choice((None, None, TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)))
    return spec_of(
        f"j{number}",
        gpus,
        workers,
        topology=wish if workers > 1 else None,
        queue=random.choice(("day", "day", "behind")),
        estimate_run_ms=random.choice((10, 20, 30, 50, 80, 130)),
    )


def run(random: Story) -> Planned:
    """A world in which jobs come, with a plan behind each event. It is checked at each decision of one round."""
    planned, number = cell(random), 0
    checked = random.randrange(ROUNDS_MOST)
    for each in random.rounds():
        planned.world.checks = planned.checks_plans = each == checked
        for _ in range(random.randint(1, 4)):
            planned.submit(job(random, number))
            number += 1
        if random.random() < 0.8:
            planned.tell(planned.plan())
        planned.pass_time(planned.world.now_ms + random.choice((0, 1, 7, 10, 25, 60)))
    planned.world.checks = planned.checks_plans = False
    planned.pass_time(planned.world.now_ms + 5_000)
    return planned


def is_behind(planned: Planned, job: str, other: str) -> bool:
    """Whether this job stands behind the other one: in a queue that is walked later, or submitted later in its own."""
    queues = [queue.name for queue in planned.file.cell(CELL).queues]
    mine, theirs = ((queues.index(planned.queue[each]), int(each[1:])) for each in (job, other))
    return mine > theirs


@given(stories(ROUNDS_MOST))
def test_a_job_runs_beyond_no_planned_start_of_one_that_stands_ahead_of_it(story: Story) -> None:
    planned = run(story)
    others = planned.starts.keys() - planned.promises.keys()
    reaches("places are kept for a start to come, and another job starts", planned.promises and others)
    assert [pair for pair in planned.overruns if is_behind(planned, *pair)] == []


@given(stories(ROUNDS_MOST))
def test_each_job_for_which_places_are_kept_starts(story: Story) -> None:
    planned = run(story)
    reaches("places are kept for several starts to come", len(planned.promises) > 1)
    assert planned.promises.keys() <= planned.starts.keys()
