"""The decision in the making: the state that it changes, the time, and the effects so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from fallow.services.placement.decision.pool_use import PoolUse
from fallow.shared.cluster.capacity.gang_bytes import GANG_BYTES_MAX, bytes_of
from fallow.shared.cluster.fold.apply import APPLY
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import RunStatus, WorkerPlace

STARTS_MAX = 1_000
BYTES_MAX = 400_000
"""A record stops growing here, well below Kafka's limit: what comes last may be as large again."""

STEPS_MAX = 100_000
"""What comes in may cost so many looks at jobs, quotas and waits in one record, each of about a microsecond; the last
input may pass it. A decision is made in one go, and all else that its process does waits until it is made.
"""

STEPS_OF_AN_EFFECT = 10
"""What it costs to make an effect and to apply it, beside what is looked at."""

ONE_STEP = 0
"""The room of a record that holds what follows from a single step, however much that is."""

RECORD_BYTES_MAX = GANG_BYTES_MAX

_HEARD_BYTES = 240
_SMALL_EFFECT_BYTES = 120

_SMALL: frozenset[type[e.Effect]] = frozenset(
    {e.JobEnqueued, e.JobStarted, e.JobRunning, e.JobFinished, e.JobDeferred, e.JobReady}
)
"""They name one job and little else, so that their size has a tight bound. What else they hold is counted where they
are made; all other effects are encoded to count them.
"""

_RELEASES: frozenset[type[e.Effect]] = frozenset(
    {
        e.JobFinished,
        e.JobFailed,
        e.JobCancelled,
        e.JobHeld,  # it may have been the head of a strict queue, and then the next one may start
        e.JobRequeued,
        e.JobPreempted,
        e.JobResized,
        e.WorkersSettled,
        e.NodeChanged,
        e.MaintenanceSet,
        e.MaintenanceBegan,  # a head that could be there may be nowhere then, and keeps nobody back
        e.DeviceChanged,
        e.NodeHeard,
        e.NodeSilent,  # it makes no room, but others wait for other reasons then, and who passes whom goes by these
        e.LeaseExpired,
        e.NodeRemoved,
        e.NodeLent,
        e.NodeReclaimed,
        e.QuotaSet,
        e.QuotaRemoved,
        e.PolicySet,
        e.ReservationCleared,
        e.RoomReleased,
    }
)
"""After these a job that did not fit is tried again: it may fit, or wait for another reason."""

_ENCODE_TEXT = msgspec.json.Encoder().encode


class RunEnd(msgspec.Struct, frozen=True, gc=False):
    """A run that ended by itself, well or badly, or (`by_node`) by its node's own fault. `cause` is the job, or the
    array of which it is an element: elements are alike, and fail for one reason. That reason is not the node's fault:
    there each element is a cause of its own.
    """

    node: str
    cause: str
    tenant: str
    is_good: bool
    by_node: bool = False


def run_end(node: str, job: Job, *, is_good: bool) -> RunEnd:
    """The end to which a run of this job came by itself."""
    return RunEnd(node, job.spec.array_of or job.id, job.spec.tenant, is_good)


def end_by_node(node: str, job: Job) -> RunEnd:
    """The end of a run of this job that its node names its own fault."""
    return RunEnd(node, job.id, job.spec.tenant, is_good=False, by_node=True)


Words = dict[tuple[str, int], dict[str, str]]


def first_words(said: Mapping[str, str]) -> str | None:
    """The first words of these; empty where there were none, and None where nothing was said."""
    return next(filter(None, said.values()), "") if said else None


