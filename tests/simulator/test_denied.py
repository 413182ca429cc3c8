"""Worlds in which a topic refuses records for good, until a person has mended it."""

from __future__ import annotations

from random import Random

import pytest

from fallow.shared.events.decisions import Decision
from fallow.shared.log.port import Refusal
from fallow.simulator.history.of_world import judge_history
from fallow.simulator.history.record import History
from fallow.simulator.trouble.denied import DENIED_EVERY, DENIED_FIRST, WRITERS
from fallow.simulator.trouble.faults import Fault
from fallow.simulator.world import World

DENIED_AT_MS, FOR_MS = 2_000, 9_000
LEFT_AFTER_MS = 6_000
"""A writer that is refused gives its cell up after about three seconds, and a standby takes it over."""

SEED = DENIED_FIRST
FOR_GOOD = (Refusal.NOT_ALLOWED, Refusal.TIMESTAMP, Refusal.INVALID)


def world_that_denies(topic: str, code: Refusal, *, all_of_them: bool) -> World:
    """Its only trouble: from a time on, a topic takes nothing of the writer of the first cell, or of anybody."""
    world = World(SEED, Random(SEED), faults=(Fault.DENIED,), keep_faults=frozenset())

    def deny() -> None:
        assert world.denied is not None
        owner = world.groups.owners.get(("placement", 0))
        assert owner is not None
        world.denied.deny(topic, "" if all_of_them else owner.name, code, FOR_MS)

    world.engine.at(DENIED_AT_MS, deny)
    return world


def told(world: World) -> History:
    """What came of it, which breaks no promise."""
    history = world.run()
    assert history.drained
    assert (history.violations or judge_history(history)) == []
    return history


def decided_within(history: History, begin_ms: int, end_ms: int) -> set[int]:
    """The epochs of the decisions of the first cell that were written in this time."""
    return {
        event.epoch
        for record in history.log["decisions", 0]
        if begin_ms <= record.at_ms < end_ms and isinstance(event := record.event(), Decision)
    }


@pytest.mark.parametrize("code", FOR_GOOD)
def test_another_process_takes_a_cell_over_whose_writer_may_not_write(code: Refusal) -> None:
    history = told(world_that_denies("decisions", code, all_of_them=False))
    before = decided_within(history, 0, DENIED_AT_MS)
    after = decided_within(history, DENIED_AT_MS + 100, DENIED_AT_MS + LEFT_AFTER_MS)
    assert after
    assert min(after) > max(before)


def test_a_cell_that_nobody_may_write_goes_on_once_the_right_is_back() -> None:
    history = told(world_that_denies("decisions", Refusal.NOT_ALLOWED, all_of_them=True))
    assert decided_within(history, DENIED_AT_MS + 100, DENIED_AT_MS + FOR_MS) == set()
    assert decided_within(history, DENIED_AT_MS + FOR_MS, history.end_ms)


@pytest.mark.parametrize("topic", sorted(WRITERS))
def test_nothing_is_lost_or_doubled_where_a_topic_takes_no_record_for_a_while(topic: str) -> None:
    told(world_that_denies(topic, Refusal.NOT_ALLOWED, all_of_them=True))


@pytest.mark.parametrize("seed", range(DENIED_FIRST, 4 * DENIED_EVERY, DENIED_EVERY))
def test_worlds_of_this_trouble_alone_break_no_promise(seed: int) -> None:
    history = told(World(seed, Random(seed), faults=(Fault.DENIED,)))
    assert {fault.kind for fault in history.injected} == {Fault.DENIED}


def test_in_all_other_worlds_no_topic_refuses_anything() -> None:
    assert all(World(seed, Random(seed)).denied is None for seed in range(DENIED_FIRST))
