"""Faults that come by themselves are such as their kind says, whatever happened before."""

from __future__ import annotations

import random

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.decisions import Decision
from fallow.shared.events.nodes import NodeLost, NodeReport, seq_max
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import EPOCH_MS, Logged
from fallow.simulator.storage.broker import message_of
from fallow.simulator.trouble.lies import lie_of
from fallow.simulator.world import World


def test_the_loss_of_a_node_has_a_number_that_readers_take_though_a_lie_has_told_a_larger_one() -> None:
    world = World(5, random.Random(5), faults=(), keep_items=frozenset())
    cell, at_ms = world.first_file.cells[0], world.engine.now_ms
    for seq in (7, LARGEST_INTEGER):
        world.broker.land(message_of(NodeReport(cell=cell.name, node="n", boot="b", seq=seq), cell.ordinal))
    world.mishaps.say_lost(cell.name, "n", "b")
    lost = world.broker.log["nodes", cell.ordinal][-1].event()
    assert isinstance(lost, NodeLost)
    assert 7 < lost.seq <= seq_max(EPOCH_MS + at_ms)


def test_a_lie_repeats_words_of_nodes_and_nothing_that_a_stranger_wrote_beside_them() -> None:
    strange = Decision(cell="cell-0", version=LARGEST_INTEGER, epoch=1, at_ms=1, effects=())
    word = NodeReport(cell="cell-0", node="n", boot="b", seq=7)
    said = [
        Logged("nodes", 0, offset, 0, "n", event.type, _event=event) for offset, event in enumerate((strange, word))
    ]
    engine, state = Engine(random.Random(5)), CellState("cell-0")
    told = [lie.event for _ in range(100) if (lie := lie_of(engine, state, said)) is not None]
    assert word in told
    assert strange not in told
