"""Waits by job size, and how many jobs wait."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.metrics.policy.kant.waiting import BUCKETS_MS, WaitingTimes, Waits, percentile
from fallow.services.metrics.policy.queue_depth import QueueDepth
from fallow.services.metrics.policy.size_classes import SIZE_CLASSES, in_gpus, in_words, size_class
from fallow.services.metrics.policy.tenant_labels import OTHERS, TenantLabels
from fallow.shared.cluster.fold.due import ROOM_LEAST
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU, WorkerPlace
from fallow.shared.events.reasons import RequeueReason
from tests.histories import History
from tests.hypothesis_profile import reaches
from tests.metrics.logs import Log, waits


@pytest.mark.parametrize(
    ("gpus_milli", "name"),
    [
        (1, "1"),
        (500, "1"),
        (1_000, "1"),
        (1_200, "2-4"),
        (2_000, "2-4"),
        (4_000, "2-4"),
        (5_000, "5-8"),
        (8_000, "5-8"),
        (9_000, "9-16"),
        (32_000, "17-32"),
        (64_000, "33-64"),
        (128_000, "65-128"),
        (256_000, "129-256"),
        (257_000, "257-512"),
        (1_024_000, "513-1024"),
        (2_048_000, "1025-2048"),
        (2_049_000, "2049+"),
    ],
)
def test_a_jobs_size_has_its_class(gpus_milli: int, name: str) -> None:
    assert size_class(gpus_milli) == name


def test_a_share_of_a_gpu_is_told_in_a_class_that_holds_it() -> None:
    assert in_gpus(size_class(8)) == "up to 1 GPU"
    assert [in_words(name) for name in SIZE_CLASSES[:3]] == ["up to 1", "2-4", "5-8"]
    assert in_gpus("2049+") == "2049+ GPUs"


@pytest.mark.parametrize(
    ("values", "p50", "p99"),
    [([], None, None), ([7], 7, 7), ([1, 2], 1, 2), ([1, 2, 3], 2, 3), (list(range(1, 201)), 100, 198)],
)
def test_percentiles_are_of_the_nearest_rank(values: list[int], p50: int | None, p99: int | None) -> None:
    assert (percentile(values, 50), percentile(values, 99)) == (p50, p99)


def test_the_wait_is_from_submission_to_first_start() -> None:
    found = WaitingTimes()
    waits(Log(found.take), (1, 0), (1, 300), (8, 500))
    assert found.mean_ms() == Fraction(800, 3)
    assert found.ordered() == [0, 300, 500]
    assert (found.classes["1"].count, found.classes["1"].mean_ms()) == (2, Fraction(150))
    assert (found.classes["5-8"].count, found.classes["5-8"].mean_ms()) == (1, Fraction(500))


def test_a_second_start_is_no_wait() -> None:
    found = WaitingTimes()
    log = Log(found.take)
    waits(log, (1, 100))
    log.decide(200, e.JobRequeued(job="job-0", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0))
    log.start(900, "job-0", "n1")
    assert found.ordered() == [100]


def test_a_job_that_starts_and_is_over_in_one_decision_has_waited() -> None:
    found = WaitingTimes()
    log = Log(found.take)
    log.node(0, "n1")
    log.submit(0, "a")
    place = WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=GPU)
    log.decide(70, e.JobStarted(job="a", attempt=1, workers=(place,)), e.JobFinished(job="a", attempt=1))
    assert found.ordered() == [70]


def test_carried_over_jobs_do_not_count() -> None:
    found = WaitingTimes(frozenset({"job-0"}))
    waits(Log(found.take), (1, 100), (1, 200))
    assert found.ordered() == [200]


def test_percentiles_are_of_the_newest_waits_and_the_mean_is_of_all() -> None:
    found = Waits(kept_max=2)
    for wait_ms in (10, 20, 30):
        found.add(wait_ms)
    assert (found.ordered(), found.mean_ms()) == ([20, 30], Fraction(20))


def test_buckets_count_up_to_their_bounds() -> None:
    found = Waits()
    for wait_ms in (0, 1_000, 1_001, BUCKETS_MS[-1] + 1):
        found.add(wait_ms)
    assert (found.buckets[0], found.buckets[1], found.buckets[-1]) == (2, 1, 1)


@given(st.integers(0, 10**6))
def test_the_queue_holds_exactly_the_jobs_that_wait(seed: int) -> None:
    history, queue, late = History(seed), QueueDepth(), QueueDepth()
    for decision in (history.decide() for _ in range(80)):
        queue.take(history.state, decision)
    late.begin(history.state)
    waiting = [job for job in history.state.jobs.values() if job.status in WAITING]
    reaches("jobs of several tenants wait", len({job.spec.tenant for job in waiting}) > 1)
    assert queue.count == late.count == len(waiting) == history.state.waiting
    assert queue.by_tenant == late.by_tenant
    oldest = min((job.submit_ms for job in waiting), default=10**13)
    assert queue.oldest_ms(10**13) == late.oldest_ms(10**13) == 10**13 - oldest


def test_a_requeued_job_is_as_old_as_its_submission() -> None:
    queue = QueueDepth()
    log = Log(queue.take)
    waits(log, (1, 100))
    assert (queue.count, queue.oldest_ms(500)) == (0, 0)
    log.decide(600, e.JobRequeued(job="job-0", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0))
    assert (queue.count, queue.oldest_ms(700)) == (1, 700)


def test_a_job_that_waits_for_long_keeps_none_of_those_that_went_before_it() -> None:
    queue = QueueDepth()
    log = Log(queue.take)
    log.node(0, "n1", gpus=100)
    log.submit(0, "patient", 200)
    waited = [(log.submit(1, f"job-{n}"), log.start(1, f"job-{n}", "n1"), len(queue._by_age)) for n in range(95)]
    assert max(kept for _, _, kept in waited) <= ROOM_LEAST + 2 * 1
    assert queue.oldest_ms(100) == 100


def test_only_so_many_tenants_have_names_of_their_own() -> None:
    labels = TenantLabels(2)
    assert [labels.label(tenant) for tenant in ("a", "b", "c", "a")] == ["a", "b", OTHERS, "a"]
