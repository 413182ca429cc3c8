"""What the effects on room that is held for waiting jobs do to a state, and when they are refused."""

from __future__ import annotations

from fallow.shared.cluster.fold.apply_jobs import get_what_they_asked_for, in_status, job_of
from fallow.shared.cluster.fold.errors import IllegalEffect, require
from fallow.shared.cluster.fold.rooms import hold, let_go
from fallow.shared.cluster.model.arrays import hold_room
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.node import mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU


def room_held(state: CellState, effect: e.RoomHeld, at_ms: int) -> None:
    """Room is held for a waiting job, for all of its workers."""
    job = job_of(state, effect.job)
    in_status(job, JobStatus.QUEUED)
    require(job.id not in state.rooms, f"room is held for job {job.id} already")
    require(
        job.spec.gang and not job.spec.exclusive, f"job {job.id} is no gang, or is exclusive: nothing is held for it"
    )
    ranks = [place.rank for place in effect.workers]
    require(ranks == list(range(job.spec.workers)), f"job {job.id} needs {job.spec.workers} places, by rank")
    get_what_they_asked_for(job, effect.workers)
    taken: dict[str, int] = {}
    for place in effect.workers:
        node, wanted = state.nodes.get(place.node), mask_of(place.devices)
        if node is None:
            raise IllegalEffect(f"node {place.node} does not exist")
        require(not wanted >> node.spec.gpus, f"node {node.id} has no such device")
        require(not wanted & node.room, f"a device of node {node.id} is held for another job")
        is_twice = place.gpu_milli >= GPU and bool(wanted & taken.get(node.id, 0))
        require(not is_twice, f"job {job.id} names a device of node {node.id} twice")
        taken[node.id] = taken.get(node.id, 0) | wanted
    state.undo_log.put(state.rooms, job.id, effect)
    if job.spec.array_of is not None:
        hold_room(state, job.spec.array_of, 1)
    hold(state, job, effect.workers)


def room_released(state: CellState, effect: e.RoomReleased, at_ms: int) -> None:
    """No room is held for a job any more."""
    job = job_of(state, effect.job)
    require(job.id in state.rooms, f"job {job.id} has no room that is held")
    let_go(state, job)
