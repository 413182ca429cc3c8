"""The placement policies by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from services.placement.policy import best_fit, ebinpack, espread, frag_aware, spread
from services.placement.policy.filling import fullest, lowest, places_of_gang
from services.placement.policy.fit import Room
from shared.cluster.capacity import PoolCapacity
from shared.cluster.marks import Test
from shared.cluster.state import CellState
from shared.cluster.topology import Topology, topology_for
from shared.events.values import JobSpec, WorkerPlace

Places = tuple[WorkerPlace, ...]


PlaceGang = Callable[[CellState, PoolCapacity, JobSpec], Places | None]
PlaceAlike = Callable[[CellState, PoolCapacity, JobSpec, int], list[WorkerPlace]]
PlaceAlone = Callable[[CellState, PoolCapacity, JobSpec], WorkerPlace | None]

Part = tuple[str, Test]
"""Some of a pool's nodes: the name of the test, and the test of what a node is."""


class PlacementPolicy(NamedTuple):
    """How a policy places a gang in a pool, or a job's only worker of whole GPUs, which comes to the same; and on which
    nodes of the pool a job may run that wishes for a place in the network. Wishes are granted, and replicas of services
    are placed, alike under all policies.

    `alike`, where a policy has it, gives places for several such jobs that are alike, or for the first of them: the
    same as if each was placed and started before the next. `order`, where a policy has it, is the order in which the
    pools of a job are tried, if not the job's own. `part`, where a policy has it, names the nodes on which a job may
    run, None where that are all.
    """

    gang: PlaceGang
    alone: PlaceAlone
    nodes_for: Callable[[CellState, PoolCapacity, JobSpec], Topology]
    alike: PlaceAlike | None = None
    order: Callable[[CellState, JobSpec], Sequence[str]] | None = None
    part: Callable[[JobSpec], Part | None] | None = None


def _best_fit(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    return places_of_gang(Room.of(state, pool, spec), spec, fullest)


def _first_fit(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    """A baseline: each worker goes to the lowest node that fits it, however full it is."""
    return places_of_gang(Room.of(state, pool, spec), spec, lowest)


def _first(place: PlaceGang) -> PlaceAlone:
    def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
        places = place(state, pool, spec)
        return None if places is None else places[0]

    return place_alone


def _everywhere(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Topology:
    return topology_for(state, pool, spec)


_BEST_FIT = PlacementPolicy(_best_fit, best_fit.place_alone, _everywhere, best_fit.place_alike)

POLICIES: dict[str, PlacementPolicy] = {
    "best-fit": _BEST_FIT,
    "binpack": _BEST_FIT,
    "first-fit": PlacementPolicy(_first_fit, _first(_first_fit), _everywhere),
    "spread": PlacementPolicy(spread.place_gang, _first(spread.place_gang), _everywhere),
    "e-binpack": PlacementPolicy(ebinpack.place_gang, ebinpack.place_alone, _everywhere, ebinpack.place_alike),
    "frag-aware": PlacementPolicy(
        frag_aware.place_gang, frag_aware.place_alone, _everywhere, order=frag_aware.best_first
    ),
    "e-spread": PlacementPolicy(
        espread.place_gang, _first(espread.place_gang), espread.nodes_for, part=espread.part_for
    ),
}
"""The placement policies by the names that a cell file may use. Plain binpack looks at nodes only: it is best fit."""
