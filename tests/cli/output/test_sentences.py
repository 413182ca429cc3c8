from __future__ import annotations

import typing
from typing import Any

import pytest

from fallow.cli.cell.policy import changes
from fallow.cli.job.cancel import of_array
from fallow.cli.job.submit import reason_of, size_of, words
from fallow.cli.log.log import as_object
from fallow.cli.log.sentences import SENTENCES, devices, gpus, heading, rejection, sentence
from fallow.cli.node.operate import refusal_of
from fallow.cli.output.durations import duration, moment
from fallow.services.admission.service import COMMANDS
from fallow.shared.client.answers import Progress
from fallow.shared.client.port import News
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, Resources, RunStatus, Setback, WorkerPlace
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.operations import (
    CellPolicy,
    DeclareLost,
    Drain,
    Operation,
    PlanMaintenance,
    Quota,
    ReclaimFrom,
)
from fallow.shared.events.reasons import (
    CancelReason,
    ClearReason,
    FailReason,
    PendingReason,
    PreemptionCause,
    ProposalCode,
    RefuseCode,
    RejectCode,
    RequeueReason,
    StopReason,
)
from tests.placement.worlds.world import CELL, cell_with, joined, spec_of, stopped

SPEC = JobSpec(id="a", tenant="vision", workers=2, resources=Resources(gpu_milli=8000), queue="default", priority=3)
ELASTIC = replace(SPEC, workers_min=1)
PLACES = tuple(
    WorkerPlace(rank=rank, node=f"node-{rank}", devices=tuple(range(8)), gpu_milli=8000) for rank in range(2)
)
MANY = tuple(WorkerPlace(rank=rank, node=f"node-{rank}", devices=(0, 1, 5), gpu_milli=3000) for rank in range(6))
SETBACKS = tuple(
    Setback(rank=rank, until_ms=until_ms, failures=1) for rank, until_ms in ((4, 5_000), (5, 5_000), (6, 9_000), (7, 0))
)
NODE = NodeSpec(id="node-1", pool="training", gpus=8)

