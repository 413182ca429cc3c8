"""Whatever admission and a node's first word let in, the cell goes on: the smallest and the largest number in any field
of submissions, of what nodes say, of operations and of the cell file, over the whole pipeline without Kafka and Redis.

Nothing raises, each input has an outcome, and every reader reads and folds each record: as rows of the view, as a
snapshot, by queueing and by the metrics.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fallow.services.admission.service import AdmissionService
from fallow.services.metrics.service import MetricsService
from fallow.services.projector.app.apply import all_rows
from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.plan import in_parts, plan_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.model.config import GPUS_MAX, CellFile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.base import LARGEST_INTEGER, LATEST_MS, Event, Value
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import model_of, replace
from fallow.shared.events.fields.values import (
    DEVICES_MAX,
    GPU,
    WORKERS_MAX,
    AfterWhen,
    Dependency,
    JobKind,
    JobSpec,
    Level,
    NodeSpec,
    ObservedRun,
    Position,
    Resources,
    RetryPolicy,
    RunStatus,
    TopologyRequest,
    VirtualRun,
    Wish,
)
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.queue import QueueDiscipline, QueuePlanned, StartsPlanned
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.shared.log.machine.writer import DECISION_BYTES_MAX
from fallow.shared.view.row_text import account_rows, job_row, node_row
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World

JOBS, NODES = ("a", "b", "c" * 128), ("n1", "n2" * 64)
NOW_MS = (0, 1, 1_795_000_000_000, LATEST_MS // 2, LATEST_MS - 500)


def ends(low: int, high: int, *between: int) -> st.SearchStrategy[int]:
    """The bounds of a field, their neighbours, and what is usual."""
    found = st.sampled_from(sorted({low, low + 1, *between, high - 1, high}))
    return st.sampled_from(between) | found if between else found


def maybe(found: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | found


def build(cls: type[Value], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value of these fields, if they go together."""

    def made(drawn: dict[str, Any]) -> Value | None:
        try:
            return cls(**{name: value for name, value in drawn.items() if value is not None})
        except ValueError:
            return None

    return st.fixed_dictionaries(fields).map(made).filter(lambda value: value is not None)


