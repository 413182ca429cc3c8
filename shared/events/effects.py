"""The effects that a decision is made of. Each says what IS after it, never by how much something changed.

An effect is tagged by `kind`. A reader that meets a kind that it does not know must stop: a fold may not skip.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shared.events.base import Attempt, Count, JobId, Millis, Name, NodeId, Text, Value
from shared.events.jobs import Digest
from shared.events.operations import CellPolicy, Quota
from shared.events.reasons import (
    ClearReason,
    DeferCode,
    FailReason,
    ProposalCode,
    RefuseCode,
    RequeueReason,
    StopReason,
)
from shared.events.values import JobSpec, NodeSpec, NodeStatus, RunStatus, WorkerPlace


class Effect(Value):
    """One absolute change of a cell's state."""


class WriterStarted(Effect):
    """A placement process took over as writer. From here on every older writer's record is stale."""

    kind: Literal["WriterStarted"] = "WriterStarted"
    epoch: Annotated[int, Field(ge=1)]
    writer: Text


class JobEnqueued(Effect):
    """The job is accepted and waits. From here on it is never lost."""

    kind: Literal["JobEnqueued"] = "JobEnqueued"
    spec: JobSpec
    submit_ms: Millis
    digest: Digest


class JobUpdated(Effect):
    """The job's specification is now this one."""

    kind: Literal["JobUpdated"] = "JobUpdated"
    spec: JobSpec


class JobEffect(Effect):
    """An effect on one job."""

    job: JobId


class AttemptEffect(JobEffect):
    """An effect on one attempt of a job; refused when that attempt is not the current one."""

    attempt: Attempt


class JobStarted(AttemptEffect):
    """The gang holds these places and its nodes shall start it. All workers at once, or none."""

    kind: Literal["JobStarted"] = "JobStarted"
    workers: Annotated[tuple[WorkerPlace, ...], Field(min_length=1)]
    backfilled: bool = False


class RunObserved(AttemptEffect):
    """One node's run of the attempt has reached this state while other nodes' runs have not."""

    kind: Literal["RunObserved"] = "RunObserved"
    node: NodeId
    status: RunStatus


class JobRunning(AttemptEffect):
    """Every worker of the attempt has started."""

    kind: Literal["JobRunning"] = "JobRunning"


class JobResizing(AttemptEffect):
    """The attempt's nodes shall add these places and stop these ranks; both are held until then."""

    kind: Literal["JobResizing"] = "JobResizing"
    add: tuple[WorkerPlace, ...] = ()
    remove: tuple[Count, ...] = ()


class JobResized(AttemptEffect):
    """The attempt now runs in exactly these places."""

    kind: Literal["JobResized"] = "JobResized"
    workers: Annotated[tuple[WorkerPlace, ...], Field(min_length=1)]


class JobStopping(AttemptEffect):
    """The attempt's nodes shall stop it within `grace_wall_ms`. It still holds its places."""

    kind: Literal["JobStopping"] = "JobStopping"
    why: StopReason
    for_whom: Text = ""
    grace_wall_ms: Millis


class JobPreempted(AttemptEffect):
    """The attempt has stopped to make room, and its places are free."""

    kind: Literal["JobPreempted"] = "JobPreempted"
    why: StopReason
    for_whom: Text = ""


class JobRequeued(JobEffect):
    """The job waits again, in its old place of the queue, and not before `not_before_ms`. Its places are free.

    `failures` is how much of its retry budget is used.
    """

    kind: Literal["JobRequeued"] = "JobRequeued"
    reason: RequeueReason
    not_before_ms: Millis
    failures: Count


class JobFinished(AttemptEffect):
    """The job ended well. Its places are free."""

    kind: Literal["JobFinished"] = "JobFinished"


class JobFailed(JobEffect):
    """The job ended badly and is not tried again. Its places are free."""

    kind: Literal["JobFailed"] = "JobFailed"
    reason: FailReason
    text: Text = ""


class JobCancelled(JobEffect):
    """The job ended because its tenant wished so. Its places are free."""

    kind: Literal["JobCancelled"] = "JobCancelled"