TABLE: list[tuple[e.Effect, str]] = [
    (e.WriterStarted(epoch=2, writer="placement-1"), "placement-1 writes from here on (epoch 2)."),
    (
        e.JobEnqueued(spec=SPEC, submit_ms=0, digest="0" * 32),
        "Job a of vision is accepted and waits in queue default: 2 workers of 8 GPUs, priority 3.",
    ),
    (e.JobUpdated.of(ELASTIC), "Job a now has 1 to 2 workers and priority 3."),
    (
        e.JobStarted(job="a", attempt=1, workers=PLACES),
        "Job a starts, attempt 1: 16 GPUs on node-0 (0-7), node-1 (0-7).",
    ),
    (
        e.JobStarted(job="a", attempt=1, workers=MANY, backfilled=True),
        (
            "Job a starts past the head of its queue, attempt 1: 18 GPUs on node-0 (0-1,5), node-1 (0-1,5), "
            "node-2 (0-1,5), node-3 (0-1,5) and 2 more nodes."
        ),
    ),
    (
        e.RunObserved(job="a", attempt=1, node="node-1", status=RunStatus.RUNNING),
        "The part of job a, attempt 1, on node node-1 is running.",
    ),
    (
        e.RunObserved(job="a", attempt=1, node="node-1", status=RunStatus.STOPPED),
        "The part of job a, attempt 1, on node node-1 counts as stopped.",
    ),
    (e.JobRunning(job="a", attempt=1), "Job a runs, attempt 1."),
    (
        e.JobResizing(job="a", attempt=1, add=PLACES[:1], remove=(3, 4)),
        "Job a takes 8 GPUs on node-0 (0-7) and takes ranks 3-4 out.",
    ),
    (
        e.JobResized(job="a", attempt=1, workers=PLACES),
        "Job a runs with 2 workers: 16 GPUs on node-0 (0-7), node-1 (0-7).",
    ),
    (
        e.WorkersSettled(job="a", attempt=1, joined=(0, 1), done=(2,), gone=(4, 5, 6), failures=2),
        "Of job a, ranks 0-1 started, rank 2 finished, ranks 4-6 gone; 2 failures so far.",
    ),
    (
        e.WorkersSettled(job="a", attempt=1, gone=(4, 5, 6, 7), failures=3, setbacks=SETBACKS),
        (
            "Of job a, ranks 4-7 gone; 3 failures so far; not before day 0 00:00:05.000: ranks 4-5; "
            "not before day 0 00:00:09.000: rank 6."
        ),
    ),
    (
        e.JobStopping(job="a", attempt=1, why=StopReason.PRIORITY, for_whom="b", grace_wall_ms=30_000),
        "Job a must stop within 30.0 s: priority for b. It still holds its places.",
    ),
    (
        e.JobStopping(
            job="a", attempt=1, why=StopReason.DEVICE_FAILED, grace_wall_ms=30_000, text="Input/output error"
        ),
        "Job a must stop within 30.0 s: device_failed (Input/output error). It still holds its places.",
    ),
    (
        e.JobPreempted(job="a", attempt=1, why=StopReason.LOAN_RECLAIM),
        "Job a has made room: loan_reclaim. Its places are free.",
    ),
    (
        e.JobRequeued(job="a", reason=RequeueReason.WORKER_FAILED, not_before_ms=5_000, failures=1, avoid=("n1", "n2")),
        (
            "Job a waits again: a worker failed (worker_failed, 1 failure so far), not before day 0 00:00:05.000; "
            "it prefers other nodes than n1, n2."
        ),
    ),
    (e.JobFinished(job="a", attempt=2), "Job a has finished, attempt 2."),
    (
        e.JobFailed(job="a", reason=FailReason.RETRIES_EXHAUSTED, text="exit code 1"),
        "Job a has failed: exit code 1; no retry is left (retries_exhausted).",
    ),
    (
        e.JobFailed(job="a", reason=FailReason.NODE_FAULTS, text="51 attempts in a row were lost, the last one: full"),
        (
            "Job a has failed: 51 attempts in a row were lost, the last one: full; "
            "its nodes are at fault, and not the job (node_faults)."
        ),
    ),
    (
        e.JobFailed(job="a", reason=FailReason.RUN_TIME_LIMIT, text="ran longer than max_run_ms"),
        "Job a has failed: ran longer than max_run_ms (run_time_limit).",
    ),
    (
        e.JobFailed(job="a", reason=FailReason.RUN_TIME_LIMIT),
        "Job a has failed: it ran longer than it may (run_time_limit).",
    ),
    (e.JobCancelled(job="a"), "Job a is cancelled."),
    (
        e.JobRefused(job="a", request="submit", code=RefuseCode.ID_USED_BEFORE, text="with other content"),
        "Job a was submitted before (with other content). An id is used once (id_used_before).",
    ),
    (
        e.JobRefused(job="a", request="cancel", code=RefuseCode.UNKNOWN_JOB),
        "A request (cancel) about job a is refused: the cell knows no such job (unknown_job).",
    ),
    (
        e.JobRefused(job="a", request="cancel", code=RefuseCode.NOT_THE_TENANTS_JOB),
        "A request (cancel) about job a is refused: it belongs to another tenant (not_the_tenants_job).",
    ),
    (
        e.JobRefused(job="a", request="submit", code=RefuseCode.NOT_THE_TENANTS_JOB, text="it would wait for b"),
        (
            "A request (submit) about job a is refused: "
            "it would wait for b, a job of another tenant (not_the_tenants_job)."
        ),
    ),
    (
        e.JobRefused(job="a", request="cancel", code=RefuseCode.ALREADY_OVER, text="it is succeeded"),
        "A request (cancel) about job a is refused: already_over (it is succeeded).",
    ),
    (e.AttemptTimedOut(job="a", attempt=1, what="start"), "Attempt 1 of job a did not start in its time."),
    (
        e.AttemptTimedOut(job="a", attempt=1, what="run"),
        "Attempt 1 of job a has run for as long as its max_run_ms allows.",
    ),
    (e.JobDeferred(job="a", code=PendingReason.NO_FREE_GPUS), "Job a goes on waiting: no_free_gpus."),
    (e.JobHeld(job="a"), "Job a is held back."),
    (e.JobReleased(job="a"), "Job a is no longer held."),
    (e.JobReady(job="a"), "Job a waits for no other job any more."),
    (e.WaitShortened(job="a", over=("b", "c")), "Job a does not wait for b, c any more."),
    (
        e.MaintenanceSet(node="n", begin_ms=1_000, end_ms=61_000, reason="fan"),
        "Maintenance of node n is planned from day 0 00:00:01 to day 0 00:01:01 (fan).",
    ),
    (e.MaintenanceSet(node="n"), "No maintenance of node n is planned any more."),
    (e.MaintenanceBegan(node="n"), "Maintenance of node n has begun: it is emptied."),
    (
        e.JobCancelled(job="a", reason=CancelReason.DEPENDENCY_FAILED, because_of="b"),
        "Job a is cancelled: job b, for which it waited, did not end well.",
    ),
    (
        e.ReservationSet(job="a", workers=PLACES[:1], start_ms=0),
        "Job a is planned to start at day 0 00:00:00.000, by estimates; 8 GPUs on node-0 (0-7) are kept for it.",
    ),
    (e.ReservationSet(job="a", start_ms=0), "Job a is planned to start at day 0 00:00:00.000, by estimates."),
    (
        e.ReservationCleared(job="a", reason=ClearReason.STARTED),
        "Job a has no planned start any more: it has started.",
    ),
    (
        e.RoomHeld(
            job="a",
            cause=PreemptionCause.PRIORITY,
            workers=PLACES[:1],
            victims=2,
            until_ms=0,
            proposal="p-1",
        ),
        (
            "To job a 2 jobs yield (priority, proposal p-1); "
            "8 GPUs on node-0 (0-7) are held for it until day 0 00:00:00.000 at the latest."
        ),
    ),
    (e.RoomReleased(job="a", reason=ClearReason.STARTED), "No room is held for job a any more: it starts there."),
    (
        e.HeadBlocked(job="a"),
        (
            "Job a is a head of its queue: it does not fit. "
            "A queue that backfills lets others pass it for a time (backfill_wait_ms; longer with a planned start)."
        ),
    ),
    (e.HeadCleared(job="a"), "Job a is no longer a head of its queue."),
    (
        e.NodeChanged(spec=NODE, boot="b1", status=NodeStatus.DRAINING, drain_deadline_ms=1_000, reason="a fan"),
        "Node node-1 of pool training (8 GPUs) is draining until day 0 00:00:01.000 (a fan).",
    ),
    (e.DeviceChanged(node="node-1", device=3, healthy=False), "Device 3 of node node-1 is out of use."),
    (e.DeviceChanged(node="node-1", device=3, healthy=True), "Device 3 of node node-1 is healthy again."),
    (
        e.LeaseExpired(node="node-1", boot="b1"),
        "Node node-1 (boot b1) is lost: it was silent for too long.",
    ),
    (
        e.LeaseExpired(node="node-1", boot="b1", reason="declared lost by ada: ticket 4711"),
        "Node node-1 (boot b1) is lost: declared lost by ada: ticket 4711.",
    ),
    (
        e.LeaseExpired(node="node-1", boot="b1", flaps=3, rests_until_ms=600_000),
        "Node node-1 (boot b1) is lost, 3 times in a row: it was silent for too long.",
    ),
    (e.NodeFailures(node="node-1", jobs=("a", "b")), "Jobs that failed in a row on node node-1: a, b."),
    (
        e.NodeFailures(node="node-1", jobs=("a", "b"), by_node=(False, True)),
        "Jobs that failed in a row on node node-1: a, b (by the node's own fault).",
    ),
    (e.NodeFailures(node="node-1"), "A job has ended well on node node-1 after others failed there."),
    (
        e.NodeSilent(node="node-1", boot="b1", silent_wall_ms=15_000),
        "Node node-1 has been silent for 15.0 s and gets no new work.",
    ),
    (e.QuotaRemoved(tenant="ada", gpu_type="gpu"), "Tenant ada has no quota of gpu any more."),
    (e.NodeRemoved(node="node-1"), "Node node-1 was removed from the cell."),
    (
        e.EvictionsHeld(silent=7, held_wall_ms=60_000, lost=2),
        "7 nodes silent; node loss limited for 1 min so far, 2 nodes lost in that time.",
    ),
    (
        e.EvictionsHeld(silent=8, held_wall_ms=252_000),
        "8 nodes silent; node loss paused for 4 min 12 s so far.",
    ),
    (
        e.LogRepaired(by="ada", good_until=7, end=9),
        "ada (claimed) repaired the log: offsets 7 to 8 were discarded.",
    ),
    (
        e.LogRepaired(by="", good_until=7, end=9),
        "An operator repaired the log: offsets 7 to 8 were discarded.",
    ),
    (
        e.LogRepaired(by="ada", good_until=8, end=9),
        "ada (claimed) repaired the log: offset 8 was discarded.",
    ),
    (
        e.LogRepaired(by="ada", good_until=9, end=9),
        "ada (claimed) repaired the log: it continues from offset 9.",
    ),
    (
        e.EvictionsResumed(),
        "Few nodes are silent: each is declared lost when its lease runs out.",
    ),
    (e.NodeHeard(node="node-1"), "Node node-1 is reporting again."),
    (
        e.NodeHeard(node="node-1", flaps=2, rests_until_ms=7),
        "Node node-1 is reporting again. Its lease had run out, so it had stopped its own work, 2 times in a row.",
    ),
    (
        e.NodeLent(node="node-1", loan="l1", to_pool="training"),
        "Node node-1 is lent to pool training until recalled (loan l1).",
    ),
    (
        e.NodeLoanDraining(node="node-1", loan="l1", deadline_ms=0),
        "Lent node node-1 must be empty by day 0 00:00:00.000 (loan l1).",
    ),
    (e.NodeReclaimed(node="node-1", loan="l1"), "Node node-1 is back at home (loan l1)."),
    (
        e.QuotaSet(
            quota=Quota(tenant="vision", gpu_type="gpu", guaranteed_milli=8_000, limit_milli=16_000, parent="all")
        ),
        "Tenant vision is guaranteed 8 GPUs of type gpu, at most 16 GPUs, below all.",
    ),
    (
        e.QuotaSet(quota=Quota(tenant="vision", gpu_type="gpu", guaranteed_milli=8_000, weight=7, parent="all")),
        "Tenant vision is guaranteed 8 GPUs of type gpu, no limit, weight 7, below all.",
    ),
    (
        e.PolicySet(policy=CellPolicy()),
        "The cell's policy is set: all settings are as shipped.",
    ),
    (e.CellFileSet(digest="0a1b" * 8, content="{}"), "The cell goes by the cell file 0a1b0a1b (2 characters)."),
    (
        e.LogRepaired(by="ada", good_until=30, end=32, snapshots=1),
        "ada (claimed) repaired the log: offsets 30 to 31 were discarded; 1 contradicting snapshot discarded.",
    ),
    (
        e.ProposalRefused(proposal="p1", code=ProposalCode.DOES_NOT_HELP),
        "A request about p1 is refused: does_not_help.",
    ),
    (
        e.InputResumed(input="jobs-0", from_offset=30, to_offset=0),
        "Input jobs-0 was read to 30, and is read on from 0.",
    ),
    (
        e.InputFenced(input="jobs-0", from_offset=30, to_offset=20, checksum=7),
        (
            "Input jobs-0 had been read to 30, but its topic lost records at 20; "
            "it is not read further until a person decides (fallow log repair)."
        ),
    ),
]


