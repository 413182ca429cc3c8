"""Tables of CSV from any source: a packed file of little unpacks to a line that no machine holds."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO

LINE_CHARS_MAX = 1024 * 1024
COLUMNS_MAX = 1_000
ROWS_MAX = 5_000_000
"""A job or a node of a table takes some hundred bytes, however short its row is."""

SHOWN_CHARS = 40
"""At most so many characters of a column's name or of a cell are shown."""


class WrongTable(csv.Error):
    """Its text says what is wrong with the table: a line that is too long, two columns of one name, a cell too many."""


class Table:
    """The rows of a table whose first line names the columns. Making it and reading it raise csv.Error, of which
    WrongTable is one. `line_num` is the line in which the last row ended.
    """

    def __init__(self, file: IO[str]) -> None:
        self._lines = _Lines(file)
        self._reader = csv.reader(self._lines)
        self.columns = next(self._reader, [])
        if len(self.columns) > COLUMNS_MAX:
            raise WrongTable(f"has more than {COLUMNS_MAX} columns")
        doubled = [name for name, count in Counter(self.columns).items() if name and count > 1]
        if doubled:
            raise WrongTable(f"two columns are named {doubled[0][:SHOWN_CHARS]!r}")

    @property
    def line_num(self) -> int:
        """Where it is in the file, from 1 on."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[dict[str, str]]:
        """The rows, without empty ones. A row that ends early lacks its last columns."""
        rows = 0
        self._lines.chars = 0
        for cells in self._reader:
            self._lines.chars = 0
            if not cells:
                continue
            rows += 1
            if rows > ROWS_MAX:
                raise WrongTable(f"has more than {ROWS_MAX} rows")
            self._must_have_columns(cells)
            yield dict(zip(self.columns, cells, strict=False))

    def _must_have_columns(self, cells: Sequence[str]) -> None:
        count = len(self.columns)
        if len(cells) > count:
            shown = repr(cells[count][:SHOWN_CHARS])
            raise WrongTable(f"line {self.line_num}: cell {count + 1} = {shown}: the table has {count} columns")


class _Lines:
    """The lines of a file. `chars` is how many characters of the row that is being read came already: in quotes it may
    go on from line to line without end.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.chars = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(LINE_CHARS_MAX + 1)
        if not line:
            raise StopIteration
        self.chars += len(line)
        if self.chars > LINE_CHARS_MAX:
            what = "line" if len(line) == self.chars else "row"
            raise WrongTable(f"a {what} has more than {LINE_CHARS_MAX} characters")
        return line
