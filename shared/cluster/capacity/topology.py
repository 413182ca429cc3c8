"""Where room is in the network: the units of every level, and how many workers each can hold, kept by delta.

The nodes stand in the order of the network: superspine, spine, leaf, domain, id. So a unit of any level is a range of
this order (`slots`), and a unit within another one a range within its range. A level is asked "which units hold so many
workers of so many GPUs" again and again, so that ranking is kept and follows the changes one by one: what it costs
does not grow with the number of nodes.

Nobody pays who does not ask: an index is made when a policy first wants it, and made anew when nodes come or go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter, itemgetter

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import Needs
from fallow.shared.cluster.capacity.effort import Effort
from fallow.shared.cluster.capacity.masks import each_bit, mask_from
from fallow.shared.cluster.capacity.node_filter_index import Test, marks_of, needs_of
from fallow.shared.cluster.model.node import Node, share_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, Level, NodeSpec

OUTWARD: tuple[Level, ...] = (Level.NODE, Level.DOMAIN, Level.LEAF, Level.SPINE, Level.SUPERSPINE)
"""The levels from near to far."""

# To look up a member of an enumeration costs more than what is done with it for each node that changes.
_DOMAIN, _LEAF = Level.DOMAIN, Level.LEAF

Path = tuple[str, ...]
"""The names of a unit: its own last, those of the levels around it first; "" where a name is not known."""

_CHANGES_A_NODE_MAX = 4
"""So many changes for each node are kept for rankings that nobody asks; then these are brought up to date anyway."""


_IDLE_NOTES = 1_000
"""An index of which nothing is asked while each of its nodes, and so many more, have changed is given up: to follow
them for nothing costs more than to make it anew.
"""

PARTS_MAX = 32
"""So many parts of a pool have an index at a time."""

_REFUSED_MAX = 4 * PARTS_MAX
"""When so many indices found no room, those that nobody has asked for meanwhile are given up."""

LOOKS_TO_INDEX_NODE = 8
"""To put a node into an index takes so long as to look at so many."""

_counts = attrgetter("position", "gpu_type", "islands")
"""What of a node the index goes by, its devices and status aside: when it changes the index is made anew."""


def path_of(spec: NodeSpec) -> Path:
    """The names of the units around a node, from far to near."""
    at = spec.position
    return (at.superspine or "", at.spine or "", at.leaf or "", at.domain or "")


@dataclass(slots=True)
class Units:
    """The units of one level. Unit u holds the slots from `begins[u]` up to `begins[u + 1]`. Nodes that do not know
    their unit stand together in a nameless one for each unit around them; `named` is the mask of the others.
    """

    level: Level
    paths: list[Path]
    begins: list[int]
    of_slot: list[int]
    named: int

    def slots(self, unit: int) -> range:
        """The slots of a unit."""
        return range(self.begins[unit], self.begins[unit + 1])

    def within(self, slots: range) -> range:
        """The units within these slots, which are those of a unit of this level or of one farther out."""
        return range(self.of_slot[slots.start], self.of_slot[slots.stop - 1] + 1) if slots else range(0)


class Ranking:
    """The units of one level by how many workers of `gpus` whole devices they hold."""

    __slots__ = ("_by_room", "at", "gpus", "room", "units")

    def __init__(self, units: Units, gpus: int, free: list[int]) -> None:
        self.units, self.gpus, self.at = units, gpus, 0
        self.room = [sum(free[slot] // gpus for slot in range(*ends)) for ends in pairwise(units.begins)]
        """How many workers each unit holds."""
        self._by_room: dict[int, int] = {}
        for unit, room in enumerate(self.room):
            self._by_room[room] = self._by_room.get(room, 0) | 1 << unit

    def follow(self, changes: list[tuple[int, int, int]]) -> None:
        """Take in the changes since the last time."""
        gpus, of_slot, by_room = self.gpus, self.units.of_slot, self._by_room
        # Nodes of one unit often change together, as a gang comes: the unit moves once for all of them.
        more_in: dict[int, int] = {}
        for slot, before, now in changes[self.at :]:
            more = now // gpus - before // gpus
            if more:
                unit = of_slot[slot]
                more_in[unit] = more_in.get(unit, 0) + more
        for unit, more in more_in.items():
            room, bit = self.room[unit], 1 << unit
            left = by_room[room] ^ bit
            if left:
                by_room[room] = left
            else:
                del by_room[room]
            room += more
            self.room[unit] = room
            by_room[room] = by_room.get(room, 0) | bit
        self.at = len(changes)

    def tightest(self, workers: int, among: int = -1, first: int = 0) -> Iterator[int]:
        """The units of `among` that hold at least so many workers: the one with the least room first, of equals those
        of `first` first, and of these the lowest.
        """
        for room in sorted(room for room in self._by_room if room >= workers):
            units = self._by_room[room] & among
            if units & first:
                yield from each_bit(units & first)
                units ^= units & first
            while units:
                lowest = units & -units
                yield lowest.bit_length() - 1
                units ^= lowest


@dataclass(slots=True)
class Topology:
    """The nodes of a pool, or a part of them, in the order of the network.

    `free[slot]` is the number of whole devices free on a node (0: takes nothing new). `by_free[g][k]` are the nodes of
    group g with exactly k free, as a mask over the group's slots; a group is a unit of the nearest level. `holding[k]`
    are the leaves with such a node, `groups_of_leaf` the groups of each leaf. `gpu_type` is that of all nodes, None
    where they differ; `has_islands` whether the devices of any node are on several. `masks` are slots as masks over the
    pool's numbers, see `numbers_of`. `in_use` are the leaves with a job on any node; where all leaves are of one size
    it is not kept, as an empty one has the most room there. In an `exclusive` one a node with any job on it takes
    nothing new. `members` are the nodes of a part as a mask over the pool's numbers. `effort` is the cell's.
    """

    nodes: list[Node]
    specs: list[NodeSpec]
    slots: dict[str, int]
    levels: dict[Level, Units]
    gpu_type: str | None
    has_islands: bool
    free: list[int] = field(default_factory=list)
    by_free: list[dict[int, int]] = field(default_factory=list)
    groups_of_leaf: list[range] = field(default_factory=list)
    in_use: int = 0
    holding: dict[int, int] = field(default_factory=dict)
    is_stale: bool = False
    exclusive: bool = False
    members: int = -1
    effort: Effort = field(default_factory=Effort)
    idle: int = 0
    masks: dict[range, int] = field(default_factory=dict)
    _is_used: bytearray = field(default_factory=bytearray)
    _used_in: list[int] = field(default_factory=list)
    _changes: list[tuple[int, int, int]] = field(default_factory=list)
    _rankings: dict[tuple[Level, int], Ranking] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: list[Node], *, exclusive: bool = False) -> Topology:
        """The index over these nodes, counted from nothing. Their order does not matter."""
        by_path = sorted([(path_of(node.spec), node.spec.id, node) for node in nodes], key=itemgetter(0, 1))
        ordered = [node for _, _, node in by_path]
        specs = [node.spec for node in ordered]
        types = list(dict.fromkeys(spec.gpu_type for spec in specs))
        has_islands = any(len(spec.islands) > 1 for spec in specs)
        slots = {spec.id: slot for slot, spec in enumerate(specs)}
        found = cls(
            ordered,
            specs,
            slots,
            _levels(specs, [path for path, _, _ in by_path]),
            types[0] if len(types) == 1 else None,
            has_islands,
            exclusive=exclusive,
        )
        found.free = [0 if exclusive and node.is_used else share_of(node).free or 0 for node in ordered]
        groups = found.levels[Level.DOMAIN]
        found.by_free = [{} for _ in groups.paths]
        for slot, free in enumerate(found.free):
            group = groups.of_slot[slot]
            table = found.by_free[group]
            table[free] = table.get(free, 0) | 1 << slot - groups.begins[group]
        leaves = found.levels[Level.LEAF]
        found.groups_of_leaf = [groups.within(leaves.slots(leaf)) for leaf in range(len(leaves.paths))]
        sizes = [sum(specs[slot].gpus for slot in range(*ends)) for ends in pairwise(leaves.begins)]
        if len(dict.fromkeys(sizes)) > 1:
            found._is_used, found._used_in = bytearray(len(ordered)), [0] * len(sizes)
            for slot, node in enumerate(ordered):
                if node.is_used:
                    found._use(slot)
        for leaf, within in enumerate(found.groups_of_leaf):
            for group in within:
                for free in found.by_free[group]:
                    found.holding[free] = found.holding.get(free, 0) | 1 << leaf
        return found

    def note(self, node: Node, free: int) -> None:
        """The node may have changed, and has so many devices free. One that is not of this part makes no difference."""
        slot = self.slots.get(node.spec.id)
        if slot is None or self.is_stale:
            return
        self.idle += 1
        size = len(self.specs)
        if self.idle > size + _IDLE_NOTES:
            self.is_stale = True
            return
        if self._used_in and (not node.is_used) is (self._is_used[slot] == 1):
            self._use(slot)
        if self.exclusive and node.is_used:
            free = 0
        if node.spec is not self.specs[slot]:
            self._see_spec(slot, node.spec)
        before = self.free[slot]
        if free == before:
            return
        self.free[slot] = free
        self._move(slot, before, free)
        changes = self._changes
        changes.append((slot, before, free))
        if len(changes) > _CHANGES_A_NODE_MAX * size:
            self._settle()

    def _use(self, slot: int) -> None:
        """A node has a job now, or has none any more."""
        leaf = self.levels[Level.LEAF].of_slot[slot]
        self._is_used[slot] ^= 1
        self._used_in[leaf] += 1 if self._is_used[slot] else -1
        if (self._used_in[leaf] > 0) != (self.in_use >> leaf & 1):
            self.in_use ^= 1 << leaf

    def _see_spec(self, slot: int, spec: NodeSpec) -> None:
        before = self.specs[slot]
        if _counts(spec) != _counts(before):
            self.is_stale = True
        self.specs[slot] = spec

    def _move(self, slot: int, before: int, now: int) -> None:
        groups = self.levels[_DOMAIN]
        group = groups.of_slot[slot]
        table, bit = self.by_free[group], 1 << slot - groups.begins[group]
        left = table[before] ^ bit
        if left:
            table[before] = left
        else:
            del table[before]
            self._let_go(slot, before)
        if now in table:
            table[now] |= bit
        else:
            table[now] = bit
            self.holding[now] = self.holding.get(now, 0) | 1 << self.levels[_LEAF].of_slot[slot]

    def _let_go(self, slot: int, free: int) -> None:
        """A group has no node with so many free any more; its leaf may have one in another group."""
        leaf = self.levels[Level.LEAF].of_slot[slot]
        groups = self.groups_of_leaf[leaf]
        if len(groups) > 1 and any(free in self.by_free[group] for group in groups):
            return
        rest = self.holding[free] ^ 1 << leaf
        if rest:
            self.holding[free] = rest
        else:
            del self.holding[free]

    def _settle(self) -> None:
        for ranking in self._rankings.values():
            ranking.follow(self._changes)
            ranking.at = 0
        self._changes.clear()

    def ranking(self, level: Level, gpus: int) -> Ranking:
        """The units of a level by how many workers of so many whole devices they hold now."""
        found = self._rankings.get((level, gpus))
        if found is None:
            found = self._rankings[level, gpus] = Ranking(self.levels[level], gpus, self.free)
            found.at = len(self._changes)
        elif found.at < len(self._changes):
            found.follow(self._changes)
        return found


def _levels(specs: list[NodeSpec], paths: list[Path]) -> dict[Level, Units]:
    nodes = Units(
        Level.NODE,
        [(*path, spec.id) for path, spec in zip(paths, specs, strict=True)],
        list(range(len(specs) + 1)),
        list(range(len(specs))),
        (1 << len(specs)) - 1,
    )
    found = {Level.NODE: nodes}
    for depth, level in enumerate(reversed(OUTWARD[1:]), start=1):
        found[level] = _units(level, [path[:depth] for path in paths])
    return found


def _units(level: Level, of_each: list[Path]) -> Units:
    """The units of a level, from the path of each node, in their order."""
    begins = [slot for slot, path in enumerate(of_each) if not slot or path != of_each[slot - 1]]
    paths = [of_each[slot] for slot in begins]
    ends = [*begins, len(of_each)]
    of_slot = [unit for unit, (begin, end) in enumerate(pairwise(ends)) for _ in range(begin, end)]
    named = sum(1 << unit for unit, path in enumerate(paths) if path[-1])
    return Units(level, paths, ends, of_slot, named)


ALL, PARTS = "all", "parts"
"""The view of a pool that leaves no node out, and the views of parts of it."""


def topology_of(
    state: CellState, pool: PoolCapacity, part: str = ALL, has: Test | None = None, needs: Needs | None = None
) -> Topology:
    """The index over the pool as it is now, or over those of its nodes that suit some needs. `part` names those for
    which `has` is true; what decides that may be a node's role, its labels and its loan only.
    """
    if needs is not None or has is not None:
        return _part_of(state, pool, part, has, needs)
    found = pool.views.get(part)
    if not isinstance(found, Topology) or found.is_stale:
        pool.effort.looks += LOOKS_TO_INDEX_NODE * len(pool.ids)
        found = pool.views[part] = Topology.of([state.nodes[node_id] for node_id in pool.ids])
        found.effort = pool.effort
    found.idle = 0
    return found


def topology_for(
    state: CellState, pool: PoolCapacity, spec: JobSpec, part: str = ALL, has: Test | None = None
) -> Topology:
    """The index over those nodes of the pool, or of a part of it, on which this job may run."""
    return topology_of(state, pool, part, has, needs_of(state, pool, spec))


def _part_of(state: CellState, pool: PoolCapacity, part: str, has: Test | None, needs: Needs | None) -> Topology:
    """An index over some nodes. Those who may use the same ones share it, whatever they ask for."""
    members = marks_of(state, pool).members(state, needs, part, has)
    exclusive = needs is not None and needs.exclusive
    if not exclusive and members == (1 << len(pool.ids)) - 1:
        return topology_of(state, pool)
    parts = pool.views.get(PARTS)
    if not isinstance(parts, Parts):
        parts = pool.views[PARTS] = Parts()
    topology = parts.get((exclusive, members))
    if topology is None:
        nodes = [state.nodes[pool.ids[number]] for number in each_bit(members)]
        pool.effort.looks += LOOKS_TO_INDEX_NODE * len(nodes)
        topology = Topology.of(nodes, exclusive=exclusive)
        topology.members, topology.effort = members, pool.effort
        parts.keep((exclusive, members), topology)
    topology.idle = 0
    return topology


PartName = tuple[bool, int]
"""Whether a node with any job on it takes nothing new, and the nodes as a mask over the pool's numbers."""


