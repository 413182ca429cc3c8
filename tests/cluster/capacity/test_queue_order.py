"""Priority is worth waiting, each further step less and never more than a limit, and nothing starves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.queue_order import Order, order_in
from fallow.shared.events.fields.values import JobSpec
from tests.hypothesis_profile import reaches

PRIORITIES = st.integers(-1_000_000, 1_000_000) | st.integers(-5, 5)
SUBMITS = st.integers(0, 10**7)
AGES = st.tuples(st.integers(1, 10**5), st.integers(0, 10**6)).map(lambda ages: (ages[0], ages[0] + ages[1]))


def place(queue: Queue, priority: int, submit_ms: int, number: int = 1, job: str = "job") -> Order:
    return order_in(queue, JobSpec(id=job, tenant="ada", priority=priority), submit_ms, number)


def aged(step_ms: int, max_ms: int) -> Queue:
    return Queue(name="aged", aging_ms=step_ms, aging_max_ms=max_ms)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1, 900), (0, 100)),
        ((0, 100), (0, 200)),
        ((0, 100), (-1, 0)),
    ],
)
def test_without_aging_priority_is_everything_and_then_time(first: tuple[int, int], second: tuple[int, int]) -> None:
    queue = Queue(name="plain", aging_ms=0)
    assert place(queue, *first) < place(queue, *second)


@pytest.mark.parametrize(
    ("priority", "hours", "minutes"),
    [
        (1, 0, 59),
        (2, 1, 58),
        (5, 4, 51),
        (10, 9, 26),
        (50, 38, 31),
        (100, 62, 41),
        (1_000, 143, 50),
        (1_000_000, 167, 58),
    ],
)
def test_a_priority_is_worth_about_an_hour_of_waiting_for_each_step_at_first_and_never_a_week(
    priority: int, hours: int, minutes: int
) -> None:
    queue, now_ms, minute_ms = Queue(name="default"), 10**9, 60_000
    worth_ms = hours * 60 * minute_ms + minutes * minute_ms
    assert place(queue, priority, now_ms + worth_ms) < place(queue, 0, now_ms)
    assert place(queue, priority, now_ms + worth_ms + minute_ms) > place(queue, 0, now_ms)
    assert place(queue, -priority, now_ms - worth_ms) > place(queue, 0, now_ms)
    assert place(queue, -priority, now_ms - worth_ms - minute_ms) < place(queue, 0, now_ms)


@given(PRIORITIES, PRIORITIES, SUBMITS)
def test_of_two_jobs_of_one_time_the_higher_priority_is_first_however_large_priorities_are(
    one: int, other: int, submit_ms: int
) -> None:
    higher, lower = max(one, other), min(one, other)
    reaches("two jobs of one time have different priorities", higher > lower)
    reaches("two jobs of one time have the same priority", higher == lower)
    queue = Queue(name="default")
    assert (place(queue, higher, submit_ms, 2) < place(queue, lower, submit_ms, 1)) == (higher > lower)


@pytest.mark.parametrize("queue", [Queue(name="plain", aging_ms=0), aged(10, 20)], ids=["plain", "aged"])
def test_of_two_of_one_priority_and_time_the_one_that_came_first_is_first_whatever_they_are_called(
    queue: Queue,
) -> None:
    assert place(queue, 1, 5, 1, "z") < place(queue, 1, 5, 2, "a")


@given(AGES, PRIORITIES, PRIORITIES, SUBMITS, st.integers(1, 10**7))
def test_nobody_is_overtaken_by_a_job_submitted_more_than_twice_the_cap_after_it(
    ages: tuple[int, int], mine: int, other: int, submit_ms: int, later_ms: int
) -> None:
    queue = aged(*ages)
    reaches("a job that came too late to overtake has the higher priority", other > mine)
    assert place(queue, mine, submit_ms) < place(queue, other, submit_ms + 2 * queue.aging_max_ms + later_ms)


@given(AGES, PRIORITIES, st.integers(0, 10**6), SUBMITS, SUBMITS)
def test_a_higher_priority_never_stands_behind_an_equally_old_or_younger_lower_one(
    ages: tuple[int, int], priority: int, more: int, submit_ms: int, later_ms: int
) -> None:
    first = place(aged(*ages), priority + more, submit_ms, 1, "b")
    reaches("a lower priority is as old, or younger by less than what age may make of it", later_ms < ages[1])
    assert first < place(aged(*ages), priority, submit_ms + later_ms, 2, "a")


@pytest.mark.parametrize(
    ("ages", "rule"),
    [
        ({"aging_ms": 5, "aging_max_ms": 4}, "aging_max_ms 4 is below aging_ms 5"),
        ({"aging_ms": 0, "aging_max_ms": 4}, "aging_max_ms 4 without aging: aging_ms is 0"),
        ({"aging_max_ms": 4}, "aging_max_ms 4 is below aging_ms 3600000"),
        ({"aging_ms": 8 * 86_400_000}, "aging_max_ms 604800000 is below aging_ms 691200000"),
        ({"aging_ms": -1}, "greater than or equal to 0"),
    ],
)
def test_a_cap_below_a_step_is_refused(ages: dict[str, int], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        Queue.model_validate({"name": "aged", **ages})


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        ({"default_run_ms": 5, "max_run_ms": 4}, "default_run_ms 5 is above max_run_ms 4"),
        ({"default_run_ms": 0}, "greater than or equal to 1"),
        ({"max_run_ms": 0}, "greater than or equal to 1"),
        ({"max_run_ms": "4"}, "valid integer"),
    ],
)
def test_run_times_that_contradict_each_other_or_are_none_are_refused(limits: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        Queue.model_validate({"name": "short", **limits})


@pytest.mark.parametrize(
    ("limits", "told_ms", "limit_ms"),
    [
        ({}, None, None),
        ({}, 7, 7),
        ({"max_run_ms": 9}, None, 9),
        ({"default_run_ms": 5}, None, 5),
        ({"default_run_ms": 5, "max_run_ms": 9}, None, 5),
        ({"default_run_ms": 5, "max_run_ms": 9}, 7, 7),
    ],
)
def test_a_job_that_tells_no_limit_has_the_default_of_its_queue_else_its_bound(
    limits: dict[str, int], told_ms: int | None, limit_ms: int | None
) -> None:
    assert Queue.model_validate({"name": "short", **limits}).limit_ms(told_ms) == limit_ms
