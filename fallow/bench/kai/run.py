"""One case on a running cell: what runs before, what is asked for, and what the log says of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from signal import SIGTERM
from statistics import fmean
from time import monotonic

from prometheus_client.parser import text_string_to_metric_families

from fallow.bench.kai.cases import KEPT_PER_NODE, LIMITED, Case, Plan, Way, specs
from fallow.bench.load.arrivals import Ends
from fallow.bench.load.job_mix import Ready, number_of
from fallow.bench.load.load import nodes_joined, pids_of
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.sender import Sender
from fallow.bench.real.mix import ready
from fallow.local.local_cell import LocalCell
from fallow.local.watch import Watch
from fallow.replay.workload import CELL
from fallow.shared.cluster.model.job import Job
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import Quota, SetQuota
from fallow.shared.events.submissions import CancelJob, SubmitJob
from fallow.shared.log.port import Log, TopicPartition
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.ports import LOCAL

LOOK_AGAIN_S, SETTLE_S, GATHER_S = 0.01, 2.0, 2.0
WAIT_S, BURST_WAIT_S = 600.0, 3 * 2_759.0
METRICS_WAIT_S = 10.0
PLACEMENT = "placement"

STOPPING, FINISHED = b'"kind":"JobStopping"', re.compile(rb'"kind":"JobFinished","job":"[a-z0-9-]+/bench-')
UNHELPED, LOOKS = "fallow_preemption_jobs_unhelped", "fallow_preemption_look_seconds_sum"


class Course(Ends):
    """Also counts who was told to stop and who finished, and when records came in which a job started or finished."""

    def __init__(self, log: Log, tp: TopicPartition) -> None:
        super().__init__(log, tp)
        self.stopped = self.finished = 0
        self.last_s = 0.0

    def _note(self, value: bytes, now_s: float) -> None:
        before = (self.started, self.finished)
        super()._note(value, now_s)
        self.stopped += value.count(STOPPING)
        self.finished += len(FINISHED.findall(value))
        if before != (self.started, self.finished):
            self.last_s = now_s


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case. `seconds` is None where it did not come to its end, and `note` says why. `search_ms` is how
    long the looks for who yields took meanwhile, where that was asked.
    """

    seconds: float | None
    used: Used
    yielded: int = 0
    search_ms: float | None = None
    note: str | None = None


