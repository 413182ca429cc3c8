"""Which nodes are silent, and beyond their lease. Times are wall time since any origin, as the writer measured them.

A node is silent only as far as topic `nodes` is read: a lease runs out as of the moment at which the shell asked where
the topic ends, once all before that end is taken in. So neither lag nor a log that is away kills a node. Time in which
the writer did not listen counts for no node.

A node goes by the lease that its last word told, and is lost by that one: policies change while it is cut off.

Silence is put into the log as it grows (`NodeSilent`), so that a writer that takes over goes on counting there; of
nodes whose silence was still short it learns from what topic `nodes` holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes.earlier_reports import EarlierReports
from fallow.services.placement.lifecycle.nodes.listening import Listening
from fallow.shared.cluster.model.lease import longest_patience_ms, longest_told_ms, patience_ms
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.effects import PolicySet
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.nodes import LivingNode
from fallow.shared.events.operations import CellPolicy

SILENT_PART, STEP_PART, LEFT_PART = 2, 4, 8
"""A node counts as silent after this part of its lease, and its silence is put down again after each such step. A
writer that leaves puts down the silence of nodes that it has never heard from the third part on: writers that take
turns often would each find it too short to be told.
"""


class Leases:
    """When each node was last heard of by this writer.

    No living node was heard of before `_oldest_ms`, so all of them are looked at seldom. `_suspects` were silent when
    all were looked at last, which was as of `_looked_ms`. `_told_ms` is the patience that each node's own lease asks
    for, as far as this writer has heard it.
    """

    def __init__(self) -> None:
        self.listening = Listening()
        self._heard_ms: dict[str, int] = {}
        self._told_ms: dict[str, int] = {}
        self._oldest_ms = 0
        self._looked_ms: int | None = None
        self._suspects: list[str] = []

    def begin(self, state: CellState, wall_ms: int) -> None:
        """Every lease starts now, or where the log says that its node is silent: for a writer that takes over."""
        self.listening, self._told_ms = Listening(wall_ms), {}
        self._heard_ms = {node_id: wall_ms - state.nodes[node_id].silent_wall_ms for node_id in sorted(state.nodes)}
        self._oldest_ms = min(self._heard_ms.values(), default=wall_ms)
        self._looked_ms, self._suspects = None, []

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._heard_ms

    def nodes(self) -> Iterable[str]:
        """The nodes that have a lease."""
        return self._heard_ms.keys()

    def enter_all(self, state: CellState, wall_ms: int) -> None:
        """Give every node of the state a lease, whichever writer recorded it; those that have one keep it."""
        heard = self._heard_ms
        for node_id in state.nodes:
            if node_id not in heard:
                heard[node_id] = wall_ms

    def heard(self, node_id: str, wall_ms: int) -> None:
        """The node lives."""
        self._heard_ms[node_id] = wall_ms

    def told(self, decision: DecisionBuilder, word: LivingNode) -> None:
        """The node goes by this lease from here on. That it is longer than those of which some node may go by one has
        to be in the log, for other writers, but no longer one than any policy has named: no other node goes by that.
        """
        if not word.node_lease_wall_ms:
            self._told_ms.pop(word.node, None)  # an older release: it may have read any policy that there was
            return
        patience = self._told_ms[word.node] = min(patience_ms(word), LARGEST_INTEGER)
        longest_ms = min(patience, longest_told_ms(decision.state))
        if longest_ms > longest_patience_ms(decision.state):
            decision.emit(PolicySet(policy=decision.state.policy, longest_patience_ms=longest_ms))

    def patience_ms(self, state: CellState, node_id: str) -> int:
        """The node is lost when it is silent for longer: its own lease holds until it has run out, and a longer one of
        the policy counts at once. One whose lease is not known may have the longest.
        """
        told_ms = self._told_ms.get(node_id)
        return longest_patience_ms(state) if told_ms is None else max(told_ms, patience_ms(state.policy))

    def all_go_by(self, state: CellState) -> bool:
        """Whether every living node has told that its lease is not longer than the policy's."""
        told, max_ms = self._told_ms, patience_ms(state.policy)
        return all(told.get(node_id, max_ms + 1) <= max_ms for node_id in self._heard_ms if _lives(state, node_id))

    def asked(self, state: CellState, end: int, asked_ms: int) -> None:
        """Topic `nodes` ended at this offset when the shell asked."""
        self.listening.asked(end, asked_ms, pause_ms(state.policy))

    def learn(self, earlier: EarlierReports, as_of_ms: int) -> None:
        """What topic `nodes` held up to this moment: it counts of nodes that this writer has not heard itself. Time
        that was missed since counts for no node, as for those that it has heard.
        """
        missed_ms = self.listening.missed_ms
        heard, begun_ms = self._heard_ms, self.listening.begun_ms + missed_ms
        for node_id, heard_ms in heard.items():
            if heard_ms <= begun_ms:
                heard[node_id] = min(heard_ms, as_of_ms - earlier.silent_ms(node_id) + missed_ms)
        self._oldest_ms = min(heard.values(), default=as_of_ms)
        self._looked_ms = None

    def took_in(self, next_offset: int) -> None:
        """Every record of topic `nodes` before this offset is taken in. Time that was missed counts for no node."""
        missed_ms, as_of_ms = self.listening.took_in(next_offset), self.listening.as_of_ms
        if missed_ms and as_of_ms is not None:
            heard = self._heard_ms
            for node_id, heard_ms in heard.items():
                heard[node_id] = max(heard_ms, min(as_of_ms, heard_ms + missed_ms))
            self._oldest_ms = min(heard.values(), default=as_of_ms)

    def silent(self, state: CellState) -> dict[str, int]:
        """The nodes that are silent, by id, and for how long."""
        as_of_ms = self.listening.as_of_ms
        if as_of_ms is None:
            return {}
        latest_ms = as_of_ms - silent_after_ms(state.policy)
        if self._looked_ms != as_of_ms and self._oldest_ms < latest_ms:
            self._look_at_all(state, as_of_ms, latest_ms)
        heard, margin_ms = self._heard_ms, state.policy.lease_margin_wall_ms
        return {
            node_id: as_of_ms - heard[node_id]
            for node_id in self._suspects
            if heard.get(node_id, as_of_ms) < latest_ms
            and _lives(state, node_id)
            and as_of_ms - heard[node_id] > (self.patience_ms(state, node_id) - margin_ms) // SILENT_PART
        }

    def unheard(self, state: CellState) -> dict[str, int]:
        """For a writer that leaves: the nodes that it has never heard, and for how long they are silent."""
        as_of_ms = self.listening.as_of_ms
        if as_of_ms is None:
            return {}
        begun_ms = self.listening.begun_ms + self.listening.missed_ms
        latest_ms = min(begun_ms, as_of_ms - max(1, state.policy.node_lease_wall_ms // LEFT_PART))
        heard = self._heard_ms
        return {
            node_id: as_of_ms - heard[node_id]
            for node_id in sorted(heard)
            if heard[node_id] <= latest_ms and _lives(state, node_id)
        }

    def _look_at_all(self, state: CellState, as_of_ms: int, latest_ms: int) -> None:
        heard = self._heard_ms
        living = [node_id for node_id in heard if _lives(state, node_id)]
        self._looked_ms = as_of_ms
        self._oldest_ms = min((heard[node_id] for node_id in living), default=as_of_ms)
        self._suspects = sorted(node_id for node_id in living if heard[node_id] < latest_ms)

    @property
    def listened_ms(self) -> int:
        """For how long nodes were listened to, since any origin."""
        return (self.listening.as_of_ms or 0) - self.listening.missed_ms

    def forget(self, node_id: str) -> None:
        """The node is no longer in the log."""
        self._heard_ms.pop(node_id, None)
        self._told_ms.pop(node_id, None)


def pause_ms(policy: CellPolicy) -> int:
    """Time in which topic `nodes` was not looked at for longer, or took no record, counts for no node."""
    return policy.node_lease_wall_ms // 2


def silent_after_ms(policy: CellPolicy) -> int:
    """For how long a node may say nothing before it gets no new work."""
    return max(1, policy.node_lease_wall_ms // SILENT_PART)


def is_to_be_noted(node: Node, silent_ms: int, patience: int, policy: CellPolicy) -> bool:
    """Whether the node's silence has grown by so much that the log shall know of it; not beyond its lease's end."""
    noted_ms = node.silent_wall_ms
    if not noted_ms or noted_ms > patience:
        return not noted_ms
    return silent_ms > patience or silent_ms >= noted_ms + max(1, policy.node_lease_wall_ms // STEP_PART)


def _lives(state: CellState, node_id: str) -> bool:
    node = state.nodes.get(node_id)
    return node is not None and node.status is not NodeStatus.LOST
