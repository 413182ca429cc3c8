"""One whole run: servers, services, the feeding, the reading back. What `demo` and `replay` have in common."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from fallow.local.local_cell import LocalCell, Servers, running, stage_for
from fallow.local.service_set import Clock
from fallow.replay.lockstep import Lockstep, Progress
from fallow.replay.progress import Display, day_time, display_on
from fallow.replay.realtime_run import run_paced
from fallow.replay.report.report import Report, report_of
from fallow.replay.workload import Workload
from fallow.shared.runtime.clocks import WallCellClock, monotonic_ms, wall_ms
from fallow.shared.runtime.process import loop_factory
from fallow.shared.runtime.settings import ClockKind
from fallow.shared.runtime.stack.choose import Choice


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run, where. `speed` is cell time for one unit of wall time; None: in lockstep."""

    workload: Workload
    kafka: Choice
    redis: Choice
    namespace: str
    folder: Path
    speed: float | None


def run_of(plan: Plan, console: Console) -> Report:
    """Carry the plan out. Raises StackError, WorkloadError, LogUnavailable, LogOverflowed, Stuck."""
    with running(plan.kafka, plan.redis) as servers, display_on(console) as display:
        display.say("starting the services")
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_on_stage(plan, servers, display))


async def _on_stage(plan: Plan, servers: Servers, display: Display) -> Report:
    kind = ClockKind.STEPPED if plan.speed is None else ClockKind.WALL
    clock = Clock(kind, 0 if plan.speed is None else wall_ms(), plan.speed or 1.0)
    async with stage_for(plan.workload, servers, plan.folder, plan.namespace, clock, say=display.say) as stage:
        return await stage.unless_one_ends(_fed_and_read(plan.workload, stage, clock, display))


async def _fed_and_read(workload: Workload, stage: LocalCell, clock: Clock, display: Display) -> Report:
    began_ms = monotonic_ms()
    if clock.kind is ClockKind.STEPPED:
        await Lockstep(stage, workload, progress=_steps_on(display, workload)).run()
        base_ms = 0
    else:
        base_ms = await run_paced(stage, workload, WallCellClock(clock.origin_ms, clock.speed), display)
    seconds = round((monotonic_ms() - began_ms) / 1000, 1)
    display.say("reading everything back")
    return replace(await report_of(stage, workload, base_ms), seconds=seconds)


def _steps_on(display: Display, workload: Workload) -> Progress:
    began_ms = monotonic_ms()

    def tell(lockstep: Lockstep) -> None:
        each_ms = (monotonic_ms() - began_ms) / lockstep.steps
        sent = f"{lockstep.sent}/{len(workload.commands)} sent"
        polls = lockstep.polls / lockstep.steps
        display.say(
            f"{day_time(lockstep.now_ms)}  {sent}  {lockstep.steps} steps of {each_ms:.1f} ms, {polls:.1f} looks"
        )

    return tell


@contextmanager
def folder_for(prefix: str, *, keep: bool, console: Console) -> Iterator[Path]:
    """A new folder for logs and diaries. It goes at the end, unless it is to be kept or something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    except BaseException:
        console.print(f"logs and diaries: {folder}", highlight=False, soft_wrap=True)
        raise
    if keep:
        console.print(f"logs and diaries: {folder}", highlight=False, soft_wrap=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
