"""A paced run: the clock goes by itself, commands are sent when it has reached their time, and the rest is waited
for.
"""

from __future__ import annotations

import asyncio

from fallow.local.local_cell import LocalCell
from fallow.local.watch import Watch
from fallow.replay.feed import Feed, drain
from fallow.replay.progress import Display, day_time
from fallow.replay.workload import Workload
from fallow.shared.runtime.clocks import WallCellClock
from fallow.shared.runtime.tasks.cancels import end_tasks

SHOW_EVERY_S = 0.125


async def run_paced(stage: LocalCell, workload: Workload, clock: WallCellClock, display: Display) -> int:
    """Feed and drain. The cell time at which the workload began."""
    watch = Watch(stage)
    await watch.start()
    try:
        await watch.nodes_joined(len(workload.nodes))
        feed = Feed(stage, workload, clock, base_ms=clock.now_ms())
        showing = asyncio.create_task(_show(feed, watch, display), name="display")
        try:
            await feed.run()
            await drain(stage, watch, workload)
        finally:
            await end_tasks(showing)
        return feed.base_ms
    finally:
        await watch.stop()


async def _show(feed: Feed, watch: Watch, display: Display) -> None:
    total = len(feed.workload.commands)
    while True:
        has_live = watch.has_live_jobs(feed.workload.endless)
        display.show(
            f"{day_time(feed.clock.now_ms() - feed.base_ms)}  {stage_of(feed.sent, total, has_live=has_live)}",
            watch.view(),
        )
        await asyncio.sleep(SHOW_EVERY_S)


def stage_of(sent: int, total: int, *, has_live: bool) -> str:
    """How far a run is: commands are submissions, cancels and other wishes. `has_live`: jobs are left that will end."""
    if sent < total:
        return f"{sent} of {total} commands sent"
    return "waiting for the last jobs to end" if has_live else "all jobs are over; waiting for the services"
