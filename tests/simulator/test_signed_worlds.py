"""Worlds whose cells have keys: an impostor writes beside placement, and a person changes the key meanwhile."""

from __future__ import annotations

from random import Random

import pytest

from fallow.shared.events.decisions import SIGNATURE_HEADER
from fallow.simulator.history.of_world import judge_history
from fallow.simulator.history.record import History, Logged
from fallow.simulator.trouble.impostor import KINDS, NEXT, WRITERS
from fallow.simulator.world import SIGNED_EVERY, World

WORLDS = range(0, 10 * SIGNED_EVERY, SIGNED_EVERY)


def signature_of(logged: Logged) -> str:
    return dict(logged.record("decisions").headers).get(SIGNATURE_HEADER, b"").decode()


def signers_of(history: History) -> set[str]:
    """Who signed the honest decisions of a world: the key of before, and the next one."""
    honest = [logged for logged in history.records("decisions") if not logged.is_forged and signature_of(logged)]
    keys = {"before": WRITERS, "next": NEXT}
    return {name for each in honest for name, key in keys.items() if signature_of(each) == key.sign(each.chain)}


def test_a_key_is_changed_in_some_worlds_and_every_promise_is_kept_there_too() -> None:
    changed = 0
    for seed in WORLDS:
        world = World(seed, Random(seed))
        history = world.run()
        assert (history.violations or judge_history(history)) == []
        assert any(logged.is_forged for logged in history.records("decisions")), seed
        assert world.impostor is not None
        if world.impostor.rotation.is_done:
            changed += 1
            assert signers_of(history) == {"before", "next"}
    assert changed


def test_all_other_worlds_have_no_keys() -> None:
    world = World(1, Random(1))
    assert world.impostor is None
    assert not any(signature_of(logged) for logged in world.run().records("decisions"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_that_a_stranger_wrote_to_before_it_began_begins_once_a_person_says_so(kind: str) -> None:
    world = World(0, Random(0), keep_faults=frozenset())
    impostor, first = world.impostor, world.oracles[0]
    assert impostor is not None
    world.broker.land(impostor.forged(first, kind))
    history = world.run()
    assert history.drained
    assert (history.violations or judge_history(history)) == []
    assert first.state.version > 0
