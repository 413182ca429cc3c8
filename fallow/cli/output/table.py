"""Tables that fit the width there is, in which no name loses a sign: columns that are needed least are left out, and
wide ones stand in lines of their own below their row, before a row gets tall.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len

from fallow.cli.output.wrapping import broken
from fallow.shared.runtime.files.signs import visible

EDGE, BETWEEN = 2, 3
"""Signs before the first column, and between two of them."""

TEXT_LEAST, MOVED_LEAST = 12, 12
"""Text that goes on in the next line is not made narrower than this; what is not wider than this stays in the row."""

SET_IN = " " * (2 * EDGE)


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it is printed; `breaks` tells that its content goes on in the next line where it is too long."""

    heading: str
    is_number: bool
    cells: tuple[str, ...]
    width: int
    breaks: bool = False

    def lines_of(self, at: int) -> list[str]:
        """The lines of one cell, words whole."""
        return broken(self.cells[at], self.width) if self.breaks else [self.cells[at]]

    def to_width(self, text: str) -> str:
        """The text, filled to the width of the column."""
        fill = " " * (self.width - cell_len(text))
        return fill + text if self.is_number else text + fill


class Lines:
    """How many lines cells take, counted once for all the layouts that give them the same width."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], int, str], list[int]] = {}

    def of(self, cells: tuple[str, ...], width: int, said: str = "") -> list[int]:
        """The lines of each with what is said before it; an empty one has none."""
        key = cells, width, said
        if key not in self._known:
            self._known[key] = [len(broken(said + cell, width)) if cell else 0 for cell in cells]
        return self._known[key]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The columns that are printed beside each other, and the headings of those that are left out. `above` is the
    column that stands above the rest of its row, None as a rule; those `below` stand below it.
    """

    columns: tuple[Column, ...]
    left_out: tuple[str, ...] = ()
    above: Column | None = None
    below: tuple[Column, ...] = ()

    @property
    def width(self) -> int:
        """How wide the row is: wider than was asked for where its columns cannot be made so narrow."""
        return _width(self.columns)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.columns[0].cells)

    def head(self) -> list[str]:
        """The headings. Of what stands below a row alone the heading does so, too; of several each cell has its own."""
        above = [] if self.above is None else [" " * EDGE + self.above.heading]
        below = [SET_IN + self.below[0].heading] if len(self.below) == 1 else []
        return [*above, self._line([column.heading for column in self.columns]), *below]

    def rule(self) -> str:
        """The line between the headings and the rows."""
        return " " + "─" * (self.width - 1)

    def row(self, at: int, width: int) -> Iterator[str]:
        """The lines of one row; those below it break between words at the width."""
        if self.above is not None and self.above.cells[at]:
            yield " " * EDGE + self.above.cells[at]
        for parts in zip_longest(*(column.lines_of(at) for column in self.columns), fillvalue=""):
            yield self._line(parts)
        for lines in self._below(at, width):
            yield from (SET_IN + line for line in lines)

    def heights(self, width: int, lines: Lines) -> list[int]:
        """How many lines each row has."""
        beside = [lines.of(column.cells, column.width) for column in self.columns if column.breaks]
        parts = [[max(1, *counts) for counts in zip(*beside, strict=True)] if beside else [1] * self.rows]
        if self.above is not None:
            parts.append([bool(cell) for cell in self.above.cells])
        parts += [lines.of(column.cells, width - len(SET_IN), self._said(column)) for column in self.below]
        return [sum(counts) for counts in zip(*parts, strict=True)]

    def _below(self, at: int, width: int) -> Iterator[list[str]]:
        for column in self.below:
            if column.cells[at]:
                yield broken(self._said(column) + column.cells[at], width - len(SET_IN))

    def _said(self, column: Column) -> str:
        return "" if len(self.below) == 1 else f"{column.heading}: "

    def _line(self, texts: Sequence[str]) -> str:
        filled = (column.to_width(text) for column, text in zip(self.columns, texts, strict=True))
        return (" " * EDGE + (" " * BETWEEN).join(filled)).rstrip()


