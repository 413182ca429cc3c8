"""The effects that a decision is made of. Each says what IS after it, never by how much something changed.

An effect is tagged by `kind`. A reader that meets a kind that it does not know must stop: a fold may not skip.
"""

from __future__ import annotations

from copy import copy
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from msgspec import Meta
from msgspec.structs import force_setattr
from pydantic import Field

from fallow.shared.events.base import LARGEST_INTEGER, Attempt, Count, JobId, Label, Millis, Name, NodeId, Text, Value
from fallow.shared.events.codec.ranges import ONE_BY_ONE_MAX, places_of, ranges_of
from fallow.shared.events.fields.value import ValueMeta, replace
from fallow.shared.events.fields.values import (
    WORKERS_MAX,
    JobSpec,
    NodeSpec,
    NodeStatus,
    RunStatus,
    Setback,
    WorkerPlace,
    WorkerRange,
)
from fallow.shared.events.jobs import Digest
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.reasons import (
    CancelReason,
    ClearReason,
    FailReason,
    PendingReason,
    PreemptionCause,
    ProposalCode,
    RefuseCode,
    RequeueReason,
    StopReason,
)


class EffectMeta(ValueMeta):
    """Gives each effect its kind: the name of its class."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> EffectMeta:
        """The class, tagged by its name."""
        cls: Any = super().__new__(mcs, name, bases, namespace, **config)
        cls.kind = name
        return cls  # type: ignore[no-any-return]


CELL_FILE_CHARACTERS_MAX = 200_000
"""A larger cell file is refused wherever one is read: as text within a record, and within a piece of a snapshot, a
character takes up to two bytes, and that much always fits.
"""


UPDATABLE = ("priority", "workers", "workers_min", "max_run_ms")
"""What may be changed of a job after its submission: all fields of JobChanges."""

AVOIDED_MAX = 8
"""So many nodes of its last failures a job avoids at most."""

Avoided = Annotated[tuple[NodeId, ...], Meta(max_length=AVOIDED_MAX)]


class Effect(Value, metaclass=EffectMeta, tag_field="kind", tag=True):
    """One absolute change of a cell's state."""

    kind: ClassVar[str]


class WriterStarted(Effect):
    """A placement process took over as writer. From here on every older writer's record is stale."""

    epoch: Annotated[int, Meta(ge=1)]
    writer: Text


class JobEnqueued(Effect):
    """The job is accepted and waits. From here on it is never lost. `sent_ms` is the cell time at which the broker got
    the submission, where that is another time than the one since which the job waits.
    """

    spec: JobSpec
    submit_ms: Millis
    digest: Digest
    sent_ms: Millis | None = None


class JobEffect(Effect):
    """An effect on one job."""

    job: JobId


class JobUpdated(JobEffect):
    """What may be changed of a job is now this; all else of its specification stays, and is not said again: it may be
    as large as a submission, and the next update is a few bytes.
    """

    tenant: Name
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)]
    workers_min: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | None = None
    max_run_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)] | None = None

    @classmethod
    def of(cls, spec: JobSpec) -> JobUpdated:
        """The job has this specification from now on."""
        changed = {name: getattr(spec, name) for name in UPDATABLE}
        return cls(job=spec.id, tenant=spec.tenant, **changed)

    def applied_to(self, spec: JobSpec) -> JobSpec:
        """The specification that was this one before."""
        return replace(spec, **{name: getattr(self, name) for name in UPDATABLE})


class AttemptEffect(JobEffect):
    """An effect on one attempt of a job; refused when that attempt is not the current one."""

    attempt: Attempt


class JobStarted(AttemptEffect):
    """The gang holds these places and its nodes shall start it. All workers at once, or none.

    A record names many workers in `ranges`; then it has no `workers`. Every reader gets them in `workers`.

    `backfilled_over` is the head of its queue that it was started past, because that did not fit.
    """

    workers: tuple[WorkerPlace, ...] = ()
    ranges: tuple[WorkerRange, ...] = ()
    backfilled: bool = False
    backfilled_over: Text = ""

    def __post_init__(self) -> None:
        if self.ranges:
            _read_ranges(self, "workers")

    def as_written(self) -> JobStarted:
        """With many workers in ranges."""
        return self if len(self.workers) <= ONE_BY_ONE_MAX else _in_ranges(self, "workers")


