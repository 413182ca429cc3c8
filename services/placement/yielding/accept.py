"""Proposals that jobs yield to a waiting one: looked at on the newest state, and carried out or refused.

The version on which a proposal was planned is evidence and no condition: what counts is whether it holds now. One that
holds is one step of the log: its victims are told to stop, and the room is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.requests.requests import stopping
from fallow.services.placement.yielding.trial import are_places_for, superfluous, would_start
from fallow.shared.cluster.capacity.gang_bytes import is_too_large
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.node import mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim, leaving_milli, milli_by_type
from fallow.shared.cluster.preemption.cost import in_order_of_cost
from fallow.shared.cluster.preemption.rules import may_preempt, objection
from fallow.shared.events import effects as e
from fallow.shared.events.base import later
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.events.proposals import PreemptionProposed
from fallow.shared.events.reasons import STOPPED_FOR, ClearReason, PendingReason, ProposalCode


class Refusal(NamedTuple):
    """Why a proposal is not carried out: the code, and what it is about, in words."""

    code: ProposalCode
    text: str


def take(decision: DecisionBuilder, event: PreemptionProposed, queue: Queue | None) -> None:
    """Carry the proposal out, or refuse it. `queue` is the one in which the preemptor waits, if it lives."""
    workers = event.workers
    decision.steps += len(workers) + len(event.victims)
    refusal = why_not(decision.state, event, workers, queue, decision.now_ms)
    if refusal is None:
        _carry_out(decision, event, workers)
    else:
        decision.emit(e.ProposalRefused(proposal=event.proposal, code=refusal.code, text=refusal.text[:500]))


def why_not(
    state: CellState, event: PreemptionProposed, workers: Sequence[WorkerPlace], queue: Queue | None, now_ms: int
) -> Refusal | None:
    """Why the proposal does not hold on this state, or None where it does."""
    job = state.jobs.get(event.preemptor)
    if job is None or queue is None or job.status is not JobStatus.QUEUED:
        return Refusal(ProposalCode.BENEFICIARY_GONE, f"job {event.preemptor} does not wait")
    return (
        _by_places(state, job, workers, now_ms)
        or _by_attempts(state, event)
        or _by_rules(state, event, job, workers, queue, now_ms)
        or _by_trial(state, event, job, workers)
    )


def _by_places(state: CellState, job: Job, workers: Sequence[WorkerPlace], now_ms: int) -> Refusal | None:
    if job.id in state.rooms:
        return Refusal(ProposalCode.ROOM_HELD, f"room is held for job {job.id} already")
    if not job.spec.gang or job.spec.exclusive:
        return Refusal(ProposalCode.UNSUPPORTED, f"job {job.id} is no gang, or is exclusive: nothing yields to it")
    if any(place.turn or place.since_ms for place in workers):
        return Refusal(
            ProposalCode.NODE_CHANGED, f"these are places of a worker that enters job {job.id} while it runs"
        )
    if not are_places_for(state, job.spec, workers, now_ms):
        text = f"these are no places for job {job.id}: they are not what it asks for, or a node is out of service"
        return Refusal(ProposalCode.NODE_CHANGED, text)
    held = next((place.node for place in workers if mask_of(place.devices) & state.nodes[place.node].room), None)
    if held is not None:
        return Refusal(ProposalCode.ROOM_HELD, f"room on node {held} is held for another job")
    if is_too_large(job.spec, tuple(workers)):
        return Refusal(ProposalCode.DOES_NOT_HELP, f"no record can hold the places of job {job.id}")
    return None


def _by_attempts(state: CellState, event: PreemptionProposed) -> Refusal | None:
    seen: dict[str, None] = {}
    for named in event.victims:
        victim = state.jobs.get(named.job)
        if victim is None or victim.attempt != named.attempt or victim.status not in HOLDING:
            return Refusal(ProposalCode.ATTEMPT_OVER, f"attempt {named.attempt} of job {named.job} is over")
        if named.job in seen:
            return Refusal(ProposalCode.TOO_MANY_VICTIMS, f"job {named.job} is named twice")
        seen[named.job] = None
    return None


def _by_rules(
    state: CellState,
    event: PreemptionProposed,
    job: Job,
    workers: Sequence[WorkerPlace],
    queue: Queue,
    now_ms: int,
) -> Refusal | None:
    claim = Claim(job, queue, event.cause, milli_by_type(state, workers), now_ms, leaving_milli(state))
    why = may_preempt(state, claim)
    if why is not None:
        return Refusal(ProposalCode.NOT_ALLOWED, f"job {job.id} {why}")
    against = objection(state, claim, in_order_of_cost(state, claim, _victims(state, event)))
    return against and Refusal(ProposalCode.NOT_ALLOWED, f"job {against.job.id} {against.why}")


def _by_trial(state: CellState, event: PreemptionProposed, job: Job, workers: Sequence[WorkerPlace]) -> Refusal | None:
    victims = _victims(state, event)
    if not may_start_one_more(state, job.spec):
        text = f"job {job.id} waits for its array: as many elements of it run, or get room, as may"
        return Refusal(ProposalCode.DOES_NOT_HELP, text)
    if not would_start(state, job, workers, victims):
        return Refusal(ProposalCode.DOES_NOT_HELP, f"job {job.id} would not start there without them")
    needless = superfluous(state, job, workers, victims)
    if needless is not None:
        return Refusal(ProposalCode.TOO_MANY_VICTIMS, f"job {job.id} would start there beside job {needless.id}")
    return None


def _victims(state: CellState, event: PreemptionProposed) -> list[Job]:
    return [state.jobs[named.job] for named in event.victims]


def _carry_out(decision: DecisionBuilder, event: PreemptionProposed, workers: tuple[WorkerPlace, ...]) -> None:
    """The victims are told to stop, and the room is held until the job starts, or for `hold_lapse_ms`."""
    state, policy, why = decision.state, decision.state.policy, STOPPED_FOR[event.cause]
    for victim in _victims(state, event):
        decision.emit(stopping(victim, why, policy.preempt_grace_wall_ms, event.preemptor))
    if event.preemptor in state.reservations:
        decision.emit(e.ReservationCleared(job=event.preemptor, reason=ClearReason.REPLACED))
    decision.emit(
        e.RoomHeld(
            job=event.preemptor,
            cause=event.cause,
            workers=workers,
            victims=len(event.victims),
            until_ms=later(decision.now_ms, policy.hold_lapse_ms),
            proposal=event.proposal,
            version=event.version,
        )
    )
    if state.jobs[event.preemptor].deferred is not PendingReason.MAKING_ROOM:
        decision.emit(e.JobDeferred(job=event.preemptor, code=PendingReason.MAKING_ROOM))
