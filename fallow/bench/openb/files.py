"""Nodes and pods of the openb trace, as its own repository writes them or with this project's names of columns."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fallow.shared.events.values import GPU, NodeSpec

MIB_PER_GIB = 1024


class OpenbError(Exception):
    """A file that cannot be used; the text names the file, the line and the rule."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What one pod wants: milli-GPUs in all (below 1000 of one device, 0 of none), and the GPU types that it takes, all
    where none is named.
    """

    name: str
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    types: tuple[str, ...] = ()


def pool_of(gpu_type: str) -> str:
    """The pool of a GPU type's nodes."""
    return gpu_type.lower()


def read_nodes(path: Path) -> tuple[NodeSpec, ...]:
    """The nodes that have GPUs, by their names. Each GPU type is a pool of its own. Raises OpenbError."""
    found = [_node(path, number, row) for number, row in _rows(path)]
    nodes = sorted((node for node in found if node.gpus), key=lambda node: node.id)
    if not nodes:
        raise OpenbError(f"{path}: no node has a GPU")
    return tuple(nodes)


def read_pods(path: Path) -> tuple[Pod, ...]:
    """The pods in the order of the file. Raises OpenbError."""
    pods = tuple(_pod(path, number, row) for number, row in _rows(path))
    if not any(pod.gpu_milli for pod in pods):
        raise OpenbError(f"{path}: no pod wants a GPU")
    return pods


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            yield from enumerate(csv.DictReader(file), 2)
    except (OSError, UnicodeDecodeError) as failure:
        raise OpenbError(f"{path}: {failure}") from failure


def _node(path: Path, number: int, row: dict[str, str]) -> NodeSpec:
    try:
        if "sn" in row:
            name, gpus, kind = row["sn"], int(row["gpu"]), row["model"]
            cpu_milli, memory_mib = int(row["cpu_milli"]), int(row["memory_mib"])
        else:
            name, gpus, kind = row["node_id"], int(row["gpus"]), row["gpu_type"]
            cpu_milli = round(float(row["cpus"]) * 1000)
            memory_mib = round(float(row["memory_gib"]) * MIB_PER_GIB)
    except (KeyError, TypeError, ValueError) as failure:
        raise OpenbError(f"{path}, line {number}: not a node: {failure!r}") from failure
    return NodeSpec(
        id=name, pool=pool_of(kind), gpu_type=kind or "gpu", gpus=gpus, cpu_milli=cpu_milli, memory_mib=memory_mib
    )


def _pod(path: Path, number: int, row: dict[str, str]) -> Pod:
    try:
        gpus, milli = int(row["num_gpu"]), int(row["gpu_milli"] or 0)
        name = row["name"] if "name" in row else row["job_id"]
        cpu_milli, memory_mib = int(row["cpu_milli"]), int(row["memory_mib"])
    except (KeyError, TypeError, ValueError) as failure:
        raise OpenbError(f"{path}, line {number}: not a pod: {failure!r}") from failure
    if not (0 <= milli <= GPU and gpus >= 0) or (gpus > 1 and milli < GPU):
        raise OpenbError(f"{path}, line {number}: {gpus} GPUs of {milli} milli-GPUs are no request")
    types = (row.get("gpu_spec") or row.get("gpu_type") or "").split("|")
    return Pod(name, gpus * milli, cpu_milli, memory_mib, tuple(sorted({kind for kind in types if kind})))