class RunObserved(AttemptEffect):
    """One node's run of the attempt has reached this state while other nodes' runs have not."""

    node: NodeId
    status: RunStatus


class JobRunning(AttemptEffect):
    """Every worker of the attempt has started."""


class JobResizing(AttemptEffect):
    """The attempt's nodes shall add these places and stop these ranks; both are held until then.

    Of a gang `JobResized` tells when all have answered; of another job `WorkersSettled` tells of each worker. A record
    names many places in `ranges` instead of `add`.
    """

    add: tuple[WorkerPlace, ...] = ()
    remove: tuple[Count, ...] = ()
    ranges: tuple[WorkerRange, ...] = ()

    def __post_init__(self) -> None:
        if self.ranges:
            _read_ranges(self, "add")

    def as_written(self) -> JobResizing:
        """With many places in ranges."""
        return self if len(self.add) <= ONE_BY_ONE_MAX else _in_ranges(self, "add")


class JobResized(AttemptEffect):
    """The attempt now runs in exactly these places. A record names many in `ranges` instead of `workers`."""

    workers: tuple[WorkerPlace, ...] = ()
    ranges: tuple[WorkerRange, ...] = ()

    def __post_init__(self) -> None:
        if self.ranges:
            _read_ranges(self, "workers")

    def as_written(self) -> JobResized:
        """With many workers in ranges."""
        return self if len(self.workers) <= ONE_BY_ONE_MAX else _in_ranges(self, "workers")


class WorkersSettled(AttemptEffect):
    """Of a job that is no gang, the workers of these ranks have started, or are over and their places are free: `done`
    those that ended well, `gone` all others.

    `failures` is how much of its retry budget is used now, `losses` how often in a row a worker was lost by no fault of
    the job. `setbacks` are those of the ranks to which something has happened: each counts and waits for itself, also
    over the end of the attempt. Those that enter next avoid the nodes `avoid`.
    """

    joined: tuple[Count, ...] = ()
    done: tuple[Count, ...] = ()
    gone: tuple[Count, ...] = ()
    failures: Count = 0
    losses: Count = 0
    avoid: Avoided = ()
    setbacks: tuple[Setback, ...] = ()


class JobStopping(AttemptEffect):
    """The attempt's nodes shall stop it within `grace_wall_ms`. It still holds its places. `avoid` are the nodes of its
    last failures, this one among them. `text` tells of the failure, or of the fault of a node, that is why.
    """

    why: StopReason
    for_whom: Text = ""
    grace_wall_ms: Millis
    avoid: Avoided = ()
    text: Text = ""


class JobPreempted(AttemptEffect):
    """The attempt has stopped to make room, and its places are free."""

    why: StopReason
    for_whom: Text = ""


class JobRequeued(JobEffect):
    """The job waits again, in its old place of the queue, and not before `not_before_ms`. Its places are free.

    `failures` is how much of its retry budget is used, `losses` how often in a row it was lost by no fault of its own:
    each such loss but the first one makes it wait for longer. It avoids the nodes `avoid`, those of its last failures,
    the newest last, while it fits on others.
    """

    reason: RequeueReason
    not_before_ms: Millis
    failures: Count
    losses: Count = 0
    avoid: Avoided = ()


class JobFinished(AttemptEffect):
    """The job ended well. Its places are free."""


class JobFailed(JobEffect):
    """The job ended badly and is not tried again. Its places are free."""

    reason: FailReason
    text: Text = ""


class JobCancelled(JobEffect):
    """The job ended because its tenant wished so, or because of `because_of`, another job, for which it waited. Its
    places are free.
    """

    reason: CancelReason = CancelReason.ASKED
    because_of: JobId | None = None


