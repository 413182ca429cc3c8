"""Every printed figure of a simulation, computed again from its tables alone. Shares nothing with Fallow."""

from __future__ import annotations

import csv
from collections import Counter
from fractions import Fraction
from pathlib import Path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rank(values: list[int], percent: int) -> int:
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def times(name: str, values: list[int]) -> dict[str, object]:
    mean = round(float(Fraction(sum(values), len(values))), 3)
    ranks = {f"{name}_ms_p{percent}": rank(values, percent) for percent in (50, 95, 99)}
    return {f"{name}_ms_mean": mean, **ranks, f"{name}_ms_longest": max(values)}


ERRORS = ("declared_error_p50", "declared_error_p90", "learned_error_p50", "learned_error_p90")
"""No job of these traces tells how long it runs, and the cell learns nothing: so nothing was expected."""


def figures(folder: Path) -> dict[str, object]:
    jobs, placements = table(folder / "jobs.csv"), table(folder / "placements.csv")
    gpus = {row["node_id"]: 1000 * int(row["gpus"]) for row in table(folder / "nodes.csv")}
    counted = [row for row in jobs if row["carried"] == "0"]
    states = Counter(row["state"] for row in jobs)
    waits = [int(row["start_ms"]) - int(row["submit_ms"]) for row in counted if row["start_ms"]]
    ends = [int(row["end_ms"]) - int(row["submit_ms"]) for row in counted if row["state"] == "finished"]
    until_ms = max(int(row["end_ms"]) for row in placements)
    gar, gfr = ratios(placements, gpus, until_ms)
    gar_loaded, gfr_loaded = ratios(placements, gpus, max(int(row["submit_ms"]) for row in jobs))
    return {
        "submitted": len(jobs),
        "completed": states["finished"],
        "failed": states["failed"],
        "rejected": states["rejected"],
        "unfinished": states["running"] + states["waiting"],
        "gar": gar,
        "sor": gar,
        "gfr": gfr,
        "gar_loaded": gar_loaded,
        "sor_loaded": gar_loaded,
        "gfr_loaded": gfr_loaded,
        **times("wait", waits),
        **times("jct", ends),
        "preemptions": sum(int(row["preemptions"]) for row in jobs),
        "makespan_ms": until_ms,
        **dict.fromkeys(ERRORS),
    }


def ratios(placements: list[dict[str, str]], gpus: dict[str, int], until_ms: int) -> tuple[float, float]:
    changes = []
    for row in placements:
        milli = int(row["gpu_milli"])
        changes += [(int(row["start_ms"]), row["node"], milli), (int(row["end_ms"]), row["node"], -milli)]
    used = dict.fromkeys(gpus, 0)
    before_ms = allocated = partly = gpu_ms = node_ms = 0
    for at_ms, node, milli in sorted((min(at_ms, until_ms), node, milli) for at_ms, node, milli in changes):
        gpu_ms, node_ms = gpu_ms + allocated * (at_ms - before_ms), node_ms + partly * (at_ms - before_ms)
        partly -= 0 < used[node] < gpus[node]
        used[node], allocated, before_ms = used[node] + milli, allocated + milli, at_ms
        partly += 0 < used[node] < gpus[node]
    whole = Fraction(gpu_ms, sum(gpus.values()) * until_ms), Fraction(node_ms, len(gpus) * until_ms)
    return round(float(whole[0]), 6), round(float(whole[1]), 6)