class Parts:
    """The indices over parts of a pool, by their nodes.

    Where there is no more room those that came first are kept: a walk asks for all of them in the same order each time,
    and would find none if the oldest went. What was not asked for while many others were refused gives way to these.
    """

    __slots__ = ("_asked", "_kept", "_refused", "is_stale")

    def __init__(self) -> None:
        self.is_stale = False
        self._kept: dict[PartName, Topology] = {}
        self._asked: dict[PartName, None] = {}
        self._refused = 0

    def __iter__(self) -> Iterator[Topology]:
        """The indices, the oldest first."""
        return iter(self._kept.values())

    def note(self, node: Node, free: int) -> None:
        """The node may have changed."""
        for topology in self._kept.values():
            topology.note(node, free)

    def get(self, name: PartName) -> Topology | None:
        """The index over exactly these nodes, if there is one."""
        found = self._kept.get(name)
        if found is None or found.is_stale:
            return None
        self._asked[name] = None
        return found

    def keep(self, name: PartName, topology: Topology) -> None:
        """Keep an index, if there is room."""
        if name not in self._kept and len(self._kept) >= PARTS_MAX:
            self._make_room()
        if name in self._kept or len(self._kept) < PARTS_MAX:
            self._kept[name] = topology

    def _make_room(self) -> None:
        self._refused += 1
        stale = [name for name, topology in self._kept.items() if topology.is_stale]
        if not stale and self._refused > _REFUSED_MAX:
            stale = [name for name in self._kept if name not in self._asked]
            self._asked.clear()
            self._refused = 0
        for name in stale:
            del self._kept[name]


