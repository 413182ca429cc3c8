"""Tables of CSV that anybody may have written: a packed file of little unpacks to a line that no machine holds."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from typing import IO

LINE_CHARS_MOST = 1024 * 1024
NAME_CHARS = 40
"""So much of a column's name is told."""


class LongLine(csv.Error):
    """A line is too long."""


class DoubledColumn(csv.Error):
    """Two columns have one name: one of them would be lost."""


def rows_of_table(file: IO[str]) -> csv.DictReader[str]:
    """The rows of a table with the names of its columns in the first line. Reading raises csv.Error, and those above as
    such ones.
    """
    reader = csv.DictReader(_lines(file))
    doubled = [name for name, count in Counter(reader.fieldnames or ()).items() if name and count > 1]
    if doubled:
        raise DoubledColumn(f"two columns are named {doubled[0][:NAME_CHARS]!r}")
    return reader


def _lines(file: IO[str]) -> Iterator[str]:
    while line := file.readline(LINE_CHARS_MOST + 1):
        if len(line) > LINE_CHARS_MOST:
            raise LongLine(f"a line has more than {LINE_CHARS_MOST} characters")
        yield line
