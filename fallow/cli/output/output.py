"""Answers on standard output: a table for people, or one JSON object in the last line for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from fallow.cli.output.wrapping import wrapped, wrapped_at
from fallow.shared.runtime.files.signs import in_json, visible

WIDTH_UNKNOWN = 160
"""Columns where the output is no terminal: a log or a pipe cuts nothing off."""

DIGITS_MAX = 4

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object in the last line, and no table.")]
CellName = Annotated[str | None, typer.Option("--cell", help="Which cell; needed where there are several.")]


def print_json(body: Mapping[str, Any]) -> None:
    """The object in one line, whose texts a terminal does not obey either."""
    text = in_json(json.dumps(body, separators=(", ", ": "), ensure_ascii=False))
    print(text if _is_writable(text) else json.dumps(body, separators=(", ", ": ")), flush=True)


def _is_writable(text: str) -> bool:
    """Whether standard output's encoding has all signs of a text: in JSON others are not written out as elsewhere."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], spare: Sequence[str] = ()) -> None:
    """A table; columns whose name begins with a `>` are numbers and stand to the right. `spare` names those that may be
    left out where there is little width, the first of them first. Without rows it is one line, which says so.
    """
    rows = list(rows)
    if not rows:
        _print_within(title if title.startswith("0 ") else f"{title}: none")
        return
    from rich.console import Console  # noqa: PLC0415 - not paid for by --json
    from rich.text import Text  # noqa: PLC0415 - the same

    from fallow.cli.output.table import fitted  # noqa: PLC0415 - the same

    console = Console(width=_width() or WIDTH_UNKNOWN) if not sys.stdout.isatty() else Console()
    found = fitted(columns, rows, console.width, spare)
    lines = [line for at in range(found.rows) for line in found.row(at, console.width)]
    _print_within(title)
    # What is too wide goes on in the terminal's next line: a figure that lost its end would be another figure.
    for text in (Text("\n".join(["", *found.head()]), style="bold"), Text("\n".join([found.rule(), *lines, ""]))):
        console.print(text, highlight=False, soft_wrap=True)
    if found.left_out:
        _print_within(f"not shown for lack of width: {', '.join(found.left_out)} (--json has all)")


def _print_within(text: str) -> None:
    """A line that breaks between words where the output is narrower, and that is known."""
    print(
        wrapped_at(visible(text), shutil.get_terminal_size().columns if sys.stdout.isatty() else _width()), flush=True
    )


def _width() -> int:
    """The columns that COLUMNS says there are; 0 where it says nothing."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isascii() and said.isdecimal() and 0 < len(said) <= DIGITS_MAX else 0


def print_sentence(text: str) -> None:
    """A line for people alone, which breaks between words where it is too long for the terminal. A line that is to be
    pasted somewhere is `print_line`.
    """
    print(wrapped(visible(text), sys.stdout), flush=True)


def print_line(text: str, *, mark: str = "") -> None:
    """One line of text, behind a mark of our own that may have a colour."""
    print(f"{mark}{visible(text)}", flush=True)