class JobRefused(JobEffect):
    """A request about this job is refused. An accepted job of that id is not touched by it."""

    request: Annotated[str, Meta(max_length=64)]
    code: RefuseCode
    tenant: Name | None = None
    text: Text = ""


class AttemptTimedOut(AttemptEffect):
    """The attempt did not start, run or stop in its time. What follows stands in the same record."""

    what: Literal["start", "run", "stop"]


class JobDeferred(JobEffect):
    """The job still waits, now for this reason. Written only when the code changes."""

    code: PendingReason


class JobHeld(JobEffect):
    """The job waits and may not start until it is released. Without a `reason` an operator or its tenant wished so."""

    reason: Text = ""


class JobReleased(JobEffect):
    """The job may start again."""


class JobReady(JobEffect):
    """What the job waited for is over as it should be: from here on it waits for its turn."""


class WaitShortened(JobEffect):
    """Of those that the job waits for these are over as they should be. It waits for others still, or is held."""

    over: tuple[JobId, ...]


class ReservationSet(JobEffect):
    """A waiting job is planned to start at `start_ms`, by estimates of how long others run. These places are kept for
    it until then; without places nothing is, and the plan only tells people. A record names many in `ranges` instead
    of `workers`.

    `first_ms` is when it was planned to start in the first plan that kept places for it since it waits, also where
    that plan is over: until then jobs behind it may pass it as far as that leaves its places alone, however long it
    waits. It lapses at `until_ms` of cell time unless it is set
    again (None: it does not lapse). `version` is that of the state from which it was planned.
    """

    workers: tuple[WorkerPlace, ...] = ()
    ranges: tuple[WorkerRange, ...] = ()
    start_ms: Millis
    first_ms: Millis | None = None
    until_ms: Millis | None = None
    version: Count = 0

    def __post_init__(self) -> None:
        if self.ranges:
            _read_ranges(self, "workers")

    def as_written(self) -> ReservationSet:
        """With many workers in ranges."""
        return self if len(self.workers) <= ONE_BY_ONE_MAX else _in_ranges(self, "workers")


class ReservationCleared(JobEffect):
    """Nothing is kept for this job any more."""

    reason: ClearReason


class RoomHeld(JobEffect):
    """Others yield to a waiting job, for `cause`: the places in which it will start are held for it from here on, by
    whomever they are still used, and no other job gets any of them. So is what it will use of its tenant's quotas. It
    starts in just these places when the last of the `victims` has left them. It ends at `until_ms` of cell time at the
    latest. `proposal` is the one that was accepted, planned on `version`. A record names many in `ranges` instead of
    `workers`.
    """

    cause: PreemptionCause
    workers: tuple[WorkerPlace, ...] = ()
    ranges: tuple[WorkerRange, ...] = ()
    victims: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)]
    until_ms: Millis
    proposal: JobId
    version: Count = 0

    def __post_init__(self) -> None:
        if self.ranges:
            _read_ranges(self, "workers")

    def as_written(self) -> RoomHeld:
        """With many workers in ranges."""
        return self if len(self.workers) <= ONE_BY_ONE_MAX else _in_ranges(self, "workers")


class RoomReleased(JobEffect):
    """No room is held for this job any more."""

    reason: ClearReason


class HeadBlocked(JobEffect):
    """The job is the first of its queue that does not fit, of those that need what it needs. When it has been so for
    long, nothing more that could use this is started past it.
    """


class HeadCleared(JobEffect):
    """The job waits, but is no longer such a first one: another came before it."""


class NodeEffect(Effect):
    """An effect on one node."""

    node: NodeId