@pytest.mark.parametrize(("effect", "said"), TABLE, ids=[type(effect).__name__ for effect, _ in TABLE])
def test_each_effect_is_told_in_one_sentence(effect: e.Effect, said: str) -> None:
    assert sentence(effect) == said


OF_A_QUOTA: dict[str, Any] = {
    "tenant": "speech",
    "gpu_type": "h100",
    "guaranteed_milli": 4_000,
    "limit_milli": 96_000,
    "weight": 7,
    "lends": False,
    "borrows": False,
    "parent": "lab",
    "borrow_limit_milli": 8_000,
    "lend_limit_milli": 8_000,
    "reclaim": ReclaimFrom.LOWER_PRIORITY,
    "min_run_ms": 60_000,
    "reclaimable": False,
}
"""Another value of each field than that of a quota of which nothing is said."""


@pytest.mark.parametrize("field", Quota.__struct_fields__)
def test_the_sentence_of_a_quota_tells_each_change_of_it(field: str) -> None:
    usual = Quota(tenant="vision", gpu_type="gpu")
    changed = replace(usual, **{field: OF_A_QUOTA[field]})
    assert changed != usual
    assert sentence(e.QuotaSet(quota=changed)) != sentence(e.QuotaSet(quota=usual))


def test_every_kind_of_effect_has_its_sentence_and_its_row_here() -> None:
    language = set(typing.get_args(e.AnyEffect))
    assert set(SENTENCES) == language
    assert {type(effect) for effect, _ in TABLE} == language


