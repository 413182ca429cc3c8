"""What is backfilled delays no reservation where estimates are exact; where they are not, what could start starts."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given

from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, Level, Position, TopologyRequest, Wish
from fallow.shared.events.operations import HoldJob, PlanMaintenance, ReleaseJob
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import Story, reaches, stories
from tests.placement.worlds.planned import BACKFILL, Planned, file_of
from tests.placement.worlds.world import CELL, joined, quota, set_quotas, spec_of

ROUNDS_MAX, LATE_ROUNDS_MAX = 7, 4
BEHIND = Queue(name="behind", aging_ms=0, aging_max_ms=0)
PLAN_TAKES_MS, PASSED_OVER_MAX = 30, 3
"""So long after a plan was made it comes to placement. In so many plans, a second apart, each start that was planned
long ago is planned anew.
"""


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
    checked = random.randrange(ROUNDS_MAX)
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


@given(stories(ROUNDS_MAX))
def test_a_job_runs_beyond_no_planned_start_of_one_that_stands_ahead_of_it(story: Story) -> None:
    planned = run(story)
    others = planned.starts.keys() - planned.promises.keys()
    reaches("places are kept for a start to come, and another job starts", planned.promises and others)
    assert [pair for pair in planned.overruns if is_behind(planned, *pair)] == []


@given(stories(ROUNDS_MAX))
def test_each_job_for_which_places_are_kept_starts(story: Story) -> None:
    planned = run(story)
    reaches("places are kept for several starts to come", len(planned.promises) > 1)
    assert planned.promises.keys() <= planned.starts.keys()


class Late:
    """A cell under a limit that no tenant reaches, in which heads become due, like jobs outlive their estimates, and
    some that were held come before others. `passed_over` tells of each job in how many plans in a row, a second apart,
    it could start at once and did not, `is_late` whether a job that only a head kept back has not started by its first
    planned start.
    """

    def __init__(self, random: Random) -> None:
        file = file_of(BACKFILL, backfill_wait_ms=random.choice((0, 2_000)), reservations_max=8)
        nodes = [joined(f"n{number}", 4) for number in range(random.choice((1, 2, 2, 2, 3)))]
        self.planned = Planned(file, *nodes)
        self.planned.world.checks = self.planned.checks_plans = False
        self.planned.tell(set_quotas(quota("ada", 1_000)))
        self.passed_over, self.is_late, self._jobs = Counter[str](), False, 0
        self._held: list[str] = []

    def submit(self, random: Random) -> None:
        """Some like jobs come. The first of those that wait are held, or those that are held are let go."""
        gpus, workers = random.choice(((4, 1), (4, 1), (4, 1), (2, 2), (2, 1)))
        estimate_ms = random.choice((2_000, 10_000, 10_000, 10_000))
        like, run_ms = spec_of("", gpus, workers, queue="day", estimate_run_ms=estimate_ms), estimate_ms * 3 // 2
        for _ in range(random.choice((0, 0, 4)) if self._jobs else 7):
            self._jobs += 1
            self.planned.submit(replace(like, id=f"j{self._jobs}"), run_ms=run_ms)
        waiting = [job.id for job in self.planned.world.state.jobs.values() if job.status is JobStatus.QUEUED]
        hold = [] if self._held else waiting[: random.choice((2, 3))]
        self.planned.tell(*(ReleaseJob(cell=CELL, job=job_id) for job_id in self._held))
        self.planned.tell(*(HoldJob(cell=CELL, job=job_id) for job_id in hold))
        self._held = hold

    def go_on(self, seconds: int, *, plans: bool = True) -> None:
        """Time passes."""
        for _ in range(seconds):
            self.planned.pass_time(self.planned.world.now_ms + 1_000, plans=False)
            if plans:
                self._plan()
            self.is_late |= self._is_one_late()

    def _plan(self) -> None:
        plan, before = self.planned.plan(), self.passed_over
        self.planned.pass_time(self.planned.world.now_ms + PLAN_TAKES_MS, plans=False)
        self.planned.tell(plan)
        now = [start.job for start in plan.starts if start.start_ms <= plan.at_ms]
        self.passed_over = Counter({each: before[each] + 1 for each in now if each not in self.planned.starts})
        assert max(self.passed_over.values(), default=0) <= PASSED_OVER_MAX, self.passed_over

    def _is_one_late(self) -> bool:
        state = self.planned.world.state
        behind = [job_id for job_id in state.reservations if state.jobs[job_id].deferred is PendingReason.BEHIND_HEAD]
        return any((state.reservations[job_id].first_ms or state.at_ms) < state.at_ms for job_id in behind)


@given(stories(LATE_ROUNDS_MAX))
def test_a_job_that_could_start_by_each_plan_starts_though_runs_outlive_their_estimates(story: Story) -> None:
    late = Late(story)
    for _ in story.rounds():
        late.submit(story)
        late.go_on(2)
        late.go_on(story.choice((0, 12)), plans=story.random() < 0.2)
    late.go_on(6)
    reaches("a job behind a head has not started by its first planned start", late.is_late)
