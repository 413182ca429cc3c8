"""First fit, a baseline: each worker goes to the lowest node that fits it, however full it is."""

from __future__ import annotations

from services.placement.policy.best_fit import place_share
from services.placement.policy.fit import Room
from shared.events.values import GPU, JobSpec, WorkerPlace


def place_worker(room: Room, spec: JobSpec, rank: int) -> WorkerPlace | None:
    """A place for one more worker of this gang, or None. A share below one GPU goes to a device that is shared already
    if one has room, else to the lowest node with a free one.
    """
    wants = spec.resources
    if 0 < wants.gpu_milli < GPU:
        shared = place_share(room, spec, rank, may_break=False)
        if shared is not None:
            return shared
        node = room.lowest(spec, 1)
        return None if node is None else room.take_share(rank, node, room.unbroken_device(node), wants)
    node = room.lowest(spec, wants.gpu_milli // GPU)
    return None if node is None else room.take_whole(rank, node, wants)
