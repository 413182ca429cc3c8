"""`fallow log why`: every decision that touched a job, and what else bore on it, in sentences."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.ids import a_job
from fallow.cli.cell.now import cell_now_ms
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.job.meant import hint_for, no_such_job
from fallow.cli.job.named import TenantName, one_in_full
from fallow.cli.log.heads import heads_then
from fallow.cli.log.read_back import records_between
from fallow.cli.log.sentences import rejection, sentence, stands
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import duration, moment
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence
from fallow.shared.client.port import is_of_a_stranger, job_of
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import NodeStatus, WorkerPlace
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import PendingReason
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, Record, TopicPartition
from fallow.shared.log.reading import event_of, unproven_from
from fallow.shared.runtime.clocks import wall_ms

DEFERRED: dict[PendingReason, str] = {
    PendingReason.NO_FREE_GPUS: "fewer GPUs are free than it needs",
    PendingReason.FRAGMENTED: "enough GPUs are free, but not together on as many nodes as it needs",
    PendingReason.NO_SUCH_NODES: "the nodes that have joined and are not lost could not hold it, even if empty",
    PendingReason.QUOTA_REACHED: "a limit, or what is guaranteed to others, leaves its tenant too little",
    PendingReason.BEHIND_HEAD: "it stands behind a head, which goes first",
    PendingReason.BACKOFF: "it waits for the time of its next attempt",
    PendingReason.HELD: "it is held back",
    PendingReason.TOPOLOGY: "the GPUs that are free are too far apart",
    PendingReason.RESERVED_FOR_OTHER: "the free places are kept for another job",
    PendingReason.UNACKNOWLEDGED: "the nodes with room have yet to confirm what was started there before",
    PendingReason.AFTER: "it waits for the end of other jobs",
    PendingReason.NOT_BEFORE: "its own time to start has not come",
    PendingReason.ARRAY_LIMIT: "so many elements of its array run that no more may",
    PendingReason.MAINTENANCE: "it might still run when maintenance of the nodes begins that it would need",
    PendingReason.NODES_SILENT: "nothing is heard of nodes with free GPUs, so nothing new is placed there",
    PendingReason.RECORD_TOO_LARGE: "no record of the log has room for the places of all its workers",
    PendingReason.MAKING_ROOM: "others yield to it, and have still to leave",
}
HEADS_NAMED_MAX = 20
"""So often, at the last, the head is named that kept the job back: for that the cell is built again as it was."""

REJECTIONS_MAX = 20
"""So many rejections of one job are told at most, the newest ones."""

_VERSION = re.compile(rb'"version":(\d+)')

ENDS = (e.JobFinished, e.JobFailed, e.JobCancelled)
PLACES_GONE = (e.JobRequeued, *ENDS)

JobName = Annotated[
    str, typer.Argument(metavar="JOB", callback=a_job, help="The job's id, or TENANT/ID.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class Step:
    """One decision, and the sentences of it that are about the job. Version None: admission's answer, without time."""

    version: int | None
    at_ms: int | None
    epoch: int | None
    sentences: tuple[str, ...]


