"""What the benchmark of an overload offers, and how it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from fallow.bench.capacity import Trial
from fallow.bench.load.job_mix import number_of
from fallow.bench.load.load import late_ms
from fallow.bench.load.processor_time import ProcessorTime
from fallow.bench.load.sender import NEVER
from fallow.bench.overload import (
    RECOVERY_S_MAX,
    Course,
    Found,
    Window,
    body_of,
    course_of,
    handed_per_s,
    lines_of,
    recovered_s,
    schedule,
)
from fallow.shared.events.codec.encoding import decode
from fallow.shared.events.submissions import SubmitJob


def found(recovery_s: float | None) -> Found:
    """A cell that holds 1,000 jobs a second started 950 of 2,000, of which 1,900 came."""
    late = [float(ms) for ms in range(1, 201)]
    course = Course(950.0, 1_900.4, late, 21_000, recovery_s, 60_000, 60_000, ProcessorTime({}).used())
    return Found([Trial(1_000.0, True, 1_003.2), Trial(1_500.0, False, 1_100.0)], 1_000.0, course, {}, 1_600)


def test_twice_the_rate_is_offered_for_the_time_asked_for_and_half_of_it_behind_that() -> None:
    due = [at_s for at_s, _ in schedule(7, 100.0, 3.0, 1_600, 12)]
    assert due == sorted(due)
    over = [at_s for at_s in due if at_s < 3.0]
    assert (len(over), len(due) - len(over)) == (600, 50 * RECOVERY_S_MAX)
    assert {round(later - sooner, 6) for sooner, later in pairwise(over)} == {0.005}
    assert {round(later - sooner, 6) for sooner, later in pairwise(due[600:])} == {0.02}


def test_its_jobs_go_on_with_the_numbers_behind_those_of_the_trials() -> None:
    ready = [job for _, job in schedule(7, 10.0, 1.0, 1_600, 12)][:3]
    events = [decode(SubmitJob.type, job.value) for job in ready]
    assert [number_of(event.job.id) for event in events if isinstance(event, SubmitJob)] == [7, 8, 9]


def test_it_tells_what_went_through_and_how_soon_the_backlog_was_gone() -> None:
    body = body_of(found(40.04), 20_000.0)
    assert (body["capacity_per_s"], body["through_pct"], body["backlog"]) == (1_000, 95.0, 21_000)
    assert (body["recovery_s"], body["recovery_bound_s"]) == (40.0, 84.0)  # twice 21,000 over the spare 500 a second
    assert body["trials"] == [
        {"per_s": 1_000, "held": True, "started_per_s": 1_003},
        {"per_s": 1_500, "held": False, "started_per_s": 1_100},
    ]


def test_a_rate_that_was_said_and_that_the_trial_missed_is_not_called_what_the_cell_holds() -> None:
    shown = replace(found(40.0), trials=[Trial(1_000.0, False, 500.0)])
    body = body_of(shown, 20_000.0)
    assert (body["capacity_per_s"], body["recovery_bound_s"]) == (None, None)
    assert (body["scheduled_per_s"], body["through_pct"]) == (2_000, 95.0)
    told = " ".join(lines_of(shown, body))
    assert "is said to hold 1000 jobs/s, and did not hold it in the trial" in told
    assert "95.0 % of what was said" in told
    assert "what it holds" not in told
    assert "bound" not in told


def test_a_rate_that_was_said_and_held_is_what_the_cell_holds() -> None:
    shown = replace(found(40.0), trials=[Trial(1_000.0, True, 1_000.0)])
    body = body_of(shown, 20_000.0)
    assert body["capacity_per_s"] == 1_000
    assert "the cell holds 1000 jobs/s; offered" in lines_of(shown, body)[0]


def test_the_course_is_reckoned_from_what_was_counted_in_the_window() -> None:
    """Ten jobs a second; of eight seconds the first two do not count. The sender is half a second late, and the last
    five that it came to are not handed over.
    """
    due = [number / 10 for number in range(100)]
    handed = [at_s + 0.5 for at_s in due[:80]] + [NEVER] * 5
    window = Window(2.0, 8.0, started_before=6, started=36)
    course = course_of(window, due, due[:85], handed, 3.0, 80, ProcessorTime({}).used())
    assert course.starts_per_s == 5.0  # 30 in six seconds
    assert course.offered_per_s == 10.0
    assert course.backlog == 81 - 36  # due from 0 to 8 s, both counted
    assert course.late_ms == pytest.approx([500.0] * 60)
    assert (course.recovery_s, course.submitted, course.started) == (3.0, 80, 80)


def test_what_the_sender_really_offered_is_told_beside_what_was_due_and_how_late_it_was() -> None:
    body = body_of(found(40.0), 20_000.0)
    assert (body["scheduled_per_s"], body["offered_per_s"], body["sender_late_ms_p99"]) == (2_000, 1_900, 198.0)
    told = " ".join(lines_of(found(40.0), body))
    assert "offered 1900 of the 2000 that were due in a second" in told
    assert "sender late by 198.0 ms" in told


def test_only_what_was_handed_over_in_the_time_counts_as_offered_and_its_jobs_late_without_bound_where_it_was_not() -> (
    None
):
    due, handed = [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 1.5, 3.5, 5.0, -1.0]
    assert handed_per_s(handed, 1.0, 5.0) == 0.5
    assert late_ms(due, handed, 1.0, 4.0) == [500.0, 1_500.0, 2_000.0]
    assert late_ms(due, handed, 1.0, 5.0)[-1] == float("inf")


@pytest.mark.parametrize(("recovery_s", "words"), [(40.0, "after 40.0 s"), (None, "after longer than was waited for")])
def test_a_backlog_that_stays_is_told_as_such(recovery_s: float | None, words: str) -> None:
    shown = found(recovery_s)
    assert words in " ".join(lines_of(shown, body_of(shown, 20_000.0)))


PAST_S, AHEAD_S = 0.0, float("inf")


async def recovered_behind(
    looks: list[Callable[[], None]], left: list[int], handed_s: list[float], *, raises: Exception | None = None
) -> tuple[bool, int]:
    """Whether a backlog of four jobs that are due, and of others that are not, is told to be gone, when one may wait:
    between two looks the next of these things happens, and behind them the sending ends, or `raises`. And how often it
    was looked.
    """
    is_over, pauses = asyncio.Event(), 0

    async def send() -> None:
        await is_over.wait()
        if raises is not None:
            raise raises

    async def pause(_: float) -> None:
        nonlocal pauses
        if pauses < len(looks):
            looks[pauses]()
        else:
            is_over.set()
        pauses += 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    try:
        found = await recovered_s([PAST_S] * 4 + [AHEAD_S] * 4, left, sending, handed_s, 1.0, pause)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert found is None or found >= 0
    return found is not None, pauses


async def test_a_backlog_is_gone_when_few_wait_of_what_was_due_and_was_handed_over() -> None:
    left = [0, 1]
    looks: list[Callable[[], None]] = [lambda: None, lambda: left.append(2), lambda: left.append(3)]
    assert await recovered_behind(looks, left, [PAST_S] * 4) == (True, 2)


async def test_a_backlog_is_not_gone_while_a_job_is_not_handed_over_that_was_due() -> None:
    """Though few wait of what was."""
    handed_s = [PAST_S] * 3
    looks: list[Callable[[], None]] = [lambda: handed_s.append(NEVER), lambda: handed_s.__setitem__(3, PAST_S)]
    assert await recovered_behind(looks, [0, 1, 2], handed_s) == (True, 2)


async def test_a_backlog_that_is_left_when_the_sending_ends_is_not_told_to_be_gone() -> None:
    assert await recovered_behind([lambda: None] * 3, [0, 1], [PAST_S] * 4) == (False, 4)
    assert await recovered_behind([lambda: None] * 3, [0, 1, 2], [PAST_S] * 3 + [NEVER]) == (False, 4)


async def test_what_ends_the_sending_is_raised() -> None:
    with pytest.raises(OSError, match="broken pipe"):
        await recovered_behind([], [], [], raises=OSError("broken pipe"))
