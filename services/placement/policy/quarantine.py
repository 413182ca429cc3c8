"""Nodes that are taken out of use by themselves, visibly: an operator's uncordon lifts it.

One on which one job after another fails stays out until then. Counted is what different jobs did: a job that is tried
again on the same node counts once, so do all elements of an array, and what ends well begins the row anew. A loss by
infrastructure is no failure.

One that is silent beyond its lease and back, again and again, is out for a time that doubles with each further loss.
Losses count together that come within an hour of each other, or of the end of its quarantine. Counted are leases that
ran out: neither a new boot, nor what an operator declares lost.

Jobs fail for reasons of their own, and networks break for many nodes at once. So no more than a tenth of a pool (and at
least one node) is taken out. All counts are in the log: a new writer goes on with them.
"""

from __future__ import annotations

from services.placement.policy.known_node import become
from services.placement.policy.turn import Turn
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.events.base import later
from shared.events.effects import NodeChanged, NodeFailures
from shared.events.value import replace
from shared.events.values import NodeStatus

FAILURES = 5
"""So many different jobs must fail on a node in a row."""

FLAPS = 3
"""So many times in a row a node must be lost."""

FLAPS_MOST = 1_000
NEAR_MS = 3_600_000
"""Losses with less than this between them are in a row."""

REST_MS, REST_MS_MOST = 600_000, 86_400_000
"""How long the first quarantine of a node that flaps lasts, and the longest one."""

AGAIN_MS = 60_000
"""After so long a node is looked at again whose quarantine ended while it was in maintenance."""

POOL_PERCENT_MOST = 10
"""The part of a pool's nodes that may be in quarantine."""


def judge(turn: Turn) -> None:
    """Put down what this turn has settled, and take out the nodes whose row is full with it."""
    for node_id, row in _rows(turn).items():
        node = turn.state.nodes[node_id]
        if row == node.failed_jobs:
            continue
        if len(row) >= FAILURES and node.status is NodeStatus.READY and _has_room(turn.state, node):
            turn.do(_failing(node, row))
        else:
            turn.do(NodeFailures(node=node_id, jobs=row))


def _rows(turn: Turn) -> dict[str, tuple[str, ...]]:
    """The rows of the nodes on which something ended in this turn, with these ends."""
    rows: dict[str, tuple[str, ...]] = {}
    for end in turn.ended:
        node = turn.state.nodes.get(end.node)
        if node is None:
            continue
        row = rows.get(end.node, node.failed_jobs)
        if end.is_good and not row:
            continue
        if end.is_good:
            row = ()
        elif end.cause not in row:
            row = (*row, end.cause)[-FAILURES:]
        rows[end.node] = row
    return rows


def flaps_after(node: Node, now_ms: int) -> tuple[int, int]:
    """How many times in a row the node is lost with this time, and until when it is not to be used if it comes back."""
    if node.in_maintenance or not (node.wanted is NodeStatus.READY or node.quarantined):
        return node.flaps, node.rests_until_ms
    is_near = node.flaps > 0 and now_ms < later(node.rests_until_ms, NEAR_MS)
    flaps = min(node.flaps + 1, FLAPS_MOST) if is_near else 1
    rest_ms = 0 if flaps < FLAPS else min(REST_MS << min(flaps - FLAPS, 40), REST_MS_MOST)
    return flaps, later(now_ms, rest_ms)


def back(state: CellState, node: Node, now_ms: int) -> tuple[NodeStatus, str, bool, int | None]:
    """What a lost node becomes when it comes back: its status, the reason, and its quarantine."""
    until_ms = node.quarantined_until_ms
    if node.quarantined and rest_is_over(node, now_ms):
        return NodeStatus.READY, "", False, None
    is_free = node.wanted is NodeStatus.READY or (node.quarantined and until_ms is not None)
    if is_free and node.rests_until_ms > now_ms and (node.quarantined or _has_room(state, node)):
        reason = f"quarantined: it was lost {node.flaps} times in a row, with less than an hour between"
        return NodeStatus.CORDONED, reason, True, node.rests_until_ms
    return node.wanted, node.reason, node.quarantined, until_ms


def rest_is_over(node: Node, now_ms: int) -> bool:
    """Whether the time of a lost node's quarantine is over, so that it may be used when it comes back."""
    until_ms = node.quarantined_until_ms
    return until_ms is not None and until_ms <= now_ms and node.rests_until_ms <= now_ms


def lift(turn: Turn, node: Node | None) -> int | None:
    """The time of a node's quarantine may be over. When to look again, or None."""
    until_ms = None if node is None else node.quarantined_until_ms
    if node is None or until_ms is None or node.status is NodeStatus.LOST:
        return None  # a lost node is looked at when it comes back
    if turn.now_ms < until_ms:
        return until_ms
    if node.status is not NodeStatus.CORDONED:
        return turn.now_ms + AGAIN_MS
    turn.do(become(node, NodeStatus.READY))
    return None


def _has_room(state: CellState, node: Node) -> bool:
    pool = [other for other in state.nodes.values() if other.pool == node.pool]
    return sum(other.quarantined for other in pool) < max(1, len(pool) * POOL_PERCENT_MOST // 100)


def _failing(node: Node, row: tuple[str, ...]) -> NodeChanged:
    named = ", ".join(row)
    if len(named) > 300:  # noqa: PLR2004 - a reason has at most 500 characters
        named = f"{named[:300]}..."
    reason = f"quarantined: {len(row)} different jobs in a row failed here: {named}"
    return replace(become(node, NodeStatus.CORDONED), reason=reason, quarantined=True)
