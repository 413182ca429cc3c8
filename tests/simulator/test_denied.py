"""Worlds in which a topic refuses records for good, until a person has mended it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from fallow.shared.events.decisions import Decision
from fallow.shared.log.port import Refusal
from fallow.simulator.history.of_world import judge_history
from fallow.simulator.history.record import History
from fallow.simulator.storage.broker import Message
from fallow.simulator.trouble.denied import DENIED_EVERY, DENIED_FIRST, WRITERS, Denial, Denied
from fallow.simulator.trouble.faults import Fault
from fallow.simulator.world import World

DENIED_AT_MS, FOR_MS = 2_000, 9_000
LEFT_AFTER_MS = 6_000
"""A writer that is refused gives its cell up after about three seconds, and a standby takes it over."""

SEED = DENIED_FIRST
WORLDS_MAX = 40
"""In so many worlds of all faults each topic has refused something."""

FOR_GOOD = (Refusal.NOT_ALLOWED, Refusal.TIMESTAMP, Refusal.INVALID)


def world_that_denies(topic: str, code: Refusal, *, all_of_them: bool) -> World:
    """Its only trouble: from a time on, a topic takes nothing of the writer of the first cell, or of any process."""
    world = World(SEED, Random(SEED), faults=(Fault.DENIED,), keep_faults=frozenset())

    def deny() -> None:
        owner = world.groups.owners.get(("placement", 0))
        assert owner is not None
        denied_of(world).deny(Denial(topic, "" if all_of_them else owner.name, code, FOR_MS))

    world.engine.at(DENIED_AT_MS, deny)
    return world


def denied_of(world: World) -> Denied:
    assert world.denied is not None
    return world.denied


def stranger_writes(world: World) -> None:
    """What no service can read, and placement sets aside."""
    world.broker.land(Message("jobs", 0, "stranger", "", None, b"{"))


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
    world = world_that_denies(topic, Refusal.NOT_ALLOWED, all_of_them=True)
    world.engine.at(DENIED_AT_MS + 500, lambda: stranger_writes(world))
    told(world)
    assert set(denied_of(world).refusals) == {topic}
    assert denied_of(world).judged[topic]


@pytest.mark.parametrize("seed", range(DENIED_FIRST, 4 * DENIED_EVERY, DENIED_EVERY))
def test_worlds_of_this_trouble_alone_break_no_promise(seed: int) -> None:
    world = World(seed, Random(seed), faults=(Fault.DENIED,))
    history = told(world)
    assert {fault.kind for fault in history.injected} == {Fault.DENIED}
    assert set(denied_of(world).refusals) == {fault.what.split()[0] for fault in history.injected}


def test_in_worlds_of_all_faults_each_topic_refuses_and_each_refused_process_is_looked_at() -> None:
    refusals, judged = Counter[str](), Counter[str]()
    for seed in range(DENIED_FIRST, WORLDS_MAX * DENIED_EVERY, DENIED_EVERY):
        world = World(seed, Random(seed))
        assert world.run().violations == []
        refusals += denied_of(world).refusals
        judged += denied_of(world).judged
        if set(judged) == set(WRITERS):
            break
    assert set(refusals) == set(judged) == set(WRITERS)


def test_in_all_other_worlds_no_topic_refuses_anything() -> None:
    assert all(World(seed, Random(seed)).denied is None for seed in range(DENIED_FIRST))
