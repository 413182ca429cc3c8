"""`fallow bench openb`: how much of a real cluster can be handed out when pods come with shares of GPUs, whole GPUs and
CPUs; the protocol of FGD (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from fallow.bench.figure import Figure
from fallow.bench.load.processor_time import ProcessorTime
from fallow.bench.openb.cell import capacity_milli, cell_of
from fallow.bench.openb.draw import Draw, drawn
from fallow.bench.openb.files import OpenbError, read_nodes, read_pods
from fallow.bench.openb.fragments import Fragments
from fallow.bench.openb.rules import NAMES, placement_of, rule_of, ties_of
from fallow.bench.openb.run import PLACEMENT_COLUMNS, Moment, Run, run
from fallow.cli.arguments.paths import file_in
from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.shared.events.fields.values import NodeSpec

FULL_PCT = 100
DIGITS = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants: which files, which seeds, which rule."""

    pods: Path
    nodes: Path
    seeds: range
    policy: str
    draw: Draw
    out: Path | None


def openb_or_end(pods: Path, nodes: Path, seeds: range, policy: str, draw: str, out: Path | None) -> Figure:
    """Run what the user asks for. Ends the command where it cannot be used."""
    if policy not in NAMES:
        refuse("--policy", policy, f"must be one of {', '.join(NAMES)}")
    if draw not in tuple(Draw):
        refuse("--draw", draw, f"must be one of {', '.join(Draw)}")
    try:
        return openb(Asked(pods, nodes, seeds, policy, Draw(draw), out))
    except OpenbError as failure:
        end_with(Exit.USAGE, str(failure))


def openb(asked: Asked) -> Figure:
    """Run all seeds. Raises OpenbError where a file cannot be used."""
    watch = ProcessorTime({"openb": os.getpid()})
    pods, nodes = read_pods(asked.pods), read_nodes(asked.nodes)
    fragments, capacity = Fragments(pods), capacity_milli(nodes)
    runs = []
    for seed in asked.seeds:
        state = cell_of(nodes, placement_of(asked.policy))
        rule = rule_of(asked.policy, state, seed, fragments)
        runs.append(run(seed, drawn(pods, capacity, seed, asked.draw), state, rule, fragments))
    if asked.out is not None:
        _write(asked.out, runs, nodes)
    body = _body(asked, runs, len(nodes), capacity)
    return Figure("openb", _lines(asked, runs), body, watch.used())


def _body(asked: Asked, runs: Sequence[Run], nodes: int, capacity: int) -> dict[str, object]:
    full = [each.at(FULL_PCT) for each in runs]
    allocations = [moment.allocation_pct for moment in full]
    return {
        "policy": asked.policy,
        "tie_rule": ties_of(asked.policy),
        "draw": asked.draw.value,
        "nodes": nodes,
        "gpus_milli": capacity,
        "allocation_pct_at_100": round(fmean(allocations), DIGITS),
        "allocation_pct_at_100_sd": round(stdev(allocations), DIGITS) if len(runs) > 1 else 0.0,
        "fragmentation_pct_at_100": round(fmean(moment.fragmentation_pct for moment in full), DIGITS),
        "per_seed": [_seed(each) for each in runs],
        "curve": [_moment(moment) for moment in means(runs)],
        "pods_per_s": round(fmean(each.pods_per_s for each in runs)),
    }


def _seed(each: Run) -> dict[str, object]:
    full = each.at(FULL_PCT)
    return {
        "seed": each.seed,
        "allocation_pct_at_100": round(full.allocation_pct, DIGITS),
        "fragmentation_pct_at_100": round(full.fragmentation_pct, DIGITS),
        "pods_placed": each.placed,
        "pods_dropped": each.dropped,
    }


def _moment(moment: Moment) -> dict[str, object]:
    return {
        "arrived_pct": moment.arrived_pct,
        "allocation_pct": round(moment.allocation_pct, DIGITS),
        "fragmentation_pct": round(moment.fragmentation_pct, DIGITS),
    }


def means(runs: Sequence[Run]) -> list[Moment]:
    """The mean over the seeds at each moment."""
    return [
        Moment(
            each[0].arrived_pct,
            fmean(moment.allocation_pct for moment in each),
            fmean(moment.fragmentation_pct for moment in each),
        )
        for each in zip(*(found.moments for found in runs), strict=True)
    ]


def _lines(asked: Asked, runs: Sequence[Run]) -> list[str]:
    at_full = [each.at(FULL_PCT) for each in runs]
    rows = [
        f"{moment.arrived_pct:>9} %  {moment.allocation_pct:>10.2f} %  {moment.fragmentation_pct:>10.2f} %"
        for moment in means(runs)
    ]
    seeds = [
        f"seed {each.seed}: {full.allocation_pct:.2f} % allocated, {full.fragmentation_pct:.2f} % fragmented at 100 % "
        f"arrived; {each.placed:,} pods placed, {each.dropped:,} dropped; {each.pods_per_s:,} pods/s"
        for each, full in zip(runs, at_full, strict=True)
    ]
    mean = (
        f"mean at 100 % arrived: {fmean(m.allocation_pct for m in at_full):.2f} % of all GPUs allocated, "
        f"{fmean(m.fragmentation_pct for m in at_full):.2f} % fragmented"
    )
    return [
        f"{asked.policy}; ties: {ties_of(asked.policy)}",
        "   arrived     allocated    fragmented",
        *rows,
        *seeds,
        mean,
    ]


def _write(folder: Path, runs: Sequence[Run], nodes: Sequence[NodeSpec]) -> None:
    """placements.csv, each pod in the order in which it came, and nodes.csv: from these the figures follow."""
    with file_in(folder, "placements.csv") as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(PLACEMENT_COLUMNS)
        for each in runs:
            writer.writerows(each.rows)
    with file_in(folder, "nodes.csv") as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("node_id", "gpu_type", "gpus", "cpu_milli", "memory_mib"))
        writer.writerows((node.id, node.gpu_type, node.gpus, node.cpu_milli, node.memory_mib) for node in nodes)
