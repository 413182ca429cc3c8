"""Best fit by worker: each worker goes to the fullest node that still fits it, ties to the lowest node, so that whole
nodes stay free.

A share below one GPU goes to the shared device with the least room that fits, and breaks a whole device only if none
fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from services.placement.policy.fit import Room, first_suitable
from services.placement.policy.islands import devices_of_one
from shared.cluster.capacity import PoolCapacity
from shared.cluster.marks import allowed
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.events.values import GPU, JobSpec, WorkerPlace

_NOBODY: Mapping[str, int] = MappingProxyType({})


def place_worker(room: Room, spec: JobSpec, rank: int) -> WorkerPlace | None:
    """A place for one more worker of this gang, or None."""
    if 0 < spec.resources.gpu_milli < GPU:
        return place_share(room, spec, rank)
    node = room.fullest(spec, spec.resources.gpu_milli // GPU)
    return None if node is None else room.take_whole(rank, node, spec.resources)


def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
    """A place for the only worker of a job of whole GPUs: that of `place_worker`, without room kept for a second."""
    wants, by_free = spec.resources, pool.by_free
    gpus, usable = wants.gpu_milli // GPU, allowed(state, pool, spec)
    if usable is not None:
        by_free = {free: mask & usable for free, mask in by_free.items()}
    node = first_suitable(state, pool, by_free.get(gpus, 0), spec, _NOBODY)
    if node is None:
        for free in sorted(by_free):
            if free > gpus:
                node = first_suitable(state, pool, by_free[free], spec, _NOBODY)
                if node is not None:
                    break
        else:
            return None
    return WorkerPlace(
        rank=0,
        node=node.spec.id,
        devices=devices_of_one(node.free, node.spec, gpus),
        gpu_milli=wants.gpu_milli,
        cpu_milli=wants.cpu_milli,
        memory_mib=wants.memory_mib,
    )


def place_alike(state: CellState, pool: PoolCapacity, spec: JobSpec, most: int) -> list[WorkerPlace]:
    """Places for so many jobs of this one worker of whole GPUs, or for as many as fit: those of `place_alone`, if each
    was started before the next.
    """
    room, places = Room.of(state, pool, spec), list[WorkerPlace]()
    while len(places) < most and (place := place_worker(room, spec, 0)) is not None:
        places.append(place)
    return places


def place_share(room: Room, spec: JobSpec, rank: int, *, may_break: bool = True) -> WorkerPlace | None:
    """A place for one more worker that needs a share of a device; on one that is wholly free only if it `may_break`."""
    wants = spec.resources
    for share in sorted(room.by_share):
        if share >= wants.gpu_milli:
            node = room.first_suitable(room.by_share[share], spec)
            if node is not None:
                return room.take_share(rank, node, _device_with(room, node, share), wants)
    node = room.fullest(spec, 1) if may_break else None
    if node is None:
        return None
    return room.take_share(rank, node, room.unbroken_device(node), wants)


def _device_with(room: Room, node: Node, share: int) -> int:
    shares = room.shares.get(node.id, node.shares)
    return min(device for device, free in shares.items() if free == share and not node.failed >> device & 1)
