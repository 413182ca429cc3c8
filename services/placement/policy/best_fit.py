"""Best fit by worker: each worker goes to the fullest node that still fits it, ties to the lowest node, so that whole
nodes stay free.

A share below one GPU goes to the shared device with the least room that fits, and breaks a whole device only if none
fits.
"""

from __future__ import annotations

from fallow.services.placement.fit.device_selection import devices_of_one
from fallow.services.placement.fit.filling import fill, fullest, places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity, first_suitable
from fallow.services.placement.policy.placement_policy import PlacementPolicy, Places
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.node_filter_index import allowed
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    """Places for all workers of a gang, or None."""
    return places_of_gang(FreeCapacity.of(state, pool, spec), spec, fullest)


def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
    """A place for the only worker of a job of whole GPUs: that of the first of a gang."""
    wants, by_free = spec.resources, pool.by_free
    gpus, usable = wants.gpu_milli // GPU, allowed(state, pool, spec)
    if usable is not None:
        by_free = {free: mask & usable for free, mask in by_free.items()}
    node = first_suitable(state, pool, by_free.get(gpus, 0), spec)
    if node is None:
        for free in sorted(by_free):
            if free > gpus:
                node = first_suitable(state, pool, by_free[free], spec)
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
    wants = spec.resources
    milli, cpu, memory = wants.gpu_milli, wants.cpu_milli, wants.memory_mib
    return [
        WorkerPlace(rank=0, node=node, devices=devices, gpu_milli=milli, cpu_milli=cpu, memory_mib=memory)
        for node, devices, _ in fill(FreeCapacity.of(state, pool, spec), spec, most, fullest)
    ]


POLICY = PlacementPolicy(
    name="best-fit",
    what_for="Jobs of mixed sizes, and a network that does not matter.",
    gang=place_gang,
    alone=place_alone,
    alike=place_alike,
    packs=True,
    learns=False,
)
