"""Use counts half after a half-life, whichever reader counts and however often."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.quota.fair_use import FADED_TICKS, FairUse, Used, used_at
from tests.hypothesis_profile import reaches

HALF_LIFE_MS = 64_000
ADA = ("ada", "gpu")
BOB = ("bob", "gpu")


def after(milli_ms: int, held_milli: int, *times_ms: int, at_ms: int = 0) -> Used:
    used = Used(milli_ms, 0, at_ms)
    for now_ms in times_ms:
        used = used_at(used, held_milli, now_ms, HALF_LIFE_MS)
    return used


@pytest.mark.parametrize(
    ("now_ms", "left"),
    [
        (0, 1.0),
        (999, 1.0),
        (1_000, 2 ** (-1 / 64)),
        (32_000, 2**-0.5),
        (64_000, 0.5),
        (128_000, 0.25),
        (640_000, 2**-10),
    ],
)
def test_what_was_used_counts_half_after_each_half_life(now_ms: int, left: float) -> None:
    assert after(10**9, 0, now_ms).milli_ms == pytest.approx(left * 10**9, rel=1e-6)


@pytest.mark.parametrize(
    ("now_ms", "lately", "this_tick"),
    [(1, 0, 4_000), (999, 0, 3_996_000), (1_000, 4e6 / 2 ** (1 / 64), 0), (1_500, 4e6 / 2 ** (1 / 64), 2_000_000)],
)
def test_what_is_held_adds_up_and_counts_from_the_end_of_its_tick_on(
    now_ms: int, lately: float, this_tick: int
) -> None:
    used = after(0, 4_000, now_ms)
    assert used.milli_ms == pytest.approx(lately, rel=1e-6)
    assert used.tick_milli_ms == this_tick


def test_who_holds_the_same_for_ever_has_used_it_for_a_half_life_over_ln_2() -> None:
    assert after(0, 8_000, 100 * HALF_LIFE_MS).milli_ms == pytest.approx(8_000 * HALF_LIFE_MS / log(2), rel=0.01)


def test_after_a_very_long_time_nothing_is_left() -> None:
    assert after(10**15, 0, 70 * HALF_LIFE_MS).milli_ms == 0
    assert after(10**15, 0, 10**9 * HALF_LIFE_MS).milli_ms == 0


@given(
    st.integers(0, 10**12), st.integers(0, 10**6), st.lists(st.integers(0, 900_000), max_size=20), st.integers(0, 10**5)
)
def test_it_makes_no_difference_how_often_an_account_is_looked_at(
    milli_ms: int, held_milli: int, looks: list[int], at_ms: int
) -> None:
    times = sorted(at_ms + look for look in [*looks, 900_000])
    reaches("an account that holds GPUs is looked at several times", held_milli and len({*times}) > 2)
    often, once = after(milli_ms, held_milli, *times, at_ms=at_ms), after(milli_ms, held_milli, times[-1], at_ms=at_ms)
    assert often.milli_ms == pytest.approx(once.milli_ms, rel=1e-6, abs=100 + milli_ms * 1e-8)
    assert often.tick_milli_ms == once.tick_milli_ms


@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 9)), min_size=1, max_size=30))
def test_an_account_is_near_the_integral_of_what_was_held(steps: list[tuple[int, int]]) -> None:
    fair, now_ms, exact, held = FairUse(), 0, 0.0, 0
    fair.follow(HALF_LIFE_MS, {}, 0)
    rate = log(2) / HALF_LIFE_MS
    reaches("an account gives back what it held", any(one > other for (_, one), (_, other) in pairwise(steps)))
    for pause_ms, gpus in steps:
        now_ms += pause_ms
        kept = exp(-rate * pause_ms)
        exact = exact * kept + held * (1 - kept) / rate
        held = gpus * 1_000
        fair.follow(HALF_LIFE_MS, {ADA: held} if held else {}, now_ms)
    assert fair.of(ADA, now_ms) == pytest.approx(exact, rel=0.02, abs=9_000 * HALF_LIFE_MS / 64)


def test_only_accounts_whose_use_changes_are_counted_anew() -> None:
    fair = FairUse()
    fair.follow(HALF_LIFE_MS, {ADA: 1_000, BOB: 2_000}, 0)
    fair.follow(HALF_LIFE_MS, {ADA: 3_000, BOB: 2_000}, 100)
    assert fair.used == {ADA: Used(0, 100_000, 100), BOB: Used(0, 0, 0)}


def test_who_holds_nothing_any_more_is_still_counted_when_it_comes_back() -> None:
    fair = FairUse()
    fair.follow(HALF_LIFE_MS, {ADA: 1_000}, 0)
    fair.follow(HALF_LIFE_MS, {}, 100)
    fair.follow(HALF_LIFE_MS, {ADA: 5_000}, 300)
    assert fair.used == {ADA: Used(0, 100_000, 300)}
    assert (fair.of(ADA, 999), fair.of(BOB, 5_000)) == (0, 0)
    assert fair.of(ADA, 1_000) == pytest.approx((100_000 + 5_000 * 700) / 2 ** (1 / 64), rel=1e-6)


def test_another_half_life_keeps_the_mean_and_none_forgets() -> None:
    fair = FairUse()
    fair.follow(HALF_LIFE_MS, {ADA: 1_000}, 0)
    fair.follow(2 * HALF_LIFE_MS, {ADA: 1_000}, 500)
    assert fair.used == {ADA: Used(1_000_000, 0, 500)}
    fair.follow(0, {ADA: 1_000}, 600)
    assert (fair.used, fair.held, fair.of(ADA, 5_000)) == ({}, {}, 0)
    fair.follow(HALF_LIFE_MS, {ADA: 1_000}, 900)
    assert fair.used == {ADA: Used(0, 0, 900)}


def test_what_had_settled_changes_again_behind_another_half_life() -> None:
    fair = FairUse()
    fair.follow(HALF_LIFE_MS, {ADA: 1_000}, 0)
    settled_ms = FADED_TICKS * HALF_LIFE_MS // 64
    assert fair.is_settled(settled_ms)
    fair.follow(HALF_LIFE_MS // 2, {ADA: 1_000}, settled_ms)
    assert not fair.is_settled(settled_ms)
    assert fair.of(ADA, settled_ms) != fair.of(ADA, settled_ms + HALF_LIFE_MS)


def test_accounts_whose_use_has_faded_are_let_go_of() -> None:
    fair, most = FairUse(), 0
    for number in range(2_000):
        now_ms = number * HALF_LIFE_MS
        fair.follow(HALF_LIFE_MS, {(f"tenant-{number}", "gpu"): 1_000, ADA: 1_000}, now_ms)
        most = max(most, len(fair.used))
    assert most <= 128
    assert fair.of(("tenant-1998", "gpu"), now_ms + HALF_LIFE_MS) > 0
    assert fair.of(ADA, now_ms) > 0


@given(
    st.integers(1, 10**10),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=6),
)
def test_what_is_settled_is_changed_by_no_later_tick(half_life_ms: int, course: list[tuple[int, int, int]]) -> None:
    """Whatever was held before, and for how long; and a reader of a snapshot knows it no later."""
    fair, now_ms = FairUse(half_life_ms), 0
    for passed_ms, ada, bob in course:
        now_ms += passed_ms
        fair.follow(half_life_ms, {ADA: ada, BOB: bob}, now_ms)
    tick = max(1, half_life_ms // 64)
    settled_ms = (fair.changed_ms // tick + FADED_TICKS) * tick
    assert (fair.is_settled(settled_ms - 1), fair.is_settled(settled_ms)) == (False, True)
    for account in (ADA, BOB):
        later = {fair.of(account, settled_ms + ticks * tick) for ticks in (0, 1, 2, 63, 64, 65, 1_000, 10**6)}
        assert len(later) == 1
    read = FairUse(used=dict(fair.used))
    read.begin(half_life_ms, fair.held)
    assert (read.is_settled(settled_ms - 1), read.is_settled(settled_ms)) == (False, True)
