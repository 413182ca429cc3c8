"""Placing with an eye on fragments: each worker goes where it spoils the least of what is free, by what jobs usually
ask for (`fragmentation`).

For one worker all pools that the job accepts are compared, and their order only breaks ties. A gang stays in one pool:
it is packed by E-Binpack, which looks at the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.placement.fit.device_selection import devices_of_one
from fallow.services.placement.policy import ebinpack
from fallow.services.placement.policy.frag_aware.demand import ask_of
from fallow.services.placement.policy.frag_aware.node_fragmentation import Seats
from fallow.services.placement.policy.frag_aware.node_score_index import board_of
from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.node_filter_index import allowed
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang in the pool, or None."""
    if spec.workers > 1:
        return ebinpack.place_gang(state, pool, spec)
    place = place_alone(state, pool, spec)
    return None if place is None else (place,)


def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
    """A place for the only worker of a job, or None."""
    board, ask = board_of(state, pool), ask_of(spec)
    cost = board.least(ask, allowed(state, pool, spec))
    if cost is None:
        return None
    number = cost[2]
    node, seats = state.nodes[pool.ids[number]], board.seats[number]
    devices = () if seats is None else devices_on(node, seats, ask.gpu_milli)
    return WorkerPlace(
        rank=0,
        node=node.id,
        devices=devices,
        gpu_milli=ask.gpu_milli,
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
    )


def devices_on(node: Node, seats: Seats, milli: int) -> tuple[int, ...]:
    """The devices for a worker that fits on this node."""
    if not milli:
        return ()
    if milli >= GPU:
        return devices_of_one(node.free, node.spec, milli // GPU)
    found = seats.rest_of(milli)
    if found is None or found[1] == GPU:
        return devices_of_one(node.free, node.spec, 1)
    return (min(at for at, free in node.shares.items() if free == found[1] and not node.closed >> at & 1),)


def best_first(state: CellState, spec: JobSpec) -> Sequence[str]:
    """The pools that the job accepts, that in which its only worker costs the least first."""
    pools = state.pools
    names = spec.pools or sorted(pools)
    if len(names) < 2 or spec.workers > 1 or spec.topology is not None:  # noqa: PLR2004 - of one there is no choice
        return names
    ask, costs = ask_of(spec), list[tuple[int, int]]()
    for at, name in enumerate(names):
        pool = pools.get(name)
        cost = None if pool is None else board_of(state, pool).least(ask, allowed(state, pool, spec))
        if cost is not None:
            costs.append((cost[0], at))
    if not costs:
        return names
    order = [at for _, at in sorted(costs)]
    fits = frozenset(order)
    return [names[at] for at in (*order, *(at for at in range(len(names)) if at not in fits))]


POLICY = PlacementPolicy(
    name="frag-aware",
    what_for="Many shares of GPUs and small jobs of uneven sizes.",
    gang=place_gang,
    alone=place_alone,
    order=best_first,
    learns=True,
)
