"""First fit, a baseline: each worker goes to the lowest node that fits it, however full it is."""

from __future__ import annotations

from fallow.services.placement.fit.filling import lowest, places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.policy.placement_policy import PlacementPolicy, Places, first_of
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    """Places for all workers of a gang, or None."""
    return places_of_gang(FreeCapacity.of(state, pool, spec), spec, lowest)


POLICY = PlacementPolicy(
    name="first-fit",
    what_for="A baseline to compare with.",
    gang=place_gang,
    alone=first_of(place_gang),
    learns=False,
)