def test_a_decision_is_headed_by_version_time_and_epoch() -> None:
    decision = Decision(cell="main", version=7, epoch=2, at_ms=90_061_001)
    assert heading(decision) == "version 7, day 1 01:01:01.001, epoch 2"


def test_a_rejection_says_field_value_rule_and_numbers() -> None:
    event = JobRejected(
        job="a",
        command="submit",
        code=RejectCode.OVER_JOB_LIMIT,
        field="workers",
        value="20000",
        rule="at most so many",
        wanted=20_000,
        allowed=10_000,
    )
    said = "Job a is rejected (over_job_limit): workers `20000`: at most so many (wanted 20000, allowed 10000)."
    assert rejection(event) == said


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (12_500, "12.5 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (14_700_000, "4 h 5 min"),
        (183_600_000, "2 d 3 h"),
    ],
)
def test_durations_have_at_most_two_units(ms: int, said: str) -> None:
    assert duration(ms) == said


def test_a_time_of_the_calendar_is_shown_as_such() -> None:
    assert moment(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"


def test_shares_of_a_gpu_and_device_numbers_are_readable() -> None:
    assert (gpus(250), gpus(1000), gpus(1500), devices([3, 1, 2, 7])) == ("0.25 GPU", "1 GPU", "1.5 GPU", "1-3,7")


def test_a_rejection_is_one_sentence() -> None:
    event = JobRejected(job="m2", command="submit", code=RejectCode.UNKNOWN_TENANT, field="tenant", value="vison")
    told = rejection(replace(event, rule="is not in the cell file"))
    assert told == "Job m2 is rejected (unknown_tenant): tenant `vison` is not in the cell file."


@pytest.mark.parametrize("command", sorted(COMMANDS.values()))
def test_only_of_a_rejected_submission_the_job_itself_is_told_to_be_rejected(command: str) -> None:
    event = JobRejected(job="ada/web", command=command, code=RejectCode.OVER_JOB_LIMIT, tenant="ada")
    told = rejection(event)
    assert told.startswith("Job ada/web") is (command == "submit")
    assert f"{'' if command == 'submit' else f'The {command} of '}job ada/web is rejected" in (
        told.replace("Job ada", "job ada")
    )


@pytest.mark.parametrize(("tenant", "whose"), [("ada", ""), (None, ""), ("eve", " of tenant eve")])
def test_whose_request_is_turned_away_is_told_where_it_is_about_a_job_of_another(
    tenant: str | None, whose: str
) -> None:
    no = JobRejected(job="ada/web", command="cancel", code=RejectCode.OVER_JOB_LIMIT, tenant=tenant)
    assert rejection(no).startswith(f"The cancel of job ada/web{whose} is rejected ")
    refused = e.JobRefused(job="ada/web", request="cancel", code=RefuseCode.UNKNOWN_JOB, tenant=tenant)
    assert sentence(refused).startswith(f"A request (cancel){whose} about job ada/web is refused: ")


@pytest.mark.parametrize(("job", "told"), [("ada/web", "Job ada/web is"), ("web", "Job web of ada is")])
def test_a_job_that_is_accepted_is_told_with_its_tenant_once(job: str, told: str) -> None:
    spec = JobSpec(id=job, tenant="ada")
    assert sentence(e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32)).startswith(f"{told} accepted")


