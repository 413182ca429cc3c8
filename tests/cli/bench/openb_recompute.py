"""The figures of `fallow bench openb` once more, from its tables alone and in the plainest way."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

FULL_PCT, POPULAR_PCT, GPU = 100, 95, 1000


class Kind(NamedTuple):
    """What pods of one kind want."""

    gpu_milli: int
    cpu_milli: int
    types: tuple[str, ...]


class Figures(NamedTuple):
    """At 100 % arrived: the parts of all GPUs in percent, and whether anything was promised twice."""

    allocation_pct: float
    fragmentation_pct: float
    is_sound: bool


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def figures(folder: Path, trace: list[Kind], seed: int) -> Figures:
    nodes = {row["node_id"]: row for row in table(folder / "nodes.csv")}
    left = {name: [GPU] * int(row["gpus"]) for name, row in nodes.items()}
    cpu = {name: int(row["cpu_milli"]) for name, row in nodes.items()}
    memory = {name: int(row["memory_mib"]) for name, row in nodes.items()}
    capacity = sum(len(devices) for devices in left.values()) * GPU
    arrived = allocated = 0
    is_sound = True
    for row in table(folder / "placements.csv"):
        if int(row["seed"]) != seed or arrived * 100 >= capacity * FULL_PCT:
            continue
        milli, node = int(row["gpu_milli"]), row["node"]
        arrived += milli
        if not node:
            continue
        allocated += milli
        devices = [int(device) for device in row["devices"].split("+") if device]
        for device in devices:
            left[node][device] -= milli // len(devices)
        cpu[node] -= int(row["cpu_milli"])
        memory[node] -= int(row["memory_mib"])
        types = row["gpu_types"].split("|")
        is_sound &= min([*left[node], cpu[node], memory[node]]) >= 0 and len(devices) == -(-milli // GPU)
        is_sound &= types == [""] or nodes[node]["gpu_type"] in types
    lost = sum(fragment(left[name], cpu[name], nodes[name]["gpu_type"], popular(trace)) for name in nodes)
    return Figures(100 * allocated / capacity, 100 * lost / capacity, is_sound)


def popular(trace: list[Kind]) -> dict[Kind, float]:
    """The most frequent kinds that are 95 % of the trace, and their part of these."""
    counts, so_far, chosen = Counter(trace), 0, dict[Kind, int]()
    for kind in sorted(counts, key=lambda kind: (-counts[kind], kind)):
        if so_far * 100 < len(trace) * POPULAR_PCT:
            chosen[kind] = counts[kind]
            so_far += counts[kind]
    return {kind: count / so_far for kind, count in chosen.items()}


def fragment(left: list[int], cpu: int, gpu_type: str, kinds: dict[Kind, float]) -> float:
    """What of the node's free GPU the mean pod cannot use."""
    lost = 0.0
    for kind, part in kinds.items():
        each, many = min(kind.gpu_milli, GPU), -(-kind.gpu_milli // GPU)
        holds = sum(free >= each for free in left) >= many and cpu >= kind.cpu_milli
        if many and holds and (not kind.types or gpu_type in kind.types):
            lost += part * sum(free for free in left if free < each)
        else:
            lost += part * sum(left)
    return lost