class NodeChanged(Effect):
    """The node is this, in this boot and this state. A node not seen before is added.

    `offered` is what it has become while places on it are still held as what it was: until these are free and it is
    taken for what it is, it gets no new work.

    `seq` numbers the word with which it came: what it said up to that is past, also for a writer that did not read it.

    A node in quarantine is cordoned by no operator, until `quarantined_until_ms` (None: until it is uncordoned). Which
    jobs failed on it is forgotten.
    """

    spec: NodeSpec
    boot: NodeId
    status: NodeStatus
    drain_deadline_ms: Millis | None = None
    reason: Text = ""
    seq: Count = 0
    offered: NodeSpec | None = None
    quarantined: bool = False
    quarantined_until_ms: Millis | None = None


class NodeFailures(NodeEffect):
    """These different jobs failed on the node, one after the other; none ended well there since the first of them. The
    elements of an array count as one: the array stands for them. Beside each stands its tenant, when it failed, and
    whether by the node's own fault (none: no job of these): there each element stands for itself.
    """

    jobs: tuple[JobId, ...] = ()
    tenants: tuple[Name, ...] = ()
    failed_ms: tuple[Millis, ...] = ()
    by_node: tuple[bool, ...] = ()


class MaintenanceSet(NodeEffect):
    """Maintenance of the node is planned for this time; None: none is planned, and what was going on is over."""

    begin_ms: Millis | None = None
    end_ms: Millis | None = None
    reason: Text = ""


class MaintenanceBegan(NodeEffect):
    """The node's maintenance has begun: nothing new starts there, and what still runs stops."""


class DeviceChanged(NodeEffect):
    """The device is healthy or not. What runs on it goes on holding it until it is stopped."""

    device: Count
    healthy: bool


class LeaseExpired(NodeEffect):
    """The node is lost. Without `reason` it was silent for its lease and margin: by now it has stopped its own work. It
    is lost for the `flaps`th time in a row, and gets no new work before `rests_until_ms` if it comes back.
    """

    boot: NodeId
    reason: Text = ""
    flaps: Count = 0
    rests_until_ms: Millis = 0


class NodeSilent(NodeEffect):
    """Nothing was heard of the node for so long, by the wall clock, while its topic was read: it gets no new work. A
    topic that cannot be read makes all nodes silent, each for the shortest time of which the log is told. A writer that
    takes over counts its silence from here on. Where it is beyond its lease, losses were held back for `held_wall_ms`
    then.
    """

    boot: NodeId
    silent_wall_ms: Annotated[int, Meta(ge=1)]
    held_wall_ms: Millis = 0


class NodeHeard(NodeEffect):
    """The node that was silent has said something: it may get new work again. With `flaps` its lease had run out, so it
    had stopped its own work, though it was not declared lost: that counts as the `flaps`th time in a row, and it is to
    get no new work before `rests_until_ms`.
    """

    flaps: Count = 0
    rests_until_ms: Millis = 0


class NodeRemoved(NodeEffect):
    """The lost node, on which nothing was held, is forgotten. What comes under its name is a new node."""


class EvictionsHeld(Effect):
    """So many nodes are silent at once that they are not declared lost at once: `silent` wait for that now. It has gone
    on for `held_wall_ms`, and `lost` were declared lost nevertheless since it began. For these the rate of losses is
    used up to `paced_wall_ms` of that time.
    """

    silent: Count
    held_wall_ms: Millis
    lost: Count = 0
    paced_wall_ms: Millis = 0


class EvictionsResumed(Effect):
    """Few nodes are silent: each is declared lost when its lease runs out."""


class LoanEffect(NodeEffect):
    """An effect on one node of a loan."""

    loan: JobId


class NodeLent(LoanEffect):
    """The inference node works for a training pool until `deadline_ms` (None: until recalled)."""

    to_pool: Name
    deadline_ms: Millis | None = None


class NodeLoanDraining(LoanEffect):
    """The lent node takes nothing new and must be empty by `deadline_ms`."""

    deadline_ms: Millis


class NodeReclaimed(LoanEffect):
    """The node is empty and back at home."""


class QuotaSet(Effect):
    """The tenant's quota of one GPU type is now this: as the cell file has it set, kept or left (`of_file`), or as a
    person has set it.
    """

    quota: Quota
    of_file: bool = False