@dataclass(slots=True)
class Why:
    """One job, followed through the decisions."""

    job: str
    steps: list[Step] = field(default_factory=list)
    attempts: int = 0
    waited_ms: int = 0
    held_ms: int = 0
    end: str | None = None
    behind_head: list[int] = field(default_factory=list)
    """The versions that tell the job for the first time, or again, that it stands behind a head."""
    tenants: dict[str, None] = field(default_factory=dict)
    """Whose job it was, in turn: an id may be used again once the cell has forgotten it."""
    refused: int = 0
    """How many requests were refused because the cell knew no such job."""
    first_version: int = 1
    """With which version the log begins: what was decided before stands in a snapshot, without its story."""
    _places: dict[int, str] = field(default_factory=dict)
    _since_ms: int | None = None
    _holds: bool = False

    @property
    def needles(self) -> list[bytes]:
        """What a record must hold one of if it is about the job, or about a node on which it is now."""
        return [f'"{name}"'.encode() for name in (self.job, *self._nodes)]

    @property
    def is_there(self) -> bool:
        """Whether the log knows the job: more than requests about it in vain."""
        return sum(len(step.sentences) for step in self.steps) > self.refused

    def take(self, decision: Decision) -> None:
        """The next decision that may be about the job."""
        said, was_on = list[str](), dict(self._nodes)
        for effect in decision.effects:
            if job_of(effect) == self.job:
                if is_of_a_stranger(effect):
                    continue
                said.append(_with_reason(effect, decision.at_ms))
                self.refused += no_such_job(effect)
                self._follow(effect, decision.at_ms)
                if isinstance(effect, e.JobDeferred) and effect.code is PendingReason.BEHIND_HEAD:
                    self.behind_head.append(decision.version)
            elif self._bears_on(effect, {**was_on, **self._nodes}):
                said.append(sentence(effect))
        if said:
            self.steps.append(Step(decision.version, decision.at_ms, decision.epoch, tuple(said)))

    def name_heads(self, heads: Mapping[int, str]) -> None:
        """Tell behind which head the job stood at these versions."""
        plain = DEFERRED[PendingReason.BEHIND_HEAD]
        for number, step in enumerate(self.steps):
            head = None if step.version is None else heads.get(step.version)
            if head is not None:
                told = tuple(each.replace(plain, f"it may not pass {head}") for each in step.sentences)
                self.steps[number] = replace(step, sentences=told)

    def rejected(self, events: Iterable[JobRejected]) -> None:
        """What admission said no to comes first, since it is known no better when that was."""
        told = [Step(None, None, None, (rejection(event),)) for event in events]
        self.steps[:0] = told

    def _bears_on(self, effect: e.Effect, nodes: Mapping[str, None]) -> bool:
        """Whether another job yields for this one, or something happens to one of these nodes, on which it is."""
        match effect:
            case e.JobStopping() | e.JobPreempted():
                return effect.for_whom == self.job
            case e.NodeChanged():
                return effect.spec.id in nodes and effect.status is not NodeStatus.READY
            case (
                e.DeviceChanged()
                | e.LeaseExpired()
                | e.NodeSilent()
                | e.NodeHeard()
                | e.NodeRemoved()
                | e.NodeLoanDraining()
                | e.MaintenanceSet()
                | e.MaintenanceBegan()
            ):
                return effect.node in nodes
        return False

    def _follow(self, effect: e.Effect, at_ms: int) -> None:
        """Keep count of its attempts, its waits and its places."""
        if isinstance(effect, e.JobEnqueued):
            self.tenants[effect.spec.tenant] = None
            self._turn(at_ms, holds=False)
        elif isinstance(effect, e.JobStarted):
            self.attempts += 1
            self._turn(at_ms, holds=True)
            self._be_on(effect.workers)
        elif isinstance(effect, e.JobResized):
            self._be_on(effect.workers)
        elif isinstance(effect, e.JobResizing):
            self._places.update((place.rank, place.node) for place in effect.add)
        elif isinstance(effect, e.WorkersSettled):
            for rank in (*effect.done, *effect.gone):
                self._places.pop(rank, None)
        elif isinstance(effect, PLACES_GONE):
            self._turn(at_ms, holds=False)
            self._be_on(())
        if isinstance(effect, ENDS):
            self.end, self._since_ms = effect.kind.removeprefix("Job").lower(), None

    def _be_on(self, workers: Iterable[WorkerPlace]) -> None:
        self._places = {place.rank: place.node for place in workers}

    @property
    def _nodes(self) -> dict[str, None]:
        """The nodes on which it is now."""
        return dict.fromkeys(self._places.values())

    def _turn(self, at_ms: int, *, holds: bool) -> None:
        """The time since the last turn belongs to what it did then."""
        if self._since_ms is not None:
            past_ms = at_ms - self._since_ms
            self.held_ms += past_ms if self._holds else 0
            self.waited_ms += 0 if self._holds else past_ms
        self._since_ms, self._holds = at_ms, holds

    def until(self, now_ms: int) -> None:
        """Count what a living job does up to this cell time too."""
        if self._since_ms is not None:
            self._turn(now_ms, holds=self._holds)

    def summary(self) -> str:
        """The whole story in a sentence."""
        if self.attempts == 0 and self.end is None:
            return "It has not started."
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        parts = f"waited {duration(self.waited_ms)}, started {times}, held its places for {duration(self.held_ms)}"
        return f"In all it {parts}{f', and {stands(self.end)}' if self.end else ' so far'}."


def _with_reason(effect: e.Effect, at_ms: int) -> str:
    told = sentence(effect, at_ms)
    if isinstance(effect, e.JobDeferred):
        return f"{told.removesuffix('.')}: {DEFERRED[effect.code]}."
    return told


