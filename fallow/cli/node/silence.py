"""The message about nodes that are silent or lost: since when, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fallow.cli.output.counts import counted
from fallow.cli.output.durations import duration, moment
from fallow.services.placement.lifecycle.nodes.breaker import counts, holds_losses_back
from fallow.shared.cluster.model.lease import longest_patience_ms
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import CALENDAR_FROM_MS
from fallow.shared.events.fields.values import NodeStatus

NAMED_MAX = 5
"""So many lost nodes are told of, and as many silent ones, each in a line of its own."""


def silence_lines(state: CellState, nodes: Sequence[Node]) -> Iterator[str]:
    """One sentence for each of these nodes that is lost or silent, and one where the breaker holds losses back."""
    lost = [node for node in nodes if node.status is NodeStatus.LOST]
    silent = [node for node in nodes if node.status is not NodeStatus.LOST and node.silent_wall_ms]
    is_held = holds_losses_back(state)
    for node in lost[:NAMED_MAX]:
        yield lost_since(node)
    yield from _more(lost, "lost")
    for node in silent[:NAMED_MAX]:
        yield silent_since(node, state, is_held=is_held)
    yield from _more(silent, "silent")
    if silent and is_held:
        yield breaker_line(state)


def _more(nodes: Sequence[Node], what: str) -> Iterator[str]:
    more = len(nodes) - NAMED_MAX
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
    patience = longest_patience_ms(state)
    if node.silence_noted_ms >= CALENDAR_FROM_MS:
        since_ms = node.silence_noted_ms - node.silent_wall_ms
        due_ms = _held_until_ms(state, since_ms + patience) if is_held else since_ms + patience
        since, due = f"since {moment(since_ms)}", f"at {moment(due_ms)}"
        if is_held and due_ms <= state.at_ms:
            end = "it is declared lost as soon as the limit lets it be"
            return f"Node {node.id} has been silent {since} and gets no new work; {end}."
    else:
        # Cell time that is no calendar's may run at another speed than a node's lease.
        least = patience + (state.policy.breaker_wait_wall_ms if is_held else 0)
        since, due = f"for {duration(node.silent_wall_ms)} or more", f"after {duration(least)} of silence"
    end = f"{due} at the earliest" if is_held else f"{due} unless it reports before"
    return f"Node {node.id} has been silent {since} and gets no new work; it is declared lost {end}."


def _held_until_ms(state: CellState, due_ms: int) -> int:
    """When a node that is due then may be lost: each has its own wait."""
    wait_ms = state.policy.breaker_wait_wall_ms
    if state.evictions is None:
        return due_ms + wait_ms
    return max(due_ms, state.at_ms - state.evictions.held_wall_ms) + wait_ms


def breaker_line(state: CellState) -> str:
    """How losses are held back, as one says it to an operator."""
    policy, held = state.policy, state.evictions
    silent = f"{counted(sum(counts(state.nodes[node_id]) for node_id in state.silent), 'node')} silent"
    rate = f"{counted(policy.breaker_nodes_per_minute, 'node')} a minute"
    if held is not None and held.held_wall_ms >= policy.breaker_wait_wall_ms:
        how = f"node loss limited to {rate}"
    else:
        how = f"node loss paused for {duration(policy.breaker_wait_wall_ms)}, then limited to {rate}"
    return f"{silent}; {how}. If a node is powered off, run: fallow node lost NODE"
