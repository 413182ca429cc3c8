"""What no budget ends is not tried without end at once: the writer and its log live with whatever a job asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events.fields.values import JobSpec, RetryPolicy
from tests.hypothesis_profile import reaches
from tests.placement.worlds.replicas import all_start, loose, service, word
from tests.placement.worlds.world import World, admitted, cell_with, failed, joined, lost, spec_of, started

MINUTE_MS = 60_000
STARTS_MAX = 10
"""After 0, 1, 3, 7 and 15 s, and then every 10 s."""

AT_ONCE = RetryPolicy(budget=1, backoff_ms=0, backoff_max_ms=0)
IMPATIENT = st.builds(
    RetryPolicy,
    budget=st.integers(0, 2),
    backoff_ms=st.sampled_from([0, 1, 500]),
    backoff_max_ms=st.sampled_from([0, 1, 500, 600_000]),
)


def cell(spec: JobSpec) -> World:
    world = cell_with(*(joined(f"n{number}", 1) for number in range(spec.workers)))
    world.listens = world.checks = False
    world.tell(admitted(spec))
    return world


def starts_of(effects: Iterable[e.AnyEffect]) -> int:
    """How many workers enter by these."""
    return sum(
        len(effect.workers) if isinstance(effect, e.JobStarted) else len(effect.add)
        for effect in effects
        if isinstance(effect, e.JobStarted | e.JobResizing)
    )


def all_starts(world: World) -> int:
    return sum(starts_of(decision.effects) for decision in world.decisions)


@given(IMPATIENT, st.sampled_from([n.RunFinished, n.RunFailed]), st.integers(1, 3))
def test_a_service_whose_replicas_end_as_soon_as_they_start(
    retry: RetryPolicy, how: type[n.RunEvent], workers: int
) -> None:
    world = cell(service("job", workers, retry=retry))
    for _ in range(MINUTE_MS // 500):
        all_start(world, "job")
        ending = [place.rank for place in world.job("job").workers]
        world.tell(*(word(how, world, "job", rank) for rank in ending))
        world.pass_time(500)
    reaches("each replica starts several times", all_starts(world) > 2 * workers)
    assert all_starts(world) <= STARTS_MAX * workers


def test_a_service_that_ends_whole_each_time_pauses_too() -> None:
    world = cell(service("job", 1, retry=AT_ONCE))
    all_start(world, "job")
    world.tell(word(n.RunFailed, world, "job", 0))
    assert world.job("job").not_before_ms == world.now_ms + 1_000
    world.pass_time(1_000)
    assert world.job("job").workers


@pytest.mark.parametrize("make", [loose, service, spec_of])
def test_a_job_that_is_lost_as_soon_as_it_starts(make: Callable[..., JobSpec]) -> None:
    world = cell(make("job", workers=1, retry=AT_ONCE))
    for _ in range(MINUTE_MS // 500):
        if world.job("job").workers:
            boot = world.state.nodes["n0"].boot
            world.tell(lost("n0", boot))
            world.tell(joined("n0", 1, boot=f"{boot}+"))
        world.pass_time(500)
    assert 2 < all_starts(world) <= STARTS_MAX + 1


def test_what_a_budget_ends_pauses_as_the_job_asks() -> None:
    world = cell(spec_of("job", retry=AT_ONCE))
    world.tell(started("job", "n0"), failed("job", "n0"))
    assert world.job("job").workers
