"""When many nodes fall silent at once, they are more likely cut off than dead. So nothing is declared lost for a while,
and then only so many nodes in a minute, until none is overdue any more. The wait is each node's own: one that falls
silent later is lost later, however long others are held already. Of the nodes whose wait is over those that hold jobs
are lost first, and among them the ones that are silent for longest. The rate adds nothing up while no node's wait is
over. Nodes report at times of their own, so their leases run out one by one: all that are
silent count, and those that were lost of late.

A node that is out of use says nothing of the network: one in maintenance, or one without jobs that gets none. Such
nodes do not count, neither as silent nor as living, and their loss waits for nothing.

How long that has gone on stands in the log, and when each node was lost, so that a writer that takes over goes on
there. It goes by the time in which topic `nodes` was read, as leases do.
"""

from __future__ import annotations

from collections.abc import Iterable

from fallow.shared.cluster.model.lease import patience_ms
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import EvictionsHeld, EvictionsResumed
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import CellPolicy

BREAKER_PERCENT = 20
BREAKER_NODES = 3

STEP_MS = 2_000
"""After so much more of it a new writer tells the log for how long it has gone on: it may live for a few seconds."""

YOUNG_MS, LATER_STEP_MS = 10_000, 20_000
"""A writer that has held nodes for longer than the first tells of it only after each of the second."""

_MINUTE_MS = 60_000