COUNT, MS = ends(0, LARGEST_INTEGER, 1_000), ends(0, LATEST_MS, 1_000)
JOB, NODE = st.sampled_from(JOBS), st.sampled_from(NODES)
MILLI = st.just(GPU) | st.sampled_from((1, 999, 2 * GPU, 8 * GPU, (DEVICES_MAX - 1) * GPU, DEVICES_MAX * GPU))
RETRY = build(RetryPolicy, budget=ends(0, 1_000, 3), backoff_ms=MS, backoff_max_ms=MS)
RUN = build(VirtualRun, duration_ms=maybe(MS), fail_at_ms=maybe(MS), fail_attempts=maybe(ends(1, 1_000)))
TOPOLOGY = build(
    TopologyRequest,
    level=st.sampled_from(Level),
    wish=st.sampled_from(Wish),
    slice_workers=st.none() | maybe(ends(1, WORKERS_MAX, 2)),
)
SPEC = build(
    JobSpec,
    id=JOB,
    tenant=st.sampled_from(("ada", "bob")),
    kind=st.sampled_from(JobKind),
    priority=ends(-1_000_000, 1_000_000, 0),
    workers=ends(1, WORKERS_MAX, 1, 2, 8),
    workers_min=st.none() | maybe(ends(1, WORKERS_MAX, 8)),
    resources=st.just(Resources()) | build(Resources, gpu_milli=MILLI, cpu_milli=COUNT, memory_mib=COUNT),
    gang=st.booleans(),
    run=RUN,
    max_run_ms=maybe(ends(1, LARGEST_INTEGER, 1_000)),
    estimate_run_ms=maybe(ends(1, LARGEST_INTEGER, 1_000)),
    checkpoint_interval_ms=maybe(MS),
    min_run_ms=MS,
    scaling=st.lists(COUNT, max_size=3).map(tuple),
    retry=RETRY,
    not_before_ms=st.none() | maybe(MS),
    array=st.none() | maybe(ends(1, 1_000, 3)),
    array_max_running=st.none() | maybe(ends(1, 1_000)),
    hold=st.sampled_from((False, False, True)),
    topology=st.none() | maybe(TOPOLOGY),
    spread=st.none() | maybe(st.sampled_from(Level)),
    after=st.just(()) | build(Dependency, job=JOB, when=st.sampled_from(AfterWhen)).map(lambda each: (each,)),
    node_labels=st.sampled_from(((), (), ("zone=a",), ("!zone",))),
    tolerations=st.sampled_from(((), ("hot",))),
)
CHANGES = build(
    JobChanges,
    priority=maybe(ends(-1_000_000, 1_000_000, 0)),
    workers=maybe(ends(1, WORKERS_MAX, 8)),
    workers_min=maybe(ends(1, WORKERS_MAX)),
    max_run_ms=maybe(ends(1, LARGEST_INTEGER)),
)
COMMAND = (
    build(SubmitJob, job=SPEC, submit_ms=st.none() | maybe(MS))
    | build(UpdateJob, job=JOB, tenant=st.just("ada"), changes=CHANGES)
    | build(CancelJob, job=JOB, tenant=st.just("ada"))
)
STAMP: dict[str, st.SearchStrategy[Any]] = {
    "cell": st.just(CELL),
    "node": NODE,
    "boot": st.sampled_from(("boot-1", "boot-2")),
    "seq": COUNT,
    "at_ms": MS,
}
OBSERVED = build(
    ObservedRun,
    job=JOB,
    attempt=ends(1, LARGEST_INTEGER),
    status=st.sampled_from(RunStatus),
    exit_code=maybe(st.sampled_from((0, 2**80, -(2**80)))),
    rank=maybe(COUNT),
    turn=COUNT,
)
NODE_SPEC = build(
    NodeSpec,
    id=NODE,
    pool=st.just("train"),
    gpus=ends(0, DEVICES_MAX, 8),
    cpu_milli=COUNT,
    memory_mib=COUNT,
    islands=st.sampled_from(((), (), (4, 4), (DEVICES_MAX,))),
    position=build(Position, domain=st.just("d"), leaf=maybe(st.sampled_from(("l", "m")))),
    labels=st.sampled_from(({}, {"zone": "a"})),
    taints=st.sampled_from(((), (), ("hot",))),
)
JOINED = build(n.NodeJoined, **{**STAMP, "boot": st.just("boot-1"), "seq": st.just(0) | COUNT}, spec=NODE_SPEC).map(
    lambda event: replace(event, node=event.spec.id)
)
RUNS: dict[str, st.SearchStrategy[Any]] = {
    "job": JOB,
    "attempt": ends(1, LARGEST_INTEGER),
    "rank": maybe(COUNT),
    "turn": COUNT,
}
SAID = (
    JOINED
    | build(
        n.NodeReport,
        **STAMP,
        observed=st.lists(OBSERVED, max_size=2).map(tuple),
        failed_devices=st.lists(COUNT, max_size=2).map(tuple),
        desired_version=COUNT,
    )
    | build(n.NodeLost, **STAMP)
    | build(n.DeviceFailed, **STAMP, device=COUNT)
    | build(n.RunStarted, **STAMP, **RUNS)
    | build(n.RunFinished, **STAMP, **RUNS)
    | build(n.RunFailed, **STAMP, **RUNS, infrastructure=st.booleans(), text=st.sampled_from(("", "\0" * 500)))
    | build(n.RunStopped, **STAMP, **RUNS)
)
BOUNDS: dict[str, dict[str, Any]] = model_of(o.CellPolicy).model_json_schema()["properties"]
LET_IN = st.just(o.CellPolicy()) | build(
    o.CellPolicy,
    **{
        name: ends(bound["minimum"], bound["maximum"], bound["default"])
        for name, bound in BOUNDS.items()
        if bound.get("type") == "integer"
    },
)
POLICY = st.just(o.CellPolicy()) | build(
    o.CellPolicy,
    start_timeout_wall_ms=ends(1, LARGEST_INTEGER),
    stop_grace_wall_ms=MS,
    node_lease_wall_ms=ends(1, LARGEST_INTEGER, 30_000),
    lease_margin_wall_ms=MS,
    finished_jobs_max=ends(1, LARGEST_INTEGER),
    finished_jobs_ttl_ms=ends(1, LARGEST_INTEGER),
    max_pending_jobs=ends(1, LARGEST_INTEGER),
    live_bytes_max=ends(1, LARGEST_INTEGER),
    backfill_wait_ms=MS,
    fair_half_life_ms=ends(0, 90 * 86_400_000),
    max_unacknowledged_starts_per_node=COUNT,
    unknown_dependency_ms=MS,
    default_run_estimate_ms=MS,
    breaker_wait_wall_ms=ends(0, 86_400_000, 300_000),
    breaker_nodes_per_minute=ends(1, 100_000, 10),
    remove_lost_ms=ends(0, 366 * 86_400_000),
    reservations_max=ends(0, 256, 8),
    reservation_ttl_ms=ends(1_000, 366 * 86_400_000, 300_000),
    preemption=st.sampled_from(o.PreemptionMode),
    preempt_grace_wall_ms=ends(0, 86_400_000, 30_000),
    hold_lapse_ms=ends(1, 366 * 86_400_000, 600_000),
    estimator=st.sampled_from(o.EstimatorKind),
).map(lambda read: replace(read, lease_margin_wall_ms=min(read.lease_margin_wall_ms, read.node_lease_wall_ms // 2)))
"""Also numbers that only an earlier release let in: a log may hold them. A policy in a file is judged as it is read."""
QUOTA = build(
    o.Quota,
    tenant=st.sampled_from(("ada", "bob")),
    gpu_type=st.just("gpu"),
    guaranteed_milli=COUNT,
    limit_milli=maybe(COUNT),
    weight=ends(0, 1_000_000),
    borrow_limit_milli=maybe(COUNT),
    lend_limit_milli=maybe(COUNT),
    min_run_ms=maybe(MS),
)
AT: dict[str, st.SearchStrategy[Any]] = {"cell": st.just(CELL)}
OPERATION = (
    build(o.SetPolicy, **AT, policy=LET_IN)
    | build(o.SetQuota, **AT, quotas=st.lists(QUOTA, min_size=1, max_size=2).map(tuple))
    | build(o.Drain, **AT, node=NODE, deadline_ms=maybe(MS))
    | build(o.PlanMaintenance, **AT, node=NODE, begin_ms=MS, end_ms=MS)
    | build(o.Cordon, **AT, node=NODE, reason=st.just("\U0001f600" * 500))
    | build(o.Uncordon, **AT, node=NODE)
    | build(o.HoldJob, **AT, job=JOB)
    | build(o.ReleaseJob, **AT, job=JOB)
    | build(o.AdvanceTime, **AT, now_ms=MS)
)
GPUS = ends(0, GPUS_MAX, 8)
FILE = st.fixed_dictionaries(
    {
        "gpus": ends(1, GPUS_MAX, 100_000),
        "gpus_per_node": ends(1, DEVICES_MAX, DEVICES_MAX),
        "policy": POLICY,
        "aging_ms": st.sampled_from((0, 1, 10 * 365 * 86_400_000)),
        "order": st.sampled_from(("fifo", "fair-share")),
        "discipline": st.sampled_from(QueueDiscipline),
        "guaranteed": st.just(0) | GPUS,
        "limit": st.none() | maybe(GPUS),
        "weight": ends(0, 1_000_000),
        "workers_per_job": ends(1, WORKERS_MAX, 10_000),
        "gpus_per_job": ends(1, LARGEST_INTEGER, 100_000),
        "skew_ms": st.none() | maybe(MS),
        "ahead_ms": MS,
    }
)


def file_of(drawn: dict[str, Any]) -> CellFile | None:
    """The cell file, or None where it is refused as it should be: with the field and the rule."""
    aging_ms = drawn["aging_ms"]
    quota = {"guaranteed": drawn["guaranteed"], "limit": drawn["limit"], "weight": drawn["weight"]}
    try:
        return CellFile.model_validate(
            {
                "cells": [
                    {
                        "name": CELL,
                        "ordinal": 0,
                        "pools": [{"name": "train", "gpus": drawn["gpus"], "gpus_per_node": drawn["gpus_per_node"]}],
                        "queues": [
                            {
                                "name": "main",
                                "order": drawn["order"],
                                "discipline": drawn["discipline"],
                                "aging_ms": aging_ms,
                                "aging_max_ms": aging_ms,
                            }
                        ],
                        "policy": drawn["policy"],
                    }
                ],
                "tenants": [{"name": "ada", "quotas": [quota]}, {"name": "bob", "quotas": [quota]}],
                "limits": {
                    "workers_per_job": drawn["workers_per_job"],
                    "gpus_per_job": drawn["gpus_per_job"],
                    "submit_skew_ms": drawn["skew_ms"],
                    "not_before_ahead_ms": drawn["ahead_ms"],
                },
            }
        )
    except ValidationError:
        return None


class Pipeline:
    """Admission, placement, queueing, the view and the metrics, each with what it reads as bytes."""

    def __init__(self, file: CellFile, now_ms: int) -> None:
        self.admission = AdmissionService(file)
        self.world = World(file)
        self.world.checks = self.world.numbers_words = False
        self.world.now_ms = now_ms
        self.folded = CellState(CELL)
        self.metrics = MetricsService(self.folded)
        self.queues = file.cells[0].queues
        self.read = self.words = 0

    def submit(self, command: Event) -> None:
        """A tenant's command has an answer, and what is admitted goes on."""
        answer = self.admission.answer(command.type, encode(command), None, self.world.now_ms)
        assert isinstance(answer, Event), "what the classes allow is answered"
        passed = as_read(answer)
        if not isinstance(passed, JobRejected):
            size_bytes = len(encode(passed))
            self.world.tell(passed, size_bytes=size_bytes)

    def tell(self, event: Event) -> None:
        """A node's word or an operation, as placement reads it."""
        self.world.tell(as_read(event), size_bytes=len(encode(event)))

    def plan(self) -> None:
        """Queueing plans starts on what the writer has in force, and placement reads the plan."""
        world = self.world
        most = world.state.policy.reservations_max
        starts = plan_starts(world.state, self.queues, world.now_ms, most, estimator_of(world.state))
        version = world.state.version
        plan = StartsPlanned(cell=CELL, writer="q", plan=1, version=version, at_ms=world.now_ms, starts=starts)
        world.tell(as_read(plan))

    def run_on(self, pick: int, status: RunStatus, text: str) -> None:
        """What is started tells of itself as its node would."""
        holding = [(job, place) for job in self.world.state.jobs.values() for place in job.workers]
        if not holding:
            return
        job, place = holding[pick % len(holding)]
        self.words += 1
        word = n.RunStatusUpdate(
            node=place.node,
            boot=self.world.state.nodes[place.node].boot,
            seq=LARGEST_INTEGER - 1_000 + self.words,
            job=job.id,
            attempt=job.attempt,
            status=status,
            text=text,
            rank=None if job.spec.gang else place.rank,
            turn=0 if job.spec.gang else place.turn,
        )
        self.tell(n.RunsReported(cell=CELL, words=(word,)))

    def judge(self) -> None:
        """Every reader reads and folds every record, and makes of it what others need."""
        self.world.check()
        for record in self.world.log[self.read :]:
            assert len(record.value) <= DECISION_BYTES_MAX
            decision = record.decision
            assert isinstance(decision, Decision)
            self.metrics.before(self.folded, decision.at_ms)
            fold(self.folded, record)
            assert self.metrics.take(self.folded, decision) is None
        for queues in in_parts(plan_of(self.folded, self.queues, self.world.now_ms)):
            as_read(QueuePlanned(cell=CELL, writer="q", plan=1, version=1, at_ms=self.folded.at_ms, queues=queues))
        self.metrics.look(self.folded)
        self.read = len(self.world.log)
        state = self.world.twin
        assert digest_of(state_from(rows_of(state))) == digest_of(state)
        for rows in all_rows(state, 100):
            read_rows(rows)
        assert self.world.service.others_pending == self.world.service.new_jobs_pending == 0


def as_read(event: Event) -> Event:
    found = decode(event.type, encode(event))
    assert not isinstance(found, Undecodable), found
    return found


def read_rows(rows: Any) -> None:
    """What a client makes of the rows."""
    for _, text in rows.jobs:
        job_row(text)
    for _, text in rows.nodes:
        node_row(text)
    for _, text in rows.tenants:
        account_rows(text)


STEPS = st.lists(
    COMMAND.map(lambda command: ("submit", command))
    | (SAID | OPERATION).map(lambda event: ("tell", event))
    | JOINED.map(lambda event: ("tell", event))
    | st.builds(
        lambda *run: ("run", run),
        st.integers(0, 9),
        st.sampled_from((RunStatus.RUNNING, RunStatus.FAILED, RunStatus.FAILED, RunStatus.STOPPED, RunStatus.FINISHED)),
        st.sampled_from(("", "\0" * 500)),
    )
    | ends(0, LATEST_MS // 4, 1_000, 60_000).map(lambda ms: ("pass", ms))
    | st.just(("plan", None)),
    min_size=8,
    max_size=25,
)


PRELUDE = st.tuples(
    st.just(
        ("tell", n.NodeJoined(cell=CELL, node="n1", boot="boot-1", seq=0, spec=NodeSpec(id="n1", pool="train", gpus=8)))
    ),
    build(
        JobSpec,
        id=st.just("a"),
        tenant=st.just("ada"),
        workers=st.sampled_from((1, 2)),
        gang=st.booleans(),
        run=RUN,
        retry=RETRY,
        max_run_ms=maybe(ends(1, LARGEST_INTEGER)),
        kind=st.sampled_from(JobKind),
        priority=ends(-1_000_000, 1_000_000),
    ).map(lambda spec: ("submit", SubmitJob(job=spec))),
    st.just(("run", (0, RunStatus.RUNNING, ""))),
    st.sampled_from((RunStatus.FAILED, RunStatus.STOPPED, RunStatus.FINISHED)).map(
        lambda status: ("run", (0, status, "x"))
    ),
)


CROWD = st.lists(
    build(
        JobSpec,
        id=JOB,
        tenant=st.sampled_from(("ada", "bob")),
        resources=st.just(Resources(gpu_milli=8 * GPU)),
        max_run_ms=ends(1, LARGEST_INTEGER, 1_000),
        topology=st.none() | maybe(TOPOLOGY),
    ).map(lambda spec: ("submit", SubmitJob(job=spec))),
    max_size=4,
).map(lambda steps: (*steps, ("plan", None)))
"""Jobs that fill a node, and what is planned for those that wait."""


@given(drawn=FILE, prelude=PRELUDE, crowd=CROWD, now_ms=st.sampled_from(NOW_MS), steps=STEPS)
@settings(suppress_health_check=list(HealthCheck))
def test_no_number_that_is_let_in_stops_a_cell(
    drawn: dict[str, Any], now_ms: int, prelude: tuple[Any, ...], crowd: tuple[Any, ...], steps: list[Any]
) -> None:
    file = file_of(drawn)
    reaches("a cell file of extreme numbers is in order", file is not None)
    if file is None:
        return
    pipeline = Pipeline(file, now_ms)
    for what, given_ in (*prelude, *crowd, *steps):
        if what == "submit":
            pipeline.submit(given_)
        elif what == "tell":
            pipeline.tell(given_)
        elif what == "run":
            pipeline.run_on(*given_)
        elif what == "plan":
            pipeline.plan()
        else:
            pipeline.world.now_ms = min(pipeline.world.now_ms + given_, LATEST_MS)  # where the clock ends, too
            pipeline.world.wall_ms += 1_000
            pipeline.world.rest()
    pipeline.judge()
    effects = [effect for decision in pipeline.world.decisions for effect in decision.effects]
    reaches("a job of extreme numbers starts", any(isinstance(effect, e.JobStarted) for effect in effects))
    assert pipeline.folded.version == pipeline.world.state.version, "every reader has folded what the writer wrote"
