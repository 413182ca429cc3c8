"""What a person is told of nodes that are silent or lost: since when, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.cli.moments import CALENDAR_FROM_MS, duration, moment
from services.placement.policy.breaker import are_too_many, counts
from services.placement.policy.leases import patience_ms
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.events.operations import CellPolicy
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
        yield silent_since(node, state.policy, is_held=is_held)
    yield from _more(silent, "silent")
    if silent and is_held:
        yield breaker_line(state)


def _more(nodes: Sequence[Node], what: str) -> Iterator[str]:
    more = len(nodes) - NAMED_MOST
    if more > 0:
        yield f"{more} more {'node is' if more == 1 else 'nodes are'} {what}."


def lost_since(node: Node) -> str:
    """Since when a node is lost."""
    when = "" if node.lost_ms is None else f" since {moment(node.lost_ms)}"
    return f"Node {node.id} has been lost{when}."


def silent_since(node: Node, policy: CellPolicy, *, is_held: bool) -> str:
    """Since when a node is silent, and when it is declared lost."""
    patience = patience_ms(policy)
    if node.silence_noted_ms >= CALENDAR_FROM_MS:
        since_ms = node.silence_noted_ms - node.silent_wall_ms
        since, due = f"since {moment(since_ms)}", f"at {moment(since_ms + patience)}"
    else:
        # Cell time that is no calendar's may run at another speed than a node's lease.
        since, due = f"for {duration(node.silent_wall_ms)} or more", f"after {duration(patience)} of silence"
    end = f"{due} at the earliest" if is_held else f"{due} unless it reports before"
    return f"Node {node.id} has been silent {since} and gets no new work; it is declared lost {end}."


def holds_losses_back(state: CellState) -> bool:
    """Whether so many nodes are silent that they are declared lost at a limited rate."""
    living = sum(node.status is not NodeStatus.LOST and counts(node) for node in state.nodes.values())
    silent = sum(counts(state.nodes[node_id]) for node_id in state.silent)
    return state.evictions is not None or are_too_many(silent, living)


def breaker_line(state: CellState) -> str:
    """How losses are held back."""
    policy = state.policy
    wait, rate = duration(policy.breaker_wait_wall_ms), policy.breaker_nodes_per_minute
    return (
        f"{len(state.silent)} nodes are silent at once, so they are declared lost only after {wait}, and then at most "
        f"{rate} in a minute. If a node is powered off, run: fallow node lost NODE"
    )
