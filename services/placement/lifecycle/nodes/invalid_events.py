"""Events of a node that make no sense: each is set aside with a reason, for a person to look at."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.services.placement.lifecycle.nodes.event_dedup import Word
from fallow.shared.cluster.model.config import CellPart
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import LARGEST_INTEGER, TEXT_CHARACTERS_MAX, Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import LABELS_MAX, TAINTS_MAX
from fallow.shared.events.nodes import SEQ_AHEAD_WALL_MS, DeviceFailed, NodeEvent, NodeJoined, NodeReport, seq_max
from fallow.shared.events.reasons import DeadLetterReason

NODE_BYTES_MAX = 64_000
"""What a node may tell of itself. It stands in each record of a change of the node, of which many may come at once."""


NODES_MAX = 50_000
"""So many nodes a cell may have, lost ones included. Each stands in the state of every reader and in each snapshot."""


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """Why an input is set aside. `is_news`: what else it says still counts."""

    reason: DeadLetterReason
    text: str
    is_news: bool = False


def stray(state: CellState, cell: CellPart, event: NodeEvent) -> RejectedEvent | None:
    """Why this word of a node is to be set aside, or None."""
    if isinstance(event, NodeJoined):
        return _too_much(state, event) or _of_no_pool(cell, event)
    node = state.nodes.get(event.node)
    if node is None:
        return of_no_node(state, event.node)
    if node.boot != event.boot:
        return None
    for device in _devices_of(event):
        if device >= node.spec.gpus:
            text = f"device: {device} is none of the {node.spec.gpus} of node {node.id}"
            return RejectedEvent(DeadLetterReason.UNKNOWN_DEVICE, text, is_news=True)
    return None


def of_unknown_type(event: Event) -> RejectedEvent:
    """What placement has no use for."""
    return RejectedEvent(DeadLetterReason.UNKNOWN_TYPE, f"ce_type: placement reads no {event.type}")


def number_max(stamped_ms: int | None) -> int:
    """The largest number that a word may have in a record with this stamp of the broker; any, where none is known."""
    return LARGEST_INTEGER if stamped_ms is None else seq_max(stamped_ms)


def of_far_number(word: Word, most: int) -> RejectedEvent:
    """A word with a number above the largest one that its record may have. Were it taken, the node's own words would be
    older than it for as long as the node lives in this boot.
    """
    hours = SEQ_AHEAD_WALL_MS // 3_600_000
    text = f"seq: {word.seq} of node {word.node} is above {most}, {hours} h ahead of the broker's stamp"
    return RejectedEvent(DeadLetterReason.SEQUENCE_TOO_FAR, text)


def of_no_node(state: CellState, node_id: str) -> RejectedEvent:
    """A word of a node that never joined."""
    return RejectedEvent(DeadLetterReason.UNKNOWN_NODE, f"node: {node_id} has not joined cell {state.cell}")


def _devices_of(event: NodeEvent) -> tuple[int, ...]:
    if isinstance(event, NodeReport):
        return event.failed_devices
    return (event.device,) if isinstance(event, DeviceFailed) else ()


def _too_much(state: CellState, event: NodeJoined) -> RejectedEvent | None:
    """Why no cell takes a node of this description, or this cell no further node."""
    spec = event.spec
    for field, count, most in (("labels", len(spec.labels), LABELS_MAX), ("taints", len(spec.taints), TAINTS_MAX)):
        if count > most:
            text = f"spec.{field}: {count}, a node has at most {most} {field}"
            return RejectedEvent(DeadLetterReason.TOO_MANY_LABELS, text)
    if event.node not in state.nodes and len(state.nodes) >= NODES_MAX:
        text = f"node: {event.node} is one more than the {NODES_MAX} nodes that cell {state.cell} may have"
        return RejectedEvent(DeadLetterReason.TOO_MANY_NODES, text)
    return None


def _of_no_pool(cell: CellPart, event: NodeJoined) -> RejectedEvent | None:
    spec, size_bytes = event.spec, len(encode(event.spec))
    if spec.id != event.node:
        return RejectedEvent(DeadLetterReason.INVALID, f"spec.id: {spec.id} is not node {event.node}, which joins")
    if size_bytes > NODE_BYTES_MAX:
        text = f"spec: {size_bytes} bytes, a node has at most {NODE_BYTES_MAX} with all of its labels"
        return RejectedEvent(DeadLetterReason.TOO_LARGE, text)
    for pool in cell.pools:
        if pool.name != spec.pool:
            continue
        if not pool.admits(event.node):
            text = f"node: {event.node} may not join pool {pool.name}, which takes {', '.join(pool.nodes)}"
            return RejectedEvent(DeadLetterReason.NODE_NOT_ALLOWED, text[:TEXT_CHARACTERS_MAX])
        if spec.gpus > pool.gpus_per_node:
            text = f"spec.gpus: {spec.gpus}, a node of pool {pool.name} has at most {pool.gpus_per_node}"
            return RejectedEvent(DeadLetterReason.LARGER_THAN_POOL, text)
        return None
    return RejectedEvent(DeadLetterReason.UNKNOWN_POOL, f"spec.pool: {spec.pool} is not a pool of cell {cell.name}")
