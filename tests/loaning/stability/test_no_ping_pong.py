"""Tenants that are driven against each other for a simulated week: who yields does so once for one cause, and when
nobody new comes everything stands still.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hypothesis_profile import IN_ALL, reaches
from tests.loaning.worlds.driven import DAY_MS, HOUR_MS, NAMES, WEEK_MS, Driven, Wish


@st.composite
def weeks(draw: st.DrawFn) -> tuple[int, list[int], list[Wish]]:
    """A cell of a few nodes, what is guaranteed to two or three tenants, and the jobs of a week."""
    nodes, tenants = draw(st.integers(2, 3)), draw(st.sampled_from([2, 3]))
    left, guaranteed = 4 * nodes, list[int]()
    is_by_shares = draw(st.integers(0, 2)) == 2
    for _ in range(tenants):
        guaranteed.append(0 if is_by_shares else draw(st.integers(0, left)))
        left -= guaranteed[-1]
    wishes = draw(
        st.lists(
            st.builds(
                Wish,
                at_ms=st.integers(0, WEEK_MS // HOUR_MS).map(lambda hours: hours * HOUR_MS),
                tenant=st.integers(0, tenants - 1),
                workers=st.integers(1, 3),
                gpus=st.sampled_from([2, 4, 1]),
                priority=st.sampled_from([1, 0, 2]),
                runs_ms=st.sampled_from([None, None, 30 * HOUR_MS]),
            ),
            min_size=12,
            max_size=24,
        )
    )
    return nodes, guaranteed, sorted(wishes, key=lambda wish: wish.at_ms)


@settings(max_examples=max(10, IN_ALL // 4))
@given(weeks())
def test_in_a_week_nobody_yields_twice_to_the_same_job_and_then_all_stands_still(
    week: tuple[int, list[int], list[Wish]],
) -> None:
    nodes, guaranteed, wishes = week
    driven = Driven(nodes, guaranteed)
    for wish in wishes:
        before = len(driven.evictions)
        driven.submit(wish)
        assert len(driven.evictions) - before <= 4 * nodes * len(wishes), "at one moment jobs chase each other"
    pairs = Counter((each.victim, each.preemptor) for each in driven.evictions if each.preemptor)
    assert all(count == 1 for count in pairs.values()), pairs
    started = {job for _, job in driven.starts}
    assert {preemptor for _, preemptor in pairs} <= started, "somebody yielded to a job that did not start"
    reaches("jobs that yield in a week", pairs)
    driven.cell.advance(WEEK_MS + 3 * DAY_MS)
    settled = len(driven.evictions)
    driven.cell.advance(2 * WEEK_MS)
    assert len(driven.evictions) == settled


@given(st.lists(st.integers(1, 4), min_size=2, max_size=3))
@settings(max_examples=max(10, IN_ALL // 10))
def test_fair_shares_meet_and_then_stand_still(weights: list[int]) -> None:
    """Whoever comes first has all; then each of the others gets its share, whole GPUs aside."""
    driven = Driven(4, [0] * len(weights), weights)
    for tenant in range(len(weights)):
        for _ in range(20):
            driven.submit(Wish(at_ms=tenant * HOUR_MS, tenant=tenant))
    total = sum(weights)
    for tenant, weight in enumerate(weights):
        assert abs(driven.used(tenant) - 16 * weight / total) < len(weights)
    settled = len(driven.evictions)
    driven.cell.advance(WEEK_MS)
    assert len(driven.evictions) == settled


def test_names_decide_nothing_of_who_yields() -> None:
    """The same week, with the tenants called otherwise."""
    wishes = [Wish(hour * HOUR_MS, hour % 3, workers=1 + hour % 2, gpus=2, priority=hour % 3) for hour in range(18)]
    told = []
    for names in (NAMES, ("zoe", "yan", "xia"), ("cyd", "ada", "bob")):
        driven = Driven(3, [4, 6, 0], names=names)
        for wish in wishes:
            driven.submit(wish)
        number = [job.partition("/")[2] for each in driven.evictions for job in (each.victim, each.preemptor)]
        told.append(number)
    assert told[0] == told[1] == told[2]
    assert told[0]
