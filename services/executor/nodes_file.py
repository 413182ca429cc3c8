"""Reads the file that lists the virtual nodes: one JSON line for each, `{"cell": "cell-a", "node": {...}}`. It is read
again at each restart, so it is no pipe.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from fallow.shared.events.base import Name, Value
from fallow.shared.events.codec.encoding import shorten, written
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.events.validation.rules_told import is_shown, rule_broken
from fallow.shared.events.validation.unknown_fields import read_valid
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file


class NodesFileError(ValueError):
    """The nodes file cannot be used. One line: file, line, field, value and rule."""


class NodeLine(Value):
    """One line of the file."""

    cell: Name
    node: NodeSpec


def load_nodes(path: Path) -> dict[str, tuple[NodeSpec, ...]]:
    """The nodes of each cell, in the order of the file. A node's id is its own in all cells. Raises NodesFileError."""
    try:
        lines = read_text_file(path).split("\n")
    except TextFileError as error:
        raise NodesFileError(f"{path}: {error}") from error
    cells: dict[str, list[NodeSpec]] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry = _entry(path, number, line.encode())
        if entry.node.id in seen:
            rule = f"stands in line {seen[entry.node.id]} already"
            raise NodesFileError(f"{path}: line {number}: node.id = {entry.node.id!r}: {rule}")
        seen[entry.node.id] = number
        cells.setdefault(entry.cell, []).append(entry.node)
    return {cell: tuple(nodes) for cell, nodes in cells.items()}


def _entry(path: Path, number: int, line: bytes) -> NodeLine:
    try:
        return read_valid(NodeLine, line, forbid_unknown=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = shorten(".".join(str(part) for part in first["loc"])) or "the line"
        is_told = is_shown(first["type"], first["input"]) and not isinstance(first["input"], bytes)
        value = f" = {written(first['input'])}" if is_told else ""
        raise NodesFileError(f"{path}: line {number}: {field}{value}: {rule_broken(first)}") from error
