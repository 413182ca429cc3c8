"""The placement policies by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fallow.services.placement.fit.filling import fullest, lowest, places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.policy import best_fit, ebinpack, espread, spread
from fallow.services.placement.policy.frag_aware import frag_aware
from fallow.services.placement.policy.lifetime import lifetime
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.values import JobSpec, WorkerPlace

Places = tuple[WorkerPlace, ...]


PlaceGang = Callable[[CellState, PoolCapacity, JobSpec], Places | None]
PlaceAlike = Callable[[CellState, PoolCapacity, JobSpec, int], list[WorkerPlace]]
PlaceAlone = Callable[[CellState, PoolCapacity, JobSpec], WorkerPlace | None]


class PlacementPolicy(NamedTuple):
    """How a policy places a gang in a pool, or a job's only worker of whole GPUs, which comes to the same. Wishes for a
    place in the network are granted, and replicas of services are placed, alike under all policies.

    `alike`, where a policy has it, gives places for several such jobs that are alike, or for the first of them: the
    same as if each was placed and started before the next. `order`, where a policy has it, is the order in which the
    pools of a job are tried, if not the job's own. One that `packs` gives such a worker the node with the fewest free
    devices of those that have enough; which one of equals is its own. One that `learns` also uses history; if
    unsure, leave True, which is slower but never wrong.
    """

    gang: PlaceGang
    alone: PlaceAlone
    alike: PlaceAlike | None = None
    order: Callable[[CellState, JobSpec], Sequence[str]] | None = None
    packs: bool = False
    learns: bool = True


def _best_fit(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    return places_of_gang(FreeCapacity.of(state, pool, spec), spec, fullest)


def _first_fit(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    """A baseline: each worker goes to the lowest node that fits it, however full it is."""
    return places_of_gang(FreeCapacity.of(state, pool, spec), spec, lowest)


def _first(place: PlaceGang) -> PlaceAlone:
    def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
        places = place(state, pool, spec)
        return None if places is None else places[0]

    return place_alone


_BEST_FIT = PlacementPolicy(_best_fit, best_fit.place_alone, best_fit.place_alike, packs=True, learns=False)

POLICIES: dict[str, PlacementPolicy] = {
    "best-fit": _BEST_FIT,
    "binpack": _BEST_FIT,
    "first-fit": PlacementPolicy(_first_fit, _first(_first_fit), learns=False),
    "spread": PlacementPolicy(spread.place_gang, _first(spread.place_gang), learns=False),
    "e-binpack": PlacementPolicy(
        ebinpack.place_gang, ebinpack.place_alone, ebinpack.place_alike, packs=True, learns=False
    ),
    "frag-aware": PlacementPolicy(
        frag_aware.place_gang, frag_aware.place_alone, order=frag_aware.best_first, learns=True
    ),
    "lifetime": PlacementPolicy(lifetime.place_gang, lifetime.place_alone, learns=True),
    "e-spread": PlacementPolicy(espread.place_gang, espread.place_alone, espread.place_alike, packs=True, learns=False),
}
"""The placement policies by the names that a cell file may use. Plain binpack looks at nodes only: it is best fit."""
