"""The search for victims, against a look at every set of them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fallow.services.loaning.policy.preemption.holdings import Holdings
from fallow.services.loaning.policy.preemption.search import Found, Missing, find_victims
from fallow.services.loaning.policy.preemption.trial import fit
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.loaning.oracles import exhaustive
from tests.loaning.worlds.crowded import NOW_MS, Crowd, Row, Share, crowds, state_of

CAUSES = {"reclaim": "quota_reclaim", "share": "fair_share", "priority": "priority"}


def search(crowd: Crowd, **options: int) -> Found | Missing:
    """What the search says of a crowd."""
    state, job = state_of(crowd)
    return find_victims(state, job, crowd.queue, NOW_MS, Holdings.of(state), **options)


def numbers(found: Found) -> tuple[int, ...]:
    return tuple(int(job.id.removeprefix("job-")) for job in found.victims)


@given(crowds())
def test_of_few_candidates_the_cheapest_set_yields_and_none_where_no_set_lets_the_job_start(crowd: Crowd) -> None:
    assume(not exhaustive.fits(crowd, ()))
    cause, sets = first_cause(crowd)
    found = search(crowd)
    if not sets:
        assert isinstance(found, Missing)
        return
    assert isinstance(found, Found)
    gone = numbers(found)
    assert CAUSES[cause] == found.cause.value
    assert tuple(sorted(gone)) in sets
    assert exhaustive.is_minimal(crowd, gone)
    assert exhaustive.cost(crowd, gone) == min(exhaustive.cost(crowd, each) for each in sets)
    reaches("several victims of few candidates", len(gone) > 1)
    reaches("victims of a reclaim", cause == "reclaim")
    reaches("victims of fair shares", cause == "share")


@given(crowds(), st.sampled_from([0, 2]))
def test_of_many_candidates_a_set_yields_that_is_minimal_and_allowed(crowd: Crowd, exact_max: int) -> None:
    assume(not exhaustive.fits(crowd, ()))
    found = search(crowd, exact_max=exact_max)
    if isinstance(found, Missing):
        return
    gone, cause = numbers(found), next(name for name, value in CAUSES.items() if value == found.cause.value)
    assert tuple(sorted(gone)) in [tuple(sorted(each)) for each in exhaustive.all_sets(crowd, cause)]
    assert exhaustive.is_minimal(crowd, gone)
    reaches("several victims of many candidates", len(gone) > 1)


def first_cause(crowd: Crowd) -> tuple[str, list[tuple[int, ...]]]:
    """By which rule anybody yields, and all sets that may; the first one for which there is any."""
    for cause in CAUSES:
        sets = [tuple(sorted(each)) for each in exhaustive.all_sets(crowd, cause)]
        if sets:
            return cause, sets
    return "", []


@given(crowds())
def test_the_state_is_given_back_as_it_was(crowd: Crowd) -> None:
    state, job = state_of(crowd)
    before = state_of(crowd)[0]
    find_victims(state, job, crowd.queue, NOW_MS, Holdings.of(state))
    assert state == before


@given(crowds())
def test_the_missing_gpus_are_never_more_than_really_are(crowd: Crowd) -> None:
    assume(not exhaustive.fits(crowd, ()))
    found = search(crowd)
    if isinstance(found, Missing) and found.gpus:
        assert not any([*exhaustive.all_sets(crowd, cause)] for cause in CAUSES)
        state, job = state_of(crowd)
        assert isinstance(fit(state, job), PendingReason)


@pytest.mark.parametrize("exact_max", [0, 8])
def test_whom_a_dearer_victim_makes_needless_does_not_yield(exact_max: int) -> None:
    """The cheap one would open one node of three; the gang that has to yield anyway opens the two others."""
    rows = (Row(0, (0,), 2), Row(0, (1, 2), 2, priority=1))
    crowd = Crowd((2, 2, 2), (0, 0, 0), (Share(),), rows, workers=2, gpus=2, priority=2)
    found = search(crowd, exact_max=exact_max)
    assert isinstance(found, Found)
    assert numbers(found) == (1,)


@pytest.mark.parametrize("exact_max", [0, 8])
def test_what_a_tenant_owns_yields_behind_what_it_borrows_whatever_the_priority(exact_max: int) -> None:
    shares = (Share(guaranteed=2), Share(guaranteed=2))
    crowd = Crowd((4,), (0,), shares, (Row(1, (0,), 3), Row(1, (0,), 1, priority=1)))
    found = search(crowd, exact_max=exact_max)
    assert isinstance(found, Found)
    assert numbers(found) == (1,)


def test_no_job_yields_in_vain() -> None:
    """Two of four GPUs could become free, and three are wanted: of one node that tells at once, of two a trial does."""
    rows = (Row(0, (0,), 2), Row(0, (0,), 2, preemptible=False), Row(0, (1,), 2), Row(0, (1,), 2, priority=5))
    crowd = Crowd((4, 4), (0, 0), (Share(),), rows, gpus=3, priority=1)
    for exact_max in (0, 8):
        assert isinstance(search(crowd, exact_max=exact_max), Missing)
