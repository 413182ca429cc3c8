"""What is kept for many owners at once, while there is room for them: nobody starts but one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given

from fallow.services.placement.owners.holdback import off_kept_places
from fallow.services.placement.owners.kept_index import KeptIndex, kept_in
from fallow.services.placement.owners.owners import Owners
from fallow.services.placement.policy.placement_policy import Places
from fallow.services.placement.policy.policies import POLICIES
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.requests.arrays import elements, may_start_one_more
from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    GPU,
    JobSpec,
    Level,
    NodeSpec,
    NodeStatus,
    Position,
    Resources,
    TopologyRequest,
    Wish,
)
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import Story, reaches, stories
from tests.placement.oracles.naive_holdback import judge_kept_from, off_kept_places_one_by_one
from tests.placement.oracles.naive_keeping import counts, kept_by_lines
from tests.placement.worlds.world import CELL, DIGEST

OWNERS, NODES, STEPS, JOBS = 12, 16, 60, 50
SMALL_STEPS, SMALL_JOBS, SMALL_MANY = 25, 15, (1, 2, 5)
LONG_STEPS, LONG_JOBS = 40, 25
"""Of small cells in which owners wait for long: with fewer jobs more is kept in one of twenty only."""
JUDGED_PART = 0.5
"""So many of all changes of a small cell are judged."""
QUEUES = (Queue(name="default"), Queue(name="strict", discipline=QueueDiscipline.STRICT_FIFO))
LABELS = ((), ("zone=a",), ("zone=b",), ("disk=fast",), ("disk=slow",), ("zone=a", "disk=fast"))


class Cell:
    """A cell in which nobody starts unless it is said so, with all that placement keeps of it."""

    def __init__(self, random: Random, *, is_long: bool = False, is_small: bool = False) -> None:
        self.random, self.submitted, self.kept_max, self.searched = random, 0, 0, 0
        self.is_long, self.kept_more, self.kept_in_part = is_long, 0, 0
        self.is_small = is_small
        self.state, self.lines, self.owners = CellState(CELL), Lines(QUEUES), Owners()
        self.is_plain = random.random() < 0.4
        self.drawn = Counter[str]()
        self.array_part = random.choice((0.1, 0.5))
        """Of all jobs: a job waits for its array only where many are of some."""
        self.required_label = random.choice((None, None, "zone=a"))
        """Where one is named, all owners need its nodes, and one unit of these, so that little else is looked at."""
        apply(self.state, e.PolicySet(policy=CellPolicy(placement=random.choice([*POLICIES]))), 0)
        for number in range(NODES):
            self.do(e.NodeChanged(spec=self._node(number), boot="boot-1", status=NodeStatus.READY))
        for number in range(OWNERS):
            self.do(e.QuotaSet(quota=self._quota(number)))
        jobs = JOBS if not is_small else LONG_JOBS if is_long else SMALL_JOBS
        self.do(*(effect for _ in range(jobs) for effect in self._enqueued()))

    def do(self, *effects: e.AnyEffect) -> None:
        """These come into force; what is kept then is what is kept when all is looked at."""
        for effect in effects:
            apply(self.state, effect, self.state.clock_ms)
        self.lines.follow(self.state, effects, self.state.clock_ms)
        before = self.state.tree.kept
        is_other = self.owners.note(self.state, self.lines)
        kept = self.state.tree.kept
        assert is_other is (kept.all != before.all)
        if not self.is_small or self.random.random() < JUDGED_PART:
            self.judge()
        self.kept_more += any(each.is_more for each in kept.all)
        self.kept_max = max(self.kept_max, sum(len(each.places) for each in kept.all))

    def judge(self) -> None:
        """What is kept is what is kept when all is looked at, and others are kept off it."""
        kept = self.state.tree.kept
        assert kept.all == kept_by_lines(self.state, self.lines).all
        for pool in self.state.pools.values():
            assert counts(kept_in(self.state, pool)) == counts(KeptIndex(self.state, pool, kept))
        self._look_beside()

    def _look_beside(self) -> None:
        """A job is kept off what is kept as if each kept place was let count as in use for it."""
        policy, jobs = POLICIES[self.state.policy.placement], [*self.state.jobs.values()]
        if not jobs:
            return
        # Mostly a small one: these are tried most often.
        job = min(self.random.sample(jobs, min(4, len(jobs))), key=lambda job: job.spec.gpus_milli)
        spec, milli = replace(job.spec, topology=None), job.spec.gpus_milli

        def search(state: CellState, pool: PoolCapacity) -> Places | None:
            self.searched += state is not self.state
            return policy.gang(state, pool, spec)

        for name, pool in self.state.pools.items():
            self.kept_in_part += judge_kept_from(self.state, name, spec)
            places = search(self.state, pool)
            if places is not None:
                slowly = off_kept_places_one_by_one(self.state, pool, spec, places, search, milli)
                assert off_kept_places(self.state, pool, spec, places, search, milli) == slowly

    def _node(self, number: int) -> NodeSpec:
        labels = {"zone": "ab"[number % 2], "disk": "fast" if number % 3 else "slow"}
        position = Position(leaf=f"leaf{number % 3}")
        islands = (2, 6) if number % 4 == 0 and not self.is_plain else ()
        return NodeSpec(
            id=f"n{number}",
            pool="extra" if number % 5 == 4 else "train",
            gpus=8,
            gpu_type="big" if number % 7 == 6 else "gpu",
            islands=islands,
            labels=labels,
            position=position,
            cpu_milli=self.random.choice((8_000, 64_000)),
            memory_mib=self.random.choice((16_000, 256_000)),
        )

    def _quota(self, number: int) -> Quota:
        parent = None if number < 3 else f"t{number % 3}"
        milli = self.random.choice((4, 8, 12)) * GPU
        return Quota(tenant=f"t{number}", gpu_type="gpu", guaranteed_milli=milli, parent=parent)

    def _enqueued(self) -> list[e.JobEnqueued]:
        """A job, or an array."""
        self.submitted += 1
        random, gpus = self.random, (1, 1, 2, 4, 8)
        milli = random.choice(gpus) * GPU if self.is_plain or random.random() < 0.7 else random.choice((250, 500))
        wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED, slice_workers=random.choice((None, 1)))
        is_single = random.random() < 0.1
        cpu_milli, memory_mib = random.choice((0, 500, 2_000, 6_000)), random.choice((0, 0, 1_000, 12_000))
        spec = JobSpec(
            id=f"j{self.submitted}",
            tenant=f"t{random.randrange(OWNERS + 1)}",
            queue=random.choice(("default", "default", "default", "strict")),
            priority=random.choice((0, 1)),
            workers=random.choice((1, 1, 2, 3)),
            workers_min=1 if is_single else None,
            resources=Resources(gpu_milli=milli, cpu_milli=cpu_milli, memory_mib=memory_mib),
            pools=random.choice(((), ("train",), ("train", "extra"))),
            gpu_type=random.choice((None, None, "gpu", "gpu", "big")),
            node_labels=random.choice(LABELS),
            topology=None if self.is_plain or is_single or random.random() < 0.8 else wish,
            exclusive=not self.is_plain and random.random() < 0.05,
            array=3 if not is_single and random.random() < self.array_part else None,
            preemptible=random.random() < 0.8,
            max_run_ms=10_000_000 if random.random() < 0.1 else None,
            gang=not is_single,
        )
        if spec.array is not None:
            spec = replace(spec, array_max_running=random.choice((None, 1)))
        if self.required_label is not None:
            spec = self._narrowed(spec, self.required_label)
        specs = [spec] if spec.array is None else [*elements(spec)]
        self._count(specs)
        return [e.JobEnqueued(spec=each, submit_ms=self.submitted // 3, digest=DIGEST) for each in specs]

    def _narrowed(self, spec: JobSpec, label: str) -> JobSpec:
        """The same of an owner with a label and a unit that it needs; the last tenant, who owns nothing, goes to all
        other nodes.
        """
        if spec.tenant == f"t{OWNERS}":
            return replace(spec, node_labels=("zone=b",), topology=None)
        wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
        return replace(spec, node_labels=(label,), topology=wish if spec.gang else None)

    def _count(self, specs: Sequence[JobSpec]) -> None:
        """What of these is seldom drawn."""
        for spec in specs:
            wish = spec.topology
            self.drawn["with memory"] += spec.resources.memory_mib > 0
            self.drawn["no gang"] += not spec.gang
            self.drawn["not preemptible"] += not spec.preemptible
            self.drawn["with a limit of its run"] += spec.max_run_ms is not None
            self.drawn["in one unit"] += wish is not None and wish.slice_workers is None
            self.drawn["of an array that runs one"] += spec.array_max_running is not None

    def step(self) -> None:
        """Something happens, to few or to many."""
        often = [self.submit, self.start, self.start, self.end, self.end]
        if self.is_long:
            self.state.clock_ms += self.random.choice((0, 100_000, 400_000, 3_000_000))
            often = [*[self.start] * 16, self.end, self.end]
        self.random.choice((*often, self.cancel, self.share_out, self.move_node, self.swap))()

    def _some(self, jobs: list[Job]) -> list[Job]:
        most = self.random.choice((1, 1, 2, 8))
        return self.random.sample(jobs, min(most, len(jobs)))

    def _waiting(self) -> list[Job]:
        return [job for job in self.state.jobs.values() if job.status is JobStatus.QUEUED]

    def submit(self) -> None:
        many = self.random.choice(SMALL_MANY if self.is_small else (1, 3, 20))
        self.do(*(effect for _ in range(many) for effect in self._enqueued()))

    def start(self) -> None:
        for job in self._some(self._waiting()):
            may_start = may_start_one_more(self.state, job.spec)
            found = place_gang(self.state, job.spec) if may_start else PendingReason.ARRAY_LIMIT
            if not isinstance(found, PendingReason):
                self.do(e.JobStarted(job=job.id, attempt=job.attempt + 1, workers=found))

    def end(self) -> None:
        running = [job for job in self.state.jobs.values() if job.status in HOLDING]
        self.do(*(e.JobFinished(job=job.id, attempt=job.attempt) for job in self._some(running)))

    def swap(self) -> None:
        """At once a job ends and one with other CPUs and memory takes its devices."""
        running = [job for job in self.state.jobs.values() if job.status in HOLDING and job.spec.gang]
        for job in self._some(running):
            nodes = [self.state.nodes[place.node] for place in job.workers]
            if any(node.failed or not node.is_schedulable for node in nodes):
                continue
            self.submitted += 1
            name, wants = f"j{self.submitted}", job.spec.resources
            less = {"cpu_milli": wants.cpu_milli // 2, "memory_mib": wants.memory_mib // 2}
            spec = replace(job.spec, id=name, resources=replace(wants, **less), array_of=None, array_index=None)
            spec = replace(spec, array=None, array_max_running=None)
            places = tuple(replace(place, **less) for place in job.workers)
            came = e.JobEnqueued(spec=spec, submit_ms=self.submitted // 3, digest=DIGEST)
            self.do(
                e.JobFinished(job=job.id, attempt=job.attempt), came, e.JobStarted(job=name, attempt=1, workers=places)
            )

    def cancel(self) -> None:
        self.do(*(e.JobCancelled(job=job.id) for job in self._some(self._waiting())))

    def share_out(self) -> None:
        self.do(e.QuotaSet(quota=self._quota(self.random.randrange(OWNERS))))

    def move_node(self) -> None:
        node = self.state.nodes[f"n{self.random.randrange(NODES)}"]
        status = self.random.choice((NodeStatus.READY, NodeStatus.CORDONED))
        device = self.random.randrange(8)
        changes = (
            e.NodeChanged(spec=node.spec, boot="boot-1", status=status),
            e.DeviceChanged(node=node.id, device=device, healthy=bool(node.failed >> device & 1)),
            e.NodeSilent(node=node.id, boot="boot-1", silent_wall_ms=100)
            if not node.silent_wall_ms
            else e.NodeHeard(node=node.id),
        )
        self.do(self.random.choice(changes))


def lived(seed: int, steps: int = STEPS, *, is_long: bool = False) -> Cell:
    """A cell behind so many steps. Each of them fails where what is kept is not what the oracle keeps."""
    cell = Cell(Random(seed), is_long=is_long)
    for _ in range(steps):
        cell.step()
    return cell


def lived_small(story: Story, *, is_long: bool = False) -> Cell:
    """A cell of fewer jobs behind fewer steps. Half of its changes are judged, and so is how it ends."""
    cell = Cell(story, is_long=is_long, is_small=True)
    for _ in story.rounds():
        cell.step()
    cell.do()  # time may have passed since something was done
    cell.judge()
    return cell


@given(stories(SMALL_STEPS))
def test_what_is_kept_by_what_has_changed_is_what_is_kept_when_everything_is_looked_at(story: Story) -> None:
    reaches("places are kept for several jobs of owners", lived_small(story).kept_max > 1)


@given(stories(LONG_STEPS))
def test_so_it_is_where_owners_wait_for_long(story: Story) -> None:
    reaches("more is kept for an owner that waits for long", lived_small(story, is_long=True).kept_more)


def test_in_such_cells_places_are_kept_beside_those_that_do_not_become_free() -> None:
    assert sum(lived(seed, is_long=True).kept_more for seed in range(20)) > 50


def test_the_property_is_about_something() -> None:
    cells = [lived(seed, 20) for seed in range(10)]
    assert max(cell.kept_max for cell in cells) > 30
    assert sum(cell.searched for cell in cells) > 20
    assert sum(cell.kept_in_part for cell in cells) > 20
    drawn = sum((cell.drawn for cell in cells), Counter[str]())
    assert min(drawn.values()) > 30, drawn


def test_a_run_that_takes_just_what_another_left_is_another_one() -> None:
    lived(668868941, is_long=True)


def test_slices_that_come_to_one_node_keep_its_cpus_for_each_of_them() -> None:
    lived(5241, is_long=True)


def test_a_unit_that_holds_a_job_comes_before_one_with_as_many_free_gpus_that_does_not() -> None:
    lived(1_000_000_000, is_long=True)
