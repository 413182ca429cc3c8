"""`fallow bench latency`: how long a job waits in a cell with room, from when it is due to the decision that starts it:
of a cell at rest, and at two rates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.bench.load.baseline import Chain, chain
from fallow.bench.load.load import Load, nodes_joined, percentile, put_load
from fallow.bench.load.stages import cell_of, on_stage
from fallow.bench.load.traffic import Flow, ends_of, flows, is_signed
from fallow.local.local_cell import LocalCell, Servers
from fallow.shared.events.operations import CellPolicy

RATES = (200, 1_000)
IDLE_RATE = 1
"""So few jobs a second find the writer at rest: it looks at its log before each of them."""

ALL_RATES = (*RATES, IDLE_RATE)
RUN_MS = 1_600
BASELINE_SECONDS = 5.0
PERCENTS = (50, 99)
HANDED = "from_handed_"
"""How a key begins that counts from when a job was handed over, which is what the cell itself takes."""

COMPARED = tuple(f"p{percent}_ms_at_{rate}" for rate in reversed(RATES) for percent in PERCENTS)
"""What is compared between a plain cell and a secured one."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A load at each rate, and what the first put onto the topics."""

    loads: dict[int, Load]
    traffic: dict[str, Flow]


def latency(
    console: Console,
    policy: CellPolicy,
    *,
    seconds: float,
    nodes: int,
    durable: bool,
    secured: bool | None = None,
) -> Figure:
    """Run it. Raises StackError, LogUnavailable, LogOverflowed."""

    async def work(stage: LocalCell) -> Measured:
        return await measured(stage, console, seconds=seconds, nodes=nodes)

    async def baseline(found: Measured, servers: Servers, folder: Path) -> dict[str, float | None]:
        console.print("the same bytes over the same hops with bare aiokafka", highlight=False)
        async with chain(servers, folder, found.traffic) as running:
            return {key: value for rate in ALL_RATES for key, value in (await _plain(running, rate)).items()}

    staged = on_stage(console, cell_of(nodes, policy), work, baseline, durable=durable, secured=secured)
    found, plain = staged.answer, staged.baseline
    answers = {key: value for rate, load in found.loads.items() for key, value in answers_of(rate, load).items()}
    worst = max(found.loads.values(), key=lambda load: load.used.others_cores)
    lines = [line for rate in ALL_RATES for line in _lines(rate, answers, plain)]
    body: dict[str, object] = {**answers, "baseline": plain, "nodes": nodes, "seconds": seconds, "run_ms_mean": RUN_MS}
    body |= {"placement": policy.placement, "signed": is_signed(found.traffic), "security": dict(staged.security)}
    return Figure("latency", lines, body, worst.used, staged.durable)


def _lines(rate: int, answers: Mapping[str, float | None], plain: Mapping[str, float | None]) -> list[str]:
    p50, p99, late = f"p50_ms_at_{rate}", f"p99_ms_at_{rate}", answers[f"sender_late_ms_p99_at_{rate}"]
    handed = " ms, ".join(f"{key[:3]} {answers[HANDED + key]}" for key in (p50, p99))
    return [
        f"at {rate} jobs/s, due to start: p50 {answers[p50]} ms, p99 {answers[p99]} ms; sender late by {late} ms (p99)",
        f"at {rate} jobs/s, handed over to start: {handed} ms",
        f"at {rate} jobs/s: bare aiokafka p50 {plain[p50]} ms, p99 {plain[p99]} ms",
    ]


async def measured(stage: LocalCell, console: Console, *, seconds: float, nodes: int) -> Measured:
    """A load at each rate, one after the other."""
    await nodes_joined(stage, nodes)
    first, loads = 0, dict[int, Load]()
    before = await ends_of(stage)
    traffic: dict[str, Flow] = {}
    for rate in ALL_RATES:
        console.print(f"{rate} jobs/s for {seconds:g} s", highlight=False)
        loads[rate] = await put_load(stage, first=first, rate=rate, seconds=seconds, run_ms=RUN_MS)
        first += len(loads[rate].due_s)
        traffic = traffic or await flows(stage, before, first)
    return Measured(loads, traffic)


async def _plain(running: Chain, rate: int) -> dict[str, float | None]:
    before = len(running.come)
    due, _ = await running.send(int(rate * BASELINE_SECONDS), rate)
    await asyncio.sleep(0.1)
    # Hops keep the order but for that of partitions, so the k-th to come is as good as the k-th that was due.
    waits = [(came - at) * 1000 for at, came in zip(due, running.come[before:], strict=True)]
    return _keys(rate, sorted(waits))


def answers_of(rate: int, load: Load) -> dict[str, float | None]:
    """What the bench reports of the load at this rate, by key."""
    late, handed = percentile(load.late_ms(), 99), _keys(rate, load.handed_waits_ms())
    by_handed = {HANDED + key: value for key, value in handed.items()}
    return {**_keys(rate, load.waits_ms()), **by_handed, f"sender_late_ms_p99_at_{rate}": late}


def _keys(rate: int, ordered: list[float]) -> dict[str, float | None]:
    return {f"p{percent}_ms_at_{rate}": percentile(ordered, percent) for percent in PERCENTS}
