"""A cell without Kafka: the real placement service and writer on a log that is a list.

A twin reads every record back from its bytes, as any other process would, and must come to the writer's own state. A
ledger of its own watches the invariants. Each append meets a `Fate`; most records simply get into the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from random import Random
from typing import Any, ClassVar

from fallow.services.placement.service import Input, PendingDecision, PlacementService
from fallow.shared.cluster.checks.audit import Ledger
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.fold import LogRecord, fold
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.decisions import Decision, next_chain
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, ObservedRun, Resources, RunStatus
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobUpdateRequested
from fallow.shared.events.queue import StartsPlanned
from fallow.shared.events.submissions import JobChanges
from fallow.shared.log.machine.writer import Draft, UnwritableDecision, Writer
from tests.cluster.worlds.table_orders import shuffle_indices

CELL = "cell-a"
DIGEST = "0123456789abcdef" * 2
FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=tuple(Pool(name=name, gpus=1_000_000) for name in ("train", "first", "second", "other")),
        ),
    ),
    tenants=(Tenant(name="ada"), Tenant(name="bob")),
)
DECISIONS_IN_A_ROW_MAX = 200


class Fate(Enum):
    """What becomes of a record that is appended."""

    KEPT = auto()
    """In the log, right behind the state."""
    LOST = auto()
    """No answer, and it never gets there."""
    LATE = auto()
    """No answer, but it is there."""
    AFTER_A_STALE_ONE = auto()
    """Behind a stale record of a writer that was fenced: an offset too far, and still in force."""
    BEATEN = auto()
    """Behind the first record of a new writer: skipped by everybody."""


class World:
    """One cell, its writer, and everybody else's view of its log."""

    placement: ClassVar = PlacementService

    def __init__(
        self,
        file: CellFile = FILE,
        *,
        stepped: bool = False,
        on_append: Callable[[], Fate] | None = None,
    ) -> None:
        self.file, self.stepped = file, stepped
        self.state, self.twin, self.ledger = CellState(CELL), CellState(CELL), Ledger()
        self.log: list[LogRecord] = []
        self.inputs: dict[str, list[Event | None]] = {}
        self.now_ms, self.wall_ms, self.epochs = 0, 0, 0
        self.on_append = on_append or (lambda: Fate.KEPT)
        self.checks = True
        self.listens = True
        """Whether topic `nodes` is read: else no silence is noticed, however much time passes."""
        self.unread_nodes = 0
        """So many records lie in topic `nodes` behind all that is told here."""
        self.sent_ms: int | None = None
        """When the broker got what is told."""
        self.stamped_ms: int | None = None
        """The wall time that the broker stamps on what is told; None: none is known."""
        self.numbers_words = True
        """Whether what nodes say is numbered in the order in which it is told."""
        self.may_refuse = False
        """Whether the state may refuse the start of a job: else that is a defect of the code under test."""
        self.file_read: CellFile | None = None
        """What the shell reads at a reload; None: nothing that it puts in force."""
        self._after = 0
        self.unwritable: list[str] = []
        self.service = self.placement(self.state, file, writer="placement-1", stepped=stepped)
        self.writer = Writer(self.state)
        self._take_over()

    # What happens to the cell.

    def tell(self, *events: Event | None, size_bytes: int = 0) -> list[e.AnyEffect]:
        """Hand over inputs at once, and decide until there is nothing left to decide."""
        self.hand_over(*events, size_bytes=size_bytes)
        return self.rest()

    def hand_over(self, *events: Event | None, size_bytes: int = 0) -> None:
        """Inputs for the next decision."""
        taken = []
        for told in events:
            if isinstance(told, StartsPlanned):
                self.service.hear_plan(told)
                continue
            source = f"{told.topic if told is not None else 'jobs'}-0"
            stream = self.inputs.setdefault(source, [])
            numbers = isinstance(told, n.NodeEvent) and self.numbers_words
            event = replace(told, seq=len(stream)) if told is not None and numbers else told
            stream.append(event)
            taken.append(
                Input(source, len(stream), event, size_bytes, sent_ms=self.sent_ms, stamped_ms=self.stamped_ms)
            )
        self._take(taken)

    def _take(self, inputs: list[Input]) -> None:
        """Inputs as the shell hands them over: it reads the cell file for the reloads among them."""
        is_to_read = any(isinstance(item.event, o.ReloadCell) for item in inputs)
        if is_to_read and self.file_read is not None:
            self.service.reload(self.file_read)
        self.service.take(inputs)

    def pass_time(self, ms: int) -> list[e.AnyEffect]:
        """Let cell time and wall time pass, in such steps that the writer does not take itself for having been away."""
        made: list[e.AnyEffect] = []
        while ms > 0:
            step = min(ms, self.state.policy.node_lease_wall_ms // 2)
            self.now_ms, self.wall_ms, ms = self.now_ms + step, self.wall_ms + step, ms - step
            made += self.rest()
        return made

    def rest(self) -> list[e.AnyEffect]:
        """Decide until there is nothing left to decide. The effects that came into force."""
        made: list[e.AnyEffect] = []
        for _ in range(DECISIONS_IN_A_ROW_MAX):
            goes_on = self.decide()
            made += self._new_effects()
            if not goes_on:
                return made
        raise AssertionError("the cell does not come to rest")

    def decide(self) -> bool:
        """One decision, if there is one. Whether more may follow at once."""
        if self.listens:
            self.service.nodes_end(len(self.inputs.get("nodes-0", ())) + self.unread_nodes, self.wall_ms)
        self.writer.begin()
        tried = self.service.decide(self.now_ms, self.wall_ms)
        if tried is None:
            self.writer.abandon()
            return self.service.has_pending
        known = len(self.unwritable)
        if self._append(tried):
            return tried.has_more
        if len(self.unwritable) > known:
            return True
        if self.state.epoch != self.epochs:
            self._take_over()
        else:
            self._catch_up()
            self.service.caught_up(self.wall_ms)
        return True

    def restart(self) -> None:
        """Another process takes over: it knows the log and nothing else."""
        self.state = CellState(CELL)
        self._catch_up()
        self._begin_anew()

    def restart_from_snapshot(self, random: Random) -> None:
        """Another process takes over: it knows a snapshot, and has made its indices in whatever order."""
        self._catch_up()
        self.state = state_from(list(rows_of(self.state)))
        shuffle_indices(self.state, random)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.service = self.placement(self.state, self.file, writer="placement-2", stepped=self.stepped)
        self.writer = Writer(self.state)
        self._take_over()
        self.rest()

    def leave(self) -> None:
        """The writer leaves in order."""
        self.writer.begin()
        tried = self.service.leave(self.now_ms, self.wall_ms)
        if tried is None:
            self.writer.abandon()
        else:
            self._append(tried)

    def regain(self) -> None:
        """The same process loses the cell and gets it back, and no other one wrote meanwhile."""
        self._take_over()
        self.rest()

    def written_by_another(self, *effects: e.AnyEffect) -> None:
        """A decision that another process wrote, and that this one has folded."""
        at_ms, version = self.state.at_ms, self.state.version + 1
        decision = Decision(cell=CELL, version=version, epoch=self.state.epoch, at_ms=at_ms, effects=effects)
        value = encode(decision)
        self._keep(Draft(decision, value, next_chain(self.state.chain, value), self.state.chain))
        self._catch_up()

    # The log.

    def _take_over(self) -> None:
        self._catch_up()
        self.service.take_over(self.wall_ms)
        self.writer.begin()
        tried = self.service.start(self.now_ms, self.wall_ms)
        draft = self._draft(tried)
        assert draft is not None
        self._keep(draft)
        assert self.writer.appended(len(self.log) - 1)
        self._in_force(tried, draft)
        self.epochs = self.state.epoch
        for source in sorted(self.inputs):
            read, stream = self.state.inputs.get(source, 0), enumerate(self.inputs[source], 1)
            self._take([Input(source, number, event) for number, event in stream if number > read])

    def _draft(self, tried: PendingDecision) -> Draft | None:
        """The record of a decision; None where no reader could read it."""
        found = tried.fault or self.writer.draft(tried.effects, tried.inputs, tried.at_ms)
        if isinstance(found, Draft):
            return found
        if found is tried.fault:
            self.writer.abandon()
        self.unwritable.append(str(found))
        assert tried.refused is None or self.may_refuse, tried.refused
        if not self.service.unwritable(tried, found):
            raise UnwritableDecision(str(found))
        return None

    def _append(self, tried: PendingDecision) -> bool:
        """Whether the decision came into force here and now."""
        draft = self._draft(tried)
        if draft is None:
            return False
        fate = self.on_append()
        if fate is Fate.AFTER_A_STALE_ONE:
            self.log.append(LogRecord(len(self.log), b"", "", replace(draft.decision, version=1)))
        elif fate is Fate.BEATEN:
            self._somebody_takes_over()
        if fate is not Fate.LOST:
            self._keep(draft)
        if fate in (Fate.LOST, Fate.LATE):
            self.writer.unknown()
        elif self.writer.appended(len(self.log) - 1):
            self._in_force(tried, draft)
            return True
        self.service.refused(tried)
        self._catch_up()
        return False

    def _somebody_takes_over(self) -> None:
        effects = (e.WriterStarted(epoch=self.twin.epoch + 1, writer="placement-9"),)
        version = self.twin.version + 1
        decision = Decision(cell=CELL, version=version, epoch=self.twin.epoch, at_ms=self.twin.at_ms, effects=effects)
        value, before = encode(decision), self.twin.chain
        self._keep(Draft(decision, value, next_chain(before, value), before))

    def _keep(self, draft: Draft) -> None:
        """The record gets into the log, and everybody reads it from its bytes."""
        read = decode(Decision.type, draft.value)
        assert read == draft.decision
        record = LogRecord(len(self.log), draft.value, draft.chain, read)
        self.log.append(record)
        for known in self.log[self.twin.offset + 1 :]:
            before = self.twin.version
            fold(self.twin, known)
            if self.twin.version > before and isinstance(known.decision, Decision):
                assert self.ledger.take(known.decision) is None

    def _catch_up(self) -> None:
        for record in self.log[self.state.offset + 1 :]:
            fold(self.state, record)

    def _in_force(self, tried: PendingDecision, draft: Draft) -> None:
        self.service.accepted(tried)
        self.service.note(draft.decision.effects, self.wall_ms)
        if self.checks:
            self.check()

    def check(self) -> None:
        """Nothing is wrong with the cell, and all see the same."""
        assert check_state(self.state) == []
        assert self.ledger.compare(self.state) is None
        assert list(rows_of(self.twin)) == list(rows_of(self.state))

    def _new_effects(self) -> list[e.AnyEffect]:
        made: list[e.AnyEffect] = []
        for record in self.log[self._after :]:
            if isinstance(record.decision, Decision) and record.decision.version > 1:
                made += record.decision.effects
        self._after = len(self.log)
        return made

    def do(self, effect: e.AnyEffect) -> None:
        """Apply an effect under the writer's checkpoint."""
        apply(self.state, effect, max(self.now_ms, self.state.at_ms))

    @property
    def decisions(self) -> list[Decision]:
        """All decisions of the log."""
        return [record.decision for record in self.log if isinstance(record.decision, Decision)]

    # Short ways to say things.

    def job(self, job: str) -> Job:
        """A live job."""
        return self.state.jobs[job]

    def nodes_of(self, job: str) -> list[str]:
        """Where the job's workers are, by rank."""
        return [place.node for place in self.job(job).workers]

    def run(self, *specs: JobSpec) -> None:
        """Bring these jobs to running."""
        self.tell(*(admitted(spec) for spec in specs))
        self.tell(*(started(spec.id, node) for spec in specs for node in dict.fromkeys(self.nodes_of(spec.id))))


def cell_with(*nodes: n.NodeJoined, file: CellFile = FILE, **options: Any) -> World:
    """A world whose nodes have joined."""
    world = World(file, **options)
    world.tell(*nodes)
    return world


def joined(node: str, gpus: int = 8, *, boot: str = "boot-1", pool: str = "train", **spec: Any) -> n.NodeJoined:
    """A node offers itself."""
    return n.NodeJoined(
        cell=CELL, node=node, boot=boot, seq=0, spec=NodeSpec(**{"id": node, "pool": pool, "gpus": gpus, **spec})
    )


def spec_of(job: str, gpus: int = 1, workers: int = 1, **more: Any) -> JobSpec:
    """A job of whole GPUs."""
    fields: dict[str, Any] = {"id": job, "tenant": "ada", "workers": workers}
    return JobSpec(**{**fields, "resources": Resources(gpu_milli=1000 * gpus), **more})


def admitted(spec: JobSpec, submit_ms: int = 0, digest: str = DIGEST) -> JobAdmitted:
    """Admission lets it in."""
    return JobAdmitted(cell=CELL, spec=spec, submit_ms=submit_ms, digest=digest)


def cancel(job: str, tenant: str = "ada") -> JobCancelRequested:
    """The tenant wants the job stopped."""
    return JobCancelRequested(cell=CELL, job=job, tenant=tenant)


def update(job: str, tenant: str = "ada", **changes: Any) -> JobUpdateRequested:
    """The tenant wants the job changed."""
    return JobUpdateRequested(cell=CELL, job=job, tenant=tenant, changes=JobChanges(**changes))


def _run(cls: type[n.RunEvent], job: str, node: str, attempt: int, boot: str, **more: Any) -> n.RunEvent:
    return cls(cell=CELL, node=node, boot=boot, seq=1, job=job, attempt=attempt, **more)


def started(job: str, node: str = "n1", attempt: int = 1, boot: str = "boot-1") -> n.RunEvent:
    """The node has started the run."""
    return _run(n.RunStarted, job, node, attempt, boot)


def finished(job: str, node: str = "n1", attempt: int = 1, boot: str = "boot-1") -> n.RunEvent:
    """The run ended well."""
    return _run(n.RunFinished, job, node, attempt, boot)


def stopped(job: str, node: str = "n1", attempt: int = 1, boot: str = "boot-1") -> n.RunEvent:
    """Nothing is left of a run that was told to stop."""
    return _run(n.RunStopped, job, node, attempt, boot)


def failed(job: str, node: str = "n1", attempt: int = 1, boot: str = "boot-1", **more: Any) -> n.RunEvent:
    """A worker of the run failed."""
    return _run(n.RunFailed, job, node, attempt, boot, **more)


def lost(node: str = "n1", boot: str = "boot-1") -> n.NodeLost:
    """Somebody who knows says that the node is gone."""
    return n.NodeLost(cell=CELL, node=node, boot=boot, seq=2)


def report(node: str = "n1", *runs: ObservedRun, boot: str = "boot-1", failed: tuple[int, ...] = ()) -> n.NodeReport:
    """The node lives, with these runs."""
    return n.NodeReport(cell=CELL, node=node, boot=boot, seq=3, observed=runs, failed_devices=failed)


def seen(job: str, status: RunStatus = RunStatus.RUNNING, attempt: int = 1) -> ObservedRun:
    """A run as its node sees it."""
    return ObservedRun(job=job, attempt=attempt, status=status)


def quota(tenant: str, limit: int | None, parent: str | None = None, gpu_type: str = "gpu") -> o.Quota:
    """A limit in whole GPUs."""
    milli = None if limit is None else limit * 1000
    return o.Quota(tenant=tenant, gpu_type=gpu_type, limit_milli=milli, parent=parent)


def kinds(effects: Iterable[e.Effect]) -> list[str]:
    """The names of the effects."""
    return [type(effect).__name__ for effect in effects]


def codes(effects: Iterable[e.Effect]) -> list[str]:
    """The codes of all refusals among the effects."""
    refusals = (e.JobRefused, e.ProposalRefused)
    return [str(effect.code) for effect in effects if isinstance(effect, refusals)]


def is_ready(world: World, node: str) -> bool:
    """Whether the node takes new work."""
    return world.state.nodes[node].status is NodeStatus.READY


def set_quotas(*quotas: o.Quota) -> o.SetQuota:
    """An operator sets these limits."""
    return o.SetQuota(cell=CELL, quotas=quotas)


def set_policy(**policy: Any) -> o.SetPolicy:
    """An operator sets the cell's numbers."""
    return o.SetPolicy(cell=CELL, policy=o.CellPolicy(**policy))
