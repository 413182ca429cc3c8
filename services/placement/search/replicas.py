"""Where the replicas of a service go that enter beside those that it has: E-Spread, for one replica after the other.

In the inference zone they are spread over nodes, or packed if each takes a whole one; what the zone does not hold goes
to the general part of the pool by E-Binpack. A service that names failure domains (`spread`) has its replicas in as
many of them as possible, wherever they are: the next one goes to a domain that has the fewest of its replicas among
those with room, and there into the zone rather than beside training. So no two domains with room differ by more than
one replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fallow.services.placement.fit.filling import fill, fill_shares, fullest, places_in
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.fit.gang_packing import GangPacker, places_on
from fallow.services.placement.policy.ebinpack import pack
from fallow.services.placement.policy.espread import takes_whole_nodes
from fallow.services.placement.policy.spread import LOOKS_TO_PLACE
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import is_general
from fallow.shared.cluster.capacity.topology import Topology, numbers_of, topology_for
from fallow.shared.cluster.model.node import Node, is_in_zone
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, Level, WorkerPlace


def place_replicas(
    state: CellState, pool: PoolCapacity, spec: JobSpec, held: Sequence[WorkerPlace], most: int
) -> list[WorkerPlace]:
    """Places in this pool for so many replicas more, or for as many as fit. `held` are the places that it has."""
    zone = topology_for(state, pool, spec, "zone", is_in_zone)
    general = topology_for(state, pool, spec, "general", is_general)
    if spec.spread is not None:
        domains = Domains.of(state, pool, spec, held, spec.spread)
        return _over_domains(state, pool, spec, domains, (zone, general), most)
    found: list[WorkerPlace] = []
    if takes_whole_nodes(spec, zone):
        found = _packed(state, pool, zone, spec, most)
    elif zone.nodes:
        nodes = Domains.of(state, pool, spec, held, Level.NODE)
        found = _over_domains(state, pool, spec, nodes, (zone, None), most)
    return found + _packed(state, pool, general, spec, most - len(found))


class Domains:
    """The failure domains of one level by how many replicas they have. Masks are over the pool's numbers."""

    def __init__(self, pool: PoolCapacity, topology: Topology, level: Level) -> None:
        self._pool, self._topology, self._units = pool, topology, topology.levels[level]
        self._count: Counter[int] = Counter()
        self._with: dict[int, int] = {}
        """The nodes of the domains with exactly so many; none with none."""
        self._visited = 0
        self.used = 0

    @classmethod
    def of(
        cls, state: CellState, pool: PoolCapacity, spec: JobSpec, held: Sequence[WorkerPlace], level: Level
    ) -> Domains:
        """The domains with the replicas that there are."""
        domains = cls(pool, topology_for(state, pool, spec), level)
        for place in held:
            domains.take(place.node)
        return domains

    def take(self, node_id: str) -> None:
        """One replica more is on this node."""
        slot = self._topology.slots.get(node_id)
        if slot is None:
            return
        unit = self._units.of_slot[slot]
        nodes, before = numbers_of(self._pool, self._topology, self._units.slots(unit)), self._count[unit]
        if before:
            self._with[before] ^= nodes
            if not self._with[before]:
                del self._with[before]
        self._count[unit] = before + 1
        self._with[before + 1] = self._with.get(before + 1, 0) | nodes
        self._visited |= nodes
        self.used |= 1 << self._pool.number(node_id)

    def fewest_first(self, among: int) -> Iterator[int]:
        """Those of these nodes whose domains have the fewest replicas, then of those with more, and so on."""
        yield among & ~self._visited
        for number in sorted(self._with):
            yield among & self._with[number]


def _over_domains(
    state: CellState,
    pool: PoolCapacity,
    spec: JobSpec,
    domains: Domains,
    parts: tuple[Topology, Topology | None],
    most: int,
) -> list[WorkerPlace]:
    rooms = [FreeCapacity.of(state, pool, spec, _numbers(pool, part)) if part is not None else None for part in parts]
    places: list[WorkerPlace] = []
    while len(places) < most:
        place = _next(rooms, spec, domains, len(places))
        if place is None:
            break
        domains.take(place.node)
        places.append(place)
        pool.effort.looks += LOOKS_TO_PLACE
    # No whole device is left anywhere: rather shares beside others, wherever there are some.
    for room in filter(None, rooms):
        if len(places) < most:
            places += places_in(fill_shares(room, spec, most - len(places)), spec, len(places))
    return places


def _next(rooms: list[FreeCapacity | None], spec: JobSpec, domains: Domains, rank: int) -> WorkerPlace | None:
    zone, general = rooms
    gpus = -(-spec.resources.gpu_milli // GPU)
    with_room = sum(room.with_free(gpus) for room in rooms if room is not None)  # of the zone or not: of one only
    for among in domains.fewest_first(with_room):
        if not among:
            continue
        node = None if zone is None else _emptiest(zone, spec, gpus, among, domains.used)
        if zone is not None and node is not None:
            return zone.take(rank, node, spec.resources)
        node = None if general is None else general.fullest_of(spec, gpus, among)
        if general is not None and node is not None:
            return general.take(rank, node, spec.resources)
    return None


def _emptiest(room: FreeCapacity, spec: JobSpec, gpus: int, among: int, used: int) -> Node | None:
    """The emptiest node of these, one without a replica before one that has any."""
    node = room.emptiest(spec, gpus, among & ~used)
    return node if node is not None else room.emptiest(spec, gpus, among)


def _packed(state: CellState, pool: PoolCapacity, part: Topology, spec: JobSpec, most: int) -> list[WorkerPlace]:
    """So many replicas in this part of the pool by E-Binpack, or as many as fit."""
    if most <= 0 or not part.nodes:
        return []
    if spec.resources.gpu_milli < GPU:
        return places_in(fill(FreeCapacity.of(state, pool, spec, _numbers(pool, part)), spec, most, fullest), spec)
    gang = GangPacker(part, replace(spec, workers=1, workers_min=None))
    room = 0
    for slot in gang.tightest_nodes(1):
        room += gang.room_on(slot)
        if room >= most:
            break
    parts = pack(gang, min(room, most)) if room else []
    return list(places_on(gang, parts))


def _numbers(pool: PoolCapacity, part: Topology) -> int:
    return numbers_of(pool, part, range(len(part.nodes)))
