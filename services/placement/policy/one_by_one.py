"""A gang whose workers find their places one after the other, as some policies have it."""

from __future__ import annotations

from collections.abc import Callable

from services.placement.policy.fit import Room
from shared.events.values import JobSpec, WorkerPlace

PlaceWorker = Callable[[Room, JobSpec, int], WorkerPlace | None]
"""A place in the room for the worker of this rank, or None."""


def place_workers(room: Room, spec: JobSpec, workers: int, place: PlaceWorker) -> list[WorkerPlace]:
    """Places for so many workers, or for as many as fit; all are taken from the room."""
    places: list[WorkerPlace] = []
    for rank in range(workers):
        found = place(room, spec, rank)
        if found is None:
            break
        places.append(found)
    return places
