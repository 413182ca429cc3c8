"""`fallow bench k1` and `k2`: a workload of many borrowing queues, end to end on a running cell, until its last job is
over.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console

from fallow.bench.borrowing.contention import Contention, Published, Sent, cell_of, jobs
from fallow.bench.figure import Figure
from fallow.bench.load.arrivals import NEVER, Arrivals, Told, told_by
from fallow.bench.load.load import nodes_joined, pids_of
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.sender import Sender
from fallow.bench.load.stages import Staged, on_stage
from fallow.local.local_cell import LocalCell, Servers
from fallow.replay.workload import CELL
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.stack.child import StackError

OVER_WAIT_S = 600.0
STILL_S = 20.0
"""When nothing has come for so long, what is not over never will be."""

LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Contended:
    """What became of the workload: when each job was due (monotonic seconds), and what the log tells."""

    jobs: list[Sent]
    due_s: list[float]
    told: Told
    used: Used

    @property
    def wall_s(self) -> float:
        """From the first submission to the end of the last job."""
        return self.told.last_finish_s - self.due_s[0]

    def held_pct(self, contention: Contention) -> float:
        """GPUs that jobs held from the decision that starts them to the one that says that they are over, in the mean
        over that time. As Kueue counts its use, which begins and ends with what its status says.
        """
        gpus = {sort.name: sort.gpus for sort in contention.sorts}
        told = self.told
        spans = zip(self.jobs, told.started_s, told.finished_s, strict=True)
        held_s = sum(gpus[job.sort] * (over_s - begun_s) for job, begun_s, over_s in spans)
        return round(100 * held_s / (contention.gpus * self.wall_s), 1)

    def mean_s(self) -> dict[str, float]:
        """The mean time to admission by class: from the submission to the decision that starts the job."""
        waits: dict[str, list[float]] = {}
        for job, due_s, started_s in zip(self.jobs, self.due_s, self.told.started_s, strict=True):
            if started_s != NEVER:
                waits.setdefault(job.sort, []).append(started_s - due_s)
        return {sort: round(fmean(found), 2) for sort, found in waits.items()}


def contended(console: Console, contention: Contention, *, durable: bool) -> Figure:
    """Run it. Raises StackError, LogUnavailable, LogOverflowed."""

    async def work(stage: LocalCell) -> Contended:
        console.print(f"waiting for {len(cell.nodes)} nodes", highlight=False)
        await nodes_joined(stage, len(cell.nodes))
        count = len(cell.cell_file.tenants) - contention.cohorts
        console.print(f"{contention.name}: {count} queues in {contention.cohorts} cohorts", highlight=False)
        return await run(stage, contention)

    async def nothing(_: Contended, _servers: Servers, _folder: Path) -> float:
        return contention.floor_s

    cell = cell_of(contention)
    found = on_stage(console, cell, work, nothing, durable=durable)
    return figure_of(contention, found)


async def run(stage: LocalCell, contention: Contention) -> Contended:
    """Send everything when it is due, wait for the last end, and read back."""
    topic = stage.layout.topic("submissions")
    ready = jobs(contention, await stage.log.partitions(topic), wall_ms())
    sender = Sender(stage.servers.kafka_access, topic)
    arrivals = Arrivals(stage.log, stage.layout.tp("decisions", CELL))
    await sender.start()
    try:
        await arrivals.start()
        await asyncio.sleep(LOOK_AGAIN_S)
        watch = ProcessorTime(pids_of(stage))
        await sender.send_when_due([(job.at_ms / 1000, job.ready) for job in ready])
        await _still(arrivals)
        used = watch.used()
    finally:
        await arrivals.stop()
        await sender.stop()
    return Contended(ready, list(sender.due_s), await told_by(arrivals, stage.log, len(ready)), used)


async def _still(arrivals: Arrivals) -> None:
    """Until the log has stood still: runs are short, so that nothing runs or waits any more."""
    loop = asyncio.get_running_loop()
    end_s, seen, since_s = loop.time() + OVER_WAIT_S, -1, loop.time()
    while loop.time() < end_s and loop.time() - since_s < STILL_S:
        if len(arrivals.at_s) != seen:
            seen, since_s = len(arrivals.at_s), loop.time()
        await asyncio.sleep(LOOK_AGAIN_S)


def figure_of(contention: Contention, staged: Staged[Contended, float]) -> Figure:
    """The figure for people and for programs. It is of all jobs: raises StackError where not all of them finished."""
    found, floor_s = staged.answer, staged.baseline
    if found.told.finished != len(found.jobs):
        raise StackError(
            f"only {found.told.finished} of {len(found.jobs)} jobs finished: no figure, since it covers all jobs"
        )
    kueue, jobs_sent, means = contention.kueue, len(found.jobs), found.mean_s()
    use_pct, held_pct = contention.use_pct(found.wall_s), found.held_pct(contention)
    kueue_use_pct = contention.use_pct(kueue.wall_s)
    body: dict[str, object] = {
        "wall_s": round(found.wall_s, 1),
        "use_pct": use_pct,
        "held_pct": held_pct,
        "mean_s": means,
        "preemption": False,
        "baseline": round(floor_s, 1),
        "kueue": {
            "wall_s": kueue.wall_s,
            "wall_s_here": kueue.wall_s_here,
            "use_pct": kueue_use_pct,
            "held_pct": kueue.held_pct,
            "mean_s": dict(kueue.mean_s),
            "settings": kueue.settings,
        },
        "jobs": jobs_sent,
        "started": found.told.started,
        "finished": found.told.finished,
        "cpu_s": {name: round(seconds, 1) for name, seconds in found.used.by_process.items()},
    }
    lines = [
        (
            f"{found.wall_s:.1f} s for {jobs_sent} jobs, {found.told.finished} of them finished; "
            f"at least {floor_s:.1f} s by the work there is; Kueue {kueue.wall_s:.1f} s{_run_here(kueue)}"
        ),
        f"{use_pct:.1f} % of all GPU time is work; Kueue {kueue_use_pct:.1f} %",
        f"{held_pct:.1f} % is held by jobs, from decision to decision; Kueue {kueue.held_pct:.1f} % by its status",
        "mean time to admission: "
        + ", ".join(f"{sort} {mean_s:.2f} s (Kueue {kueue.mean_s[sort]:.1f})" for sort, mean_s in means.items()),
        "without preemption; Kueue's figures are its own, from its own machine, with preemption"
        + (f"; {kueue.settings}" if kueue.settings else ""),
    ]
    return Figure(contention.name, lines, body, found.used, staged.durable)


def _run_here(kueue: Published) -> str:
    return "" if kueue.wall_s_here is None else f", and {kueue.wall_s_here:.1f} s on a machine of 2 cores as ours are"
