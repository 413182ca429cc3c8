"""Tables that fit the width there is: long names are shortened so that they still differ, and columns that are needed
least are left out before a row breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fallow.shared.runtime.files.signs import visible

BETWEEN = 3
"""Signs that a column takes beside its content."""

FIRST_LEAST, NAMES_LEAST, WORD_MOST = 20, 12, 32
"""The first column, which names what the row is about, and other names are not made narrower than this. Text that goes
on in the next line keeps words up to `WORD_MOST` whole, which is as long as names of nodes as a rule are.
"""

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it is printed; `breaks` tells that its content goes on in the next line where it is too long."""

    heading: str
    is_number: bool
    cells: tuple[str, ...]
    width: int
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """The columns that are printed, and the headings of those that are left out."""

    columns: tuple[Column, ...]
    left_out: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How wide the table is: wider than was asked for where its columns cannot be made so narrow."""
        return _width(self.columns)


def fitted(headings: Sequence[str], rows: Iterable[Sequence[Any]], width: int, spare: Sequence[str] = ()) -> Fitted:
    """The table within `width`. A heading that begins with `>` is of numbers. `spare` names the columns that may be
    left out, the first of them first.
    """
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    columns = [_column(heading, [row[at] for row in texts]) for at, heading in enumerate(headings)]
    if _width(columns) <= width:
        return Fitted(tuple(columns))
    # An empty column says nothing; after it those that are needed least go.
    columns = [column for column in columns if any(column.cells)] or columns
    left_out = []
    for heading in spare:
        if _least(columns, spare) <= width:
            break
        left_out += [column.heading for column in columns if column.heading == heading]
        columns = [column for column in columns if column.heading != heading]
    return Fitted(tuple(_narrowed(columns, width, spare)), tuple(left_out))


def _column(heading: str, cells: list[str]) -> Column:
    name = heading.removeprefix(">")
    return Column(name, heading != name, tuple(cells), max(map(len, (name, *cells))))


def _width(columns: Sequence[Column]) -> int:
    return 1 + sum(column.width + BETWEEN for column in columns)


def _least(columns: Sequence[Column], spare: Collection[str]) -> int:
    """How narrow these columns can be made."""
    return 1 + sum(_floor(column, spare, is_first=column is columns[0]) + BETWEEN for column in columns)


def _floor(column: Column, spare: Collection[str], *, is_first: bool) -> int:
    # Words that may be left out are not broken over two lines: each row would take two.
    if column.is_number or (column.heading in spare and _is_text(column)):
        return column.width
    least = FIRST_LEAST if is_first else NAMES_LEAST
    if _is_text(column):
        longest = max(len(word) for cell in column.cells for word in cell.split())
        least = max(least, min(longest, WORD_MOST))
    return min(column.width, max(least, len(column.heading)))


def _is_text(column: Column) -> bool:
    """Whether the column holds more than names."""
    return any(" " in cell.strip() for cell in column.cells)


def _narrowed(columns: list[Column], width: int, spare: Collection[str]) -> list[Column]:
    """Take from the widest column of words until all fit, or until none can give more."""
    widths = [column.width for column in columns]
    while 1 + sum(each + BETWEEN for each in widths) > width:
        able = [
            at
            for at, column in enumerate(columns)
            if not column.is_number and widths[at] > _floor(column, spare, is_first=at == 0)
        ]
        if not able:
            break
        widths[max(able, key=lambda at: (widths[at], at))] -= 1
    return [_cut(column, most) if most < column.width else column for column, most in zip(columns, widths, strict=True)]


def _cut(column: Column, width: int) -> Column:
    """Names are shortened in the middle; words, and names that would become equal, go on in the next line."""
    names = None if _is_text(column) else shortened(column.cells, width)
    if names is None:
        return Column(column.heading, False, column.cells, width, breaks=True)
    return Column(column.heading, False, tuple(names[cell] for cell in column.cells), width)


def shortened(names: Collection[str], width: int) -> dict[str, str] | None:
    """Each name with at most `width` signs, different names staying different; None where that cannot be."""
    different = list(dict.fromkeys(names))
    for head in range(width // 2, -1, -1):
        found = {name: _middle_out(name, head, width) for name in different}
        if len(set(found.values())) == len(different):
            return found
    return None


def _middle_out(name: str, head: int, width: int) -> str:
    return name if len(name) <= width else f"{name[:head]}{ELLIPSIS}{name[len(name) - (width - head - 1) :]}"
