"""Faults that come by themselves, each in its own time: outages, lost nodes, lies, hostile records and the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import Decision, next_chain
from fallow.shared.events.effects import PolicySet
from fallow.shared.events.nodes import (
    DeviceFailed,
    NodeEvent,
    NodeLost,
    NodesReported,
    RunsReported,
    RunStatusUpdate,
    seq_max,
)
from fallow.shared.events.operations import ReloadCell
from fallow.simulator.clients.person import lose_input
from fallow.simulator.draws.workload import another_file
from fallow.simulator.history.record import EPOCH_MS, Logged
from fallow.simulator.storage.broker import Message, message_of
from fallow.simulator.trouble.faults import Fault
from fallow.simulator.trouble.hostile import hostile_message
from fallow.simulator.trouble.lasting import Lasting
from fallow.simulator.trouble.lies import lie_of
from fallow.simulator.trouble.versions import with_fields

if TYPE_CHECKING:
    from fallow.simulator.oracle import Oracle
    from fallow.simulator.world import World

LAST_WORDS_LOOKED_AT = 60
FORGED_CHAIN = "f" * 32
AGAIN_MS = 400
WRITERS_LOOKED_AT = 6


class Mishaps:
    """All that goes wrong without a step of any service or client."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._doings: dict[Fault, Callable[[], None]] = {
            Fault.REBALANCE: self._rebalance,
            Fault.OUTAGE: self._outage,
            Fault.REDIS_TAIL: self._lose_view_tail,
            Fault.REDIS_FLUSH: self._flush_view,
            Fault.REDIS_GONE: self._take_redis_away,
            Fault.NODE_LOST: self._lose_node,
            Fault.NODE_LIES: self._lie,
            Fault.DEVICE: self._fail_device,
            Fault.LEASE: self._cut_executor_off,
            Fault.HOSTILE: self._be_hostile,
            Fault.RELOAD: self._reload,
            Fault.INPUT_LOST: partial(lose_input, world),
            **Lasting(world).doings,
        }

    def begin(self) -> None:
        """From now on."""
        world = self._world
        for fault, mean_ms in world.faults.intervals_ms.items():
            if mean_ms and fault in self._doings:
                world.engine.after(world.faults.next_ms(fault), partial(self._happen, fault))
        if world.faults.loses_tail:
            world.engine.after(world.engine.between(2_000, 9_000), self._lose_tail)
        if world.impostor is not None:
            world.impostor.begin()
        if world.denied is not None:
            world.denied.begin()
        if world.faults.is_forged and world.impostor is None:
            world.engine.after(world.engine.between(2_000, 9_000), self._forge)

    def _happen(self, fault: Fault) -> None:
        world = self._world
        if world.faults.is_active:
            self._doings[fault]()
            world.engine.after(world.faults.next_ms(fault), partial(self._happen, fault))

    def _injects(self, fault: Fault, what: str) -> bool:
        return self._world.faults.inject(fault, what)

    def _oracle(self) -> Oracle:
        return self._world.engine.chance.choice(self._world.oracles)

    # Each of them.

    def _rebalance(self) -> None:
        group = self._world.engine.chance.choice(list(self._world.groups.members))
        if self._injects(Fault.REBALANCE, group):
            self._world.groups.share(group, anew=True)

    def _outage(self) -> None:
        world = self._world
        for_ms = world.engine.between(200, 6_000)
        if self._injects(Fault.OUTAGE, f"for {for_ms} ms"):
            world.broker.go_away(for_ms)

    def _lose_view_tail(self) -> None:
        if self._injects(Fault.REDIS_TAIL, "the view goes back"):
            self._world.redis.lose_tail()

    def _flush_view(self) -> None:
        if self._injects(Fault.REDIS_FLUSH, "the view is gone"):
            self._world.redis.flush()

    def _take_redis_away(self) -> None:
        for_ms = self._world.engine.between(300, 4_000)
        if self._injects(Fault.REDIS_GONE, f"for {for_ms} ms"):
            self._world.redis.go_away(for_ms)

    def _cut_executor_off(self) -> None:
        world = self._world
        process = world.engine.chance.choice([p for p in world.processes if p.group in ("executor", "agent")])
        for_ms = world.engine.between(1_000, 9_000)
        if self._injects(Fault.LEASE, f"{process.name} for {for_ms} ms"):
            world.broker.cut_off(process.name, for_ms)

    def _lose_node(self) -> None:
        oracle = self._oracle()
        if not oracle.state.nodes:
            return
        node = self._world.engine.chance.choice(list(oracle.state.nodes.values()))
        if self._injects(Fault.NODE_LOST, node.id):
            self._world.cut_power(node.id)
            if node.id in self._world.machines and self._world.engine.between(0, 1):
                return  # no report says so: its lease tells
            self.say_lost(oracle.cell, node.id, node.boot)

    def say_lost(self, cell: str, node: str, boot: str) -> None:
        """A person reports that the node is gone."""
        event = NodeLost(cell=cell, node=node, boot=boot, seq=self._next_seq(cell, node, boot), reason="power")
        self._world.broker.land(message_of(event, self._world.ordinal(cell)))

    def _fail_device(self) -> None:
        oracle, chance = self._oracle(), self._world.engine.chance
        if not oracle.state.nodes:
            return
        node = chance.choice(list(oracle.state.nodes.values()))
        device = chance.randrange(0, node.spec.gpus)
        if not self._injects(Fault.DEVICE, f"device {device} of {node.id}"):
            return
        seq = self._next_seq(oracle.cell, node.id, node.boot)
        event = DeviceFailed(cell=oracle.cell, node=node.id, boot=node.boot, seq=seq, device=device)
        self._world.broker.land(message_of(event, self._world.ordinal(oracle.cell)))

    def _next_seq(self, cell: str, node: str, boot: str) -> int:
        """A number above the newest that a reader has taken: what comes by another way must not be taken for old."""
        newest = 0
        logged = self._world.broker.log.get(("nodes", self._world.ordinal(cell)), [])
        for record in logged[-LAST_WORDS_LOOKED_AT:]:
            most = seq_max(EPOCH_MS + record.at_ms)
            for word in _words_of(record.event()):
                if word.node == node and word.boot == boot and word.seq < most:
                    newest = max(newest, word.seq)
        return newest + 1

    def _lie(self) -> None:
        oracle, world = self._oracle(), self._world
        tp = ("nodes", world.ordinal(oracle.cell))
        lie = lie_of(world.engine, oracle.state, world.broker.log.get(tp, []))
        if lie is not None and self._injects(Fault.NODE_LIES, lie.what):
            world.broker.land(message_of(lie.event, tp[1]))

    def _be_hostile(self) -> None:
        world = self._world
        message: Message = hostile_message(world.engine, world.broker.log, len(world.oracles))
        if self._injects(Fault.HOSTILE, f"{message.type or 'no type'} in {message.topic}"):
            world.broker.land(message)

    def _reload(self) -> None:
        world = self._world
        file = another_file(world.engine, world.first_file)
        if self._injects(Fault.RELOAD, "another cell file"):
            self.reload(file)

    def reload(self, file: CellFile) -> None:
        """Put another cell file in its place and say so to everybody."""
        world = self._world
        world.file = file
        world.history.files.append((world.engine.now_ms, file))
        for cell in world.first_file.cells:
            world.broker.land(message_of(ReloadCell(cell=cell.name, by="operator"), cell.ordinal))

    def _lose_tail(self) -> None:
        world, oracle = self._world, self._oracle()
        if world.broker.late or any(process.is_paused for process in world.processes):
            # What comes late may take the very place of what was lost, and one who sleeps over it may wake to an answer
            # that was true once: two faults at once, which no offset can tell.
            world.engine.after(AGAIN_MS, self._lose_tail)
            return
        logged = world.broker.log.get(oracle.tp, [])
        if not _of_one_writer(logged):
            world.engine.after(AGAIN_MS, self._lose_tail)
            return
        count = min(len(logged) - 1, world.engine.between(1, 4))
        if world.faults.is_active and count > 0 and self._injects(Fault.LOST_TAIL, f"{count} of {oracle.cell}"):
            world.broker.lose_tail(oracle.tp, count)
            world.faults.is_active = False  # nothing else may hide it

    def _forge(self) -> None:
        """A decision of the right version that no writer of this cell made, one of a later release with fields that
        this one does not know, or one that is damaged on its way: no reader may go on behind it.
        """
        world, oracle = self._world, self._oracle()
        state = oracle.state
        if not (
            world.faults.is_active and state.version and self._injects(Fault.FORGED, f"a decision of {oracle.cell}")
        ):
            return
        how = world.engine.between(0, 2)
        if how == 0:
            world.broker.flips_next = oracle.tp
            return
        decision = Decision(cell=state.cell, version=state.version + 1, epoch=state.epoch, at_ms=state.at_ms)
        forged = replace(message_of(decision, oracle.tp[1]), chain=FORGED_CHAIN)
        if how == 1:
            value = with_fields(encode(msgspec.structs.replace(decision, effects=(PolicySet(policy=state.policy),))))
            forged = replace(forged, event=None, value=value, chain=next_chain(state.chain, value))
        world.broker.harmed(oracle.tp)
        world.broker.land(forged)
        world.faults.is_active = False


def _of_one_writer(logged: Sequence[Logged]) -> bool:
    """Whether the newest records are one writer's: another's would fill the very gap that the first one looks for."""
    decisions = [event for record in logged[-WRITERS_LOOKED_AT:] if isinstance(event := record.event(), Decision)]
    return len(decisions) == WRITERS_LOOKED_AT and all(
        later.version == earlier.version + 1 and later.epoch == earlier.epoch for earlier, later in pairwise(decisions)
    )


def _words_of(event: object) -> Sequence[NodeEvent | RunStatusUpdate]:
    """What nodes said in a record: one word of one node, or many of many."""
    match event:
        case NodeEvent():
            return (event,)
        case NodesReported():
            return event.reports
        case RunsReported():
            return event.words
    return ()
