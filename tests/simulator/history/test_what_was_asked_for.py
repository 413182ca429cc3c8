"""I2 against the wishes themselves: what was decided was asked for, or has a cause that holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, NodeStatus, RetryPolicy
from fallow.shared.events.jobs import JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import (
    FailReason,
    PendingReason,
    ProposalCode,
    RefuseCode,
    RejectCode,
    RequeueReason,
    StopReason,
)
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.simulator.history.evidence import Answer, Evidence
from fallow.simulator.history.judge import judge
from tests.cluster.worlds.examples import enqueued, node, place, quota, started, stopping
from tests.simulator.history.story import CELL, Story, admitted, two_nodes

READ: dict[str, Any] = {"inputs": {"jobs-0": 2}}
SPEC: dict[str, Any] = {"retry": RetryPolicy(budget=2), "max_run_ms": 100}
RUNS = (enqueued("job", **SPEC), started("job", place(0, "n1", 0)), e.JobRunning(job="job", attempt=1))


def running() -> Story:
    return two_nodes().decide(*RUNS).begins("job", "n1", 0)


# Ends.


def requeued(failures: int, reason: RequeueReason = RequeueReason.WORKER_FAILED, losses: int = 0) -> e.JobRequeued:
    return e.JobRequeued(job="job", reason=reason, not_before_ms=0, failures=failures, losses=losses)


def failed(reason: FailReason) -> e.JobFailed:
    return e.JobFailed(job="job", reason=reason)


TIMED_OUT = stopping("job", StopReason.RUN_TIME_LIMIT)
AGAIN = started("job", place(0, "n1", 0), attempt=2)
LOST_OFTEN = requeued(0, RequeueReason.INFRASTRUCTURE, losses=50)
DRAINING = e.NodeChanged(spec=node("n1", gpus=2).spec, boot="boot-1", status=NodeStatus.DRAINING)

ENDS: dict[str, tuple[int, list[Any], list[str]]] = {
    "a failure within the budget": (0, [failed(FailReason.RETRIES_EXHAUSTED)], ["I2"]),
    "a failure beyond the budget": (0, [requeued(1), AGAIN, requeued(2), replace(AGAIN, attempt=3), failed(
        FailReason.RETRIES_EXHAUSTED)], []),
    "one loss": (0, [failed(FailReason.NODE_FAULTS)], ["I2"]),
    "many losses": (0, [LOST_OFTEN, AGAIN, failed(FailReason.NODE_FAULTS)], []),
    "a failure that counts twice": (0, [requeued(2)], ["I2"]),
    "a loss that counts as a failure": (0, [requeued(1, RequeueReason.INFRASTRUCTURE)], ["I2"]),
    "a stop before the limit": (99, [TIMED_OUT], ["I2"]),
    "a stop at the limit": (100, [TIMED_OUT, failed(FailReason.RUN_TIME_LIMIT)], []),
    "an end by the limit without a stop": (100, [failed(FailReason.RUN_TIME_LIMIT)], ["I2"]),
    "a running job that does not start": (0, [stopping("job", StopReason.START_TIMED_OUT)], ["I2"]),
    "a drain of no node": (0, [stopping("job", StopReason.DRAINED)], ["I2"]),
    "a drain": (0, [DRAINING, stopping("job", StopReason.DRAINED)], []),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ENDS))
def test_an_attempt_ends_for_a_cause_that_holds(name: str) -> None:
    at_ms, effects, found = ENDS[name]
    assert two_nodes().decide(*RUNS).decide(*effects, at_ms=at_ms).broken(happened=(), diary=()) == found


# Requests.


def by(tenant: str) -> JobCancelRequested:
    return JobCancelRequested(cell=CELL, job="ada/job", tenant=tenant)


OF_ADA = enqueued("ada/job")
CANCELLED = e.JobCancelled(job="ada/job")
UPDATE = JobUpdateRequested(cell=CELL, job="ada/job", tenant="ada", changes=JobChanges(priority=3))


def told(*effects: Any, asked: Sequence[Any] = (), inputs: int = 2) -> list[str]:
    """What is broken where the tenant asks for this about a job that waits."""
    story = two_nodes().answered(admitted("ada/job"))
    for event in asked:
        story.answered(event)
    story.decide(OF_ADA, inputs={"jobs-0": 1}).decide(*effects, inputs={"jobs-0": inputs})
    return story.broken(has_all_requests=True)


def test_a_job_is_cancelled_for_whom_nobody_asked() -> None:
    assert told(CANCELLED) == ["I2"]
    assert told(CANCELLED, asked=[by("ada")]) == []
    assert told(CANCELLED, asked=[by("ada")], inputs=1) == ["I2"]


def test_a_job_is_stopped_though_no_tenant_has_cancelled_it() -> None:
    runs = (started("ada/job", place(0, "n1", 0)), stopping("ada/job", StopReason.CANCELLED))
    assert "I2" in told(*runs)
    assert "I2" not in told(*runs, asked=[by("ada")])


def test_an_update_makes_of_a_job_what_was_asked_for() -> None:
    spec = OF_ADA.spec
    assert told(e.JobUpdated.of(replace(spec, priority=3)), asked=[UPDATE]) == []
    assert told(e.JobUpdated.of(spec), asked=[UPDATE]) == ["I2"]
    assert "I2" in told(e.JobUpdated.of(replace(spec, priority=3)))


def test_a_job_is_accepted_as_it_was_admitted() -> None:
    other = two_nodes().answered(admitted("ada/job", priority=3)).decide(OF_ADA, inputs={"jobs-0": 1})
    assert other.broken(has_all_requests=True) == ["I2"]
    assert two_nodes().decide(OF_ADA).broken(has_all_requests=True) == ["I2"]


def test_elements_are_accepted_as_their_array_was_admitted() -> None:
    story = two_nodes().answered(admitted("ada/pair", array=2))
    both = [enqueued(f"ada/pair.{n}", array=2, array_of="ada/pair", array_index=n) for n in (0, 1)]
    assert story.decide(*both, inputs={"jobs-0": 1}).broken(has_all_requests=True) == []


# Refusals.

NO_ROOM = RefuseCode.TENANT_HAS_TOO_MANY_WAITING
FEW = e.PolicySet(policy=o.CellPolicy(max_pending_jobs=2))


@pytest.mark.parametrize(("before", "found"), [([], ["I2"]), ([FEW], [])], ids=["much room", "no room"])
def test_a_job_is_refused_as_one_too_many(before: list[Any], found: list[str]) -> None:
    refused = e.JobRefused(job="ada/more", request="submit", code=NO_ROOM, tenant="ada")
    story = two_nodes().answered(admitted("ada/job")).answered(admitted("ada/more"))
    operations = [Answer(o.SetPolicy(cell=CELL, policy=each.policy), "operations-0", 0) for each in before]
    story.decide(*before, OF_ADA, refused, inputs={"jobs-0": 2})
    assert story.broken(has_all_requests=True, operations=operations) == found


REFUSED: dict[str, tuple[e.JobRefused, list[Any], list[str]]] = {
    "an unknown job": (e.JobRefused(job="x", request="cancel", code=RefuseCode.UNKNOWN_JOB), [], []),
    "a known job": (e.JobRefused(job="job", request="cancel", code=RefuseCode.UNKNOWN_JOB), [], ["I2"]),
    "a job that lives": (e.JobRefused(job="job", request="cancel", code=RefuseCode.ALREADY_OVER), [], ["I2"]),
    "a job that is over": (
        e.JobRefused(job="job", request="cancel", code=RefuseCode.ALREADY_OVER),
        [e.JobFinished(job="job", attempt=1)],
        [],
    ),
    "its own job": (
        e.JobRefused(job="job", request="cancel", code=RefuseCode.NOT_THE_TENANTS_JOB, tenant="ada"),
        [],
        ["I2"],
    ),
    "the job of another": (
        e.JobRefused(job="job", request="cancel", code=RefuseCode.NOT_THE_TENANTS_JOB, tenant="bob"),
        [],
        [],
    ),
    "the number of a gang": (e.JobRefused(job="job", request="update", code=RefuseCode.UNSUPPORTED), [], []),
    "the number of a service": (
        e.JobRefused(job="web", request="update", code=RefuseCode.UNSUPPORTED),
        [enqueued("web", kind=JobKind.INFERENCE, gang=False)],
        ["I2"],
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_request_is_refused_for_what_holds(name: str) -> None:
    refused, before, found = REFUSED[name]
    assert running().decide(*before, refused).broken(happened=(), diary=()) == found


# What admission passes on, and rejects.

SHORT = {"name": "short", "default_run_ms": 5, "max_run_ms": 9}
BOUND = {"name": "bound", "default_run_ms": None, "max_run_ms": 9}
FILE: dict[str, Any] = {
    "cells": [{"name": CELL, "queues": [{"name": "default"}, SHORT, BOUND], "pools": [
        {"name": "train", "gpu_type": "h100", "role": "training", "gpus": 8, "gpus_per_node": 4, "driver": "virtual"},
        {"name": "serve", "gpu_type": "l4", "role": "inference", "gpus": 1, "gpus_per_node": 1, "driver": "virtual"},
        {"name": "old", "gpu_type": "v100", "role": "training", "gpus": 8, "gpus_per_node": 4, "driver": "virtual"}]},
        {"name": "cell-b", "queues": [{"name": "default"}], "pools": [
        {"name": "far", "gpu_type": "h100", "role": "training", "gpus": 8, "gpus_per_node": 4, "driver": "virtual"}]}],
    "tenants": [{"name": "ada", "parent": None, "quotas": [{"gpu_type": "gpu", "limit": 2, "guaranteed": 0}],
                 "max_priority": 5, "own_topic": False, "submissions": None, "pools": ["train", "serve"]},
                {"name": "eve", "parent": None, "quotas": [], "max_priority": None, "own_topic": True,
                 "submissions": {"per_s": 1, "burst": 5}, "pools": []}],
    "limits": {"workers_per_job": 10, "gpus_per_job": 6, "retry_budget": 1, "submit_skew_ms": 9},
}  # fmt: skip


def passed(event: Any, *said: Any) -> list[str]:
    story = two_nodes().answered(event)
    return [each.invariant for each in judge(Evidence([story.evidence()], submissions=said, files=[FILE]))]


def submit(**spec: Any) -> SubmitJob:
    return SubmitJob(job=JobSpec(**{"id": "job", "tenant": "ada", **spec}))


def test_admission_passes_on_what_was_submitted() -> None:
    assert passed(admitted("ada/job", cell=CELL, priority=3), submit(priority=3)) == []
    assert passed(admitted("ada/job", cell=CELL), submit(priority=3)) == ["I2"]
    assert passed(admitted("ada/job", cell=CELL, pools=("a",)), submit(pools=("a", "b"))) == []
    assert passed(admitted("ada/job", cell=CELL, pools=("c",)), submit(pools=("a", "b"))) == ["I2"]
    assert passed(admitted("ada/job", cell=CELL)) == ["I2"]


def test_admission_passes_on_the_requests_that_somebody_sent() -> None:
    cancel = CancelJob(job="job", tenant="ada")
    assert passed(by("ada"), cancel) == []
    assert passed(by("bob"), cancel) == ["I2"]
    update = UpdateJob(job="ada/job", tenant="ada", changes=JobChanges(priority=3))
    assert passed(UPDATE, update) == []
    assert passed(UPDATE, replace(update, changes=JobChanges(priority=4))) == ["I2"]


@pytest.mark.parametrize(
    ("queue", "told_ms", "limit_ms", "found"),
    [
        ("short", None, 5, []),
        ("short", None, None, ["I2"]),
        ("short", None, 9, ["I2"]),
        ("short", 9, 9, []),
        ("short", 9, 5, ["I2"]),
        ("short", 10, 10, ["I2"]),
        ("bound", None, 9, []),
        ("bound", None, None, ["I2"]),
        ("default", None, None, []),
        ("default", None, 9, ["I2"]),
        ("default", 10, 10, []),
    ],
)
def test_a_job_may_run_for_as_long_as_it_told_or_its_queue_lets_it(
    queue: str, told_ms: int | None, limit_ms: int | None, found: list[str]
) -> None:
    let_in = admitted("ada/job", cell=CELL, queue=queue, max_run_ms=limit_ms)
    assert passed(let_in, submit(queue=queue, max_run_ms=told_ms)) == found


def rejected(code: RejectCode, field: str = "", **numbers: Any) -> JobRejected:
    return JobRejected(job="ada/job", tenant="ada", command="submit", code=code, field=field, **numbers)


OF_EVE = JobRejected(job="eve/job", tenant="eve", command="submit", code=RejectCode.UNKNOWN_TENANT)
AT_ONCE = replace(submit(), submit_ms=1)
TENANT, JOB, POOL = RejectCode.OVER_TENANT_LIMIT, RejectCode.OVER_JOB_LIMIT, RejectCode.LARGER_THAN_POOL
REJECTED: dict[str, tuple[JobRejected, SubmitJob, list[str]]] = {
    "more than the tenant may have": (rejected(TENANT, "workers", wanted=3, allowed=2), submit(workers=3), []),
    "as much as the tenant may have": (rejected(TENANT, "workers", wanted=2, allowed=1), submit(workers=2), ["I2"]),
    "another number": (rejected(TENANT, "workers", wanted=4, allowed=2), submit(workers=3), ["I2"]),
    "too high a priority": (rejected(TENANT, "priority"), submit(priority=6), []),
    "a priority that may be": (rejected(TENANT, "priority"), submit(priority=5), ["I2"]),
    "more workers than a job may have": (rejected(JOB, "workers"), submit(workers=11), []),
    "as many as a job may have": (rejected(JOB, "workers"), submit(workers=10), ["I2"]),
    "more retries than a job may have": (rejected(JOB, "retry.budget"), submit(retry=RetryPolicy(budget=2)), []),
    "longer than its queue lets it": (rejected(JOB, "max_run_ms"), submit(queue="short", max_run_ms=10), []),
    "as long as its queue lets it": (rejected(JOB, "max_run_ms"), submit(queue="short", max_run_ms=9), ["I2"]),
    "in a queue without a bound": (rejected(JOB, "max_run_ms"), submit(queue="default", max_run_ms=10), ["I2"]),
    "without a limit of its own": (rejected(JOB, "max_run_ms"), submit(queue="short"), ["I2"]),
    "more than the pool": (rejected(POOL, "workers"), submit(workers=9), []),
    "as much as the pool": (rejected(POOL, "workers"), submit(workers=8), ["I2"]),
    "nothing unsupported": (rejected(RejectCode.UNSUPPORTED), submit(), ["I2"]),
    "fungible": (rejected(RejectCode.UNSUPPORTED), submit(fungible=True), []),
    "an unknown pool": (rejected(RejectCode.UNKNOWN_POOL), submit(pools=("no",)), []),
    "a known pool": (rejected(RejectCode.UNKNOWN_POOL), submit(pools=("train",)), ["I2"]),
    "an unknown queue": (rejected(RejectCode.UNKNOWN_QUEUE), submit(queue="no"), []),
    "a known queue": (rejected(RejectCode.UNKNOWN_QUEUE), submit(queue="default"), ["I2"]),
    "an unknown GPU type": (rejected(RejectCode.UNKNOWN_GPU_TYPE), submit(gpu_type="no"), []),
    "a known GPU type": (rejected(RejectCode.UNKNOWN_GPU_TYPE), submit(gpu_type="h100"), ["I2"]),
    "no GPU type": (rejected(RejectCode.UNKNOWN_GPU_TYPE), submit(), ["I2"]),
    "the GPU type of services": (rejected(RejectCode.UNKNOWN_GPU_TYPE), submit(gpu_type="l4"), []),
    "the GPU type of a service": (
        rejected(RejectCode.UNKNOWN_GPU_TYPE),
        submit(gpu_type="l4", kind=JobKind.INFERENCE),
        ["I2"],
    ),
    "the GPU type of a pool that it names": (
        rejected(RejectCode.UNKNOWN_GPU_TYPE),
        submit(gpu_type="l4", pools=("serve",)),
        ["I2"],
    ),
    "the GPU type of a pool that is not open": (rejected(RejectCode.UNKNOWN_GPU_TYPE), submit(gpu_type="v100"), []),
    "a pool that is not open": (rejected(RejectCode.POOL_NOT_ALLOWED), submit(pools=("old",)), []),
    "a pool that is open": (rejected(RejectCode.POOL_NOT_ALLOWED), submit(pools=("train",)), ["I2"]),
    "a cell with a pool that is open": (rejected(RejectCode.POOL_NOT_ALLOWED), submit(cell=CELL), ["I2"]),
    "a cell that must be named": (replace(OF_EVE, code=RejectCode.CELL_NEEDED), submit(tenant="eve"), []),
    "a cell that is named": (replace(OF_EVE, code=RejectCode.CELL_NEEDED), submit(tenant="eve", cell=CELL), ["I2"]),
    "the only cell of its tenant": (rejected(RejectCode.CELL_NEEDED), submit(), ["I2"]),
    "pools of two cells": (rejected(RejectCode.POOLS_IN_SEVERAL_CELLS), submit(pools=("train", "far")), []),
    "pools of one cell": (rejected(RejectCode.POOLS_IN_SEVERAL_CELLS), submit(pools=("train", "serve")), ["I2"]),
    "a pool beside the cell": (rejected(RejectCode.POOLS_IN_SEVERAL_CELLS), submit(cell=CELL, pools=("far",)), []),
    "the driver of its pools": (rejected(RejectCode.UNSUPPORTED, "run.driver"), submit(), ["I2"]),
    "as much as the larger pool": (rejected(POOL, "workers"), submit(workers=8, pools=("train", "serve")), ["I2"]),
    "a known tenant": (rejected(RejectCode.UNKNOWN_TENANT), submit(), ["I2"]),
    "no topic of its own": (rejected(RejectCode.TENANT_NOT_OF_TOPIC), submit(), ["I2"]),
    "the topic of another": (replace(rejected(RejectCode.TENANT_NOT_OF_TOPIC), tenant="eve"), submit(), []),
    "its own topic": (replace(OF_EVE, code=RejectCode.TENANT_NOT_OF_TOPIC), submit(tenant="eve"), ["I2"]),
    "no limit of submissions": (rejected(RejectCode.TOO_MANY_SUBMISSIONS), submit(), ["I2"]),
    "a limit of submissions": (replace(OF_EVE, code=RejectCode.TOO_MANY_SUBMISSIONS), submit(tenant="eve"), []),
    "a time that it does not name": (rejected(RejectCode.SUBMIT_TIME_TOO_FAR, wanted=10, allowed=9), submit(), ["I2"]),
    "a time that is too far": (rejected(RejectCode.SUBMIT_TIME_TOO_FAR, wanted=10, allowed=9), AT_ONCE, []),
    "a time that is near": (rejected(RejectCode.SUBMIT_TIME_TOO_FAR, wanted=9, allowed=9), AT_ONCE, ["I2"]),
}


@pytest.mark.parametrize("name", list(REJECTED))
def test_a_command_is_rejected_for_what_holds(name: str) -> None:
    answer, said, found = REJECTED[name]
    assert passed(answer, said) == found


# Operations.

AT: dict[str, Any] = {"inputs": {"operations-0": 1}}
REFUSAL = e.ProposalRefused(proposal="n1", code="node_changed")  # type: ignore[arg-type]
CORDONED = e.NodeChanged(spec=node("n1", gpus=2).spec, boot="boot-1", status=NodeStatus.CORDONED)
HOLD, RELEASE = o.HoldJob(cell=CELL, job="job"), o.ReleaseJob(cell=CELL, job="job")
LIMIT = quota("ada", limit=2)
SET_LIMIT = o.SetQuota(cell=CELL, quotas=(LIMIT.quota,))

OPERATIONS: dict[str, tuple[o.Operation, list[Any], list[str]]] = {
    "a cordon": (o.Cordon(cell=CELL, node="n1"), [CORDONED], []),
    "a cordon that is refused": (o.Cordon(cell=CELL, node="n1"), [REFUSAL], []),
    "a cordon that is passed over": (o.Cordon(cell=CELL, node="n1"), [], ["I2"]),
    "a drain that is a cordon": (o.Drain(cell=CELL, node="n1"), [CORDONED], ["I2"]),
    "maintenance that is passed over": (o.PlanMaintenance(cell=CELL, node="n1", begin_ms=1, end_ms=2), [], ["I2"]),
    "a hold": (HOLD, [e.JobHeld(job="job")], []),
    "a hold that is passed over": (HOLD, [], ["I2"]),
    "a release of what is not held": (RELEASE, [], []),
    "a hold and a release": (HOLD, [e.JobHeld(job="job"), e.JobReleased(job="job")], []),
    "a quota": (SET_LIMIT, [LIMIT], []),
    "a quota that is passed over": (SET_LIMIT, [], ["I2"]),
    "a quota without its limit": (SET_LIMIT, [quota("ada", limit=None)], ["I2", "I4"]),
    "a removal that is passed over": (o.RemoveQuota(cell=CELL, tenant="ada"), [], ["I2"]),
    "a policy that is passed over": (o.SetPolicy(cell=CELL, policy=FEW.policy), [], ["I2"]),
    "a field of a policy": (
        o.SetPolicy(cell=CELL, policy=FEW.policy, fields=("max_pending_jobs",)),
        [FEW],
        [],
    ),
}


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_an_operation_is_carried_out_or_refused_by_the_record_that_has_read_it(name: str) -> None:
    event, effects, found = OPERATIONS[name]
    story = two_nodes().answered(admitted("job")).decide(enqueued("job"), inputs={"jobs-0": 1}).decide(*effects, **AT)
    asked = [Answer(event, "operations-0", 0)]
    assert sorted(story.broken(has_all_requests=True, operations=asked)) == found


# What runs at the deadline of a drain.

TO_BE_EMPTY = replace(DRAINING, drain_deadline_ms=10)
TAKEN_OVER = [e.WriterStarted(epoch=1, writer="two")]
PUT_BACK = [e.InputFenced(input="nodes-0", from_offset=0, to_offset=0)]
READ_ON = [e.InputResumed(input="nodes-0", from_offset=0, to_offset=0)]
UNHEARD = [e.NodeSilent(node="n2", boot="boot-1", silent_wall_ms=1)]
DECIDED = [e.JobDeferred(job="job-2", code=PendingReason.NO_FREE_GPUS)]
STOPPED = [stopping("job", StopReason.DRAINED)]

DRAINS: dict[str, tuple[list[tuple[int, list[Any]]], list[str]]] = {
    "four records that only tell what was read": ([(1, [])] * 4 + [(1, DECIDED)], ["I2"]),
    "four records at its work": ([(1, DECIDED)] * 4, ["I2"]),
    "three records, and the stop": ([(1, DECIDED)] * 3 + [(1, STOPPED)], []),
    "writers that take the log over": ([(epoch, TAKEN_OVER) for epoch in range(2, 9)], []),
    "writers that put inputs back": ([(epoch, PUT_BACK) for epoch in range(2, 9)], []),
    "writers that have inputs read on": ([(epoch, READ_ON) for epoch in range(2, 9)], []),
    "writers that leave": ([(epoch, UNHEARD if epoch % 2 else []) for epoch in range(2, 9)], []),
    "three records, and one that leaves, at the end": ([(1, DECIDED)] * 3 + [(1, UNHEARD)], []),
    "three records, and another writer": ([(1, DECIDED)] * 3 + [(2, TAKEN_OVER), (2, STOPPED)], []),
    "three records, and a record of another writer": ([(1, DECIDED)] * 3 + [(2, TAKEN_OVER), (2, DECIDED)], ["I2"]),
    "writers that decide and do not stop it": (
        [each for epoch in range(2, 6) for each in ((epoch, TAKEN_OVER), (epoch, DECIDED))],
        ["I2"],
    ),
    "a silent node in the middle of a reign": ([(1, UNHEARD)] * 3 + [(1, []), (1, DECIDED)], ["I2"]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(DRAINS))
def test_what_runs_at_the_deadline_of_a_drain_is_stopped_by_a_writer_that_is_at_its_work(name: str) -> None:
    records, found = DRAINS[name]
    story = running().decide(enqueued("job-2")).decide(TO_BE_EMPTY)
    for number, (epoch, effects) in enumerate(records):
        story.decide(*effects, epoch=epoch, at_ms=20, inputs={"nodes-0": number + 1})
    assert ["I2" for text in story.texts() if "which was to be empty at 10" in text] == found


# Operations that one record reads, each against the books of its place in it.

SPREAD, PACK = o.CellPolicy(placement="e-spread"), o.CellPolicy(placement="e-binpack")


def to(policy: o.CellPolicy) -> o.SetPolicy:
    return o.SetPolicy(cell=CELL, policy=policy, fields=("placement",))


def file_with(policy: o.CellPolicy) -> e.CellFileSet:
    part = {"name": CELL, "policy": {"placement": policy.placement}}
    return e.CellFileSet(digest="0" * 32, content=json.dumps({"cells": [part], "tenants": []}))


IS_SPREAD, IS_PACK = e.PolicySet(policy=SPREAD), e.PolicySet(policy=PACK)
PAIR = [enqueued(f"pair.{n}", array=2, array_of="pair", array_index=n, **SPEC) for n in (0, 1)]
ONE_RUNS = [*PAIR, started("pair.0", place(0, "n1", 0)), e.JobRunning(job="pair.0", attempt=1)]
ONE_IS_BACK = e.JobRequeued(job="pair.0", reason=RequeueReason.WORKER_FAILED, not_before_ms=0, failures=1)
HOLD_PAIR, RELEASE_PAIR = o.HoldJob(cell=CELL, job="pair"), o.ReleaseJob(cell=CELL, job="pair")
HELD = e.JobHeld(job="pair.1")
LOWER, SET_LOWER = quota("ada", limit=1), o.SetQuota(cell=CELL, quotas=(quota("ada", limit=1).quota,))
REMOVE, REMOVED = o.RemoveQuota(cell=CELL, tenant="ada"), e.QuotaRemoved(tenant="ada", gpu_type="gpu")
PLAN = o.PlanMaintenance(cell=CELL, node="n1", begin_ms=5, end_ms=9)
CORDON = o.Cordon(cell=CELL, node="n1")

READ_TOGETHER: dict[str, tuple[list[Any], list[o.Operation], list[Any], list[str]]] = {
    "a policy in force, and a file": ([IS_SPREAD], [to(SPREAD)], [IS_PACK, file_with(PACK)], []),
    "a policy in force twice, and a file": ([IS_SPREAD], [to(SPREAD), to(SPREAD)], [IS_PACK, file_with(PACK)], []),
    "a policy, and a file": ([IS_PACK], [to(SPREAD)], [IS_SPREAD, IS_PACK, file_with(PACK)], []),
    "a policy that is passed over before a file": ([IS_PACK], [to(SPREAD)], [file_with(PACK)], ["I2"]),
    "a policy in force, and another one": ([IS_SPREAD], [to(SPREAD), to(PACK)], [IS_PACK], []),
    "a policy in force, and leases": ([IS_SPREAD], [to(SPREAD)], [replace(IS_SPREAD, longest_patience_ms=9)], []),
    "a policy that is not set again": ([IS_SPREAD], [to(PACK), to(SPREAD)], [IS_PACK], ["I2"]),
    "another policy than the file's": ([IS_SPREAD], [to(SPREAD)], [IS_PACK, file_with(SPREAD)], ["I2"]),
    "a hold of what is held, and an element that comes back": ([*ONE_RUNS, HELD], [HOLD_PAIR], [ONE_IS_BACK], []),
    "a hold of an element that is back": ([*ONE_RUNS, HELD, ONE_IS_BACK], [HOLD_PAIR], [], ["I2"]),
    "a hold of what a file holds": ([*PAIR, replace(HELD, reason="gone")], [HOLD_PAIR], [], ["I2"]),
    "a hold of nothing that waits": ([], [HOLD_PAIR], [], ["I2"]),
    "a release behind a hold": ([*PAIR], [HOLD_PAIR, RELEASE_PAIR], [HELD, e.JobReleased(job="pair.1")], []),
    "a release that is passed over behind a hold": ([*PAIR, HELD], [HOLD_PAIR, RELEASE_PAIR], [
        e.JobHeld(job="pair.0")], ["I2"]),
    "a quota twice": ([], [SET_LIMIT, SET_LIMIT], [LIMIT, LIMIT], []),
    "a quota that is not set again": ([LIMIT], [SET_LIMIT, SET_LOWER, SET_LIMIT], [LIMIT, LOWER], ["I2"]),
    "a quota that is removed and set": ([LIMIT], [REMOVE, SET_LIMIT], [REMOVED, LIMIT], []),
    "a quota that is removed and not set": ([LIMIT], [REMOVE, SET_LIMIT], [REMOVED], ["I2"]),
    "a quota that is set and not removed": ([LIMIT], [REMOVE, SET_LIMIT, REMOVE], [REMOVED, LIMIT], ["I2"]),
    "a cordon twice": ([], [CORDON, CORDON], [CORDONED, CORDONED], []),
    "the second of two cordons that is passed over": ([], [CORDON, CORDON], [CORDONED], ["I2"]),
    "maintenance at another time": ([], [PLAN], [e.MaintenanceSet(node="n1", begin_ms=6, end_ms=9)], ["I2"]),
    "maintenance that is given up": ([], [PLAN, o.CancelMaintenance(cell=CELL, node="n1")], [
        e.MaintenanceSet(node="n1", begin_ms=5, end_ms=9), e.MaintenanceSet(node="n1")], []),
}  # fmt: skip


@pytest.mark.parametrize("name", list(READ_TOGETHER))
def test_each_of_several_operations_is_judged_where_it_was_read(name: str) -> None:
    before, events, effects, found = READ_TOGETHER[name]
    story = two_nodes().decide(*before).decide(*effects, inputs={"operations-0": len(events)})
    assert passed_over(story, events, is_drained=True) == found


def passed_over(story: Story, events: Sequence[o.Operation], **more: Any) -> list[str]:
    asked = [Answer(event, "operations-0", offset) for offset, event in enumerate(events)]
    known: dict[str, Any] = {"has_all_requests": True, "operations": asked, **more}
    found = judge(Evidence([story.evidence(**known)]))
    texts = ("neither carried out nor refused", "has asked for the policy")
    return [each.invariant for each in found if any(text in each.text for text in texts)]


@pytest.mark.parametrize(
    ("behind", "found"),
    [
        ([], ["I2"]),
        ([file_with(PACK)], []),
        ([file_with(SPREAD)], ["I2"]),
        ([e.WriterStarted(epoch=2, writer="two"), file_with(SPREAD)], []),
    ],
    ids=["none", "its file", "another file", "another writer"],
)
def test_only_a_file_takes_the_place_of_the_policy_that_was_asked_for(behind: list[Any], found: list[str]) -> None:
    story = two_nodes().decide(IS_SPREAD).decide(IS_PACK, inputs={"operations-0": 1})
    for effect in behind:
        story.decide(effect)
    assert passed_over(story, [to(SPREAD)], is_drained=True) == found


# Reloads of the cell file.


def limited_to(gpus: int, most: int = 2) -> e.CellFileSet:
    tenant = {"name": "ada", "quotas": [{"gpu_type": "gpu", "limit": gpus}]}
    part = {"name": CELL, "policy": {"max_pending_jobs": most}}
    return e.CellFileSet(digest=f"{gpus}" * 32, content=json.dumps({"cells": [part], "tenants": [tenant]}))


OLD, NEW, OTHER = limited_to(1), limited_to(2), limited_to(3)
AS_OLD = [FEW, quota("ada", limit=1), OLD]
NO = e.ProposalRefused(proposal="cell-file", code="not_allowed")  # type: ignore[arg-type]
RELOADED: dict[str, tuple[list[list[Any]], list[Any], list[str]]] = {
    "its file in force": ([[quota("ada", limit=2), NEW]], [], []),
    "no file": ([], [], ["I2"]),
    "the file before it": ([[quota("ada", limit=2), OLD]], [], ["I2"]),
    "a file that never lay there": ([[quota("ada", limit=3), OTHER]], [], ["I2"]),
    "its file without its quota": ([[NEW]], [], ["I2"]),
    "its file without the quota that contradicts others": ([[NO, NEW]], [], []),
    "its file in several records": ([[quota("ada", limit=2)], [NEW]], [], []),
    "its file, and a quota behind it": ([[quota("ada", limit=2), NEW]], [quota("ada", limit=3)], []),
    "its file by another writer": ([[e.WriterStarted(epoch=2, writer="two"), quota("ada", limit=2)], [NEW]], [], []),
}


@pytest.mark.parametrize("name", list(RELOADED))
def test_a_reload_puts_the_file_in_force_that_lies_there(name: str) -> None:
    records, together, found = RELOADED[name]
    story = two_nodes().decide(*AS_OLD)
    asked = [Answer(o.ReloadCell(cell=CELL), "operations-0", 0, story.moment)]
    for effects in records:
        story.decide(*effects)
    story.decide(*together, inputs={"operations-0": 1})
    on_disk = [(0, OLD.content), (story.moment - len(records) - 1, NEW.content)]
    judged = judge(Evidence([story.evidence(operations=asked, on_disk=on_disk)]))
    assert [each.invariant for each in judged if "neither carried out nor refused" in each.text] == found


def test_a_reload_puts_no_file_in_force_that_came_later() -> None:
    story = two_nodes().decide(*AS_OLD)
    asked = [Answer(o.ReloadCell(cell=CELL), "operations-0", 0, story.moment)]
    on_disk = [(0, OLD.content), (story.moment, NEW.content), (story.moment + 3, OTHER.content)]
    story.decide(quota("ada", limit=3), OTHER).decide(inputs={"operations-0": 1})
    assert passed_over(story, [], operations=asked, on_disk=on_disk) == ["I2"]


def test_two_reloads_of_a_file_that_contradicts_others_are_told_of_it_once() -> None:
    story = two_nodes().decide(*AS_OLD)
    asked = [Answer(o.ReloadCell(cell=CELL), "operations-0", offset, story.moment) for offset in (0, 1)]
    story.decide(NO, NEW).decide(inputs={"operations-0": 1}).decide(inputs={"operations-0": 2})
    on_disk = [(0, OLD.content), (story.moment - 3, NEW.content)]
    assert passed_over(story, [], operations=asked, on_disk=on_disk) == []


def test_loans_are_refused() -> None:
    loan = o.OfferLoan(cell=CELL, loan="loan-1", nodes=("n1",))
    no = e.ProposalRefused(proposal="loan-1", code="unsupported")  # type: ignore[arg-type]
    assert passed_over(two_nodes().decide(inputs={"operations-0": 1}), [loan]) == ["I2"]
    assert passed_over(two_nodes().decide(no, inputs={"operations-0": 1}), [loan]) == []


def test_a_drain_stops_what_still_runs_at_its_deadline() -> None:
    story = two_nodes().decide(*RUNS, replace(DRAINING, drain_deadline_ms=5))
    for at_ms in (6, 7, 8):
        story.decide(at_ms=at_ms)
    assert story.broken(happened=(), diary=()) == []
    assert story.decide(at_ms=9).broken(happened=(), diary=()) == ["I2"]


# Rules in force.


def file(**tenant: Any) -> e.CellFileSet:
    part = {"name": CELL, "policy": {"max_pending_jobs": 2}}
    return e.CellFileSet(digest="0" * 32, content=json.dumps({"cells": [part], "tenants": [{"name": "ada", **tenant}]}))


LIMITED = file(quotas=[{"gpu_type": "gpu", "limit": 2}])
SURE = file(quotas=[{"gpu_type": "gpu", "limit": 2, "guaranteed": 1}])


def of_file(**more: Any) -> e.QuotaSet:
    return replace(quota("ada", **more), of_file=True)


WHOLE = of_file(limit=2)
WHOLE = replace(WHOLE, quota=replace(WHOLE.quota, guaranteed_milli=1_000))
CONTRADICTS = e.ProposalRefused(proposal="cell-file", code=ProposalCode.NOT_ALLOWED, text="ada/gpu is set without")
IN_FORCE: dict[str, tuple[list[Any], list[str]]] = {
    "as the file says": ([of_file(limit=2), LIMITED], []),
    "without the limit of the file": ([of_file(limit=None), LIMITED], ["I4"]),
    "as the file says, by a person who has not asked for it": ([quota("ada", limit=2), LIMITED], ["I4"]),
    "nothing, as in the file": ([of_file(limit=None), file()], []),
    "a limit that the file does not have": ([of_file(limit=1), file()], ["I4"]),
    "without its guarantee, and told": ([of_file(limit=2), CONTRADICTS, SURE], []),
    "without its guarantee, untold": ([of_file(limit=2), SURE], ["I4"]),
    "with another one told before": ([CONTRADICTS, of_file(limit=2), SURE], ["I4"]),
    "without its guarantee and then with it": ([of_file(limit=2), WHOLE, SURE], []),
    "without guarantee and limit, and told": ([of_file(limit=None), CONTRADICTS, SURE], ["I4"]),
    "below another than in the file, and told": ([of_file(limit=2, parent="bob"), CONTRADICTS, SURE], ["I4"]),
    "the policy of the file": ([FEW, LIMITED], []),
    "a policy that was not named": ([e.PolicySet(policy=o.CellPolicy(max_pending_jobs=3)), LIMITED], ["I4"]),
}


@pytest.mark.parametrize("name", list(IN_FORCE))
def test_quotas_and_policies_are_those_of_a_file_or_of_an_operator(name: str) -> None:
    effects, found = IN_FORCE[name]
    assert two_nodes().decide(*effects).broken(has_all_requests=True) == found
