"""Packing a gang of whole GPUs into the network: which units hold it, and which of their nodes it gets.

How many workers a unit holds by its free devices is known at once (`Ranking`). Where CPUs, memory or GPU types bind as
well that is only the most that it could hold, and the nodes are looked at one by one, unit by unit, until one fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count

from fallow.services.placement.fit.device_selection import devices_for, held_by_islands
from fallow.services.placement.fit.free_capacity import more_that_suit
from fallow.services.placement.fit.min_units import Part, fewest
from fallow.shared.cluster.capacity.masks import each_bit
from fallow.shared.cluster.capacity.topology import OUTWARD, Ranking, Topology
from fallow.shared.events.fields.values import GPU, JobSpec, Level, WorkerPlace

_DOMAIN, _LEAF = Level.DOMAIN, Level.LEAF  # to look them up for each job that comes alone costs more than to go by them

Portion = tuple[range, Level, int]
"""So many workers within these slots, on as few units of this level as possible."""


class GangPacker:
    """One gang before one topology, while it looks for room. The topology does not change meanwhile."""

    __slots__ = ("_known", "gpus", "is_plain", "spec", "topology")

    def __init__(self, topology: Topology, spec: JobSpec) -> None:
        self.topology, self.spec = topology, spec
        self.gpus = spec.resources.gpu_milli // GPU
        wants = spec.resources
        self.is_plain = not (wants.cpu_milli or wants.memory_mib) and spec.gpu_type in (None, topology.gpu_type)
        """Whether free devices alone decide."""
        self._known: dict[tuple[Level, int], int] = {}

    def ranking(self, level: Level) -> Ranking:
        """The units of a level by the workers that their free devices hold."""
        return self.topology.ranking(level, self.gpus)

    def room_on(self, slot: int) -> int:
        """How many of its workers a node holds."""
        room = self.topology.free[slot] // self.gpus
        if self.is_plain:
            return room
        self.topology.effort.looks += 1
        if not room:
            return 0
        return more_that_suit(self.topology.nodes[slot], self.spec, 0, room)

    def room_in(self, level: Level, unit: int) -> int:
        """How many of its workers a unit holds."""
        if self.is_plain:
            return self.ranking(level).room[unit]
        known = self._known.get((level, unit))
        if known is None:
            known = sum(self.room_on(slot) for slot in self.topology.levels[level].slots(unit))
            self._known[level, unit] = known
        return known

    def fits(self, level: Level, unit: int, workers: int) -> bool:
        """Whether a unit holds so many of its workers. No more nodes are looked at than it takes to tell."""
        known = self.ranking(level).room[unit] if self.is_plain else self._known.get((level, unit))
        if known is not None:
            return known >= workers
        room = 0
        for slot in self.topology.levels[level].slots(unit):
            room += self.room_on(slot)
            if room >= workers:
                return True
        self._known[level, unit] = room
        return False

    def rooms(self, level: Level, units: range) -> Sequence[int]:
        """How many workers each of these units holds; the places of all others mean nothing."""
        room = self.ranking(level).room
        if self.is_plain:
            return room
        exact = [0] * len(room)
        for unit in units:
            exact[unit] = self.room_in(level, unit) if room[unit] else 0
        return exact

    def smallest(self, level: Level, workers: int) -> int | None:
        """The named unit of a level with the fewest free devices that holds so many workers."""
        if level is Level.NODE:
            return self.tightest_node(workers)
        for unit in self.units_for(level, workers):
            if self.is_plain or self.fits(level, unit, workers):
                return unit
        return None

    def units_for(self, level: Level, workers: int) -> Iterator[int]:
        """The named units of a level that might hold so many workers, those with the least room first, of equal leaves
        those that are in use.
        """
        named, topology = self.topology.levels[level].named, self.topology
        if not named:
            return iter(())
        return self.ranking(level).tightest(workers, named, topology.in_use if level is Level.LEAF else 0)

    def realise(self, portions: Sequence[Portion]) -> tuple[WorkerPlace, ...] | None:
        """The places of the gang when it is divided so, by rank; None where it does not fit."""
        found: list[Part] = []
        for slots, level, workers in portions:
            parts = fill(self, slots, level, workers)
            if not parts:
                return None
            found += parts
        return places_on(self, found)

    def tightest_node(self, workers: int) -> int | None:
        """The first of `tightest_nodes`, if there is any. For workers of several GPUs rather the first that has one
        island for each of them.
        """
        if self.looks_at_islands:
            for slot in self.tightest_nodes(workers):
                if self.have_islands(slot, workers):
                    return slot
        return next(self.tightest_nodes(workers), None)

    def have_islands(self, slot: int, workers: int) -> bool:
        """Whether each of so many workers that a node holds would have all of its devices on one island there."""
        if not self.looks_at_islands:
            return True
        node = self.topology.nodes[slot]
        return held_by_islands(node.free, node.spec.islands, self.gpus) >= workers

    @property
    def looks_at_islands(self) -> bool:
        """Whether it makes a difference on which devices of a node a worker is."""
        return self.topology.has_islands and self.gpus > 1

    def tightest_nodes(self, workers: int) -> Iterator[int]:
        """The nodes that hold so many workers: the one with the fewest free devices first, of equals the one in the
        fullest leaf, and there the lowest.
        """
        topology, gpus = self.topology, workers * self.gpus
        begins = topology.levels[_DOMAIN].begins
        for free in sorted([free for free in topology.holding if free >= gpus]):
            for leaf in _fullest(topology, free):
                for group in topology.groups_of_leaf[leaf]:
                    for at in each_bit(topology.by_free[group].get(free, 0)):
                        slot = begins[group] + at
                        if self.is_plain or self.room_on(slot) >= workers:
                            yield slot


def _fullest(topology: Topology, free: int) -> Iterator[int]:
    """The leaves that have a node with exactly so many free devices: those in use first, of these the fullest first."""
    leaves = topology.holding[free]
    if not leaves & (leaves - 1):
        return iter((leaves.bit_length() - 1,))
    ranking = topology.ranking(_LEAF, 1)
    if not topology.in_use:
        return ranking.tightest(free, leaves)
    used = leaves & topology.in_use
    return chain(ranking.tightest(free, used), ranking.tightest(free, leaves ^ used))


def fill(gang: GangPacker, slots: range, level: Level, workers: int) -> list[Part]:
    """So many workers on as few units of `level` within these slots as possible, in each of them on as few of the next
    nearer level, and so on: (slot, workers) in the order of the network; empty where they do not fit.
    """
    topology = gang.topology
    if level is Level.NODE:
        groups = topology.levels[Level.DOMAIN]
        within = groups.within(slots)
        if len(within) == 1 and len(groups.slots(within[0])) == len(slots):
            return _fill_group(gang, within[0], workers)
    units = topology.levels[level]
    within = units.within(slots)
    chosen = [(within[0], workers)] if len(within) == 1 else fewest(gang.rooms(level, within), within, workers)
    if level is Level.NODE:
        return chosen
    nearer = OUTWARD[OUTWARD.index(level) - 1]
    found: list[Part] = []
    for unit, many in chosen:
        parts = fill(gang, units.slots(unit), nearer, many)
        if not parts:
            return []
        found += parts
    return found


def _fill_group(gang: GangPacker, group: int, workers: int) -> list[Part]:
    """Fill the nodes of one group, which may be many: by masks, and no further than needed."""
    chosen: dict[int, int] = {}
    has_looked_for_last = False
    for slot, most in _emptiest(gang, group):
        if most >= workers and not has_looked_for_last:
            has_looked_for_last = True
            last = _tightest_of(gang, group, workers, chosen)
            if last is not None:
                chosen[last] = workers
                return sorted(chosen.items())
        here = min(most if gang.is_plain else gang.room_on(slot), workers)
        if here:
            chosen[slot] = here
            workers -= here
            if not workers:
                return sorted(chosen.items())
    return []


def _emptiest(gang: GangPacker, group: int) -> Iterator[Part]:
    """The nodes of a group, the emptiest first, and how many workers their free devices hold: none with none."""
    table, begin = gang.topology.by_free[group], gang.topology.levels[Level.DOMAIN].begins[group]
    for free in sorted(table, reverse=True):
        if free < gang.gpus:
            return
        for at in each_bit(table[free]):
            yield begin + at, free // gang.gpus


def _tightest_of(gang: GangPacker, group: int, workers: int, taken: dict[int, int]) -> int | None:
    """The node of a group with the fewest free devices that holds all of them and is not taken; rather one that has an
    island for each.
    """
    table, begin = gang.topology.by_free[group], gang.topology.levels[Level.DOMAIN].begins[group]
    found: int | None = None
    for free in sorted([free for free in table if free >= workers * gang.gpus]):
        for at in each_bit(table[free]):
            slot = begin + at
            if slot not in taken and (gang.is_plain or gang.room_on(slot) >= workers):
                if gang.have_islands(slot, workers):
                    return slot
                found = slot if found is None else found
    return found


def places_on(gang: GangPacker, parts: list[Part]) -> tuple[WorkerPlace, ...]:
    """The places of a gang whose workers go to these nodes, by rank."""
    wants, nodes, gpus, rank = gang.spec.resources, gang.topology.nodes, gang.gpus, count()
    milli, cpu, memory = wants.gpu_milli, wants.cpu_milli, wants.memory_mib
    return tuple(
        [
            WorkerPlace(rank=next(rank), node=name, devices=each, gpu_milli=milli, cpu_milli=cpu, memory_mib=memory)
            for slot, workers in parts
            for node in (nodes[slot],)
            for name in (node.spec.id,)
            for each in devices_for(node.free, node.spec, gpus, workers)
        ]
    )


def places_of_each(gang: GangPacker, parts: list[Part]) -> list[WorkerPlace]:
    """The places of jobs of one worker each that go to these nodes."""
    wants, nodes, gpus = gang.spec.resources, gang.topology.nodes, gang.gpus
    milli, cpu, memory = wants.gpu_milli, wants.cpu_milli, wants.memory_mib
    return [
        WorkerPlace(rank=0, node=node.spec.id, devices=each, gpu_milli=milli, cpu_milli=cpu, memory_mib=memory)
        for slot, workers in parts
        for node in (nodes[slot],)
        for each in devices_for(node.free, node.spec, gpus, workers)
    ]
