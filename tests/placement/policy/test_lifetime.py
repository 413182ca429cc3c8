"""Where lifetime-aware packing lets workers go, and that its index follows whatever happens to nodes and jobs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.model.unacknowledged import closed
from fallow.shared.cluster.quota.kept_places import KeptPlace, taken
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, NodeStatus, WorkerPlace
from fallow.shared.events.operations import CellPolicy, EstimatorKind
from fallow.shared.events.reasons import PendingReason, StopReason
from tests.hypothesis_profile import reaches
from tests.placement.oracles.naive_lifetime import naive_node, taught
from tests.placement.worlds.networks import Machine, gang, network, node_spec

DIGEST, READY = "0" * 32, NodeStatus.READY


class Life:
    """A cell under `lifetime` in which jobs start where the policy says, end, stop, outlive what they told, and are
    changed; nodes are closed and opened; and what was done may be undone.
    """

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.machines = [
            Machine(None, gpus=random.choice((2, 4, 4, 8)), cpu=random.choice((4, 20)), gpu_type=random.choice(TYPES))
            for _ in range(random.randint(1, 7))
        ]
        self.state, self.jobs, self.joined, self.by_history = network(self.machines, "lifetime"), 0, 0, 0
        if random.random() < 0.5:
            self.goes_by(EstimatorKind.LEARNED)
            self.learns(30)

    def learns(self, jobs: int = 10) -> None:
        """Some jobs come, run for about as long as each other, and go."""
        run_ms = self.random.choice((30, 1_100, 3_000, 20_000))
        for _ in range(jobs):
            spec = self.spec()
            places = place_gang(self.state, spec)
            if isinstance(places, PendingReason):
                continue
            self.apply(e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST))
            self.apply(e.JobStarted(job=spec.id, attempt=1, workers=places))
            self.state.clock_ms += run_ms + self.random.choice((0, 0, 700))
            self.apply(e.JobFinished(job=spec.id, attempt=1))

    def goes_by(self, estimator: EstimatorKind, lead_ms: int = 0) -> None:
        policy = CellPolicy(placement="lifetime", default_run_estimate_ms=lead_ms, estimator=estimator)
        self.apply(e.PolicySet(policy=policy))

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.state.clock_ms += self.random.choice((0, 0, 1, 7, 40, 300, 2_000))
            mark = self.state.checkpoint()
            self.random.choice(self.steps)(self)
            self.asks()
            if self.random.random() < 0.2:
                self.state.rollback(mark)
                self.asks()
            else:
                self.state.commit(mark)

    def apply(self, effect: e.AnyEffect) -> None:
        apply(self.state, effect, self.state.clock_ms)

    def spec(self) -> JobSpec:
        random = self.random
        told: dict[str, Any] = {
            "estimate_run_ms": random.choice((None, 5, 60, 400)),
            "max_run_ms": random.choice((None, None, 90)),
        }
        self.jobs += 1
        cpu, gpu_type = random.choice((0, 0, 1)), random.choice((None, None, *TYPES))
        return gang(f"job-{self.jobs}", random.choice((1, 1, 2, 3, 4)), cpu=cpu, gpu_type=gpu_type, **told)

    def other_spec(self) -> JobSpec:
        """One that does not go by the rule, and is on the nodes all the same."""
        spec, random = self.spec(), self.random
        kinds: list[dict[str, object]] = [
            {"resources": replace(spec.resources, gpu_milli=400)},
            {"resources": replace(spec.resources, gpu_milli=0, cpu_milli=1)},
            {"workers": 2},
            {"workers": 2, "gang": False},
            {"kind": JobKind.INFERENCE, "gang": False},
        ]
        return replace(spec, **random.choice(kinds))

    def asks(self) -> None:
        """Ask for a place, as things are and with some nodes closed or kept for others for a while."""
        state, random = self.state, self.random
        asked = [self.spec() for _ in range(2)]
        self.is_as_told(asked)
        some = [node for node in state.nodes.values() if node.is_schedulable and random.random() < 0.3]
        with closed(state, some):
            self.is_as_told(asked)
        kept = [KeptPlace(node.spec.id, "train", node.free & 5, 0, 0, 0, 0, is_alone=False) for node in some]
        with taken(state, kept):
            self.is_as_told(asked)
        self.is_as_told(asked)

    def is_as_told(self, asked: list[JobSpec]) -> None:
        for spec in asked:
            found = place_gang(self.state, spec)
            node = None if isinstance(found, PendingReason) else found[0].node
            self.joined += node is not None and bool(self.state.nodes[node].jobs)
            self.by_history += node is not None and taught(self.state, spec) is not None
            assert node == naive_node(self.state, spec)

    def running(self) -> list[str]:
        return [job.id for job in self.state.jobs.values() if job.workers]

    def starts(self) -> None:
        spec = self.random.choice((self.spec, self.spec, self.other_spec))()
        places = place_gang(self.state, spec)
        if not isinstance(places, PendingReason):
            self.apply(e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST))
            self.apply(e.JobStarted(job=spec.id, attempt=1, workers=places))

    def begins_with_one(self) -> None:
        spec = replace(self.spec(), workers=2, gang=False)
        for turn in range(2):
            places = place_gang(self.state, replace(spec, workers=1))
            if isinstance(places, PendingReason):
                return
            if not turn:
                self.apply(e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST))
                self.apply(e.JobStarted(job=spec.id, attempt=1, workers=places))
                self.state.clock_ms += self.random.choice((0, 10, 80))
                continue
            enters = replace(places[0], rank=1, turn=1, since_ms=self.state.clock_ms)
            self.apply(e.JobResizing(job=spec.id, attempt=1, add=(enters,)))

    def one_ends(self) -> None:
        if running := self.running():
            self.apply(e.JobFinished(job=self.random.choice(running), attempt=1))

    def one_stops(self) -> None:
        running = [job for job in self.running() if self.state.jobs[job].status != "stopping"]
        if running:
            job = self.random.choice(running)
            self.apply(e.JobStopping(job=job, attempt=1, why=StopReason.CANCELLED, grace_wall_ms=0))

    def one_is_changed(self) -> None:
        if running := self.running():
            spec = self.state.jobs[self.random.choice(running)].spec
            self.apply(e.JobUpdated.of(replace(spec, max_run_ms=self.random.choice((None, 20, 1_000)))))

    def another_run_time_is_assumed(self) -> None:
        same = self.state.policy.estimator
        self.goes_by(self.random.choice((same, same, same, *EstimatorKind)), self.random.choice((0, 0, 50, 500)))

    def a_node_is_closed_or_opened(self) -> None:
        number = self.random.randrange(len(self.machines))
        status = self.random.choice((NodeStatus.CORDONED, NodeStatus.READY))
        self.apply(e.NodeChanged(spec=node_spec(number, self.machines[number]), boot="boot-1", status=status))

    def a_device_fails_or_is_well(self) -> None:
        node = self.random.choice(sorted(self.state.nodes))
        device, is_well = self.random.choice((0, 1)), bool(self.state.nodes[node].failed)
        failed = self.state.nodes[node].failed
        self.apply(e.DeviceChanged(node=node, device=failed.bit_length() - 1 if is_well else device, healthy=is_well))

    steps: tuple[Callable[[Life], None], ...] = (
        *[starts] * 6,
        begins_with_one,
        *[one_ends] * 3,
        one_stops,
        one_is_changed,
        learns,
        learns,
        another_run_time_is_assumed,
        a_node_is_closed_or_opened,
        a_device_fails_or_is_well,
    )


TYPES = ("gpu", "gpu", "tpu")


@given(st.integers(0, 10**9))
def test_a_worker_goes_where_the_rule_says_whatever_happened_before(seed: int) -> None:
    life = Life(seed)
    life.live(25)
    reaches("a worker goes beside one that runs, by how long both run", life.joined)
    reaches("a worker goes where jobs like it have taught the cell", life.by_history)


def cell(*used: tuple[int, dict[str, int]], empty: int = 1) -> CellState:
    """Nodes of four GPUs, n000 with the first jobs and so on, and so many empty ones; all jobs started at 0."""
    state = network([Machine(None)] * (len(used) + empty), "lifetime")
    for number, (gpus, told) in enumerate(used):
        start(state, gang(f"used-{number}", gpus, **told), f"n{number:03}")
    return state


def start(state: CellState, spec: JobSpec, node: str) -> None:
    gpus = spec.resources.gpu_milli // GPU
    free = [at for at in range(4) if state.nodes[node].free >> at & 1][:gpus]
    place = WorkerPlace(rank=0, node=node, devices=tuple(free), gpu_milli=spec.resources.gpu_milli)
    apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), state.clock_ms)
    apply(state, e.JobStarted(job=spec.id, attempt=1, workers=(place,)), state.clock_ms)


def node_for(state: CellState, spec: JobSpec) -> str:
    found = place_gang(state, spec)
    assert not isinstance(found, PendingReason)
    return found[0].node


SHORT, LONG = {"estimate_run_ms": 100}, {"estimate_run_ms": 1_000}


def test_a_job_goes_where_others_run_at_least_as_long() -> None:
    state = cell((3, SHORT), (1, LONG))
    assert node_for(state, gang("long", estimate_run_ms=900)) == "n001"
    assert node_for(state, gang("short", estimate_run_ms=90)) == "n000"


def test_a_job_that_outlasts_all_others_goes_where_it_outlasts_them_the_least() -> None:
    state = cell((2, SHORT), (1, {"estimate_run_ms": 700}))
    assert node_for(state, gang("long", estimate_run_ms=900)) == "n001"


def test_a_node_that_is_filled_counts_for_as_long_as_it_stays_full() -> None:
    state = cell((2, LONG), (3, {"estimate_run_ms": 90}))
    # It outlasts the job of n001 by 10, and for the 90 before that node is full. On n000 it adds nothing.
    assert node_for(state, gang("short", estimate_run_ms=100)) == "n001"


def test_a_job_that_fills_an_empty_node_goes_there_rather_than_beside_a_longer_one() -> None:
    state = network([Machine(None, gpus=8), Machine(None, gpus=2)], "lifetime")
    start(state, gang("long", 1, **LONG), "n000")
    assert node_for(state, gang("short", 2, **SHORT)) == "n001"


def test_of_a_job_that_tells_nothing_the_fullest_node_is_taken() -> None:
    assert node_for(cell((1, LONG), (2, SHORT)), gang("silent")) == "n001"
    assert node_for(cell((1, LONG), (3, SHORT)), gang("service", kind=JobKind.INFERENCE, **LONG)) == "n001"


def test_a_time_that_is_only_assumed_to_keep_off_maintenance_is_no_estimate() -> None:
    state = cell((1, LONG), (2, SHORT), (2, LONG))
    apply(state, e.MaintenanceSet(node="n001", begin_ms=5_000, end_ms=9_000), 0)
    silent = gang("silent")
    apply(state, e.JobEnqueued(spec=silent, submit_ms=0, digest=DIGEST), 0)
    apply(state, e.JobFinished(job="used-2", attempt=1), 0)
    start(state, gang("brief", 3, **SHORT), "n002")
    assert node_for(state, silent) == "n002"


def test_what_the_cell_learns_moves_the_ends_of_jobs_on_nodes_that_stay_as_they_are() -> None:
    state = cell()
    apply(state, e.PolicySet(policy=CellPolicy(placement="lifetime", estimator=EstimatorKind.LEARNED)), 0)
    for node in ("n001", "n002", "n003"):
        apply(state, e.NodeChanged(spec=node_spec(int(node[1:]), Machine(None)), boot="boot-1", status=READY), 0)
    start(state, gang("slow", 2, **SHORT), "n001")
    start(state, gang("fast", 1, **LONG), "n002")
    assert node_for(state, gang("long", estimate_run_ms=900)) == "n002"
    for number in range(5):
        for name, run_ms in (("slow", 5_000), ("fast", 30)):
            start(state, gang(f"{name}.{number}", 2 if name == "slow" else 1), "n003")
            apply(state, e.JobFinished(job=f"{name}.{number}", attempt=1), state.clock_ms + run_ms)
    assert node_for(state, gang("long", 2, estimate_run_ms=900)) == "n001"