@dataclass(slots=True)
class _Sent:
    """What a case has sent so far, and with what."""

    stage: LocalCell
    sender: Sender
    course: Course
    partitions: int

    async def send(self, found: Sequence[JobSpec]) -> float:
        """Submit these; the second at which the first is due."""
        first = len(self.sender.due_s)
        await self.sender.send([self._ready(spec) for spec in found], None)
        return self.sender.due_s[first]

    async def cancel(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Cancel these, told by tenant and own id."""
        events = [CancelJob(job=job, tenant=tenant, cell=CELL) for tenant, job in jobs]
        await self.sender.send([ready(each, f"{each.job}/cancel", self.partitions, wall_ms()) for each in events], None)

    def _ready(self, spec: JobSpec) -> Ready:
        return ready(SubmitJob(job=spec), f"bench/{spec.id}", self.partitions, wall_ms())

    def begun_s(self, numbers: range) -> list[float]:
        """When these started, of those that did."""
        return [at_s for number, at_s in self.course.left if number in numbers]

    async def until(self, is_over: Callable[[], bool], wait_s: float = WAIT_S) -> bool:
        """Wait; False where it takes too long."""
        end_s = monotonic() + wait_s
        while not is_over():
            if monotonic() > end_s:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        return True


async def outcome_of(stage: LocalCell, case: Case, plan: Plan) -> Outcome:
    """Run the case to its end. Raises StackError where what comes before it does not start, LogUnavailable."""
    await nodes_joined(stage, plan.nodes)
    topic = stage.layout.topic("submissions")
    sender = Sender(stage.servers.kafka_access, topic)
    course = Course(stage.log, stage.layout.tp("decisions", CELL))
    sent = _Sent(stage, sender, course, await stage.log.partitions(topic))
    await sender.start()
    try:
        await course.start()
        await _before(sent, case, plan)
        asked = specs(plan.asked, sum(each.count for each in plan.fill + plan.stuck))
        watch, stopped = ProcessorTime(pids_of(stage)), course.stopped
        seconds, search_ms = await _ask(sent, case.way, asked)
        note = _note_of(sent, asked, seconds)
        return Outcome(seconds, watch.used(), course.stopped - stopped, search_ms, note)
    finally:
        await course.stop()
        await sender.stop()


def _note_of(sent: _Sent, asked: Sequence[JobSpec], seconds: float | None) -> str | None:
    if seconds is not None:
        return None
    begun = len(sent.begun_s(range_of(asked)))
    return f"did not come to its end: {begun} of {len(asked)} jobs started"


async def _before(sent: _Sent, case: Case, plan: Plan) -> None:
    """Let run what runs before, and wait what waits."""
    fill = specs(plan.fill, 0)
    if fill:
        await sent.send(fill)
        if not await sent.until(lambda: len(sent.course.left) == len(fill)):
            raise StackError(f"only {len(sent.course.left)} of {len(fill)} jobs started that fill the cell")
    if plan.stuck:
        await _limit(sent.stage)
        await sent.send(specs(plan.stuck, len(fill)))
        wanted = len(fill) + sum(each.count for each in plan.stuck)
        if not await sent.until(lambda: sent.course.enqueued >= wanted):
            raise StackError("the jobs that are to wait did not come into the queue")
    if case.way is Way.MOVED:
        await _thin_out(sent)
    await asyncio.sleep(SETTLE_S)


async def _limit(stage: LocalCell) -> None:
    """From now on no job of the tenant may start. By its cell file it may: else its jobs would be turned away."""
    quota = Quota(tenant=LIMITED, gpu_type="gpu", limit_milli=0)
    await stage.log.publish([stage.outgoing(SetQuota(cell=CELL, quotas=(quota,)))])
    await asyncio.sleep(SETTLE_S)


async def _thin_out(sent: _Sent) -> None:
    """Cancel all but a few of the jobs of each node."""
    watch = Watch(sent.stage)
    await watch.start()
    try:
        if not await sent.until(lambda: len(_placed(watch)) == len(sent.course.left)):
            raise StackError("the jobs that fill the cell do not run")
        of_node: dict[str, list[tuple[str, str]]] = {}
        for job in _placed(watch):
            of_node.setdefault(job.workers[0].node, []).append((job.spec.tenant, own_id(job.spec.id)))
        await sent.cancel([each for theirs in of_node.values() for each in theirs[KEPT_PER_NODE:]])
        left = KEPT_PER_NODE * len(of_node)
        if not await sent.until(lambda: len(_placed(watch)) == left):
            raise StackError(f"{len(_placed(watch))} jobs are left, and not {left}")
    finally:
        await watch.stop()


def _placed(watch: Watch) -> list[Job]:
    return [job for job in watch.state.jobs.values() if job.workers]


async def _ask(sent: _Sent, way: Way, asked: Sequence[JobSpec]) -> tuple[float | None, float | None]:
    """Submit what is asked for, and wait as the case has it: the seconds, and the milliseconds of looks."""
    match way:
        case Way.VERDICT:
            return await _verdict(sent, asked)
        case Way.SINGLY:
            return await _singly(sent, asked), None
        case Way.STOPPED:
            return await _stopped(sent, asked), None
        case Way.TO_THE_END:
            return await _to_the_end(sent, asked), None
        case Way.TOGETHER | Way.MOVED:
            return await _together(sent, asked, is_moved=way is Way.MOVED), None


def range_of(asked: Sequence[JobSpec]) -> range:
    """The numbers of these jobs, which stand in their ids."""
    first = number_of(asked[0].id)
    assert first is not None, "its id was made from its number"
    return range(first, first + len(asked))


async def _together(sent: _Sent, asked: Sequence[JobSpec], *, is_moved: bool) -> float | None:
    numbers, course = range_of(asked), sent.course
    started, stopped = course.started, course.stopped
    due_s = await sent.send(asked)

    def is_over() -> bool:
        if len(sent.begun_s(numbers)) < len(asked):
            return False
        # Each that yielded starts once more.
        return not is_moved or course.started - started >= len(asked) + course.stopped - stopped

    if not await sent.until(is_over):
        return None
    return (course.last_s if is_moved else max(sent.begun_s(numbers))) - due_s


async def _stopped(sent: _Sent, asked: Sequence[JobSpec]) -> float | None:
    services = sent.stage.services
    services.kill(PLACEMENT, SIGTERM)
    await services.wait_ended(PLACEMENT)
    await sent.send(asked)
    await asyncio.sleep(GATHER_S)
    begin_s, numbers = monotonic(), range_of(asked)
    await services.start(PLACEMENT)
    if not await sent.until(lambda: len(sent.begun_s(numbers)) == len(asked)):
        return None
    return max(sent.begun_s(numbers)) - begin_s


async def _singly(sent: _Sent, asked: Sequence[JobSpec]) -> float | None:
    waits = []
    for spec in asked:
        numbers = range_of([spec])
        due_s = await sent.send([spec])
        if not await sent.until(lambda numbers=numbers: bool(sent.begun_s(numbers))):  # type: ignore[misc]
            return None
        waits.append(sent.begun_s(numbers)[0] - due_s)
    return fmean(waits)


async def _to_the_end(sent: _Sent, asked: Sequence[JobSpec]) -> float | None:
    due_s = await sent.send(asked)
    if not await sent.until(lambda: sent.course.finished == len(asked), BURST_WAIT_S):
        return None
    return sent.course.last_s - due_s


async def _verdict(sent: _Sent, asked: Sequence[JobSpec]) -> tuple[float | None, float | None]:
    """Until loaning tells of a job for which too little could become free, which it does as soon as a look is over."""
    port = sent.stage.services.port("loaning")
    assert port is not None, "it is ready"
    before_s = (await asyncio.to_thread(_metrics, port))[LOOKS]
    due_s = await sent.send(asked)
    end_s = monotonic() + WAIT_S
    while monotonic() < end_s:
        told = await asyncio.to_thread(_metrics, port)
        if told[UNHELPED] >= len(asked):
            return monotonic() - due_s, (told[LOOKS] - before_s) * 1_000
        await asyncio.sleep(LOOK_AGAIN_S)
    return None, None


def _metrics(port: int) -> dict[str, float]:
    """The two metrics of loaning that a verdict goes by. Raises OSError."""
    connection = HTTPConnection(LOCAL, port, timeout=METRICS_WAIT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = {UNHELPED: 0.0, LOOKS: 0.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in found:
                found[sample.name] += sample.value
    return found
