"""What becomes of room that is held: its job starts there once the last victim is gone, or it is let go of.

It is let go of where its job does not wait for it any more, where a node of it is out of service, and at the latest
when it lapses: so no room is held for ever, whatever a victim's node says or does not say.
"""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.queue.planned_places import may_start_in
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.shared.cluster.capacity.gang_bytes import bytes_of
from fallow.shared.cluster.fold.rooms import let_go
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.node import mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.reasons import ClearReason

_ROOM_BYTES = 400
"""What the end of a room and the start's own fields take in a record, at most."""


def settle(decision: DecisionBuilder) -> None:
    """Start the jobs whose room is free, and let go of room that is held in vain."""
    state = decision.state
    for job_id in list(state.rooms):
        if decision.is_full:
            return
        job = state.jobs[job_id]
        reason = _over(state, job, decision.now_ms)
        if reason is not None:
            decision.emit(e.RoomReleased(job=job_id, reason=reason))
        elif is_free(state, job) and _may_start(state, job, decision.now_ms):
            _start(decision, job)


def next_lapse_ms(state: CellState) -> int | None:
    """When the next room lapses."""
    return min((room.until_ms for room in state.rooms.values()), default=None)


def _over(state: CellState, job: Job, now_ms: int) -> ClearReason | None:
    """Why room is held for this job no more, or None."""
    if job.status is not JobStatus.QUEUED:
        return ClearReason.HELD
    room = state.rooms[job.id]
    if room.until_ms <= now_ms:
        return ClearReason.LAPSED
    for place in room.workers:
        node = state.nodes.get(place.node)
        if node is None or not node.is_in_service or node.offered is not None or mask_of(place.devices) & node.failed:
            return ClearReason.NODES_GONE
    return None


def is_free(state: CellState, job: Job) -> bool:
    """Whether nobody uses a device any more that is held for the job."""
    whole = job.spec.resources.gpu_milli >= GPU
    for place in state.rooms[job.id].workers:
        node, wanted = state.nodes[place.node], mask_of(place.devices)
        if wanted & node.held or (whole and any(wanted >> device & 1 for device in node.shares)):
            return False
    return True


def _may_start(state: CellState, job: Job, now_ms: int) -> bool:
    """Whether the job could start there if nothing was held for it."""
    if job.not_before_ms > now_ms or not may_start_one_more(state, job.spec):
        return False
    workers, mark = state.rooms[job.id].workers, state.checkpoint()
    let_go(state, job)
    found = may_start_in(state, job.spec, workers)
    state.rollback(mark)
    return found


def _start(decision: DecisionBuilder, job: Job) -> None:
    """The job starts in its room, unless the record has no room for that: then it ends here, and the next one does."""
    workers = decision.state.rooms[job.id].workers
    if not decision.fits(bytes_of(workers) + _ROOM_BYTES):
        decision.is_closed = True
        return
    decision.emit(e.RoomReleased(job=job.id, reason=ClearReason.STARTED))
    decision.start(job.id, job.attempt + 1, workers)
