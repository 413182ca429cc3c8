"""What nodes say: whether a word counts, and what is done with it.

A word counts when it is news of a node that is known; otherwise it does not even renew the lease. Many words in one
record count like a record for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes import invalid_events as strays
from fallow.services.placement.lifecycle.nodes import nodes, quarantine
from fallow.services.placement.lifecycle.nodes.event_dedup import Sequences, StaleReason, Word
from fallow.services.placement.lifecycle.nodes.invalid_events import RejectedEvent
from fallow.services.placement.lifecycle.nodes.leases import Leases
from fallow.services.placement.lifecycle.runs import runs
from fallow.shared.cluster.model.config import CellPart
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.nodes import (
    DeviceFailed,
    LivingNode,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeReport,
    NodeReturned,
    RunEvent,
    RunFailed,
    RunFinished,
    RunProgressed,
    RunStarted,
    RunStatusUpdate,
    RunStopped,
)

_LOST = NodeStatus.LOST  # to look it up for each word costs more than what is done with it


class NodeEvents:
    """What this writer has heard of each node."""

    def __init__(self) -> None:
        self.leases = Leases()
        self.sequences = Sequences()
        self._past: Counter[StaleReason] = Counter()

    def take_past(self) -> dict[StaleReason, int]:
        """How many words no longer counted since the last call, by why."""
        found, self._past = self._past, Counter()
        return dict(found)

    def caught_up(self, state: CellState, wall_ms: int) -> None:
        """The state is that of the log, whichever writer wrote it: each of its nodes has a lease, and no other node is
        known.
        """
        self.leases.enter_all(state, wall_ms)
        for node_id in [*self.leases.nodes(), *self.sequences.nodes()]:
            if node_id not in state.nodes:
                self.forget(node_id)

    def forget(self, node_id: str) -> None:
        """The node is no longer in the log: what comes under its name is another one."""
        self.leases.forget(node_id)
        self.sequences.forget(node_id)

    def hear(
        self,
        decision: DecisionBuilder,
        cell: CellPart,
        event: NodeEvent,
        wall_ms: int,
        stamped_ms: int | None = None,
    ) -> RejectedEvent | None:
        """One node's word, which the broker stamped with this wall time, where that is known. Why its record is to be
        set aside, or None.
        """
        most = strays.number_max(stamped_ms)
        if event.seq > most:
            return strays.of_far_number(event, most)
        stray = strays.stray(decision.state, cell, event)
        if stray is not None and not stray.is_news:
            return stray
        if self._is_news(decision, event, decision.state.nodes.get(event.node), wall_ms, most):
            if isinstance(event, RunEvent) and not runs.is_current(decision, event):
                self._past[StaleReason.RUN_OVER] += 1
            else:
                if isinstance(event, LivingNode):
                    self.leases.told(decision, event)
                stray = _handle(decision, event) or stray
        return stray

    def hear_reports(
        self,
        decision: DecisionBuilder,
        cell: CellPart,
        reports: Iterable[NodeReport],
        wall_ms: int,
        stamped_ms: int | None = None,
    ) -> tuple[RejectedEvent | None, int]:
        """The reports of one record, one after the other, until the decision is full. Why the record is to be set
        aside, or None (the reports that have nothing to do with that count); and how many of them were heard.
        """
        stray, heard = None, 0
        for report in reports:
            heard += 1
            found = self.hear(decision, cell, report, wall_ms, stamped_ms)
            stray = stray or found
            if decision.bytes >= decision.room:
                break
        return stray, heard

    def hear_runs(
        self, decision: DecisionBuilder, words: Iterable[RunStatusUpdate], wall_ms: int, stamped_ms: int | None = None
    ) -> tuple[RejectedEvent | None, int]:
        """The words of one record, one after the other, until the decision is full. Why the record is to be set aside,
        or None (the words that have nothing to do with that count); and how many of them were heard.
        """
        known, room, most, stray, heard = decision.state.nodes, decision.room, strays.number_max(stamped_ms), None, 0
        for heard, word in enumerate(words, 1):  # noqa: B007 - how many were heard is told
            node = known.get(word.node)
            if word.seq > most:
                stray = stray or strays.of_far_number(word, most)
            elif node is None:
                stray = stray or strays.of_no_node(decision.state, word.node)
            elif self._is_news(decision, word, node, wall_ms, most) and not runs.note_word(decision, word):
                self._past[StaleReason.RUN_OVER] += 1
            if decision.bytes >= room:
                break
        return stray, heard

    def _is_news(self, decision: DecisionBuilder, word: Word, node: Node | None, wall_ms: int, most: int) -> bool:
        if node is None:
            past = self.sequences.past(word, None, most=most)
        else:
            is_lost = node.status is _LOST
            past = self.sequences.past(word, node.boot, seq=node.seq, is_lost=is_lost, most=most)
        if past is not None:
            self._past[past] += 1
            return False
        if node is not None:
            self.leases.heard(word.node, wall_ms)
            if node.silent_wall_ms:
                has_lapsed = node.silent_wall_ms > self.leases.patience_ms(decision.state, word.node)
                quarantine.heard(decision, node, has_lapsed=has_lapsed and not isinstance(word, NodeLost))
        return True


def _handle(decision: DecisionBuilder, event: NodeEvent) -> RejectedEvent | None:
    """Do what a node's word asks for. Why it is to be set aside, or None."""
    match event:
        case NodeJoined():
            nodes.join(decision, event)
        case NodeReport() | NodeReturned():
            nodes.report(decision, event)
        case NodeLost():
            nodes.said_lost(decision, event)
        case DeviceFailed():
            nodes.device_failed(decision, event)
        case RunStarted() | RunStopped() | RunFinished() | RunFailed():
            runs.note_run(decision, event)
        case RunProgressed():
            pass  # how far a run has come decides nothing
        case _:
            return strays.of_unknown_type(event)
    return None
