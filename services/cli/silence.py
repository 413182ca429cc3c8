"""What a person is told of nodes that are silent or lost: since when, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.cli.moments import CALENDAR_FROM_MS, duration, moment
from services.placement.policy.breaker import are_too_many, counts
from services.placement.policy.leases import patience_ms
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.events.values import NodeStatus

NAMED_MOST = 5
"""So many lost nodes are told of, and as many silent ones, each in a line of its own."""


def silence_lines(state: CellState, nodes: Sequence[Node]) -> Iterator[str]:
    """One sentence for each of these nodes that is lost or silent, and one where the breaker holds losses back."""
    lost = [node for node in nodes if node.status is NodeStatus.LOST]
    silent = [node for node in nodes if node.status is not NodeStatus.LOST and node.silent_wall_ms]
    is_held = holds_losses_back(state)
    for node in lost[:NAMED_MOST]:
        yield lost_since(node)
    yield from _more(lost, "lost")
    for node in silent[:NAMED_MOST]:
        yield silent_since(node, state, is_held=is_held)
    yield from _more(silent, "silent")
    if silent and is_held:
        yield breaker_line(state)


def _more(nodes: Sequence[Node], what: str) -> Iterator[str]:
    more = len(nodes) - NAMED_MOST
    if more > 0:
        yield f"{more} more {'node is' if more == 1 else 'nodes are'} {what}."


def silence(node: Node, now_ms: int) -> str:
    """For how long nothing has been heard of a silent node by now, wall time; empty where it is lost."""
    if node.status is NodeStatus.LOST or not node.silent_wall_ms:
        return ""
    if node.silence_noted_ms < CALENDAR_FROM_MS:
        return f"silent {duration(node.silent_wall_ms)} or more"
    return f"silent {duration(node.silent_wall_ms + max(0, now_ms - node.silence_noted_ms))}"


def lost_since(node: Node) -> str:
    """Since when a node is lost."""
    when = "" if node.lost_ms is None else f" since {moment(node.lost_ms)}"
    return f"Node {node.id} has been lost{when}."


def silent_since(node: Node, state: CellState, *, is_held: bool) -> str:
    """Since when a node is silent, and when it is declared lost."""
    patience = patience_ms(state.policy)
    if node.silence_noted_ms >= CALENDAR_FROM_MS:
        since_ms = node.silence_noted_ms - node.silent_wall_ms
        due_ms = _held_until_ms(state, since_ms + patience) if is_held else since_ms + patience
        since, due = f"since {moment(since_ms)}", f"at {moment(due_ms)}"
        if is_held and due_ms <= state.at_ms:
            return f"Node {node.id} has been silent {since} and gets no new work; it is declared lost in its turn."
    else:
        # Cell time that is no calendar's may run at another speed than a node's lease.
        least = patience + (state.policy.breaker_wait_wall_ms if is_held else 0)
        since, due = f"for {duration(node.silent_wall_ms)} or more", f"after {duration(least)} of silence"
    end = f"{due} at the earliest" if is_held else f"{due} unless it reports before"
    return f"Node {node.id} has been silent {since} and gets no new work; it is declared lost {end}."


def _held_until_ms(state: CellState, due_ms: int) -> int:
    """When a node that is due then may be lost: the wait begins with the first that is due."""
    wait_ms = state.policy.breaker_wait_wall_ms
    if state.evictions is None:
        return due_ms + wait_ms
    return max(due_ms, state.at_ms - state.evictions.held_wall_ms + wait_ms)


def holds_losses_back(state: CellState) -> bool:
    """Whether so many nodes are silent that they are declared lost at a limited rate."""
    living = sum(node.status is not NodeStatus.LOST and counts(node) for node in state.nodes.values())
    silent = sum(counts(state.nodes[node_id]) for node_id in state.silent)
    return state.evictions is not None or are_too_many(silent, living)


def breaker_line(state: CellState) -> str:
    """How losses are held back."""
    policy = state.policy
    wait, rate = duration(policy.breaker_wait_wall_ms), policy.breaker_nodes_per_minute
    silent = f"{len(state.silent)} nodes are silent at once, so they are"
    if len(state.silent) == 1:
        silent = "1 node is silent, so it is"
    return (
        f"{silent} declared lost only after {wait}, and then at most "
        f"{rate} in a minute. If a node is powered off, run: fallow node lost NODE"
    )