class Breaker:
    """Lets nodes that are silent beyond their lease be lost one by one. `_begun_ms` is when it began to hold them;
    `_let_go` are nodes that it let be lost of late, and when (None: it has not read off the state yet which ones those
    are). `_speed` is how fast cell time goes by beside wall time.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed
        self._begun_ms: int | None = None
        self._young_until_ms = 0
        self._let_go: dict[str, int] | None = None

    def judge(
        self,
        state: CellState,
        silent: dict[str, int],
        overdue: dict[str, int],
        patience: dict[str, int],
        listened_ms: int,
    ) -> tuple[list[str], EvictionsHeld | EvictionsResumed | None]:
        """The nodes to be lost now, and what the log is to know of it. `silent` are all that get no new work and count,
        with their silence, and `overdue` those of them that are silent for longer than their `patience`; `listened_ms`
        is for how long nodes were listened to, since any origin.
        """
        held = state.evictions
        let_go = self._let_go_of_late(state, listened_ms)
        if not (overdue if held is not None else overdue and _are_too_many(state, silent, let_go)):
            self._begun_ms = None
            let_go.update(dict.fromkeys(overdue, listened_ms))
            return [*overdue], None if held is None else EvictionsResumed()
        if self._begun_ms is None or held is None:
            self._begun_ms = listened_ms - (0 if held is None else held.held_wall_ms)
            self._young_until_ms = listened_ms + YOUNG_MS
        held_ms, lost = listened_ms - self._begun_ms, 0 if held is None else held.lost
        waited = _waited(state, overdue, patience, held_ms)
        # Since when there is one to lose; the first of them waits for nothing more.
        since_ms = held_ms - max(waited.values(), default=0) - _takes_ms(1, state.policy)
        paced_ms = since_ms if held is None else max(held.paced_wall_ms, since_ms)
        may_be_lost = min(
            (held_ms - paced_ms) * state.policy.breaker_nodes_per_minute // _MINUTE_MS, _at_once_max(state)
        )
        now = _in_turn(state, overdue, waited)[:may_be_lost] if may_be_lost else []
        step_ms = STEP_MS if listened_ms <= self._young_until_ms else LATER_STEP_MS
        if now or held is None or held_ms >= held.held_wall_ms + step_ms:
            told = EvictionsHeld(silent=len(overdue), held_wall_ms=held_ms, lost=lost, paced_wall_ms=paced_ms)
            return now, with_lost(told, len(now), state.policy)
        return [], None

    def held_ms(self, listened_ms: int) -> int:
        """For how long losses are held back by now; 0: they are not."""
        return 0 if self._begun_ms is None else listened_ms - self._begun_ms

    def _let_go_of_late(self, state: CellState, listened_ms: int) -> dict[str, int]:
        known = self._from_state(state, listened_ms) if self._let_go is None else self._let_go
        since_ms = listened_ms - of_late_ms(state)
        self._let_go = {
            node_id: at_ms
            for node_id, at_ms in known.items()
            if at_ms > since_ms and node_id in state.nodes and state.nodes[node_id].lost_alone
        }
        return self._let_go

    def _from_state(self, state: CellState, listened_ms: int) -> dict[str, int]:
        """What writers before this one let be lost: as long ago as the log tells by its cell times."""
        return {node_id: listened_ms - ago_ms for node_id, ago_ms in _lost_ago_ms(state, self._speed).items()}


def holds_losses_back(state: CellState, speed: float = 1.0) -> bool:
    """Whether the next nodes whose leases run out are lost at a limited rate, as far as the log tells: for people."""
    silent = {node_id: 0 for node_id in sorted(state.silent) if counts(state.nodes[node_id])}
    let_go = {node_id: ago_ms for node_id, ago_ms in _lost_ago_ms(state, speed).items() if ago_ms < of_late_ms(state)}
    return state.evictions is not None or _are_too_many(state, silent, let_go)


def of_late_ms(state: CellState) -> int:
    """For how long a node that was lost for its silence counts beside those that are silent."""
    return max(patience_ms(state.policy), state.policy.breaker_wait_wall_ms)


def _lost_ago_ms(state: CellState, speed: float) -> dict[str, int]:
    """The nodes that were lost for their silence while few others were silent, and how long ago by the log."""
    return {
        node.id: int((state.at_ms - node.lost_ms) / speed)
        for node in state.nodes.values()
        if node.lost_alone and node.lost_ms is not None and _was_in_use(node)
    }


def counts(node: Node) -> bool:
    """Whether its silence tells of the network, and its loss has to wait for what it does to jobs."""
    return not node.is_out_for_maintenance and (node.status is NodeStatus.READY or bool(node.jobs))


def _was_in_use(node: Node) -> bool:
    """Whether a lost node was in use, as far as the log tells it afterwards."""
    return not node.in_maintenance and node.wanted is NodeStatus.READY


def _in_turn(state: CellState, overdue: dict[str, int], waited: Iterable[str]) -> list[str]:
    """Of the nodes whose wait is over those that hold jobs first, then by their silence, the longest first. Among
    equals by the submission of the oldest job that they hold, then as they joined: names decide nothing.
    """
    joined = {node_id: number for number, node_id in enumerate(state.nodes)}

    def turn_of(node_id: str) -> tuple[bool, int, int, int]:
        jobs = state.nodes[node_id].jobs
        oldest_ms = min((state.jobs[job_id].submit_ms for job_id in jobs), default=0)
        return not jobs, -overdue[node_id], oldest_ms, joined[node_id]

    return sorted(waited, key=turn_of)


def _are_too_many(state: CellState, silent: dict[str, int], let_go: dict[str, int]) -> bool:
    return are_too_many(len(silent) + len(let_go), _living(state) + len(let_go))


def are_too_many(silent: int, lived: int) -> bool:
    """Whether so many of the nodes that lived fell silent that they are not declared lost at once."""
    return silent >= BREAKER_NODES and silent * 100 > BREAKER_PERCENT * lived


def _at_once_max(state: CellState) -> int:
    """How many nodes one record may declare lost, however high the rate is."""
    return max(BREAKER_NODES - 1, BREAKER_PERCENT * _living(state) // 100)


def _living(state: CellState) -> int:
    return sum(node.status is not NodeStatus.LOST and counts(node) for node in state.nodes.values())


def _waited(state: CellState, overdue: dict[str, int], patience: dict[str, int], held_ms: int) -> dict[str, int]:
    """The nodes whose own wait is over, and for how long it has been: of those whose leases had run out when an earlier
    writer held them, that one's time counts too.
    """
    wait_ms = state.policy.breaker_wait_wall_ms
    over_ms = dict[str, int]()
    for node_id, silent_ms in overdue.items():
        node = state.nodes[node_id]
        lease_ms = patience[node_id]
        told_ms = held_ms - node.held_from_wall_ms if node.silent_wall_ms > lease_ms else 0
        over_ms[node_id] = min(max(silent_ms - lease_ms, told_ms), held_ms) - wait_ms
    return {node_id: ms for node_id, ms in over_ms.items() if ms >= 0}


def _takes_ms(nodes: int, policy: CellPolicy) -> int:
    return -(-nodes * _MINUTE_MS // policy.breaker_nodes_per_minute)


def with_lost(held: EvictionsHeld, nodes: int, policy: CellPolicy) -> EvictionsHeld:
    """So many more of the silent nodes are lost."""
    paced_ms = max(0, held.paced_wall_ms + _takes_ms(nodes, policy))
    return replace(held, silent=held.silent - nodes, lost=held.lost + nodes, paced_wall_ms=paced_ms)
