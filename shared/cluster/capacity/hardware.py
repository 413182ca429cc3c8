"""What the nodes of a pool are, in use or not: what they would hold if they were empty follows from that alone.

Nodes of one kind hold the same, and a pool has few kinds. So what is asked of all nodes is asked of each kind once, and
what came of it is remembered until a node comes, goes or becomes another one: a start changes nothing here.
"""

from __future__ import annotations

from typing import NamedTuple

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.first_kept import FirstKept
from fallow.shared.cluster.capacity.masks import mask_from
from fallow.shared.cluster.capacity.topology import OUTWARD, Path, path_of
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import Level, NodeSpec, NodeStatus

HARDWARE = "hardware"
"""The name of this view of a pool."""

CLOSED = (NodeStatus.CORDONED, NodeStatus.DRAINING)
"""A person has closed the node for new work, and a person opens it again."""

REMEMBERED_MAX, UNITS_MAX = 4_096, 256

LOOKS_TO_FIND_UNIT = 4
"""To find the unit of a node takes so long as to look at so many."""


class Kind(NamedTuple):
    """What decides how much a node holds when it is empty. Of its GPUs the healthy ones count."""

    gpus: int
    cpu_milli: int
    memory_mib: int
    gpu_type: str


class UnitsAlike(NamedTuple):
    """So many units of a level, each of which has so many nodes of each kind. `nodes` are all of these, as a mask over
    the pool's numbers from `first` on.
    """

    many: int
    kinds: dict[Kind, int]
    first: int
    nodes: int


