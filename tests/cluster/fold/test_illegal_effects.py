"""What the fold refuses: every effect in every state of a job that it cannot follow from, and broken rules."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.fold import DamagedLog, fold
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    JobKind,
    JobSpec,
    NodeRole,
    NodeSpec,
    NodeStatus,
    Resources,
    RunStatus,
    WorkerPlace,
)
from fallow.shared.events.reasons import ClearReason, FailReason, PendingReason, PreemptionCause, StopReason
from tests.cluster.worlds.examples import (
    LIFE,
    TWO_GPUS,
    cell,
    cell_with_job,
    enqueued,
    next_record,
    node,
    place,
    quota,
    requeued,
    started,
    stopping,
    then,
)

QUEUED, HELD, STARTING, RUNNING = JobStatus.QUEUED, JobStatus.HELD, JobStatus.STARTING, JobStatus.RUNNING
RESIZING, STOPPING, PREEMPTED = JobStatus.RESIZING, JobStatus.STOPPING, JobStatus.PREEMPTED
HOLDING = {STARTING, RUNNING, RESIZING, STOPPING}


# Each effect on a job, and the states from which it may follow. It must be refused in all others.
def room_for(job: str, *places: WorkerPlace) -> e.RoomHeld:
    """Room is held for it."""
    cause = PreemptionCause.PRIORITY
    return e.RoomHeld(job=job, cause=cause, workers=places, victims=1, until_ms=9, proposal="p-1")


TRANSITIONS: dict[str, tuple[e.Effect, set[JobStatus]]] = {
    "JobEnqueued": (enqueued("job"), set()),
    "JobStarted": (started("job", place(0, "n2", 0), attempt=1), {QUEUED}),
    "RunObserved": (e.RunObserved(job="job", attempt=1, node="n1", status=RunStatus.FAILED), HOLDING),
    "JobRunning": (e.JobRunning(job="job", attempt=1), {STARTING}),
    "JobResizing": (e.JobResizing(job="job", attempt=1, add=(place(2, "n2", 0),)), {RUNNING}),
    "JobResized": (e.JobResized(job="job", attempt=1, workers=(place(0, "n1", 0),)), {RESIZING}),
    "WorkersSettled": (e.WorkersSettled(job="job", attempt=1, gone=(1,)), set()),
    "JobStopping": (stopping("job"), {STARTING, RUNNING, RESIZING}),
    "JobStopping to cancel": (stopping("job", StopReason.CANCELLED), HOLDING),
    "JobPreempted": (e.JobPreempted(job="job", attempt=1, why=StopReason.PRIORITY), {STOPPING}),
    "JobRequeued": (requeued("job"), {*HOLDING, PREEMPTED}),
    "JobFinished": (e.JobFinished(job="job", attempt=1), HOLDING),
    "JobFailed": (e.JobFailed(job="job", reason=FailReason.RETRIES_EXHAUSTED), HOLDING),
    "JobCancelled": (e.JobCancelled(job="job"), {QUEUED, HELD, STOPPING}),
    "AttemptTimedOut": (e.AttemptTimedOut(job="job", attempt=1, what="run"), HOLDING),
    "JobDeferred": (e.JobDeferred(job="job", code=PendingReason.NO_FREE_GPUS), {QUEUED, HELD}),
    "JobHeld": (e.JobHeld(job="job"), {QUEUED}),
    "JobReleased": (e.JobReleased(job="job"), {HELD}),
    "JobReady": (e.JobReady(job="job"), set()),
    "WaitShortened": (e.WaitShortened(job="job", over=("first",)), set()),
    "ReservationSet": (e.ReservationSet(job="job", workers=(place(0, "n2", 0),), start_ms=5), {QUEUED}),
    "ReservationCleared": (e.ReservationCleared(job="job", reason=ClearReason.REPLACED), set()),
    "RoomHeld": (room_for("job", *(place(rank, "n2", rank) for rank in range(4))), {QUEUED}),
    "RoomReleased": (e.RoomReleased(job="job", reason=ClearReason.LAPSED), set()),
    "JobUpdated": (
        e.JobUpdated.of(JobSpec(id="job", tenant="ada", workers=4, workers_min=1, priority=3)),
        {QUEUED, HELD, *HOLDING, PREEMPTED},
    ),
}

LEGAL = [(name, status) for name, (_, legal) in TRANSITIONS.items() for status in LIFE if status in legal]
ILLEGAL = [(name, status) for name, (_, legal) in TRANSITIONS.items() for status in LIFE if status not in legal]


def expect_refused(state: CellState, *effects: Any, because: str) -> None:
    """The fold refuses the record, says why, and leaves the state as it was."""
    before, digest = deepcopy(state), digest_of(state)
    with pytest.raises(DamagedLog, match=because):
        fold(state, next_record(state, *effects))
    assert state == before
    assert digest_of(state) == digest


@pytest.mark.parametrize(("name", "status"), LEGAL)
def test_an_effect_follows_from_its_states(name: str, status: JobStatus) -> None:
    state = cell_with_job(status)
    assert then(state, TRANSITIONS[name][0]).version == 2


@pytest.mark.parametrize(("name", "status"), ILLEGAL)
def test_an_effect_is_refused_in_all_other_states(name: str, status: JobStatus) -> None:
    expect_refused(cell_with_job(status), TRANSITIONS[name][0], because="version 2: job job ")


OF_ATTEMPTS = [name for name, (effect, legal) in TRANSITIONS.items() if legal and hasattr(effect, "attempt")]


@pytest.mark.parametrize("name", OF_ATTEMPTS)
def test_an_effect_on_another_attempt_is_refused(name: str) -> None:
    effect = replace(TRANSITIONS[name][0], attempt=7)
    status = min(TRANSITIONS[name][1])
    expect_refused(cell_with_job(status), effect, because="attempt")


GANG = enqueued("gang", workers=2, resources=TWO_GPUS)
SHARE = enqueued("share", resources=Resources(gpu_milli=600))
SERVER = node("s1", pool="serve", role=NodeRole.INFERENCE)
LENT = e.NodeLent(node="s1", loan="loan", to_pool="train", deadline_ms=9)
RESIZABLE = [
    enqueued("job", workers=3, workers_min=2),
    started("job", place(0, "n1", 0), place(1, "n1", 1)),
    e.JobRunning(job="job", attempt=1),
]


def resizing(*add: Any, remove: tuple[int, ...] = ()) -> e.JobResizing:
    return e.JobResizing(job="job", attempt=1, add=add, remove=remove)


def smaller(gpus: int) -> e.NodeChanged:
    return e.NodeChanged(spec=NodeSpec(id="n1", pool="train", gpus=gpus), boot="boot-1", status=NodeStatus.READY)


# What was before, the effect that is refused, and words of the reason.
BROKEN: dict[str, tuple[list[Any], Any, str]] = {
    "a gang with a missing rank": ([GANG], started("gang", place(0, "n1", 0, 1)), "needs 2 to 2 workers, not 1"),
    "a gang with a gap in its ranks": (
        [GANG],
        started("gang", place(0, "n1", 0, 1), place(2, "n1", 2, 3)),
        "rank 2 stands where 1",
    ),
    "a gang with a rank too many": (
        [GANG],
        started("gang", place(0, "n1", 0, 1), place(1, "n1", 2, 3), place(2, "n1", 4, 5)),
        "needs 2 to 2 workers, not 3",
    ),
    "a worker with too little": (
        [GANG],
        started("gang", place(0, "n1", 0, 1), place(1, "n1", 2)),
        "worker 1 gets other resources",
    ),
    "the only worker of a gang with fewer GPUs": (
        [enqueued("one", resources=TWO_GPUS)],
        started("one", place(0, "n1", 0)),
        "worker 0 gets other resources",
    ),
    "the only worker of a gang with fewer CPUs": (
        [enqueued("one", resources=Resources(cpu_milli=2_000))],
        started("one", place(0, "n1", 0, cpu=1_000)),
        "worker 0 gets other resources",
    ),
    "the only worker of a gang with less memory": (
        [enqueued("one", resources=Resources(memory_mib=2_000))],
        started("one", place(0, "n1", 0, memory=1_000)),
        "worker 0 gets other resources",
    ),
    "two workers on one device": (
        [GANG],
        started("gang", place(0, "n1", 0, 1), place(1, "n1", 1, 2)),
        "device 1 is not free",
    ),
    "one device named twice": (
        [GANG],
        started("gang", place(0, "n1", 0, 0, milli=2000), place(1, "n1", 2, 3)),
        "are not 2 whole devices",
    ),
    "a device that does not exist": (
        [GANG],
        started("gang", place(0, "n1", 0, 1), place(1, "n1", 7, 8)),
        "device 8 is not free",
    ),
    "a node that does not exist": (
        [GANG],
        started("gang", place(0, "n9", 0, 1), place(1, "n1", 2, 3)),
        "node n9 does not exist",
    ),
    "a share over two devices": (
        [SHARE],
        started("share", place(0, "n1", 0, 1, milli=600)),
        "sits on one device, not on 2",
    ),
    "a share where too little is left": (
        [SHARE, enqueued("other", resources=Resources(gpu_milli=600)), started("other", place(0, "n1", 3, milli=600))],
        started("share", place(0, "n1", 3, milli=600)),
        "device 3 has 400 milli-GPUs free",
    ),
    "a share of a failed device": (
        [SHARE, e.DeviceChanged(node="n1", device=2, healthy=False)],
        started("share", place(0, "n1", 2, milli=600)),
        "device 2 has 0 milli-GPUs free",
    ),
    "a share of a shared device that failed meanwhile": (
        [
            enqueued("first", resources=Resources(gpu_milli=300)),
            started("first", place(0, "n1", 2, milli=300)),
            *(SHARE, e.DeviceChanged(node="n1", device=2, healthy=False)),
        ],
        started("share", place(0, "n1", 2, milli=600)),
        "device 2 has 0 milli-GPUs free",
    ),
    "a whole device of which a share is taken": (
        [SHARE, started("share", place(0, "n1", 0, milli=600)), enqueued("job")],
        started("job", place(0, "n1", 0)),
        "device 0 is not free",
    ),
    "more CPUs than there are": (
        [enqueued("job", resources=Resources(cpu_milli=64_001))],
        started("job", place(0, "n1", 0, cpu=64_001)),
        "needs 64001 milli-CPUs, 64000 are free",
    ),
    "more memory than there is": (
        [enqueued("job", resources=Resources(memory_mib=100_001))],
        started("job", place(0, "n1", 0, memory=100_001)),
        "needs 100001 MiB, 100000 are free",
    ),
    "a start before its time": (
        [enqueued("job"), started("job", place(0, "n1", 0)), requeued("job", not_before_ms=100)],
        started("job", place(0, "n1", 0), attempt=2),
        "may not start before 100",
    ),
    "a start on a cordoned node": (
        [enqueued("job"), replace(node("n1"), status=NodeStatus.CORDONED)],
        started("job", place(0, "n1", 0)),
        "is cordoned and takes nothing new",
    ),
    "a start on a lost node": (
        [enqueued("job"), e.LeaseExpired(node="n1", boot="boot-1")],
        started("job", place(0, "n1", 0)),
        "is lost and takes nothing new",
    ),
    "a start in a pool that the job does not accept": (
        [enqueued("job", pools=("other",))],
        started("job", place(0, "n1", 0)),
        "does not accept pool train",
    ),
    "a start on another GPU type": (
        [enqueued("job", gpu_type="h100")],
        started("job", place(0, "n1", 0)),
        "needs h100, node n1 has gpu",
    ),
    "a start over its tenant's limit": (
        [quota("ada", limit=1), GANG],
        started("gang", place(0, "n1", 0, 1), place(1, "n1", 2, 3)),
        "would pass the limit of .'ada', 'gpu'.",
    ),
    "a start over the limit of a parent": (
        [quota("lab", limit=3), quota("ada", limit=None, parent="lab"), GANG],
        started("gang", place(0, "n1", 0, 1), place(1, "n1", 2, 3)),
        "would pass the limit of .'lab', 'gpu'.",
    ),
    "growth over a limit": (
        [quota("ada", limit=2), *RESIZABLE],
        resizing(place(2, "n1", 2)),
        "would pass the limit",
    ),
    "growth beyond what is wanted": (
        RESIZABLE,
        resizing(place(2, "n1", 2), place(3, "n1", 3)),
        "wants 3 workers, not 4",
    ),
    "growth by a rank that is there": (RESIZABLE, resizing(place(1, "n1", 2)), "has a worker of an added rank already"),
    "growth with other resources": (RESIZABLE, resizing(place(2, "n1", 2, 3)), "worker 2 gets other resources"),
    "shrinking below the fewest": (RESIZABLE, resizing(remove=(1,)), "needs 2 workers, 1 would be left"),
    "shrinking by a rank that is not there": (RESIZABLE, resizing(remove=(5,)), "has no such rank"),
    "shrinking by a rank twice": (RESIZABLE, resizing(remove=(1, 1)), "has no such rank"),
    "resized to places not held": (
        [*RESIZABLE, resizing(place(2, "n1", 2))],
        e.JobResized(job="job", attempt=1, workers=(place(0, "n1", 0), place(1, "n1", 6))),
        "does not hold all of these places",
    ),
    "resized to one place twice": (
        [*RESIZABLE, resizing(place(2, "n1", 2))],
        e.JobResized(job="job", attempt=1, workers=(place(0, "n1", 0), place(0, "n1", 0))),
        "does not hold all of these places",
    ),
    "resized below the fewest": (
        [*RESIZABLE, resizing(place(2, "n1", 2))],
        e.JobResized(job="job", attempt=1, workers=(place(0, "n1", 0),)),
        "needs 2 workers, 1 would be left",
    ),
    "a running job that wants more than it holds": (
        RESIZABLE,
        e.JobUpdated.of(JobSpec(id="job", tenant="ada", workers=3)),
        "runs with 2 workers, fewer than 3",
    ),
    "a job that may start with more workers than it has": (
        [enqueued("job")],
        e.JobUpdated(job="job", tenant="ada", priority=0, workers=2, workers_min=3),
        "has 2 workers, fewer than 3",
    ),
    "a job given to another tenant": (
        [enqueued("job")],
        e.JobUpdated.of(JobSpec(id="job", tenant="eve")),
        "belongs to ada",
    ),
    "a run on a node that has none": (
        RESIZABLE,
        e.RunObserved(job="job", attempt=1, node="n2", status=RunStatus.FAILED),
        "has no run on node n2",
    ),
    "a run that goes back": (
        [*RESIZABLE, e.RunObserved(job="job", attempt=1, node="n1", status=RunStatus.FAILED)],
        e.RunObserved(job="job", attempt=1, node="n1", status=RunStatus.FINISHED),
        "a run that is failed does not become finished",
    ),
    "the same reason to wait again": (
        [enqueued("job"), e.JobDeferred(job="job", code=PendingReason.HELD)],
        e.JobDeferred(job="job", code=PendingReason.HELD),
        "waits for held already",
    ),
    "a reservation on a node that does not exist": (
        [enqueued("job")],
        e.ReservationSet(job="job", workers=(place(0, "n9", 0),), start_ms=1),
        "node n9 does not exist",
    ),
    "another shape for a node in use": (RESIZABLE, smaller(4), "is in use and keeps its shape and pool"),
    "a device that the node does not have": (
        [],
        e.DeviceChanged(node="n1", device=8, healthy=False),
        "has no device 8",
    ),
    "a device of an unknown node": ([], e.DeviceChanged(node="n9", device=0, healthy=True), "node n9 does not exist"),
    "the lease of another boot": ([], e.LeaseExpired(node="n1", boot="boot-0"), "is in boot boot-1, not boot-0"),
    "failures of which it is not said of each whose fault it was": (
        [],
        e.NodeFailures(node="n1", jobs=("a", "b"), by_node=(True,)),
        "each of a tenant, once and by one fault",
    ),
    "a lease that expired before": (
        [e.LeaseExpired(node="n1", boot="boot-1")],
        e.LeaseExpired(node="n1", boot="boot-1"),
        "is lost already",
    ),
    "a loan of a training node": (
        [],
        e.NodeLent(node="n1", loan="loan", to_pool="train"),
        "is no inference node",
    ),
    "a loan of a lent node": ([SERVER, LENT], LENT, "is lent already"),
    "a loan of a node in use": (
        [SERVER, enqueued("job"), started("job", place(0, "s1", 0))],
        LENT,
        "is in use at home",
    ),
    "draining another loan": (
        [SERVER, LENT],
        e.NodeLoanDraining(node="s1", loan="other", deadline_ms=3),
        "is not part of loan other",
    ),
    "draining twice": (
        [SERVER, LENT, e.NodeLoanDraining(node="s1", loan="loan", deadline_ms=3)],
        e.NodeLoanDraining(node="s1", loan="loan", deadline_ms=3),
        "is not lent",
    ),
    "a start on a lent node that drains": (
        [SERVER, LENT, e.NodeLoanDraining(node="s1", loan="loan", deadline_ms=3), enqueued("job")],
        started("job", place(0, "s1", 0)),
        "takes nothing new",
    ),
    "taking back a node in use": (
        [SERVER, LENT, enqueued("job"), started("job", place(0, "s1", 0))],
        e.NodeReclaimed(node="s1", loan="loan"),
        "is still in use",
    ),
    "taking back what is at home": ([SERVER], e.NodeReclaimed(node="s1", loan="loan"), "is not part of loan"),
    "tenants that are each other's parents": (
        [quota("ada", limit=None, parent="lab")],
        quota("lab", limit=None, parent="ada"),
        "cycle: lab -> ada -> lab",
    ),
    "an old writer": (
        [e.WriterStarted(epoch=3, writer="p")],
        e.WriterStarted(epoch=3, writer="q"),
        "epoch 3 does not follow 3",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_fold_refuses(what: str) -> None:
    before, effect, because = BROKEN[what]
    expect_refused(cell(node("n1"), node("n2"), *before), effect, because=because)


def test_a_record_counts_whole_or_not_at_all() -> None:
    state = cell(node("n1"))
    expect_refused(
        state, enqueued("job"), started("job", place(0, "n1", 0)), e.JobHeld(job="job"), because="is starting"
    )


def test_a_reservation_ends_with_its_job() -> None:
    reserved = e.ReservationSet(job="job", workers=(place(0, "n1", 0),), start_ms=5)
    state = cell(node("n1"), enqueued("job"), reserved, e.JobCancelled(job="job"))
    assert state.reservations == {}
    assert check_state(state) == []


def test_a_job_whose_digest_is_none_is_refused_before_it_waits() -> None:
    strange = e.JobEnqueued(spec=JobSpec(id="job", tenant="ada"), submit_ms=0, digest="z" * 32)
    expect_refused(cell(node("n1")), strange, because="is no digest")


def test_two_workers_of_one_rank_do_not_enter_together() -> None:
    state = cell(node("n1"), node("n2"), enqueued("job", workers=3, gang=False), started("job", place(0, "n1", 0)))
    twice = [replace(place(1, "n2", device), turn=1) for device in (0, 1)]
    expect_refused(state, resizing(*twice), because="has a worker of an added rank already")
    then(state, resizing(*(replace(place(rank, "n2", rank), turn=1) for rank in (1, 2))))
    assert [worker.rank for worker in state.jobs["job"].workers] == [0, 1, 2]


def test_a_replica_that_leaves_a_node_that_drains_does_not_make_room_twice() -> None:
    service = enqueued("job", workers=2, gang=False, kind=JobKind.INFERENCE)
    state = cell(node("n1"), node("n2"), service, started("job", place(0, "n1", 0), place(1, "n1", 1)))
    then(state, replace(node("n1"), status=NodeStatus.DRAINING))
    then(state, resizing(*(replace(place(rank, "n2", rank), turn=1) for rank in (2, 3)), remove=(0,)))
    more = replace(place(4, "n2", 4), turn=2)
    expect_refused(state, resizing(more), because="wants 2 workers, not 3")
