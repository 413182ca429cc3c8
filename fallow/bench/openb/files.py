"""Nodes and pods of the openb trace, as its own repository writes them or with this project's names of columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from math import isfinite
from pathlib import Path

from fallow.shared.digits import is_written_with_digits
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.fields.values import GPU, NodeSpec
from fallow.shared.runtime.files.table import Table
from fallow.shared.runtime.files.unread import READING_FAILS, unpacked, why_unread

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
    found, seen = list[NodeSpec](), dict[str, int]()
    for number, row in _rows(path):
        node = _node(path, number, row)
        if node.id in seen:
            rule = f"line {seen[node.id]} has it already"
            raise OpenbError(f"{path}, line {number}: node {shorten(repr(node.id))}: {rule}")
        seen[node.id] = number
        found.append(node)
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
        with unpacked(path) as packed, TextIOWrapper(packed, encoding="utf-8") as file:
            yield from enumerate(Table(file), 2)
    except READING_FAILS as failure:
        raise OpenbError(f"{path}: cannot be read: {why_unread(failure)}") from failure


def _node(path: Path, number: int, row: dict[str, str]) -> NodeSpec:
    try:
        if "sn" in row:
            name, gpus, kind = row["sn"], _whole(row, "gpu"), _text(row, "model")
            cpu_milli, memory_mib = _whole(row, "cpu_milli"), _whole(row, "memory_mib")
        else:
            name, gpus, kind = _text(row, "node_id"), _whole(row, "gpus"), _text(row, "gpu_type")
            cpu_milli = round(_number(row, "cpus") * 1000)
            memory_mib = round(_number(row, "memory_gib") * MIB_PER_GIB)
    except ValueError as failure:
        raise OpenbError(f"{path}, line {number}: not a node: {failure}") from failure
    return NodeSpec(
        id=name, pool=pool_of(kind), gpu_type=kind or "gpu", gpus=gpus, cpu_milli=cpu_milli, memory_mib=memory_mib
    )


def _pod(path: Path, number: int, row: dict[str, str]) -> Pod:
    try:
        gpus, milli = _whole(row, "num_gpu"), _whole(row, "gpu_milli", empty=0)
        name = row["name"] if "name" in row else _text(row, "job_id")
        cpu_milli, memory_mib = _whole(row, "cpu_milli"), _whole(row, "memory_mib")
    except ValueError as failure:
        raise OpenbError(f"{path}, line {number}: not a pod: {failure}") from failure
    if not (0 <= milli <= GPU and gpus >= 0) or (gpus > 1 and milli < GPU):
        raise OpenbError(f"{path}, line {number}: {gpus} GPUs of {milli} milli-GPUs are no request")
    types = (row.get("gpu_spec") or row.get("gpu_type") or "").split("|")
    return Pod(name, gpus * milli, cpu_milli, memory_mib, tuple(sorted({kind for kind in types if kind})))


def _text(row: dict[str, str], column: str) -> str:
    """Raises ValueError where the table has no such column, or the row ends before it."""
    text = row.get(column)
    if text is None:
        raise ValueError(f"{column} is missing")
    return text


def _whole(row: dict[str, str], column: str, empty: int | None = None) -> int:
    text = _text(row, column)
    if empty is not None and not text:
        return empty
    try:
        return int(text if is_written_with_digits(text.strip(), int) else "")
    except ValueError as failure:
        raise ValueError(f"{column} = {shorten(repr(text))}: must be a whole number") from failure


def _number(row: dict[str, str], column: str) -> float:
    text = _text(row, column)
    found = float("nan")
    with suppress(ValueError):
        found = float(text if is_written_with_digits(text.strip(), float) else "")
    if not isfinite(found):
        raise ValueError(f"{column} = {shorten(repr(text))}: must be a number")
    return found