def fitted(headings: Sequence[str], rows: Iterable[Sequence[Any]], width: int, spare: Sequence[str] = ()) -> Fitted:
    """The table within `width`. A heading that begins with `>` is of numbers. `spare` names the columns that may be
    left out, the first of them first.
    """
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    columns = [_column(heading, [row[at] for row in texts]) for at, heading in enumerate(headings)]
    if _width(columns) <= width:
        return Fitted(tuple(columns))
    # An empty column says nothing; after it those that are needed least go.
    columns = [column for column in columns if any(column.cells)] or columns[:1]
    best, least, lines = Fitted(tuple(columns)), None, Lines()
    for found in _layouts(columns, width, spare):
        cost = _cost(found, width, lines)
        if least is None or cost < least:
            best, least = found, cost
        if cost[:4] == (0, 1, 0, 0):
            break  # nothing that comes later leaves out less
    return best


def _layouts(columns: list[Column], width: int, spare: Sequence[str]) -> Iterator[Fitted]:
    """All ways to place these columns, those first that move and leave out least."""
    there = [heading for heading in spare if any(column.heading == heading for column in columns)]
    for beside, above in ((columns, None), (columns[1:], columns[0])):
        if above is not None and (above.is_number or above.width <= MOVED_LEAST or not beside):
            return
        for moved in _choices(beside[above is None :], spare):
            kept = [column for column in beside if column not in moved]
            if not kept:
                continue
            for count in range(len(there) + 1):
                yield _beside(kept, width, spare, there[:count], above, moved)


def _cost(found: Fitted, width: int, lines: Lines) -> tuple[int, ...]:
    """What a layout costs, most of all first: signs beyond the width, lines of the tallest row, whether a column stands
    above it, how many stand below it, how many are left out, and lines in all. Of one layout each is no more where
    there is more width, so no wider table has taller rows.
    """
    heights = found.heights(width, lines)
    moved = (found.above is not None, len(found.below))
    return (max(0, found.width - width), max(heights), *moved, len(found.left_out), sum(heights))


def _choices(columns: Sequence[Column], spare: Collection[str]) -> Iterator[tuple[Column, ...]]:
    """Which columns stand below their row: none, the widest, the widest two, and on. A number never does."""
    able = [each for each in columns if not each.is_number and each.width > MOVED_LEAST and each.heading not in spare]
    able.sort(key=lambda column: -column.width)
    for count in range(len(able) + 1):
        yield tuple(column for column in columns if column in able[:count])


def _beside(
    columns: list[Column],
    width: int,
    spare: Sequence[str],
    left_out: Sequence[str],
    above: Column | None,
    below: tuple[Column, ...],
) -> Fitted:
    """These columns beside each other, without those that are left out."""
    kept = [column for column in columns if column.heading not in left_out] or columns
    return Fitted(tuple(_narrowed(kept, width, spare)), tuple(left_out), above, below)


def _column(heading: str, cells: list[str]) -> Column:
    name = heading.removeprefix(">")
    return Column(name, heading != name, tuple(cells), max(map(cell_len, (name, *cells))))


def _width(columns: Sequence[Column], widths: Sequence[int] | None = None) -> int:
    each = [column.width for column in columns] if widths is None else widths
    return EDGE + sum(each) + BETWEEN * (len(each) - 1)


def _floor(column: Column, spare: Collection[str]) -> int:
    """How narrow a column can be made: no figure, no name and no word is broken."""
    # Words that may be left out are not broken over two lines: each row would take two.
    if column.is_number or column.heading in spare or not _is_text(column):
        return column.width
    longest = max(cell_len(word) for cell in column.cells for word in cell.split())
    return min(column.width, max(TEXT_LEAST, longest, cell_len(column.heading)))


def _is_text(column: Column) -> bool:
    """Whether the column holds more than names."""
    return any(" " in cell.strip() for cell in column.cells)


def _narrowed(columns: list[Column], width: int, spare: Collection[str]) -> list[Column]:
    """Take from the widest column of words until all fit, or until none can give more."""
    widths = [column.width for column in columns]
    floors = [_floor(column, spare) for column in columns]
    while _width(columns, widths) > width:
        able = [at for at in range(len(columns)) if widths[at] > floors[at]]
        if not able:
            break
        widths[max(able, key=lambda at: (widths[at], at))] -= 1
    return [
        Column(column.heading, column.is_number, column.cells, most, breaks=True) if most < column.width else column
        for column, most in zip(columns, widths, strict=True)
    ]