@dataclass(slots=True)
class DecisionBuilder:
    """Effects are applied as they are made, so each rule sees what the ones before it did."""

    state: CellState
    now_ms: int
    effects: list[e.AnyEffect] = field(default_factory=list)
    starts: int = 0
    bytes: int = 0
    """What the record will hold at most, with `heard_bytes` and `new_bytes`."""
    heard_bytes: int = 0
    """What of it is still to be settled."""
    new_bytes: int = 0
    """What of it new jobs take."""
    room: int = BYTES_MAX
    """At so many bytes the record ends."""
    is_closed: bool = False
    """Whether the record ends at once."""
    has_released: bool = False
    """Whether something may fit that did not before."""
    is_cut: bool = False
    """Whether the last start had no room in the record."""
    runs: dict[tuple[str, int], dict[str, RunStatus]] = field(default_factory=dict)
    """What nodes said before this decision, by (job, attempt) and node. It is settled once, so that a gang whose nodes
    all report at once makes one effect and not one for each node.
    """
    failures: Words = field(default_factory=dict)
    """What nodes said of the runs that failed by the job's fault, by (job, attempt) and then as `runs`, in the order in
    which they said it.
    """
    faults: Words = field(default_factory=dict)
    """The same of those that failed by their node's fault."""
    ended: list[RunEnd] = field(default_factory=list)
    """The runs that ended by themselves, or failed by their node's fault."""
    requeued: list[str] = field(default_factory=list)
    """The jobs that came back to the queue."""
    losing: dict[str, None] = field(default_factory=dict)
    """The lost nodes whose runs are not all over yet, because the record had no room for that."""
    specs_read: set[int] = field(default_factory=set)
    """The specifications, by identity, that stand in the effects as they were read: all of their bounds held then."""
    steps: int = 0
    """What the inputs cost, besides what they put into the record: at `STEPS_MAX` no more of them are taken in."""
    due_steps: int = 0
    """The same for what is due by itself, which has as much: no flood of inputs keeps it waiting."""
    _pool_use: PoolUse | None = None
    refused: e.AnyEffect | None = None
    """The effect that the state did not allow. Nothing may be written of this decision then."""

    @property
    def pool_use(self) -> PoolUse:
        """How many nodes of each pool are in use, and out, by now."""
        if self._pool_use is None:
            self._pool_use = PoolUse(self.state, self.effects)
        return self._pool_use

    def emit(self, effect: e.AnyEffect, size_bytes: int = 0) -> None:
        """Apply an effect and keep it for the record. `size_bytes` is what a small effect holds besides its job. Raises
        IllegalEffect where the state does not allow it.
        """
        kind = type(effect)
        try:
            APPLY[kind](self.state, effect, self.now_ms)
        except IllegalEffect:
            self.refused = effect
            raise
        self.effects.append(effect)
        if kind is e.JobEnqueued:
            self.bytes += _SMALL_EFFECT_BYTES + size_bytes
            return
        if kind in _SMALL:
            self.bytes += _SMALL_EFFECT_BYTES + len(effect.job) + size_bytes  # type: ignore[union-attr]
            if kind is e.JobStarted:
                self.starts += 1
                return
        else:
            self.bytes += len(encode(effect)) + 1
        if kind in _RELEASES:
            self.has_released = True
            if kind is e.JobRequeued:
                self.requeued.append(effect.job)  # type: ignore[union-attr]  # said by the line above

    def enqueue(self, effect: e.JobEnqueued, size_bytes: int, *, is_read: bool) -> None:
        """A new job: of these a record takes so many only that there is room for starts. `is_read`: whether its
        specification is the very one that was read.
        """
        self.emit(effect, size_bytes)
        self.new_bytes += size_bytes
        if is_read:
            self.specs_read.add(id(effect.spec))

    def start(self, job_id: str, attempt: int, workers: tuple[WorkerPlace, ...], over: str = "") -> bool:
        """Start a gang, past the head `over` of its queue if that is named, unless the record has no room for it: then
        it is cut here and the next one goes on.
        """
        size_bytes = bytes_of(workers)
        self.is_cut = not self.fits(size_bytes)
        if not self.is_cut:
            started = e.JobStarted(
                job=job_id, attempt=attempt, workers=workers, backfilled=bool(over), backfilled_over=over
            )
            self.emit(started, size_bytes + len(over))
        return not self.is_cut

    def enter(self, job: Job, workers: tuple[WorkerPlace, ...]) -> bool:
        """The same for workers that enter a job while it runs. Each of them counts as a start: a job may want many."""
        size_bytes = bytes_of(workers)
        self.is_cut = not self.fits(size_bytes)
        if not self.is_cut:
            self.emit(e.JobResizing(job=job.id, attempt=job.attempt, add=workers))
            self.starts += len(workers)
        return not self.is_cut

    def record_status(
        self, run: tuple[str, int], said: dict[str, RunStatus] | None, node_id: str, status: RunStatus
    ) -> None:
        """Keep what a node said of a run until it is settled. `said` is what was kept of the run before."""
        if said is None:
            self.runs[run] = {node_id: status}
        else:
            said[node_id] = status
        size_bytes = _HEARD_BYTES + 2 * len(run[0]) + len(node_id)
        self.bytes += size_bytes
        self.heard_bytes += size_bytes

    def take_heard(self) -> dict[tuple[str, int], dict[str, RunStatus]]:
        """What nodes said since the last call, to be settled now: its effects are counted as they are made."""
        heard, self.runs = self.runs, {}
        self.bytes, self.heard_bytes = self.bytes - self.heard_bytes, 0
        return heard

    def keep_words(self, said: Words, run: tuple[str, int], key: str, text: str) -> None:
        """Keep the first words about one run's failure, in `failures` or `faults`, until it is settled."""
        words = said.setdefault(run, {})
        if key not in words:
            words[key] = text
            self.bytes += len(_ENCODE_TEXT(text))

    def faults_among(self, run: tuple[str, int], noted: Mapping[str, RunStatus]) -> dict[str, str]:
        """What nodes said of the runs of this attempt that are over with this, `noted`, by their own faults."""
        words = self.faults.get(run, {})
        return {key: text for key, text in words.items() if noted.get(key) is RunStatus.STOPPED}

    def takes(self, size_bytes: int) -> bool:
        """Whether an input of this size may come into this record. Into an empty one anything may. A quarter of it is
        left for starts, and half of it by new jobs, however many come.
        """
        return not self.is_worn and (self.bytes + size_bytes <= self.room * 3 // 4 or self.is_empty)

    def fits(self, size_bytes: int) -> bool:
        """Whether places of this size may still come into this record: into an empty one they always may."""
        return self.bytes + size_bytes <= RECORD_BYTES_MAX or self.is_empty

    def takes_new_job(self, size_bytes: int) -> bool:
        """The same for what admission passes on."""
        room = self.room
        has_room = self.bytes + size_bytes <= room * 3 // 4 and self.new_bytes + size_bytes <= room // 2
        return not self.is_worn and (has_room or self.is_empty)

    @property
    def is_worn(self) -> bool:
        """Whether what came in has cost so much that the rest waits for the next record."""
        return self.steps >= STEPS_MAX

    @property
    def does_what_is_due(self) -> bool:
        """Whether there is room and time for more of what is due by itself: the rest waits for the next record."""
        return self.due_steps < STEPS_MAX and not self.is_full

    @property
    def is_empty(self) -> bool:
        """Whether this decision has no effect so far."""
        return not self.effects and not self.runs

    @property
    def is_full(self) -> bool:
        """Whether the record must end here and the rest go into the next one."""
        return self.is_closed or self.starts >= STARTS_MAX or (self.bytes >= self.room and not self.is_empty)
