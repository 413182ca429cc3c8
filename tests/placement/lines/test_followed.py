"""The lines that are kept by effects hold the jobs that wait in the state, whatever legal effects come."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.queue.lines.lines import Lines
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.reasons import FailReason, PendingReason
from tests.cluster.worlds.examples import cell, enqueued, node, place, started, then
from tests.cluster.worlds.histories import Historian
from tests.hypothesis_profile import reaches

QUEUES = (Queue(name="default"),)
DECISIONS = 60


def waits_for_places(job: Job, now_ms: int) -> bool:
    """Whether the job may get places now: it waits, or it is no gang, runs, and lacks a worker whose rank does not
    pause. Counted here rank by rank.
    """
    if job.status is JobStatus.QUEUED:
        return job.not_before_ms <= now_ms
    if job.spec.gang or job.status not in (JobStatus.STARTING, JobStatus.RUNNING):
        return False
    taken = {*job.done, *(place.rank for place in job.workers)}
    paused = {setback.rank for setback in job.setbacks if setback.until_ms > now_ms}
    return not taken.union(paused).issuperset(range(job.spec.workers))


def standing(lines: Lines) -> dict[object, list[str]]:
    """The jobs in line by class, each class in its order."""
    every = [line for queue in lines.in_order() for line in queue]
    rows = [(line, key, row) for line in every for key, row in line.rows.items()]
    return {(line.queue.name, line.tenant, row.rows.need.key, *key[1:]): row.front(len(row)) for line, key, row in rows}


def lines_stay_right(seed: int, decisions: int, kinds: dict[str, int] | None = None) -> bool:
    """Whether the lines hold the waiting jobs behind each decision, in the classes and the order of lines made anew."""
    history, lines = Historian(seed, kinds), Lines(QUEUES)
    for _ in range(decisions):
        decision = history.decide().decision
        assert isinstance(decision, Decision)
        state, now_ms = history.state, decision.at_ms
        lines.follow(state, decision.effects, now_ms)
        found, anew = standing(lines), Lines(QUEUES)
        anew.follow(state, (), now_ms)
        jobs = [job for job in state.jobs.values() if job.id not in state.rooms]  # these start in their room
        waiting = sorted(job.id for job in jobs if waits_for_places(job, now_ms))
        assert sorted(job_id for row in found.values() for job_id in row) == waiting
        assert found == standing(anew)
    return True


@given(st.integers(0, 10**9))
def test_lines_that_follow_effects_hold_the_jobs_that_wait(seed: int) -> None:
    kinds = dict[str, int]()
    assert lines_stay_right(seed, DECISIONS, kinds)
    reaches("jobs start and come back into their lines", kinds.get("JobStarted") and kinds.get("JobRequeued"))


def test_so_they_do_in_histories_that_have_every_effect_on_a_job() -> None:
    kinds: dict[str, int] = {}
    assert all(lines_stay_right(seed, 400, kinds) for seed in (1, 2))
    assert {kind.__name__ for kind in get_args(e.AnyEffect) if issubclass(kind, e.JobEffect)} <= set(kinds)


@pytest.mark.parametrize(
    "end",
    [e.JobFailed(job="job", reason=FailReason.RETRIES_EXHAUSTED), e.JobFinished(job="job", attempt=1)],
    ids=["fails", "finishes"],
)
def test_a_job_that_lacks_workers_and_ends_leaves_its_line(end: e.AnyEffect) -> None:
    state = cell(node("n1"), enqueued("job", gang=False, workers=2))
    lines = Lines(QUEUES)
    then(state, started("job", place(0, "n1", 0)), e.JobRunning(job="job", attempt=1))
    assert lines.follow(state, (), 0)
    assert lines.place_of("job") is not None
    then(state, end)
    lines.follow(state, (end,), 0)
    assert lines.place_of("job") is None


def test_a_class_that_was_refused_is_tried_again_when_a_start_of_one_of_its_jobs_is_planned() -> None:
    state, lines = cell(enqueued("job")), Lines(QUEUES)
    lines.follow(state, (), 0)
    place = lines.place_of("job")
    assert place is not None
    lines.refuse(*place, PendingReason.RESERVED_FOR_OTHER, is_shut=True)
    assert not lines.follow(state, (), 0)
    assert lines.follow(state, (e.ReservationSet(job="job", start_ms=5),), 0)
    assert (place[1].code, place[1].is_shut) == (None, False)
