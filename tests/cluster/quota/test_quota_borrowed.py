"""Which of a tenant's jobs count as borrowed."""

from __future__ import annotations

from typing import Any

from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.borrowed import Borrowed, borrowed_jobs, borrowed_milli
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Resources
from fallow.shared.events.operations import Quota
from tests.cluster.worlds.examples import cell, enqueued, node, place, started, then

ADA = ("ada", "gpu")


def shares(tenant: str, gpus: int, parent: str | None = None) -> e.QuotaSet:
    return e.QuotaSet(quota=Quota(tenant=tenant, gpu_type="gpu", guaranteed_milli=gpus * 1000, parent=parent))


def running(state: CellState, at_ms: int, job: str, *devices: int, on: str = "n1", **spec: Any) -> CellState:
    """The cell in which this job of one worker starts now."""
    wants = Resources(gpu_milli=1000 * len(devices))
    return then(state, enqueued(job, resources=wants, **spec), started(job, place(0, on, *devices)), at_ms=at_ms)


def busy(guaranteed: int) -> CellState:
    """Four jobs of two GPUs: one that is important, one that is firm, and two that are neither."""
    state = cell(node("n1"), shares("ada", guaranteed))
    running(state, 1, "important", 0, 1, priority=5)
    running(state, 2, "firm", 2, 3, preemptible=False)
    running(state, 3, "older", 4, 5)
    return running(state, 4, "newer", 6, 7)


def test_who_stays_within_his_guarantee_borrows_nothing() -> None:
    assert (borrowed_milli(busy(8), ADA), borrowed_jobs(busy(8), ADA)) == (0, [])


def test_the_least_important_that_started_last_counts_first() -> None:
    assert borrowed_jobs(busy(5), ADA) == [Borrowed("newer", 2000, False), Borrowed("older", 1000, False)]


def test_the_firm_counts_last() -> None:
    assert [part.job for part in borrowed_jobs(busy(0), ADA)] == ["newer", "older", "important", "firm"]


def test_what_counts_is_just_what_is_borrowed() -> None:
    parts = [sum(part.milli for part in borrowed_jobs(busy(gpus), ADA)) for gpus in range(9)]
    assert parts == [borrowed_milli(busy(gpus), ADA) for gpus in range(9)]


def test_a_quota_that_shrinks_makes_borrowed_what_was_its_own() -> None:
    state = then(busy(8), shares("ada", 6))
    assert borrowed_jobs(state, ADA) == [Borrowed("newer", 2000, False)]


def test_jobs_of_children_count_at_their_parent() -> None:
    state = cell(node("n1"), shares("lab", 2), shares("ada", 1, "lab"), shares("bob", 1, "lab"))
    running(state, 1, "first", 0)
    running(state, 2, "second", 1, 2, tenant="bob")
    assert borrowed_jobs(state, ("lab", "gpu")) == [Borrowed("second", 1000, False)]


def test_workers_that_a_job_can_do_without_count_before_whole_jobs() -> None:
    state = cell(node("n1"), shares("ada", 2))
    places = (place(0, "n1", 0), place(1, "n1", 1), place(2, "n1", 2))
    flexible = enqueued("flexible", workers=3, workers_min=1, resources=Resources(gpu_milli=1000), priority=9)
    then(state, flexible, started("flexible", *places))
    running(state, 5, "rigid", 3)
    assert borrowed_jobs(state, ADA) == [Borrowed("flexible", 2000, True)]


def test_workers_that_join_a_job_count_as_those_that_it_has() -> None:
    state = cell(node("n1"), shares("ada", 1))
    job = enqueued("grows", workers=3, workers_min=1, resources=Resources(gpu_milli=1000))
    then(state, job, started("grows", place(0, "n1", 0)), e.JobRunning(job="grows", attempt=1))
    then(state, e.JobResizing(job="grows", attempt=1, add=(place(1, "n1", 1), place(2, "n1", 2))))
    assert borrowed_milli(state, ADA) == 2000
    assert borrowed_jobs(state, ADA) == [Borrowed("grows", 2000, True)]
