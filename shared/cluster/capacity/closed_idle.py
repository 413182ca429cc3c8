"""What is idle on nodes of a pool that take no new work, or that an exclusive job has alone, kept by delta. It is asked
for only where quotas keep something idle.
"""

from __future__ import annotations

from collections.abc import Iterable

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import NodeStatus

CLOSED_IDLE = "closed idle"
"""The name of this view of a pool."""


class ClosedIdle:
    """The idle milli-GPUs of the healthy devices of these nodes, lost ones aside; `alone_milli` of that on nodes that
    an exclusive job has alone. A node that has been given as much as it may have unconfirmed takes new work soon, and
    counts as one that does.
    """

    __slots__ = ("_of", "alone_milli", "is_stale", "milli")

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.is_stale, self.milli, self.alone_milli = False, 0, 0
        self._of: dict[str, tuple[int, int]] = {}
        for node in nodes:
            self.note(node, 0)

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        is_open = _is_open(node)
        if is_open and not self._of:
            return  # nearly always
        idle_milli = 0 if is_open or node.status is NodeStatus.LOST else node.idle_milli
        alone_milli = 0 if node.alone is None else idle_milli
        before = self._of.pop(node.spec.id, (0, 0))
        self.milli += idle_milli - before[0]
        self.alone_milli += alone_milli - before[1]
        if idle_milli:
            self._of[node.spec.id] = (idle_milli, alone_milli)


def _is_open(node: Node) -> bool:
    """Whether other jobs may come there as well."""
    return node.takes_work and node.offered is None and node.alone is None


def closed_idle(state: CellState, pool: PoolCapacity) -> ClosedIdle:
    """What is idle there now."""
    found = pool.views.get(CLOSED_IDLE)
    if not isinstance(found, ClosedIdle):
        found = pool.views[CLOSED_IDLE] = ClosedIdle(state.nodes[node_id] for node_id in pool.ids)
    return found


IDLE_BY_TYPE = "idle by type"
"""The name of this view of a pool that has GPUs of several types."""


class IdleByType:
    """The idle milli-GPUs of the healthy devices of these nodes by GPU type, without nodes that are lost or that an
    exclusive job has alone: `anywhere`, and on `open` nodes, which take new work.
    """

    __slots__ = ("_of", "anywhere", "is_stale", "open")

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.is_stale = False
        self.anywhere: dict[str, int] = {}
        self.open: dict[str, int] = {}
        self._of: dict[str, tuple[str, int, int]] = {}
        for node in nodes:
            self.note(node, 0)

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        self._count(self._of.pop(node.spec.id, ("", 0, 0)), -1)
        if node.status is not NodeStatus.LOST and node.alone is None:
            milli = node.idle_milli
            counted = self._of[node.spec.id] = (node.spec.gpu_type, milli, milli if _is_open(node) else 0)
            self._count(counted, 1)

    def _count(self, counted: tuple[str, int, int], sign: int) -> None:
        gpu_type, anywhere_milli, open_milli = counted
        self.anywhere[gpu_type] = self.anywhere.get(gpu_type, 0) + sign * anywhere_milli
        self.open[gpu_type] = self.open.get(gpu_type, 0) + sign * open_milli


def idle_by_type(state: CellState, pool: PoolCapacity) -> IdleByType:
    """What is idle there now."""
    found = pool.views.get(IDLE_BY_TYPE)
    if not isinstance(found, IdleByType):
        found = pool.views[IDLE_BY_TYPE] = IdleByType(state.nodes[node_id] for node_id in pool.ids)
    return found
