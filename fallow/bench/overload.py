"""`fallow bench overload`: what goes through a cell at twice what it holds, and how soon the backlog is gone at half of
it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from rich.console import Console

from fallow.bench.capacity import Trial, highest_held, trials_of
from fallow.bench.figure import Figure
from fallow.bench.load.arrivals import Ends
from fallow.bench.load.baseline import chain
from fallow.bench.load.job_mix import Ready, jobs, run_ms_for
from fallow.bench.load.load import WARM_PART, late_ms, nodes_joined, percentile, pids_of, put_load
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.sender import NEVER, Sender
from fallow.bench.load.stages import cell_of, on_stage
from fallow.bench.load.traffic import Flow, ends_of, flows
from fallow.bench.pipeline import BASELINE_JOBS_MAX
from fallow.bench.real.pipeline import GROWTH_MAX_PART
from fallow.local.local_cell import LocalCell, Servers
from fallow.replay.workload import CELL
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.tasks.cancels import end_tasks

MAX_PER_S = 8_000.0
"""No higher rate is searched; runs are so short that the GPUs hold it."""

TRIAL_S = 6.0
OVER, UNDER = 2.0, 0.5
"""What is offered, in parts of the capacity: first the one, then the other."""

RECOVERY_S_MAX = 120.0
RECOVERED_S = 1.0
"""The backlog is gone when it is below what comes in so much time."""

LOOK_AGAIN_S = 0.25


@dataclass(frozen=True, slots=True)
class Course:
    """What came of an overload. While it lasted, its first part left out: `starts_per_s`, `offered_per_s`, what the
    sender really handed over, and `late_ms`, by how much it was late, in order of size. `backlog`, the jobs that were
    due at its end and had not started; `recovery_s`, how long these took, None if longer than was waited for.
    """

    starts_per_s: float
    offered_per_s: float
    late_ms: list[float]
    backlog: int
    recovery_s: float | None
    submitted: int
    started: int
    used: Used


@dataclass(frozen=True, slots=True)
class Window:
    """A time of an overload, and how many jobs had started at its begin and at its end, since the overload began."""

    begin_s: float
    end_s: float
    started_before: int
    started: int


@dataclass(frozen=True, slots=True)
class Found:
    """The trials, the highest rate that they held or what was said instead, the overload of twice that, and what the
    trials put onto the topics.
    """

    trials: list[Trial]
    rate_per_s: float
    course: Course
    traffic: Mapping[str, Flow]
    run_ms: int

    @property
    def is_held(self) -> bool:
        """Whether the cell holds this rate: what was said may be more than it does."""
        held = highest_held(self.trials)
        return held is not None and held.per_s >= self.rate_per_s


def overload(console: Console, *, rate: float | None, seconds: float, nodes: int, durable: bool) -> Figure:
    """Run it: the overload lasts for so long. `rate` is what the cell is said to hold; None: it is searched. Raises
    StackError, LogUnavailable, LogOverflowed.
    """

    async def work(stage: LocalCell) -> Found:
        return await found(stage, console, rate, seconds=seconds, nodes=nodes)

    async def baseline(found: Found, servers: Servers, folder: Path) -> float:
        console.print("the same bytes over the same hops with bare aiokafka", highlight=False)
        async with chain(servers, folder, found.traffic) as running:
            return (await running.send(BASELINE_JOBS_MAX, None))[1]

    staged = on_stage(console, cell_of(nodes), work, baseline, durable=durable)
    body = body_of(staged.answer, staged.baseline) | {"nodes": nodes, "seconds": seconds}
    return Figure("overload", lines_of(staged.answer, body), body, staged.answer.course.used, staged.durable)


async def found(stage: LocalCell, console: Console, rate: float | None, *, seconds: float, nodes: int) -> Found:
    """Learn what a stage holds whose nodes are still to come, then offer twice that, then half of it. Raises StackError
    where no rate is held.
    """
    await nodes_joined(stage, nodes)
    run_ms, first, before = run_ms_for(MAX_PER_S, nodes), 0, await ends_of(stage)

    async def tried(per_s: float) -> Trial:
        nonlocal first
        load = await put_load(stage, first=first, rate=per_s, seconds=TRIAL_S, run_ms=run_ms)
        first += len(load.due_s)
        is_held = load.growth <= GROWTH_MAX_PART * per_s * (load.end_s - load.begin_s)
        console.print(f"  {per_s:.0f} jobs/s: {load.jobs_per_s:.0f} started in a second", highlight=False)
        return Trial(per_s, is_held, load.jobs_per_s)

    console.print("what the cell holds:", highlight=False)
    trials = await trials_of(tried, MAX_PER_S) if rate is None else [await tried(rate)]
    per_s = _held(trials) if rate is None else rate
    traffic = await flows(stage, before, first)
    console.print(f"{OVER * per_s:.0f} jobs/s for {seconds:g} s, then {UNDER * per_s:.0f}", highlight=False)
    return Found(trials, per_s, await overloaded(stage, first, per_s, seconds, run_ms), traffic, run_ms)


def schedule(first: int, per_s: float, seconds: float, run_ms: int, partitions: int) -> Iterator[tuple[float, Ready]]:
    """The jobs of an overload and of the time behind it, each with the second from the beginning at which it is due."""
    over = int(OVER * per_s * seconds)
    ready = jobs(first, over + int(UNDER * per_s * RECOVERY_S_MAX), run_ms, partitions, wall_ms())
    for number, job in enumerate(ready):
        if number < over:
            yield number / (OVER * per_s), job
        else:
            yield seconds + (number - over) / (UNDER * per_s), job


def _held(trials: list[Trial]) -> float:
    held = highest_held(trials)
    if held is None:
        raise StackError(f"no rate was held, down to {min(trial.per_s for trial in trials):.0f} jobs/s")
    return held.per_s


async def overloaded(stage: LocalCell, first: int, per_s: float, seconds: float, run_ms: int) -> Course:
    """Offer twice this rate for so long, then half of it until the backlog is gone."""
    topic = stage.layout.topic("submissions")
    ready = list(schedule(first, per_s, seconds, run_ms, await stage.log.partitions(topic)))
    sender, ends = (
        Sender(stage.servers.kafka_access, topic),
        Ends(stage.log, stage.layout.tp("decisions", CELL)),
    )
    await sender.start()
    try:
        await ends.start()
        await asyncio.sleep(LOOK_AGAIN_S)
        begin_s = monotonic()
        sending = asyncio.create_task(sender.send_when_due(ready), name="sender")
        await asyncio.wait({sending}, timeout=WARM_PART * seconds)
        warm_s, before, watch = monotonic(), len(ends.left), ProcessorTime(pids_of(stage))
        await asyncio.wait({sending}, timeout=begin_s + seconds - monotonic())
        window, used = Window(warm_s, monotonic(), before, len(ends.left)), watch.used()
        due_s = [begin_s + at_s for at_s, _ in ready]
        recovery_s = await recovered_s(due_s, ends.left, sending, sender.handed_s, RECOVERED_S * UNDER * per_s)
        await end_tasks(sending)
        await _all_left(ends, submitted_of(sender.handed_s))
    finally:
        await ends.stop()
        await sender.stop()
    return course_of(window, due_s, sender.due_s, sender.handed_s, recovery_s, len(ends.left), used)


def course_of(
    window: Window,
    due_s: Sequence[float],
    sent_due_s: Sequence[float],
    handed_s: Sequence[float],
    recovery_s: float | None,
    started: int,
    used: Used,
) -> Course:
    """What came of it, by what was counted in the window: `due_s`, when each job of the schedule was due, `sent_due_s`
    and `handed_s`, when those were due that the sender has come to, and when it handed them over.
    """
    seconds = window.end_s - window.begin_s
    return Course(
        starts_per_s=(window.started - window.started_before) / seconds,
        offered_per_s=handed_per_s(handed_s, window.begin_s, window.end_s),
        late_ms=late_ms(sent_due_s, handed_s, window.begin_s, window.end_s),
        backlog=bisect_right(due_s, window.end_s) - window.started,
        recovery_s=recovery_s,
        submitted=submitted_of(handed_s),
        started=started,
        used=used,
    )


def submitted_of(handed_s: Sequence[float]) -> int:
    """How many jobs a sender has handed over."""
    return sum(at_s != NEVER for at_s in handed_s)


def handed_per_s(handed_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """How many jobs a sender handed over in a second of this time."""
    return sum(begin_s <= at_s < end_s for at_s in handed_s) / (end_s - begin_s)


async def recovered_s(
    due_s: Sequence[float],
    left: Sequence[object],
    sending: asyncio.Task[None],
    handed_s: Sequence[float],
    few: float,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> float | None:
    """How long it takes from now until no more than so few of the jobs wait that are due, handed over or not, and all
    are handed over that are due now; None if that never is while jobs are sent. `left` grows by each job that waits no
    more, `handed_s` is when each was handed over, `pause` lets so many seconds pass. Raises what ended the sending.
    """
    begin_s = monotonic()
    over = bisect_right(due_s, begin_s)
    while not sending.done():
        few_wait = bisect_right(due_s, monotonic()) - len(left) <= few
        if few_wait and submitted_of(handed_s[:over]) == over:
            return monotonic() - begin_s
        await pause(LOOK_AGAIN_S)
    sending.result()
    return None


async def _all_left(ends: Ends, submitted: int) -> None:
    """Until every job has started, at most for as long as was waited for the backlog."""
    for _ in range(int(RECOVERY_S_MAX / LOOK_AGAIN_S)):
        if len(ends.left) >= submitted:
            return
        await asyncio.sleep(LOOK_AGAIN_S)


def body_of(found: Found, baseline: float) -> dict[str, object]:
    """The figure for programs."""
    course, per_s = found.course, found.rate_per_s
    recovery_s = None if course.recovery_s is None else round(course.recovery_s, 1)
    return {
        "capacity_per_s": round(per_s) if found.is_held else None,
        "through_pct": round(100 * course.starts_per_s / per_s, 1),
        "backlog": course.backlog,
        "recovery_s": recovery_s,
        "recovery_bound_s": round(2 * course.backlog / ((1 - UNDER) * per_s), 1) if found.is_held else None,
        "scheduled_per_s": round(OVER * per_s),
        "offered_per_s": round(course.offered_per_s),
        "sender_late_ms_p99": percentile(course.late_ms, 99),
        "submitted": course.submitted,
        "started": course.started,
        "cpu_s": dict(course.used.by_process),
        "trials": [
            {"per_s": round(trial.per_s), "held": trial.is_held, "started_per_s": round(trial.started_per_s)}
            for trial in found.trials
        ],
        "run_ms_mean": found.run_ms,
        "baseline": round(baseline),
    }


def lines_of(found: Found, body: Mapping[str, object]) -> list[str]:
    """The found rate and limits as lines for people."""
    holds = f"holds {found.rate_per_s:.0f} jobs/s"
    if not found.is_held:
        holds = f"is said to hold {found.rate_per_s:.0f} jobs/s, and did not hold it in the trial"
    that = "what it holds" if found.is_held else "what was said"
    recovery = "longer than was waited for" if body["recovery_s"] is None else f"{body['recovery_s']} s"
    return [
        (
            f"the cell {holds}; offered {body['offered_per_s']} of the "
            f"{body['scheduled_per_s']} that were due in a second, it started {body['through_pct']} % of {that}"
        ),
        f"sender late by {body['sender_late_ms_p99']} ms (p99)",
        f"{body['backlog']} jobs waited then; at half of {that} they were gone after {recovery}",
        *([f"bound: {body['recovery_bound_s']} s, twice the backlog over the spare rate"] if found.is_held else []),
        f"baseline {body['baseline']} jobs/s: same bytes and hops, bare aiokafka",
        f"{body['started']} of {body['submitted']} jobs started in all; runs of {found.run_ms} ms in the mean",
    ]