def numbers_of(pool: PoolCapacity, topology: Topology, slots: range) -> int:
    """These slots as a mask over the pool's own numbers, which stay while the index does."""
    if len(slots) == len(topology.nodes) and topology.members >= 0:
        return topology.members
    if len(slots) == 1:
        return 1 << pool.number(topology.specs[slots.start].id)
    mask = topology.masks.get(slots)
    if mask is None:
        numbers = (pool.number(topology.specs[slot].id) for slot in slots)
        mask = topology.masks[slots] = mask_from(numbers, len(pool.ids))
    return mask


def differs_from_recount(topology: Topology) -> str | None:
    """Where an index kept by delta is not what counting its nodes from nothing gives, or None."""
    fresh = Topology.of(topology.nodes, exclusive=topology.exclusive)
    for name in ("free", "by_free", "holding", "levels", "in_use"):
        if getattr(topology, name) != getattr(fresh, name):
            return name
    for level, gpus in list(topology._rankings):  # noqa: SLF001 - its own
        ranking, anew = topology.ranking(level, gpus), fresh.ranking(level, gpus)
        in_order = [list(found.tightest(0)) for found in (ranking, anew)]
        if ranking.room != anew.room or in_order[0] != in_order[1]:
            return f"ranking of {level} by {gpus}"
    return None