class JobRefused(JobEffect):
    """A request about this job is refused. An accepted job of that id is not touched by it."""

    kind: Literal["JobRefused"] = "JobRefused"
    request: Annotated[str, StringConstraints(max_length=64)]
    code: RefuseCode
    tenant: Name | None = None
    text: Text = ""


class AttemptTimedOut(AttemptEffect):
    """The attempt did not start, run or stop in its time. What follows stands in the same record."""

    kind: Literal["AttemptTimedOut"] = "AttemptTimedOut"
    what: Literal["start", "run", "stop"]


class JobDeferred(JobEffect):
    """The job still waits, now for this reason. Written only when the code changes."""

    kind: Literal["JobDeferred"] = "JobDeferred"
    code: DeferCode


class JobHeld(JobEffect):
    """The job waits and may not start until it is released."""

    kind: Literal["JobHeld"] = "JobHeld"


class JobReleased(JobEffect):
    """The job may start again."""

    kind: Literal["JobReleased"] = "JobReleased"


class ReservationSet(JobEffect):
    """These places are kept for a waiting job, which is planned to start at `start_ms`."""

    kind: Literal["ReservationSet"] = "ReservationSet"
    workers: Annotated[tuple[WorkerPlace, ...], Field(min_length=1)]
    start_ms: Millis


class ReservationCleared(JobEffect):
    """Nothing is kept for this job any more."""

    kind: Literal["ReservationCleared"] = "ReservationCleared"
    reason: ClearReason


class NodeEffect(Effect):
    """An effect on one node."""

    node: NodeId


class NodeChanged(Effect):
    """The node is this, in this boot and this state. A node not seen before is added."""

    kind: Literal["NodeChanged"] = "NodeChanged"
    spec: NodeSpec
    boot: NodeId
    status: NodeStatus
    drain_deadline_ms: Millis | None = None
    reason: Text = ""


class DeviceChanged(NodeEffect):
    """The device is healthy or not. What runs on it goes on holding it until it is stopped."""

    kind: Literal["DeviceChanged"] = "DeviceChanged"
    device: Count
    healthy: bool


class LeaseExpired(NodeEffect):
    """The node was silent for its lease and margin: by now it has stopped its own work."""

    kind: Literal["LeaseExpired"] = "LeaseExpired"
    boot: NodeId


class LoanEffect(NodeEffect):
    """An effect on one node of a loan."""

    loan: JobId


class NodeLent(LoanEffect):
    """The inference node works for a training pool until `deadline_ms` (None: until recalled)."""

    kind: Literal["NodeLent"] = "NodeLent"
    to_pool: Name
    deadline_ms: Millis | None = None


class NodeLoanDraining(LoanEffect):
    """The lent node takes nothing new and must be empty by `deadline_ms`."""

    kind: Literal["NodeLoanDraining"] = "NodeLoanDraining"
    deadline_ms: Millis


class NodeReclaimed(LoanEffect):
    """The node is empty and back at home."""

    kind: Literal["NodeReclaimed"] = "NodeReclaimed"


class QuotaSet(Effect):
    """The tenant's quota of one GPU type is now this."""

    kind: Literal["QuotaSet"] = "QuotaSet"
    quota: Quota


class PolicySet(Effect):
    """The cell decides by these numbers now."""

    kind: Literal["PolicySet"] = "PolicySet"
    policy: CellPolicy


class ProposalRefused(Effect):
    """A proposal was not carried out."""

    kind: Literal["ProposalRefused"] = "ProposalRefused"
    proposal: JobId
    code: ProposalCode
    text: Text = ""


AnyEffect = Annotated[
    WriterStarted
    | JobEnqueued
    | JobUpdated
    | JobStarted
    | RunObserved
    | JobRunning
    | JobResizing
    | JobResized
    | JobStopping
    | JobPreempted
    | JobRequeued
    | JobFinished
    | JobFailed
    | JobCancelled
    | JobRefused
    | AttemptTimedOut
    | JobDeferred
    | JobHeld
    | JobReleased
    | ReservationSet
    | ReservationCleared
    | NodeChanged
    | DeviceChanged
    | LeaseExpired
    | NodeLent
    | NodeLoanDraining
    | NodeReclaimed
    | QuotaSet
    | PolicySet
    | ProposalRefused,
    Field(discriminator="kind"),
]
"""Every effect there is. A new one is added here, beside its class."""