class QuotaRemoved(Effect):
    """The tenant has no quota of this GPU type any more. No job of its lives, and no tenant stands below it there."""

    tenant: Name
    gpu_type: Label


class PolicySet(Effect):
    """The cell decides by these numbers now. Nodes may still go by a lease that an earlier policy named: none is lost
    before it is silent for `longest_patience_ms` of wall time (0: as before, or as long as the policies say).
    """

    policy: CellPolicy
    longest_patience_ms: Count = 0


class CellFileSet(Effect):
    """The cell goes by this cell file now: its pools, queues, tenants and limits. A process that takes the cell over
    has it from here. `content` is the file as JSON, `digest` its hash.
    """

    digest: Digest
    content: Annotated[str, Meta(max_length=CELL_FILE_CHARACTERS_MAX), Field(max_length=CELL_FILE_CHARACTERS_MAX)]


class ProposalRefused(Effect):
    """A proposal was not carried out."""

    proposal: JobId
    code: ProposalCode
    text: Text = ""


class InputResumed(Effect):
    """A person decided from which offset an input that has lost records is read on. The offset may be a lower one: a
    topic that was lost and filled anew begins at 0.
    """

    input: Name
    from_offset: Count
    to_offset: Count


class InputFenced(Effect):
    """An input was read past a loss. Its cursor goes back to `to_offset`, the place that the topic no longer continues
    (`checksum`: of the record before it), and the input is not read until a person decides.
    """

    input: Name
    from_offset: Count
    to_offset: Count
    checksum: Count | None = None


class LogRepaired(Effect):
    """A person went on with a log that had lost records, or was damaged. Of what once stood there up to `end`, only the
    records before the offset `good_until` count; so many contradicting snapshots were made void.
    """

    by: Text
    good_until: Count
    end: Count
    snapshots: Count = 0


OF_WORKERS: Final[frozenset[type[Effect]]] = frozenset({JobStarted, JobResizing, JobResized, ReservationSet, RoomHeld})
"""The effects that name workers, and have ranges for many."""

_OfWorkers = TypeVar("_OfWorkers", "JobStarted", "JobResizing", "JobResized", "ReservationSet", "RoomHeld")


def _read_ranges(effect: JobStarted | JobResizing | JobResized | ReservationSet | RoomHeld, field: str) -> None:
    """Give an effect that was read the workers of its ranges one by one. Raises ValueError where it names some in both
    ways.
    """
    if getattr(effect, field):
        raise ValueError(f"workers stand either in {field} or in ranges")
    force_setattr(effect, field, places_of(effect.ranges))
    force_setattr(effect, "ranges", ())


def _in_ranges(effect: _OfWorkers, field: str) -> _OfWorkers:
    """The effect as its record says it: nothing but the encoder may see it."""
    found = copy(effect)
    force_setattr(found, "ranges", ranges_of(getattr(effect, field)))
    force_setattr(found, field, ())
    return found


AnyEffect = (
    WriterStarted
    | JobEnqueued
    | JobUpdated
    | JobStarted
    | RunObserved
    | JobRunning
    | JobResizing
    | JobResized
    | WorkersSettled
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
    | JobReady
    | WaitShortened
    | ReservationSet
    | ReservationCleared
    | RoomHeld
    | RoomReleased
    | HeadBlocked
    | HeadCleared
    | NodeChanged
    | NodeFailures
    | MaintenanceSet
    | MaintenanceBegan
    | DeviceChanged
    | LeaseExpired
    | NodeSilent
    | NodeHeard
    | NodeRemoved
    | EvictionsHeld
    | EvictionsResumed
    | NodeLent
    | NodeLoanDraining
    | NodeReclaimed
    | QuotaSet
    | QuotaRemoved
    | PolicySet
    | CellFileSet
    | ProposalRefused
    | InputResumed
    | InputFenced
    | LogRepaired
)
"""Every effect there is. A new one is added here, beside its class."""
