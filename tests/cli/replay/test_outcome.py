"""What came of a run, from its records to its figures, and from jobs.csv to the same figures."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from fallow.replay.report.figures import figures_of
from fallow.replay.report.job_history import Hold, JobRow, Stretch, read_rows, write_rows
from fallow.replay.report.outcome import SUBMIT, Outcome
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, Resources, VirtualRun, WorkerPlace
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import DeadLetterReason, FailReason, RefuseCode, RejectCode, RequeueReason, StopReason
from fallow.shared.events.submissions import SubmitJob
from tests.hypothesis_profile import reaches

DIGEST = "0" * 32
NODES = {"n1": 2, "n2": 2}


def spec(job: str, gpus: int = 1) -> JobSpec:
    return JobSpec(id=job, tenant="t", resources=Resources(gpu_milli=gpus * 1000), run=VirtualRun(duration_ms=10))


def submitted(*jobs: str, base_ms: int = 0) -> Outcome:
    outcome = Outcome(base_ms=base_ms)
    for job in jobs:
        outcome.take_submission(SUBMIT, f"t/{job}", SubmitJob(job=spec(job), submit_ms=base_ms))
    return outcome


def decide(outcome: Outcome, at_ms: int, *effects: e.AnyEffect) -> None:
    outcome.take_decision(Decision(cell="c", version=1, epoch=1, at_ms=at_ms, effects=effects))


def enqueued(job: str, submit_ms: int = 0, gpus: int = 1) -> e.JobEnqueued:
    return e.JobEnqueued(spec=spec(f"t/{job}", gpus), submit_ms=submit_ms, digest=DIGEST)


def started(job: str, *places: tuple[str, int], attempt: int = 1) -> e.JobStarted:
    workers = tuple(WorkerPlace(rank=r, node=n, devices=(d,), gpu_milli=1000) for r, (n, d) in enumerate(places))
    return e.JobStarted(job=f"t/{job}", attempt=attempt, workers=workers)


def finished(job: str, attempt: int = 1) -> e.JobFinished:
    return e.JobFinished(job=f"t/{job}", attempt=attempt)


def test_a_job_that_nobody_answered_is_lost() -> None:
    outcome = submitted("a", "b")
    decide(outcome, 0, enqueued("a"))
    assert outcome.lost(live=["t/a"]) == ["t/b"]
    assert [row.final_state for row in outcome.settle(live=["t/a"])] == ["waiting", "lost"]


def test_an_enqueued_job_that_is_neither_over_nor_in_the_state_is_lost() -> None:
    outcome = submitted("a")
    decide(outcome, 0, enqueued("a"), started("a", ("n1", 0)))
    assert outcome.lost(live=[]) == ["t/a"]
    assert outcome.lost(live=["t/a"]) == []


def test_a_rejection_a_refusal_and_a_dead_letter_are_answers() -> None:
    outcome = submitted("a", "b", "c")
    outcome.take_answer(JobRejected(job="t/a", command="SubmitJob", code=RejectCode.UNKNOWN_TENANT))
    decide(outcome, 0, e.JobRefused(job="t/b", request="submit", code=RefuseCode.TOO_MANY_WAITING))
    outcome.take_dead_letter("t/c")
    assert outcome.lost(live=[]) == []
    assert figures_of(outcome.settle(live=[]), NODES).rejected == 3


def test_a_refused_cancel_answers_no_submission() -> None:
    outcome = submitted("a")
    decide(outcome, 0, e.JobRefused(job="t/a", request="cancel", code=RefuseCode.UNKNOWN_JOB))
    assert outcome.lost(live=[]) == ["t/a"]


def test_what_is_no_valid_submission_is_counted_and_cannot_be_lost() -> None:
    outcome = Outcome()
    outcome.take_submission(SUBMIT, "bad", Undecodable(DeadLetterReason.INVALID, "must be more"))
    outcome.take_answer(JobRejected(job="bad", command="SubmitJob", code=RejectCode.INVALID_FIELD))
    assert outcome.lost(live=[]) == []
    assert (figures_of(outcome.settle(live=[]), NODES).submitted, outcome.rows["bad"].final_state) == (1, "rejected")


def test_final_states_add_up_to_the_submitted() -> None:
    outcome = submitted("a", "b", "c", "d", "e")
    decide(outcome, 0, *(enqueued(job) for job in "abcd"), started("a", ("n1", 0)), started("b", ("n1", 1)))
    decide(outcome, 5, finished("a"), e.JobFailed(job="t/b", reason=FailReason.RETRIES_EXHAUSTED))
    decide(outcome, 6, e.JobCancelled(job="t/c"))
    figures = figures_of(outcome.settle(live=["t/d"]), NODES)
    assert (figures.completed, figures.failed, figures.cancelled, figures.rejected, figures.unfinished) == (
        1,
        1,
        1,
        0,
        2,
    )
    assert figures.submitted == 5


def test_times_count_from_the_beginning_of_the_trace() -> None:
    outcome = submitted("a", base_ms=1_000)
    decide(outcome, 1_010, enqueued("a", submit_ms=1_004), started("a", ("n1", 0)))
    decide(outcome, 1_030, finished("a"))
    (row,) = outcome.settle(live=[])
    assert (row.submit_ms, row.wait_ms, row.stretches) == (4, 6, [Stretch(10, (Hold("n1", (0,)),), 30)])


def test_each_attempt_is_a_stretch_of_its_own_and_a_wait_ends_with_the_first() -> None:
    outcome = submitted("a")
    decide(outcome, 3, enqueued("a"), started("a", ("n1", 0), ("n2", 1)))
    again = e.JobRequeued(job="t/a", reason=RequeueReason.PREEMPTED, not_before_ms=0, failures=0)
    decide(outcome, 8, e.JobPreempted(job="t/a", attempt=1, why=StopReason.PRIORITY), again)
    decide(outcome, 20, started("a", ("n2", 0), attempt=2))
    decide(outcome, 30, finished("a", 2))
    (row,) = outcome.settle(live=[])
    assert [(s.start_ms, s.end_ms) for s in row.stretches] == [(3, 8), (20, 30)]
    assert (row.wait_ms, row.preemptions, row.final_state) == (3, 1, "finished")


def test_two_jobs_on_one_device_are_a_double_allocation() -> None:
    outcome = submitted("a", "b")
    decide(outcome, 0, enqueued("a"), enqueued("b"), started("a", ("n1", 0)), started("b", ("n1", 0)))
    assert outcome.double_allocations == ["device 0 of n1 holds 2000 milli-GPUs with job t/b"]


def test_two_runs_on_one_device_of_a_diary_are_a_double_allocation() -> None:
    outcome = submitted("a", "b")
    decide(outcome, 0, enqueued("a"), enqueued("b"), started("a", ("n1", 0)))
    decide(outcome, 5, finished("a"), started("b", ("n1", 0)))
    diary = [
        DiaryLine(
            node="n1", job=f"t/{job}", attempt=1, event="started", devices=(0,), gpu_milli=1000, cell_ms=1, wall_ms=1
        )
        for job in ("a", "b")
    ]
    outcome.take_diaries(diary)
    assert len(outcome.double_allocations) == 1


def test_allocation_and_fragmentation_are_weighted_by_time() -> None:
    rows = [
        JobRow("a", stretches=[Stretch(0, (Hold("n1", (0,)),), 10)], final_state="finished"),
        JobRow("b", stretches=[Stretch(5, (Hold("n1", (1,)), Hold("n2", (0, 1))), 20)], final_state="finished"),
    ]
    figures = figures_of(rows, NODES)
    # 1 GPU for 5 ms, 4 for 5 ms, 3 for 10 ms, of 4 x 20; n1 is fragmented from 0 to 5 and from 10 to 20, n2 never.
    assert (figures.gar_mean, figures.gfr_mean) == (0.6875, 0.375)


def entering(job: str, *places: tuple[int, str, int], turn: int) -> e.JobResizing:
    workers = (WorkerPlace(rank=r, node=n, devices=(d,), gpu_milli=1000, turn=turn, since_ms=1) for r, n, d in places)
    return e.JobResizing(job=f"t/{job}", attempt=1, add=tuple(workers))


def test_a_worker_that_enters_a_running_job_counts_from_then_on() -> None:
    outcome = submitted("a")
    decide(outcome, 0, enqueued("a"), started("a", ("n1", 0)))
    decide(outcome, 900, entering("a", (1, "n1", 1), (2, "n2", 0), (3, "n2", 1), turn=1))
    decide(outcome, 1000, finished("a"))
    # 1 GPU for 900 ms and 4 for 100 ms, of 4 x 1000; n1 is fragmented until 900.
    figures = figures_of(outcome.settle(live=[]), NODES)
    assert (figures.gar_mean, figures.gfr_mean) == (0.325, 0.45)


def test_a_worker_that_moves_holds_one_place_at_a_time() -> None:
    outcome = submitted("a")
    decide(outcome, 0, enqueued("a"), started("a", ("n1", 0), ("n1", 1), ("n2", 0)))
    for turn, (new, old) in enumerate([(3, 2), (2, 3), (3, 2)], 1):
        decide(outcome, 100 * turn, entering("a", (new, "n2", turn % 2), turn=turn))
        decide(outcome, 100 * turn, e.WorkersSettled(job="t/a", attempt=1, joined=(new,), gone=(old,)))
    decide(outcome, 1000, finished("a"))
    rows = outcome.settle(live=[])
    assert figures_of(rows, NODES).gar_mean == 0.75
    assert len(rows[0].stretches[0].holds) == 5, "one of n1, four of n2"


def test_two_tenants_may_have_a_job_of_one_id_and_each_comes_back_by_it() -> None:
    outcome = Outcome(carried=frozenset({"u/a"}))
    for tenant in ("t", "u"):
        job = replace(spec("a"), tenant=tenant)
        outcome.take_submission(SUBMIT, f"{tenant}/a", SubmitJob(job=job, submit_ms=0))
    decide(outcome, 0, enqueued("a"), started("a", ("n1", 0)))
    outcome.take_answer(JobRejected(job="u/a", tenant="u", command="SubmitJob", code=RejectCode.UNKNOWN_TENANT))
    rows = [(row.id, row.tenant, row.is_carried, row.final_state) for row in outcome.settle(live=["t/a"])]
    assert rows == [("a", "t", False, "running"), ("a", "u", True, "rejected")]


def test_waits_leave_out_carried_jobs_and_those_that_never_started() -> None:
    rows = [
        JobRow("a", stretches=[Stretch(4, (Hold("n1", (0,)),), 10)]),
        JobRow("b", stretches=[Stretch(9, (Hold("n1", (0,)),), 10)], is_carried=True),
        JobRow("c"),
    ]
    figures = figures_of(rows, NODES)
    assert (figures.wait_ms_mean, figures.wait_ms_p50, figures.wait_ms_p99) == (4.0, 4, 4)


holds = st.builds(
    Hold,
    node=st.sampled_from(["n1", "n2"]),
    devices=st.lists(st.integers(0, 1), min_size=1, max_size=2, unique=True).map(tuple),
    milli_each=st.sampled_from([1000, 460]),
    start_ms=st.none() | st.integers(0, 50),
    end_ms=st.none() | st.integers(50, 99),
)
stretches = st.builds(
    Stretch,
    start_ms=st.integers(0, 50),
    holds=st.lists(holds, min_size=1, max_size=3).map(tuple),
    end_ms=st.one_of(st.none(), st.integers(50, 100)),
)
job_rows = st.builds(
    JobRow,
    id=st.text("abc", min_size=1),
    tenant=st.just("t"),
    kind=st.just("training"),
    is_carried=st.booleans(),
    gpus_milli=st.integers(0, 5_000),
    submit_ms=st.integers(0, 50),
    stretches=st.lists(stretches, max_size=3),
    preemptions=st.integers(0, 3),
    final_state=st.sampled_from(["finished", "failed", "cancelled", "rejected", "waiting", "running", "lost"]),
)


@given(st.lists(job_rows, max_size=20))
def test_every_figure_can_be_computed_again_from_jobs_csv(rows: list[JobRow]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.csv"
        write_rows(path, rows)
        again = list(read_rows(path))
    reaches("jobs hold devices for a while", any(row.stretches for row in rows))
    assert again == rows
    assert figures_of(again, NODES) == figures_of(rows, NODES)


def test_the_places_of_single_workers_are_free_when_these_are_over_and_those_that_enter_count() -> None:
    outcome = submitted("a", "b")
    decide(outcome, 0, enqueued("a"), enqueued("b"), started("a", ("n1", 0), ("n1", 1)))
    decide(outcome, 1, e.WorkersSettled(job="t/a", attempt=1, done=(0,)), started("b", ("n1", 0)))
    assert outcome.double_allocations == []
    entering = (WorkerPlace(rank=0, node="n1", devices=(1,), gpu_milli=1000),)
    decide(outcome, 2, e.JobResizing(job="t/a", attempt=1, add=entering))
    assert outcome.double_allocations == ["device 1 of n1 holds 2000 milli-GPUs with job t/a"]
    decide(outcome, 3, finished("a"), finished("b"))
    assert set(outcome.used.values()) == {0}
