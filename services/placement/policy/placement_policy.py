"""What a placement policy says of itself. A module of this folder that has such a `POLICY` is offered by its name, and
nothing else has to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, WorkerPlace

Places = tuple[WorkerPlace, ...]


PlaceGang = Callable[[CellState, PoolCapacity, JobSpec], Places | None]
PlaceAlike = Callable[[CellState, PoolCapacity, JobSpec, int], list[WorkerPlace]]
PlaceAlone = Callable[[CellState, PoolCapacity, JobSpec], WorkerPlace | None]


class PlacementPolicy(NamedTuple):
    """How a policy places a gang in a pool, or a job's only worker of whole GPUs, which comes to the same. Wishes for a
    place in the network are granted, and replicas of services are placed, alike under all policies.

    A cell file chooses it by its `name`; `what_for` tells an operator in one line when to choose it.

    `alike`, where a policy has it, gives places for several such jobs that are alike, or for the first of them: the
    same as if each was placed and started before the next. `order`, where a policy has it, is the order in which the
    pools of a job are tried, if not the job's own. One that `packs` gives such a worker the node with the fewest free
    devices of those that have enough; which one of equals is its own. One that `learns` also uses history; if
    unsure, leave True, which is slower but never wrong.
    """

    name: str
    what_for: str
    gang: PlaceGang
    alone: PlaceAlone
    alike: PlaceAlike | None = None
    order: Callable[[CellState, JobSpec], Sequence[str]] | None = None
    packs: bool = False
    learns: bool = True


def first_of(place_gang: PlaceGang) -> PlaceAlone:
    """For a policy that knows no faster way to place a job's only worker: that of a gang of one."""

    def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
        places = place_gang(state, pool, spec)
        return None if places is None else places[0]

    return place_alone
