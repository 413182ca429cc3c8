"""Best fit by worker: each worker goes to the fullest node that still fits it, ties to the lowest node, so that whole
nodes stay free.

A share below one GPU goes to the shared device with the least room that fits, and breaks a whole device only if none
fits.
"""

from __future__ import annotations

from services.placement.policy.fit import Room
from shared.cluster.node import Node, lowest
from shared.events.values import GPU, JobSpec, WorkerPlace


def place_worker(room: Room, spec: JobSpec, rank: int) -> WorkerPlace | None:
    """A place for one more worker of this gang, or None."""
    if spec.resources.gpu_milli < GPU:
        return _place_share(room, spec, rank)
    node = room.fullest(spec, spec.resources.gpu_milli // GPU)
    return None if node is None else room.take_whole(rank, node, spec.resources)


def _place_share(room: Room, spec: JobSpec, rank: int) -> WorkerPlace | None:
    wants = spec.resources
    for share in sorted(room.by_share):
        if share >= wants.gpu_milli:
            node = room.first_suitable(room.by_share[share], spec)
            if node is not None:
                return room.take_share(rank, node, _device_with(room, node, share), wants)
    node = room.fullest(spec, 1)
    if node is None:
        return None
    (device,) = lowest(room.free.get(node.id, node.free), 1)
    return room.take_share(rank, node, device, wants)


def _device_with(room: Room, node: Node, share: int) -> int:
    shares = room.shares.get(node.id, node.shares)
    return min(device for device, free in shares.items() if free == share and not node.failed >> device & 1)
