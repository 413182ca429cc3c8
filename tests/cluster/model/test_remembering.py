"""Jobs that are over are remembered so long and so many, in a number of steps that is bounded too."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import CellPolicy
from tests.cluster.worlds.examples import cell, enqueued, then


def remembering(jobs: int, ms: int) -> CellState:
    return cell(e.PolicySet(policy=CellPolicy(finished_jobs_max=jobs, finished_jobs_ttl_ms=ms)))


def over(state: CellState, number: int, *, at_ms: int = 0) -> CellState:
    return then(state, enqueued(f"job-{number}"), e.JobCancelled(job=f"job-{number}"), at_ms=at_ms)


def test_only_so_many_are_remembered_the_oldest_is_forgotten_first() -> None:
    state = remembering(jobs=3, ms=10_000)
    for number in range(10):
        over(state, number)
    assert list(state.finished) == ["job-7", "job-8", "job-9"]
    assert [over.id for over in state.finished.in_order()] == ["job-7", "job-8", "job-9"]


def test_what_is_too_old_is_forgotten_when_the_next_job_ends() -> None:
    state = remembering(jobs=100, ms=10_000)
    over(over(state, 1), 2, at_ms=9_000)
    over(state, 3, at_ms=10_001)
    assert list(state.finished) == ["job-2", "job-3"]


def test_of_what_time_submissions_are_forgotten_is_known_also_behind_a_snapshot_and_an_undo() -> None:
    state = remembering(jobs=2, ms=1_000_000)
    then(state, replace(enqueued("job-1"), submit_ms=100, sent_ms=400), e.JobCancelled(job="job-1"), at_ms=1_000)
    over(state, 2, at_ms=2_000)
    assert state.finished.forgotten_ms == -1
    mark = state.checkpoint()
    apply(state, enqueued("job-3"), 3_000)
    apply(state, e.JobCancelled(job="job-3"), 3_000)
    assert state.finished.forgotten_ms == 400
    assert state_from(rows_of(state)).finished.forgotten_ms == 400
    state.rollback(mark)
    assert state.finished.forgotten_ms == -1


def test_what_came_late_and_was_over_first_is_forgotten_first() -> None:
    state = remembering(jobs=1, ms=1_000_000)
    for number, sent_ms in enumerate((500, 300, 400, 200)):
        job = enqueued(f"job-{number}")
        then(state, replace(job, sent_ms=sent_ms), e.JobCancelled(job=f"job-{number}"), at_ms=1_000 + number)
    assert state.finished.forgotten_ms == 500


def test_a_lower_bound_is_reached_by_two_a_step_and_never_in_one_long_step() -> None:
    state = remembering(jobs=100, ms=10_000)
    for number in range(10):
        over(state, number)
    then(state, e.PolicySet(policy=CellPolicy(finished_jobs_max=2, finished_jobs_ttl_ms=10_000)))
    sizes = [len(over(state, number).finished) for number in range(10, 20)]
    assert sizes == [9, 8, 7, 6, 5, 4, 3, 2, 2, 2]


def test_a_remembered_id_cannot_be_used_again_and_a_forgotten_one_can() -> None:
    state = remembering(jobs=1, ms=10_000)
    over(over(state, 1), 2)
    assert "job-1" in then(state, enqueued("job-1")).jobs
    with pytest.raises(DamagedLog, match="job job-2 exists already"):
        then(state, enqueued("job-2"))