def why(
    context: typer.Context,
    job: JobName,
    tenant: TenantName = None,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Every decision that touched a job, from the log alone, with what happened to others for its sake and to the
    nodes on which it was.
    """
    access = access_of(context)
    names = [part.name for part in access.cells().cells] if cell is None else [access.cell(cell)]
    named = run(one_in_full(access, job, tenant, None if cell is None else names[0]))
    job, names = named.job, names if named.cell is None else [named.cell]
    begins, refused = list[str](), 0
    for name in names:
        found = run(_why(access, name, job))
        if found.is_there:
            _print(name, found, as_json=as_json)
            return
        refused += found.refused
        begins += [f"{name} at version {found.first_version}"] if found.first_version > 1 else []
    begin = f"; it begins with a snapshot: cell {', '.join(begins)}" if begins else ""
    hint = run(hint_for(access, job, None if cell is None else names[0]))
    end_with(Exit.NO, f"fallow: the log does not tell of a job {job}{in_vain(refused)}{begin}{hint}")


def in_vain(refused: int) -> str:
    """What the log tells instead where there is no such job: how often one asked for something about it."""
    return f", but of {counted(refused, 'request')} about it, refused since there was none" if refused else ""


async def _why(access: Access, cell: str, job: str) -> Why:
    log = KafkaLog(access.kafka_access, "fallow-cli")
    await log.start()
    try:
        return await explain(log, access.layout(), cell, job)
    finally:
        await log.stop()


async def explain(log: Log, layout: Layout, cell: str, job: str, *, wall: Callable[[], int] = wall_ms) -> Why:
    """What the topics `jobs` and `decisions` tell of a job, until now. Raises LogUnavailable, LogTruncated."""
    found, version, newest = Why(job), 0, None
    async for record in _records(log, layout.tp("decisions", cell)):
        said, value = _version(record), record.value or b""
        unproven = unproven_from(record, layout.signers.of(cell))
        if unproven is not None and said >= unproven:
            layout.signers.skipped(cell, [record.offset])
            continue
        if said <= version or (said > version + 1 and _decision(record, cell) is None):
            continue  # stale or foreign: no reader takes it
        found.first_version = found.first_version if version else said
        version, newest = said, record
        if any(needle in value for needle in found.needles):
            decision = _decision(record, cell)
            if decision is not None:
                found.take(decision)
    last = None if newest is None else _decision(newest, cell)
    if last is not None:
        found.until(cell_now_ms(last.at_ms, wall))
    found.name_heads(await heads_then(log, layout, cell, job, found.behind_head[-HEADS_NAMED_MAX:]))
    found.rejected([event for _, event in await rejections(log, layout, cell, job, found.tenants)])
    return found


async def rejections(
    log: Log, layout: Layout, cell: str, job: str, tenants: Collection[str] = ()
) -> list[tuple[int, JobRejected]]:
    """The newest rejections of this job that topic `jobs` still holds, with the broker's times; none of a command of
    another tenant, as far as the id tells whose job it is, or `tenants`. Raises as `explain` does.
    """
    needle, found = f'"{job}"'.encode(), deque[tuple[int, JobRejected]](maxlen=REJECTIONS_MAX)
    async for record in _records(log, layout.tp("jobs", cell)):
        event = event_of(record) if needle in (record.value or b"") else None
        if not isinstance(event, JobRejected) or event.job != job or is_of_a_stranger(event):
            continue
        if not tenants or event.tenant in tenants:
            found.append((record.timestamp_ms, event))
    return list(found)


async def _records(log: Log, tp: TopicPartition) -> AsyncGenerator[Record, None]:
    begins, ends = await log.begin_offsets([tp]), await log.end_offsets([tp])
    wanted = begins if begins[tp] < ends[tp] else {}
    async with aclosing(records_between(log, wanted, ends)) as records:
        async for record in records:
            yield record


def _decision(record: Record, cell: str) -> Decision | None:
    event = event_of(record)
    return event if isinstance(event, Decision) and event.cell == cell else None


def _version(record: Record) -> int:
    """The version that a record says, without decoding all of it."""
    said = _VERSION.search(record.value or b"", 0, 500)
    return int(said[1]) if said else 0


def _print(cell: str, found: Why, *, as_json: bool) -> None:
    if as_json:
        print_json(as_object(cell, found))
        return
    print_sentence(f"job {found.job} of cell {cell}")
    before_ms = None
    for step in found.steps:
        print_sentence(_heading(step, before_ms))
        before_ms = step.at_ms
        for told in step.sentences:
            print_sentence(f"    {told}")
    print_sentence(found.summary())


def _heading(step: Step, before_ms: int | None) -> str:
    if step.version is None or step.at_ms is None:
        return "admission"
    later = "" if before_ms is None else f", {duration(step.at_ms - before_ms)} later"
    return f"version {step.version}, {moment(step.at_ms)}, epoch {step.epoch}{later}"


def as_object(cell: str, found: Why) -> dict[str, Any]:
    """The explanation for programs, as a JSON object."""
    return {
        "job": found.job,
        "cell": cell,
        "steps": [
            {"version": s.version, "at_ms": s.at_ms, "epoch": s.epoch, "sentences": list(s.sentences)}
            for s in found.steps
        ],
        "attempts": found.attempts,
        "waited_ms": found.waited_ms,
        "held_ms": found.held_ms,
        "end": found.end,
    }
