"""Who knows that a node is gone is believed, whatever lies were told before."""

from __future__ import annotations

import random

from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.nodes import NodeLost, NodeReport, seq_most
from fallow.simulator.history.record import EPOCH_MS
from fallow.simulator.storage.broker import message_of
from fallow.simulator.world import World


def test_the_loss_of_a_node_has_a_number_that_readers_take_though_a_lie_has_told_a_larger_one() -> None:
    world = World(5, random.Random(5), faults=(), keep_items=frozenset())
    cell, at_ms = world.first_file.cells[0], world.engine.now_ms
    for seq in (7, LARGEST_INTEGER):
        world.broker.land(message_of(NodeReport(cell=cell.name, node="n", boot="b", seq=seq), cell.ordinal))
    world.mishaps.say_lost(cell.name, "n", "b")
    lost = world.broker.log["nodes", cell.ordinal][-1].event()
    assert isinstance(lost, NodeLost)
    assert 7 < lost.seq <= seq_most(EPOCH_MS + at_ms)
