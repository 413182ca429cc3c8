"""What a cell learns of the run times of its jobs, from whom, and that it is folded, undone and kept like all else."""

from __future__ import annotations

from typing import Any

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.model.run_time import expected_run_ms, run_end
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.run_times.history import end_of
from fallow.shared.cluster.run_times.learning import KINDS_MAX, pattern_of
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobKind
from fallow.shared.events.operations import CellPolicy, EstimatorKind
from fallow.shared.events.reasons import FailReason, StopReason
from tests.cluster.worlds.examples import enqueued, node, place, started

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
LEARNED, DECLARED, NONE = EstimatorKind.LEARNED, EstimatorKind.DECLARED, EstimatorKind.NONE


def cell(estimator: EstimatorKind = LEARNED) -> CellState:
    state = CellState("cell-a")
    do(state, node("n1", gpus=8), e.PolicySet(policy=CellPolicy(estimator=estimator)))
    return state


def do(state: CellState, *effects: e.AnyEffect, at_ms: int = 0) -> None:
    for effect in effects:
        apply(state, effect, at_ms)


def ran(state: CellState, name: str, run_ms: int, *, times: int = 8, **spec: Any) -> None:
    """So many jobs of this name have run for so long."""
    for number in range(times):
        job = f"{name}-{state.entered}-{number}"
        do(state, enqueued(job, **spec), started(job, place(0, "n1", 0)))
        do(state, e.JobFinished(job=job, attempt=1), at_ms=run_ms)


def expected(state: CellState, job: str, **spec: Any) -> int | None:
    return expected_run_ms(state, enqueued(job, **spec).spec)


def about(run_ms: int, found: int | None) -> bool:
    return found is not None and run_ms < found <= run_ms * 5 // 4


def test_jobs_of_one_tenant_name_and_size_tell_of_each_other() -> None:
    state = cell()
    ran(state, "ada/short", MINUTE_MS)
    ran(state, "ada/long", HOUR_MS)
    assert about(MINUTE_MS, expected(state, "ada/short-1-9"))
    assert about(HOUR_MS, expected(state, "ada/long-77-0"))


def test_of_a_name_that_is_new_those_of_the_tenant_tell_and_of_a_new_tenant_those_of_all() -> None:
    state = cell()
    ran(state, "ada/short", MINUTE_MS, times=4)
    ran(state, "bob/train", HOUR_MS, tenant="bob")
    assert about(MINUTE_MS, expected(state, "ada/new"))
    assert about(HOUR_MS, expected(state, "zoe/new", tenant="zoe"))


def test_a_job_that_fails_or_is_cancelled_tells_as_well_and_one_that_never_ran_does_not() -> None:
    state = cell()
    ends: tuple[e.AnyEffect, ...] = (
        e.JobFailed(job="job", reason=FailReason.RETRIES_EXHAUSTED),
        e.JobCancelled(job="job"),
    )
    for end in ends * 2:
        do(state, enqueued("job"), started("job", place(0, "n1", 0)))
        if isinstance(end, e.JobCancelled):
            do(state, e.JobStopping(job="job", attempt=1, why=StopReason.CANCELLED, grace_wall_ms=0))
        do(state, end, at_ms=HOUR_MS)
        state.finished.forget(state.undo_log.entries)
    assert state.lessons == 4
    do(state, enqueued("job"), e.JobCancelled(job="job"))
    assert state.lessons == 4


def test_services_teach_nothing_and_nothing_is_expected_of_them() -> None:
    state = cell()
    ran(state, "web", HOUR_MS, kind=JobKind.INFERENCE)
    assert (state.lessons, expected(state, "web", kind=JobKind.INFERENCE)) == (0, None)


def test_what_is_told_counts_where_nothing_is_known_and_a_limit_bounds_what_is_known() -> None:
    state = cell()
    assert expected(state, "job", estimate_run_ms=7) == 7
    ran(state, "job", HOUR_MS)
    assert about(HOUR_MS, expected(state, "job", estimate_run_ms=7))
    assert expected(state, "job", max_run_ms=9) == 9


def test_another_estimator_learns_nothing_and_forgets_what_was_known() -> None:
    state = cell(DECLARED)
    ran(state, "job", HOUR_MS)
    assert not state.learned
    do(state, e.PolicySet(policy=CellPolicy(estimator=LEARNED)))
    ran(state, "job", HOUR_MS)
    assert state.learned
    mark = state.checkpoint()
    do(state, e.PolicySet(policy=CellPolicy(estimator=NONE)))
    assert (state.learned, state.lessons, expected(state, "job", estimate_run_ms=7)) == ({}, 0, None)
    state.rollback(mark)
    assert about(HOUR_MS, expected(state, "job", estimate_run_ms=7))


def test_the_longer_a_job_runs_the_later_it_is_expected_to_end() -> None:
    state = cell()
    ran(state, "job", MINUTE_MS, times=9)
    ran(state, "job", 10 * HOUR_MS, times=6)
    do(state, enqueued("job"), started("job", place(0, "n1", 0)), at_ms=5)
    (worker,) = state.jobs["job"].workers
    end = run_end(state, state.jobs["job"], worker)
    assert end is not None
    assert about(MINUTE_MS, end.at(5) - 5)
    assert about(10 * HOUR_MS, end.at(5 + 2 * MINUTE_MS) - 5)
    assert end.same_until_ms(5) == 5 + end_of(0)


def test_what_is_learned_is_undone_with_the_rest_and_a_snapshot_keeps_it() -> None:
    state = cell()
    ran(state, "job", HOUR_MS, times=5)
    before, edition = list(rows_of(state)), state.edition
    mark = state.checkpoint()
    ran(state, "job", MINUTE_MS, times=9)
    ran(state, "other", MINUTE_MS, times=9)
    assert state.edition is not edition
    state.rollback(mark)
    assert list(rows_of(state)) == before
    assert state.edition is edition
    again = state_from(before)
    assert (again.learned, again.lessons, digest_of(again)) == (state.learned, state.lessons, digest_of(state))


def test_of_a_tenant_so_many_kinds_are_known_and_the_one_that_was_not_seen_for_the_longest_goes() -> None:
    state = cell()
    for number in range(KINDS_MAX + 5):
        ran(state, f"kind-{'x' * number}", HOUR_MS, times=1)
    (tenant,) = [name for name in state.learned if name]
    kinds = state.learned[tenant]
    assert len(kinds) == KINDS_MAX
    assert pattern_of("kind--1-1") not in {kind.pattern for kind in kinds}
    assert f"kind-{'x' * (KINDS_MAX + 4)}-#-#" in {kind.pattern for kind in kinds}


def test_numbers_of_a_name_do_not_tell_its_jobs_apart() -> None:
    assert pattern_of("ada/train-07.3") == pattern_of("train-123.45") == "train-#.#"