class Hardware:
    """The nodes of a pool by their kinds, as masks over the pool's numbers; lost ones have none. `closed` are those
    that a person has closed for new work. `remembered` is what others have worked out from all this, by name: all of it
    is forgotten when it may be another, and then the `mark` is another one, too.
    """

    __slots__ = (
        "_failed",
        "_of",
        "_of_level",
        "_pool",
        "_seen",
        "_specs",
        "_types",
        "_units",
        "closed",
        "is_stale",
        "kinds",
        "mark",
        "remembered",
    )

    def __init__(self, pool: PoolCapacity, nodes: list[Node]) -> None:
        self._pool, self.is_stale = pool, False
        self._specs = [node.spec for node in nodes]
        self._failed = [node.failed for node in nodes]
        self._seen: dict[str, tuple[NodeSpec, NodeStatus, int]] = {}
        self._of = [_kind(node) for node in nodes]
        self.kinds: dict[Kind, int] = {}
        self.remembered = FirstKept[object, object](REMEMBERED_MAX)
        self._types: dict[str, None] | None = None
        self._units = FirstKept[tuple[Level, int], list[UnitsAlike]](UNITS_MAX)
        self._of_level: dict[Level, list[tuple[int, dict[Kind, int]]]] = {}
        self.mark = object()
        self.closed = mask_from([number for number, node in enumerate(nodes) if node.status in CLOSED], len(nodes))
        for number, kind in enumerate(self._of):
            if kind is not None:
                self.kinds[kind] = self.kinds.get(kind, 0) | 1 << number

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        seen = self._seen.get(node.spec.id)
        if seen is not None and node.spec is seen[0] and node.status is seen[1] and node.failed == seen[2]:
            return  # nearly always: it runs more or less
        number = self._pool.number(node.spec.id)
        self._seen[node.spec.id] = (node.spec, node.status, node.failed)
        if bool(self.closed >> number & 1) is not (node.status in CLOSED):
            self.closed ^= 1 << number
            self._forget()
        was_lost, is_lost = self._of[number] is None, node.status is NodeStatus.LOST
        if node.spec is self._specs[number] and node.failed == self._failed[number] and was_lost is is_lost:
            return
        if node.spec != self._specs[number]:
            self._forget()  # its labels or its place in the network may be others
            self._types = None
        self._specs[number], self._failed[number] = node.spec, node.failed
        before, now = self._of[number], _kind(node)
        if before != now:
            self._move(number, before, now)

    def _move(self, number: int, before: Kind | None, now: Kind | None) -> None:
        self._forget()
        self._of[number] = now
        if before is not None:
            left = self.kinds[before] ^ 1 << number
            if left:
                self.kinds[before] = left
            else:
                del self.kinds[before]
        if now is not None:
            self.kinds[now] = self.kinds.get(now, 0) | 1 << number

    def _forget(self) -> None:
        self.remembered.clear()
        self._units.clear()
        self._of_level.clear()
        self.mark = object()

    @property
    def types(self) -> dict[str, None]:
        """The GPU types of all nodes, in the order of the nodes' ids: nearly always one, more where nodes of another
        type are lent to the pool.
        """
        if self._types is None:
            self._types = dict.fromkeys(spec.gpu_type for spec in self._specs)
        return self._types

    def remember(self, name: object, what: object) -> None:
        """Keep what was worked out until a node becomes another one."""
        self.remembered.keep(name, what)

    def in_units(self, level: Level, among: int) -> list[UnitsAlike]:
        """The units of a level that have a name: which of these nodes are in each, and how many of which kind."""
        known = self._units.get((level, among))
        if known is None:
            known = self._alone(among) if level is Level.NODE else self._in_named(level, among)
            self._pool.effort.looks += len(known)
            self._units.keep((level, among), known)
        return known

    def _alone(self, among: int) -> list[UnitsAlike]:
        """Each node is a unit of its own."""
        found = [(kind, mask & among) for kind, mask in self.kinds.items()]
        return [UnitsAlike(mask.bit_count(), {kind: 1}, 0, mask) for kind, mask in found if mask]

    def _in_named(self, level: Level, among: int) -> list[UnitsAlike]:
        found = list[UnitsAlike]()
        for first, by_kind in self._named(level):
            here, kinds, nodes = among >> first, dict[Kind, int](), 0
            for kind, mask in by_kind.items():
                if mask & here:
                    kinds[kind] = (mask & here).bit_count()
                    nodes |= mask & here
            if nodes:
                found.append(UnitsAlike(1, kinds, first, nodes))
        return found

    def _named(self, level: Level) -> list[tuple[int, dict[Kind, int]]]:
        """The units of a level that have a name, with their nodes by kind: masks that begin with the unit's first."""
        found = self._of_level.get(level)
        if found is None:
            numbers: dict[Path, list[int]] = {}
            for number, spec in enumerate(self._specs):
                path = unit_of(spec, level)
                if path[-1] and self._of[number] is not None:
                    numbers.setdefault(path, []).append(number)
            self._pool.effort.looks += LOOKS_TO_FIND_UNIT * len(self._specs)
            found = self._of_level[level] = [(each[0], self._by_kind(each)) for each in numbers.values()]
        return found

    def _by_kind(self, numbers: list[int]) -> dict[Kind, int]:
        found: dict[Kind, int] = {}
        for number in numbers:
            kind = self._of[number]
            if kind is not None:
                found[kind] = found.get(kind, 0) | 1 << (number - numbers[0])
        return found


def hardware_of(state: CellState, pool: PoolCapacity) -> Hardware:
    """The index over the pool as it is now."""
    found = pool.views.get(HARDWARE)
    if not isinstance(found, Hardware):
        found = pool.views[HARDWARE] = Hardware(pool, [state.nodes[node_id] for node_id in pool.ids])
    return found


def _kind(node: Node) -> Kind | None:
    if node.status is NodeStatus.LOST:
        return None
    spec = node.spec
    return Kind(spec.gpus - node.failed.bit_count(), spec.cpu_milli, spec.memory_mib, spec.gpu_type)


def unit_of(spec: NodeSpec, level: Level) -> Path:
    """The names of the unit of this level around a node, its own last."""
    path = path_of(spec)
    return (*path, spec.id) if level is Level.NODE else path[: len(path) + 1 - OUTWARD.index(level)]
