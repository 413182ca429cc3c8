"""The language of Fallow: every event, command and effect, one class each.

Commands are in the imperative (`SubmitJob`); facts in the past (`JobAdmitted`). This package is all that Fallow can
say; what happened to a job stands in the decision log.

**The life of a job.** A tenant publishes `SubmitJob`. Admission tests what can be tested without knowing the cluster's
state and answers `JobAdmitted` or `JobRejected`. Placement takes an admitted job into the log with `JobEnqueued`, or
refuses it with `JobRefused` (its id was used for something else). Jobs that come thick are admitted together, in one
`JobsAdmitted`. From `JobEnqueued` on the job is never lost: it
waits, it runs, or it has ended in exactly one of `JobFinished`, `JobFailed` and `JobCancelled`. While it waits,
`JobDeferred` says why whenever that reason changes; `JobHeld` and `JobReleased` keep it from starting and let it go.
A job that waits for the ends of others is `JobReady` when they are over, and then waits for its turn; where only some
of them are, or it is held, its `WaitShortened` says so.
`JobStarted` gives it an attempt number and all its places at once: a gang starts whole or not at all. When every node
has said `RunStarted`, the job is `JobRunning`. It may be `JobStopping` (a cancel, a failed worker, a time limit,
another job's need) and goes on holding its places until its nodes confirm that nothing is left of it; only then does
it become `JobCancelled`, `JobPreempted` and `JobRequeued`, or `JobFailed`. A requeued job keeps its place in the queue;
its next start is attempt + 1. An elastic job changes its number of workers by `JobResizing` and `JobResized`.
The workers of a job that is no gang enter and leave singly: `JobResizing` says which shall, and `WorkersSettled` which
have started, ended well or gone.
`UpdateJob` and `CancelJob` become `JobUpdateRequested` and `JobCancelRequested`, and then `JobUpdated`, `JobCancelled`
or `JobRefused`.

**The life of a run.** A run is the workers of one attempt on one node; of a job that is no gang, each worker is a run.
The node learns from the log that it shall start (`JobStarted`) and says `RunStarted` when all of them live;
`RunProgressed` as they get on; and one of `RunFinished`, `RunFailed` and `RunStopped` when nothing is left of them.
Nodes say so again in every `NodeReport` until the log has taken it in, so that a lost message is only late. An executor
that speaks for many nodes puts their words into one `RunsReported`, and their reports into one `NodesReported`.
`RunObserved` keeps in the log what one node said while other nodes of the gang had not spoken.

**The life of a node.** `NodeJoined` announces it with its devices and its place in the network; `NodeChanged` takes
it into the log. Each `NodeReport` renews its lease. A node that says nothing for a part of it is `NodeSilent` and
gets no new work until it is `NodeHeard`. Silence beyond lease and margin, or `NodeLost` from a system that knows, or
`DeclareLost` from an operator, is `LeaseExpired`: the node is lost and its runs are over, because an agent that
cannot renew its lease stops its own work. `NodeReturned` (same boot) or `NodeJoined` (new boot) brings it back, and
nothing that was declared over is taken up again. While too many nodes are silent at once, `EvictionsHeld` keeps them
from being lost until a wait is over, and `EvictionsResumed` ends it. A lost node without work is `NodeRemoved` after
a while, or by `RemoveNode`. `Cordon`, `Drain` and `Uncordon` say what an operator wants of it; `PlanMaintenance` and
`CancelMaintenance` what is known ahead, which becomes `MaintenanceSet` and, when the time has come,
`MaintenanceBegan`; `DeviceFailed` and `DeviceChanged` take single GPUs out and in. `NodeFailures` keeps which jobs
failed on it in a row, and `LeaseExpired` and `NodeHeard` how often in a row its lease ran out: too many of either, and
`NodeChanged` takes it into quarantine.

**The life of a loan.** `OfferLoan` (or `InferenceDemand` that leaves servers idle) lets loaning publish `LoanProposed`;
placement answers `NodeLent` or `ProposalRefused`. A lent node works for training until `RecallLoan`, new demand or its
deadline makes loaning publish `ReclaimProposed`; then it is `NodeLoanDraining`, its jobs are `JobStopping` or
`JobResizing`, and when it is empty it is `NodeReclaimed`.

**The life of a reservation.** Queueing plans when jobs that do not fit will start, and proposes that as
`StartsPlanned`. What holds on the newest state becomes `ReservationSet`: the planned start, and in queues that backfill
these places, from that time on. Jobs behind it may run there only if they end before it. `ReservationCleared` ends it:
the job has started, is held or over, is planned no more, its nodes are gone, or no plan has confirmed it for long.

**The life of a head.** In a queue that backfills, `HeadBlocked` says that a job is the first that does not fit of those
that need the same (nodes of one kind, or room below one limit), and from when on it is waited for; so a queue may have
several heads. Jobs started past a head name it. That ends when it starts, is held or is over, or with `HeadCleared`
when it stands behind another head.

**Which job is next, and which makes room.** Placement keeps the lines of all queues itself; queueing tells people as
`QueuePlanned` who would be next. Where a start needs room, loaning proposes the least costly change:
`PreemptionProposed` stops attempts for another job, `ResizeProposed` grows or shrinks elastic jobs, `MigrationProposed`
moves one to put fragments together. Placement carries a proposal out on the newest state or answers `ProposalRefused`.
With a preemption the victims are `JobStopping`, and `RoomHeld` keeps the places for the job that gains: no other job
gets them. `RoomReleased` ends that: the job starts there, waits for it no more, or has waited for too long.

**What operators say.** `HoldJob` and `ReleaseJob` are about one job; `SetQuota` and `SetPolicy` become `QuotaSet` and
`PolicySet`; `RemoveQuota` becomes `QuotaRemoved` where no job needs the quota. `ReloadCell` reads the cell file again,
and `CellFileSet` holds the one in force; `AdvanceTime` moves the stepped clock of a replay.

**The log itself.** A placement process that takes over writes `WriterStarted` first, and is fenced by the next one's.
`AttemptTimedOut` notes that an attempt did not start, run or stop in its time. The state at one offset of the log is
kept as `SnapshotChunk`s and vouched for by a `SnapshotManifest`.

**An input that has lost records** is read no further until a person decides; `InputResumed` says from where it is then.
Where the loss is noticed only after the input was read on, `InputFenced` takes its place back to where it is seen.
A decision log that has lost records, or is damaged, goes on by `fallow log repair`; `LogRepaired` says what of it
counts.

Every change of all these lives is an effect inside one `Decision`, and a `Decision` is one record of one log.
"""

from fallow.shared.events.base import *  # noqa: F403 - every name of every file belongs to the language
from fallow.shared.events.codec.encoding import *  # noqa: F403
from fallow.shared.events.decisions import *  # noqa: F403
from fallow.shared.events.demand import *  # noqa: F403
from fallow.shared.events.effects import *  # noqa: F403
from fallow.shared.events.fields.values import *  # noqa: F403
from fallow.shared.events.jobs import *  # noqa: F403
from fallow.shared.events.nodes import *  # noqa: F403
from fallow.shared.events.operations import *  # noqa: F403
from fallow.shared.events.proposals import *  # noqa: F403
from fallow.shared.events.queue import *  # noqa: F403
from fallow.shared.events.reasons import *  # noqa: F403
from fallow.shared.events.snapshots import *  # noqa: F403
from fallow.shared.events.submissions import *  # noqa: F403
