"""Holding room for a waiting job, and letting it go: the only code that changes what nodes hold for nobody yet.

A device that is held counts as not free, whether a victim still uses it or not; so nothing else has to know of it. What
the job will use is charged to its tenant at once: what it was promised, no other job of the same quotas gets meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.shared.cluster.fold.allocation import change_node
from fallow.shared.cluster.model.arrays import hold_room
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import charge
from fallow.shared.events.fields.values import WorkerPlace


def hold(state: CellState, job: Job, places: Sequence[WorkerPlace]) -> None:
    """Hold these places, of which no device is held for another job."""
    for node_id, theirs in _by_node(places).items():
        node = state.nodes[node_id]
        change_node(
            state,
            node,
            room=node.room | devices_of(theirs),
            cpu_room=node.cpu_room + sum(place.cpu_milli for place in theirs),
            memory_room=node.memory_room + sum(place.memory_mib for place in theirs),
        )
    _charge(state, job, places, 1)


def let_go(state: CellState, job: Job) -> None:
    """Hold nothing for this job any more, for which something is held."""
    places = state.rooms[job.id].workers
    for node_id, theirs in _by_node(places).items():
        node = state.nodes[node_id]
        change_node(
            state,
            node,
            room=node.room & ~devices_of(theirs),
            cpu_room=node.cpu_room - sum(place.cpu_milli for place in theirs),
            memory_room=node.memory_room - sum(place.memory_mib for place in theirs),
        )
    state.undo_log.drop(state.rooms, job.id)
    if job.spec.array_of is not None:
        hold_room(state, job.spec.array_of, -1)
    _charge(state, job, places, -1)


def devices_of(places: Sequence[WorkerPlace]) -> int:
    """The mask of the devices of these places, which are on one node."""
    mask = 0
    for place in places:
        mask |= mask_of(place.devices)
    return mask


def _by_node(places: Sequence[WorkerPlace]) -> dict[str, list[WorkerPlace]]:
    found: dict[str, list[WorkerPlace]] = {}
    for place in places:
        found.setdefault(place.node, []).append(place)
    return found


def _charge(state: CellState, job: Job, places: Sequence[WorkerPlace], sign: int) -> None:
    milli: dict[str, int] = {}
    for place in places:
        gpu_type = state.nodes[place.node].spec.gpu_type
        milli[gpu_type] = milli.get(gpu_type, 0) + place.gpu_milli
    for gpu_type, many in milli.items():
        if many:
            charge(state.undo_log.entries, state.tree, (job.spec.tenant, gpu_type), sign * many)
