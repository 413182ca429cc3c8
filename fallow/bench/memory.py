"""`fallow bench memory`: what each process holds with many live jobs, and how much more with each finished one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.bench.load.big_cell import BigCell, Live, big_cell
from fallow.bench.load.load import Load
from fallow.bench.load.stages import cell_of, on_stage
from fallow.bench.pipeline import by_size, piped
from fallow.local.local_cell import LocalCell, Servers
from fallow.shared.events.operations import CellPolicy
from fallow.shared.runtime.stack.services import Services

SETTLE_S = 15.0
FILL_PART = 0.5
"""The first half of a load fills what is bounded; growth is measured over the second."""

READY_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Growth:
    """A load, and what the processes held with the nodes and before its first job."""

    load: Load
    empty_mb: Mapping[str, float]

    def mb_per_million(self) -> dict[str, float]:
        """Megabytes that each process grew by in the load, for a million jobs of it."""
        load = self.load
        jobs = max(1, load.starts_by(load.end_s, load.begin_s))
        grown = {name: load.rss_end_mb[name] - mb for name, mb in load.rss_begin_mb.items()}
        return {name: round(mb / jobs * 1e6) for name, mb in grown.items()}


def memory(
    console: Console, *, nodes: int, jobs: int, rate: float, seconds: float, remembered: int, durable: bool
) -> Figure:
    """Run it. Raises StackError, LogUnavailable, LogOverflowed."""

    async def work(stage: LocalCell) -> Growth:
        found = await piped(stage, console, rate=rate, seconds=seconds, nodes=nodes, warm_part=FILL_PART)
        return Growth(found.load, found.empty_mb)

    async def live(_: Growth, servers: Servers, folder: Path) -> dict[str, float]:
        console.print(f"{nodes} nodes and {jobs} live jobs", highlight=False)
        async with big_cell(servers, folder / "big", nodes=nodes, live=Live(jobs)) as cell:
            return await _held(cell)

    policy = CellPolicy(finished_jobs_max=remembered)
    staged = on_stage(console, cell_of(nodes, policy), work, live, durable=durable)
    growth, held = staged.answer, staged.baseline
    per_million, many = growth.mb_per_million(), growth.load.starts_by(growth.load.end_s, growth.load.begin_s)
    lines = [
        f"memory in MB with {nodes} nodes and {jobs} live jobs: " + by_size(held),
        "baseline, the same processes with the nodes and no job: " + by_size(dict(growth.empty_mb)),
        f"growth in MB for a million jobs, from {many} behind as many others, {remembered} ended ones remembered: "
        + by_size(per_million),
    ]
    body: dict[str, object] = {
        "rss_mb": held,
        "growth_mb_per_million_jobs": per_million,
        "growth_measured_jobs": many,
        "remembered_jobs": remembered,
        "baseline": dict(growth.empty_mb),
        "nodes": nodes,
        "jobs": jobs,
    }
    return Figure("memory", lines, body, growth.load.used, staged.durable)


async def _held(cell: BigCell) -> dict[str, float]:
    services = Services(cell.services.specs, environment=cell.services.environment, run_dir=cell.folder / "logs")
    try:
        await services.start()
        await services.wait_ready(wait_s=READY_WAIT_S)
        await asyncio.sleep(SETTLE_S)
        return services.rss_peak_mb()
    finally:
        await services.stop()
