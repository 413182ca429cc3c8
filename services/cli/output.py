"""Answers on standard output: a table for people, or one JSON object in the last line for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

WIDTH_UNKNOWN = 160
"""Columns where the output is no terminal: a log or a pipe cuts nothing off."""

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object in the last line, and no table.")]
CellName = Annotated[str | None, typer.Option("--cell", help="Which cell; needed where there are several.")]


def print_json(body: Mapping[str, Any]) -> None:
    """The object in one line."""
    print(json.dumps(body, separators=(", ", ": "), ensure_ascii=False), flush=True)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table; columns whose name begins with a `>` are numbers and stand to the right."""
    from rich import box  # noqa: PLC0415 - not paid for by --json
    from rich.console import Console  # noqa: PLC0415 - the same
    from rich.markup import escape  # noqa: PLC0415 - the same
    from rich.table import Table  # noqa: PLC0415 - the same

    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDTH_UNKNOWN).print(table)


def print_line(text: str) -> None:
    """One line of text."""
    print(text, flush=True)
