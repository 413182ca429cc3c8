"""What backfill comes to at its ends: without patience it is a strict queue, with no end of patience best effort."""

from __future__ import annotations

from random import Random

from hypothesis import given

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, Resources
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline
from tests.hypothesis_profile import Story, reaches, rounds_of, stories
from tests.placement.worlds.world import CELL, World, admitted, finished, joined

NEVER_MS = 10**12
ROUNDS = 12
NODES = (joined("n1", 4), joined("n2", 4), joined("n3", 2, pool="extra"), joined("n4", 4, pool="extra"))


def world_of(discipline: QueueDiscipline, wait_ms: int) -> World:
    """Three queues of one discipline."""
    queues = tuple(Queue(name=name, discipline=discipline) for name in ("both", "train", "extra"))
    cell = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=100), Pool(name="extra", gpus=100)),
        queues=queues,
        policy=CellPolicy(backfill_wait_ms=wait_ms),
    )
    world = World(CellFile(cells=(cell,), tenants=(Tenant(name="ada"),)))
    world.tell(*NODES)
    return world


class Side:
    """One list of jobs comes to two worlds and ends there. In the second one each waits in the queue of its pool, if
    `by_pool`.
    """

    def __init__(self, random: Random, first: World, second: World, *, by_pool: bool) -> None:
        self.random, self.worlds, self.by_pool = random, (first, second), by_pool
        self.submitted = 0

    def go(self) -> None:
        """One round: jobs come, or some end; then a little time passes."""
        events = self.arrivals() if self.random.random() < 0.6 else self.ends()
        for number, world in enumerate(self.worlds):
            world.tell(*(self.queued(event) if number and self.by_pool else event for event in events))
            world.pass_time(20)

    def arrivals(self) -> list[Event]:
        return [admitted(self.spec(), self.submitted) for _ in range(self.random.randint(1, 6))]

    def spec(self) -> JobSpec:
        self.submitted += 1
        return JobSpec(
            id=f"job-{self.submitted:04}",
            tenant="ada",
            priority=self.random.randint(0, 1),
            queue="both",
            pools=(self.random.choice(("train", "extra")),),
            workers=self.random.choice((1, 1, 1, 2)),
            resources=Resources(gpu_milli=self.random.choice((500, GPU, 2 * GPU, 3 * GPU))),
        )

    def queued(self, event: Event) -> Event:
        """This job in the queue of its pool."""
        if not isinstance(event, JobAdmitted):
            return event
        return replace(event, spec=replace(event.spec, queue=event.spec.pools[0]))

    def ends(self) -> list[Event]:
        holding = [job for job in self.worlds[0].state.jobs.values() if job.status in HOLDING]
        over = [job for job in sorted(holding, key=lambda job: job.id) if self.random.random() < 0.5]
        return [finished(job.id, node, job.attempt) for job in over for node in job.runs]

    def starts(self) -> list[dict[str, object]]:
        """Who has started in each world, and where."""
        return [{job.id: job.workers for job in world.state.jobs.values()} for world in self.worlds]


def live(side: Side) -> bool:
    """Whether both worlds came to the same starts in each round."""
    waits = False
    for _ in rounds_of(side.random, ROUNDS):
        side.go()
        first, second = side.starts()
        assert first == second
        waits |= 0 < len([workers for workers in first.values() if workers]) < len(first)
    reaches("some jobs run while others wait, in both worlds", waits)
    return True


@given(stories(ROUNDS))
def test_without_patience_each_kind_of_jobs_waits_as_in_a_strict_queue_of_its_own(story: Story) -> None:
    backfill = world_of(QueueDiscipline.BACKFILL, 0)
    assert live(Side(story, backfill, world_of(QueueDiscipline.STRICT_FIFO, 0), by_pool=True))


@given(stories(ROUNDS))
def test_with_no_end_of_patience_the_same_jobs_start_as_with_best_effort(story: Story) -> None:
    backfill = world_of(QueueDiscipline.BACKFILL, NEVER_MS)
    assert live(Side(story, backfill, world_of(QueueDiscipline.BEST_EFFORT_FIFO, 0), by_pool=False))


def test_the_ends_are_not_the_same() -> None:
    side = Side(
        Random(5), world_of(QueueDiscipline.BACKFILL, 40), world_of(QueueDiscipline.BEST_EFFORT_FIFO, 0), by_pool=False
    )
    differ = 0
    for _ in range(3 * ROUNDS):
        side.go()
        first, second = side.starts()
        differ += first != second
    assert differ