def test_a_policy_is_told_by_what_is_other_than_shipped() -> None:
    told = sentence(e.PolicySet(policy=CellPolicy(backfill_wait_ms=600_000)))
    assert told == "The cell's policy is set: backfill_wait_ms = 600000 (10 min); all other settings are as shipped."


@pytest.mark.parametrize(
    ("longest_ms", "end"),
    [
        (40_000, " Every node goes by its lease now."),
        (60_000, " Nodes still go by a longer lease: they may be silent for 1 min."),
    ],
)
def test_a_policy_whose_lease_is_lowered_tells_by_which_lease_nodes_go(longest_ms: int, end: str) -> None:
    told = sentence(e.PolicySet(policy=CellPolicy(), longest_patience_ms=longest_ms))
    assert told == f"The cell's policy is set: all settings are as shipped.{end}"


def test_what_a_policy_changes_is_told_from_and_to() -> None:
    assert changes(CellPolicy(finished_jobs_max=5), CellPolicy(finished_jobs_max=7)) == "finished_jobs_max: 5 -> 7"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vision/gpu: limit 64 is below the guarantee 128", "vision/gpu: limit 64 is below the guarantee 128"),
        ("placement 'x' is not one of y", "vision: placement 'x' is not one of y"),
    ],
)
def test_a_refusal_names_what_it_is_about_once(text: str, told: str) -> None:
    event = e.ProposalRefused(proposal="set-quota", code=ProposalCode.NOT_ALLOWED, text=text)
    assert refusal_of("vision", event) == told


