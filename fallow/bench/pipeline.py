"""`fallow bench pipeline --mix friendly`: how many jobs a second go through a whole running cell, from submission to
start, with few kinds of jobs and no quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.bench.load.baseline import chain
from fallow.bench.load.job_mix import run_ms_for
from fallow.bench.load.load import WARM_PART, Load, nodes_joined, percentile, put_load
from fallow.bench.load.stages import Staged, on_stage
from fallow.bench.load.traffic import Flow, ends_of, flows, is_signed
from fallow.local.local_cell import LocalCell, Servers
from fallow.replay.workload import Workload

BASELINE_JOBS_MAX = 30_000
COMPARED = ("held_per_s", "jobs_per_s", "offered_per_s", "p50_ms", "p99_ms", "cpu_s_per_1000_jobs", "baseline")
"""What of a pipeline is compared between a plain cell and a secured one."""


@dataclass(frozen=True, slots=True)
class Piped:
    """A load on a cell, what it put onto the topics, and what the services held with the nodes and before its first
    job.
    """

    load: Load
    traffic: dict[str, Flow]
    run_ms: int
    empty_mb: dict[str, float]


def pipeline(
    console: Console,
    cell: Workload,
    *,
    rate: float,
    seconds: float,
    durable: bool,
    has_quotas: bool = False,
    secured: bool | None = None,
) -> Figure:
    """Run it on this cell. Raises StackError, LogUnavailable, LogOverflowed."""
    nodes = len(cell.nodes)

    async def work(stage: LocalCell) -> Piped:
        return await piped(stage, console, rate=rate, seconds=seconds, nodes=nodes)

    async def baseline(found: Piped, servers: Servers, folder: Path) -> float:
        console.print("the same bytes over the same hops with bare aiokafka", highlight=False)
        async with chain(servers, folder, found.traffic) as running:
            return (await running.send(min(BASELINE_JOBS_MAX, len(found.load.due_s)), None))[1]

    staged = on_stage(console, cell, work, baseline, durable=durable, secured=secured)
    return figure_of(staged, cell, has_quotas=has_quotas)


async def piped(
    stage: LocalCell, console: Console, *, rate: float, seconds: float, nodes: int, warm_part: float = WARM_PART
) -> Piped:
    """One load on a stage whose nodes are still to come."""
    console.print(f"waiting for {nodes} nodes", highlight=False)
    await nodes_joined(stage, nodes)
    run_ms, before, empty_mb = run_ms_for(rate, nodes), await ends_of(stage), stage.services.rss_mb()
    console.print(f"{rate:g} jobs/s for {seconds:g} s, a run takes {run_ms} ms in the mean", highlight=False)
    load = await put_load(stage, first=0, rate=rate, seconds=seconds, run_ms=run_ms, warm_part=warm_part)
    return Piped(load, await flows(stage, before, max(1, load.told.started)), run_ms, empty_mb)


def figure_of(staged: Staged[Piped, float], cell: Workload, *, has_quotas: bool = False) -> Figure:
    """The figure for people and for programs."""
    nodes, placement = len(cell.nodes), cell.cell_file.cells[0].policy.placement
    found, baseline = staged.answer, staged.baseline
    body = body_of(found.load, found.traffic, baseline)
    body |= {"quotas": has_quotas, "nodes": nodes, "run_ms_mean": found.run_ms, "mix": "friendly"}
    body |= {"placement": placement, "security": dict(staged.security)}
    return Figure("pipeline", lines_of(found.load, body), body, found.load.used, staged.durable)


def body_of(load: Load, traffic: Mapping[str, Flow], baseline: float) -> dict[str, object]:
    """What every load on a pipeline is told by. `baseline` in jobs a second."""
    jobs, waits = max(1, load.starts_by(load.end_s, load.begin_s)), load.waits_ms()
    return {
        "jobs_per_s": round(load.jobs_per_s),
        "backlog_flat": load.is_flat,
        "ratio_to_baseline": round(load.jobs_per_s / baseline, 3),
        "baseline": round(baseline),
        "offered_per_s": load.rate,
        "backlog_growth": load.growth,
        "p50_ms": percentile(waits, 50),
        "p99_ms": percentile(waits, 99),
        "sender_late_ms_p99": percentile(load.late_ms(), 99),
        "cpu_s_per_1000_jobs": {
            name: round(seconds / jobs * 1000, 3) for name, seconds in load.used.by_process.items()
        },
        "rss_mb": dict(load.rss_mb),
        "bytes_per_job": {name: flow.job_bytes for name, flow in traffic.items()},
        "records_per_job": {name: round(flow.records, 3) for name, flow in traffic.items()},
        "submitted": len(load.due_s),
        "started": load.told.started,
        "finished": load.told.finished,
        "effects": load.told.effects,
        "seconds": round(load.used.wall_s, 1),
        "signed": is_signed(traffic),
    }


def lines_of(load: Load, body: Mapping[str, Any]) -> list[str]:
    """The figures of a load as lines for people."""
    flat = f"{'flat' if load.is_flat else 'growing'} ({load.growth:+} jobs)"
    cpu, late = body["cpu_s_per_1000_jobs"], body["sender_late_ms_p99"]
    return [
        f"{body['jobs_per_s']} jobs/s of {body['offered_per_s']:g} offered, backlog {flat}",
        f"baseline {body['baseline']} jobs/s: same bytes and hops, bare aiokafka; ratio {body['ratio_to_baseline']}",
        f"due to start: p50 {body['p50_ms']} ms, p99 {body['p99_ms']} ms; sender late by {late} ms (p99)",
        f"CPU seconds for 1,000 jobs: {sum(cpu.values()):.2f}: " + by_size(cpu),
        "memory in MB: " + by_size(load.rss_mb),
    ]


def by_size(figures: dict[str, float] | object) -> str:
    """Names with their figures, the largest first."""
    assert isinstance(figures, dict)
    return ", ".join(f"{name} {value:g}" for name, value in sorted(figures.items(), key=lambda one: (-one[1], one[0])))
