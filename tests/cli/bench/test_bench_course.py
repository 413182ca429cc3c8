"""What benchmarks read back from the log: which jobs began and ended, what was in use, and which rate was held."""

from __future__ import annotations

import asyncio
from array import array
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.bench.capacity import LEAST_PER_S, Trial, highest_held, trials_of
from fallow.bench.load.arrivals import ENQUEUED, LEFT
from fallow.bench.load.course import Course
from fallow.bench.load.job_mix import job_id
from fallow.bench.load.load import Load
from fallow.bench.real.load import Offer, RealLoad
from fallow.bench.real.mix import RealMix
from fallow.bench.real.pipeline import is_held
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.reasons import CancelReason, FailReason
from tests.cli.bench.test_bench import load_of
from tests.hypothesis_profile import reaches


def record(*effects: e.AnyEffect) -> bytes:
    return encode(Decision(cell="cell-a", epoch=1, version=1, at_ms=0, effects=effects))


@pytest.mark.parametrize("tenant", ["bench", "team-1", "t" * 63])
def test_jobs_of_the_load_that_leave_the_queue_are_found_by_their_bytes(tenant: str) -> None:
    """As admission names them: in full."""

    def named(number: int) -> str:
        return full_id(tenant, job_id(number))

    value = record(
        e.JobEnqueued(spec=JobSpec(id=named(7), tenant=tenant), submit_ms=0, digest="0" * 32),
        e.JobStarted(job=named(1), attempt=1),
        e.JobFinished(job=named(2), attempt=1),
        e.JobFailed(job=named(3), reason=next(iter(FailReason)), text='"kind":"JobFailed","job":"bench/bench-4"'),
        e.JobCancelled(job=named(5), reason=CancelReason.ASKED),
        e.JobCancelled(job=full_id(tenant, "fill-00000006")),
    )
    assert [int(number) for number in LEFT.findall(value)] == [1, 3, 5]
    assert value.count(ENQUEUED) == 1


def course(*moments: tuple[float, int, int]) -> Course:
    found = Course()
    for at_s, held, waiting in moments:
        found.note(at_s, held, waiting)
    return found


def test_a_mean_counts_each_value_for_as_long_as_it_held() -> None:
    found = course((0.0, 1_000, 4), (1.0, 3_000, 2), (4.0, 0, 9))
    assert found.held_mean_milli(0.0, 4.0) == pytest.approx(2_500.0)
    assert found.held_mean_milli(3.0, 5.0) == pytest.approx(1_500.0)
    assert found.waiting_mean(0.0, 2.0) == pytest.approx(3.0)
    assert [found.waiting_least(*part) for part in ((0.5, 2.0), (0.0, 0.5), (4.0, 9.0))] == [2, 4, 9]


def test_before_the_first_record_nothing_is_held() -> None:
    assert course((2.0, 1_000, 1)).held_mean_milli(0.0, 4.0) == pytest.approx(500.0)
    assert course().held_mean_milli(0.0, 4.0) == 0.0


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 9), st.integers(0, 9)), max_size=20).map(sorted),
    st.floats(0, 100),
    st.floats(0, 100),
)
def test_a_mean_lies_between_the_least_and_the_most(
    moments: list[tuple[float, int, int]], begin_s: float, length_s: float
) -> None:
    found, end_s = course(*moments), begin_s + length_s + 0.1
    reaches("something changes within the time of a mean", any(begin_s < at_s < end_s for at_s, _, _ in moments))
    assert -1e-9 <= found.held_mean_milli(begin_s, end_s) <= max((held for _, held, _ in moments), default=0) + 1e-9


def searched(capacity: float, most: float = 1e5) -> list[Trial]:
    async def tried(rate: float) -> Trial:
        return Trial(rate, rate <= capacity, min(rate, capacity))

    return asyncio.run(trials_of(tried, most))


@given(st.floats(LEAST_PER_S * 2, 60_000))
def test_a_search_comes_within_a_tenth_of_what_is_held_and_never_above(capacity: float) -> None:
    trials = searched(capacity)
    held = highest_held(trials)
    assert held is not None
    assert capacity * 0.9 <= held.per_s <= capacity
    assert len(trials) <= 15


def test_a_search_ends_where_everything_is_held_and_where_nothing_is() -> None:
    everything, nothing = searched(1e9), searched(0.0)
    assert all(trial.is_held for trial in everything)
    assert highest_held(nothing) is None
    assert searched(1e9, most=80.0) == [Trial(80.0, True, 80.0)]


def test_a_rate_above_one_that_was_missed_was_held_by_luck() -> None:
    found = highest_held([Trial(1_000, True, 1_000), Trial(1_500, False, 900), Trial(2_250, True, 2_250)])
    assert found == Trial(1_000, True, 1_000)


def real_load(load: Load, held: Course, backlog: int = 0) -> RealLoad:
    classes = list(RealMix(250).classes[: len(load.due_s)])
    return RealLoad(Offer(1, load.rate, 8.0, backlog), load, held, classes, {}, 100)


def test_behind_a_backlog_a_rate_is_held_by_the_gpus_in_use_alone() -> None:
    load = load_of([3.0], [-1.0], rate=1)
    assert is_held(real_load(load, course((0.0, 7_700, 5)), backlog=5))
    assert not is_held(real_load(load, course((0.0, 7_500, 5)), backlog=5))


def test_at_a_rate_a_backlog_that_grows_by_a_twentieth_is_missed() -> None:
    due = [float(second) + 0.5 for second in range(10)]
    assert is_held(real_load(load_of(due, [at + 0.1 for at in due], rate=1), course()))
    assert not is_held(real_load(load_of(due, [at if at < 8 else -1.0 for at in due], rate=1), course()))


def test_waits_are_told_for_each_class_that_had_a_job_in_the_measured_time() -> None:
    load = load_of([1.0, 3.0, 4.0], [1.1, 3.5, -1.0], rate=1)
    found = real_load(load, course())
    kinds = [each.kind for each in found.classes]
    told = found.p99_ms()
    assert kinds[0] not in told or kinds[0] in kinds[1:]
    assert set(told) == {label for each in found.classes[1:] for label in each.labels}
    assert cast("float", told[kinds[1]]) == 500.0 or kinds[1] == kinds[2]
    assert told[kinds[2]] is None


def test_starts_are_told_of_classes_too_of_which_none_started() -> None:
    load = load_of([1.0, 1.0, 4.0], [2.5, -1.0, 11.0], rate=1)
    found = real_load(load, course())
    told = found.started()
    assert sum(count for label, count in told.items() if label.startswith("priority")) == 1
    assert set(told) == {label for each in found.classes for label in each.labels}


def test_jobs_that_are_due_and_in_no_queue_are_told_apart_from_those_that_wait_there() -> None:
    load = load_of([1.0, 3.0, 4.0, 5.0], [1.1, -1.0, -1.0, -1.0], rate=1)
    assert real_load(load, course((2.0, 0, 1))).not_queued == 2
    assert real_load(load, course((2.0, 0, 3), (11.0, 0, 0))).not_queued == 0
    assert real_load(load, course()).not_queued == 3


def test_what_is_offered_behind_a_backlog_is_what_came() -> None:
    load = load_of([1.0, 3.0, 4.0], [1.1, 3.5, 4.1], rate=100)
    assert real_load(load, course(), backlog=5).offered_per_s == pytest.approx(2 / 8)
    assert array("d", load.due_s)[0] == 1.0