def test_programs_are_told_why_a_job_was_turned_away() -> None:
    rejected = JobRejected(
        job="a", command="submit", code=RejectCode.UNKNOWN_TENANT, field="tenant", value="x", rule="r"
    )
    refused = e.JobRefused(job="b", request="submit", code=RefuseCode.ID_USED_BEFORE, text="why")
    progress = Progress.of(["a", "b"])
    assert progress.take(News("c", rejected))
    assert progress.take(News("c", refused))
    assert {job: reason_of(event) for job, event in progress.reasons.items()} == {
        "a": {"code": "unknown_tenant", "field": "tenant", "value": "x", "rule": "r"},
        "b": {"code": "id_used_before", "field": "", "value": "", "rule": "why"},
    }


def test_what_was_submitted_is_told_with_its_size() -> None:
    small = JobSpec(id="a", tenant="t", resources=Resources(gpu_milli=8))
    many = JobSpec(id="b", tenant="t", workers=2, resources=Resources(gpu_milli=8_000), array=20)
    assert size_of([small]) == "1 worker of 0.008 GPU"
    assert size_of([many]) == "20 elements, each 2 workers of 8 GPUs"
    assert size_of([replace(small, resources=Resources(gpu_milli=1_000)), many]) == "321 GPUs in all"


def test_what_becomes_of_an_array_is_told_of_all_its_elements() -> None:
    stops = [e.JobStopping(job=f"many.{at}", attempt=1, why=StopReason.CANCELLED, grace_wall_ms=1) for at in range(3)]
    news = [News("c", event) for event in (*stops, e.JobCancelled(job="many.3"))]
    assert of_array("many", news) == "Array many: 3 elements must stop, 1 element is cancelled."


def test_a_name_that_nobody_vouches_for_is_shown_as_claimed_however_long_it_is() -> None:
    for name in ("ada", "ada (vouched)", "a" * 500):
        text = sentence(e.LogRepaired(by=name, good_until=7, end=9))
        assert " (claimed) repaired the log: " in text
        assert len(text) < 200, "what is claimed stands where people see it"


def test_programs_read_beside_a_name_that_nobody_vouches_for_it() -> None:
    repaired = e.LogRepaired(by="ada", good_until=7, end=9)
    shown = as_object(Decision(cell="main", version=1, epoch=1, at_ms=1, effects=(repaired, e.NodeRemoved(node="n1"))))
    assert [(effect.get("by"), effect.get("vouched")) for effect in shown["effects"]] == [("ada", False), (None, None)]


@pytest.mark.parametrize(
    ("deadline_ms", "told"),
    [(None, ""), (999, "; its jobs are stopped at once"), (1_000, "; its jobs are stopped at once")],
)
def test_a_drain_without_time_tells_no_time(deadline_ms: int | None, told: str) -> None:
    changed = e.NodeChanged(spec=NODE, boot="b1", status=NodeStatus.DRAINING, drain_deadline_ms=deadline_ms)
    assert words(News("main", changed, at_ms=1_000)) == f"Node node-1 of pool training (8 GPUs) is draining{told}."
    later = words(News("main", changed, at_ms=998))
    assert later.endswith("is draining." if deadline_ms is None else f"is draining until {moment(deadline_ms)}.")


@pytest.mark.parametrize(("not_before_ms", "told"), [(5_000, ""), (5_001, ", not before day 0 00:00:05.001")])
def test_a_job_that_may_start_again_at_once_is_told_without_a_time(not_before_ms: int, told: str) -> None:
    effect = e.JobRequeued(job="a", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=not_before_ms, failures=0)
    why = "a node under it was lost or failed, which counts against no budget (infrastructure)"
    assert sentence(effect, at_ms=5_000) == f"Job a waits again: {why}{told}."


EMPTIED = "is to be emptied, which counts against no budget (drained)"


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (Drain(cell=CELL, node="n1"), EMPTIED),
        (PlanMaintenance(cell=CELL, node="n1", begin_ms=0, end_ms=10_000), EMPTIED),
        (
            DeclareLost(cell=CELL, node="n1"),
            "was lost or failed, which counts against no budget (infrastructure); it prefers other nodes than n1",
        ),
    ],
)
def test_why_a_job_has_left_its_node_is_told_as_it_was(order: Operation, told: str) -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("a", 8))
    made = [*world.tell(order), *world.tell(stopped("a", "n1"))]
    again = [sentence(effect) for effect in made if isinstance(effect, e.JobRequeued)]
    assert again == [f"Job a waits again: a node under it {told}."]
