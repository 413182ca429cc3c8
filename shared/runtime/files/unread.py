"""Opens what may be packed, and says why a file cannot be read: in our words or in the system's."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from fallow.shared.runtime.files.table import DoubledColumn, LongLine
from fallow.shared.runtime.system_words import words_of_system

READING_FAILS = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)
"""What reading a file raises, packed or not, as bytes, text or a table."""

_GZIP_BEGINS = b"\x1f\x8b"


class NoGzipFile(gzip.BadGzipFile):
    """The name of the file ends in .gz, and its bytes do not begin as such a file does."""


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name ends in .gz. Opening and reading raise `READING_FAILS`."""
    with path.open("rb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        if not _GZIP_BEGINS.startswith(raw.peek(len(_GZIP_BEGINS))[: len(_GZIP_BEGINS)]):
            raise NoGzipFile
        with gzip.GzipFile(fileobj=raw) as file:
            yield cast("IO[bytes]", file)


def why_unread(error: Exception) -> str:
    """The reason behind `cannot be read: `. `error` is one of `READING_FAILS`."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, NoGzipFile):
        return "is no gzip file"
    if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
        return "is a damaged gzip file"
    if isinstance(error, LongLine | DoubledColumn):
        return str(error)
    if isinstance(error, csv.Error):
        is_long = "field limit" in str(error)
        return f"a field has more than {csv.field_size_limit()} characters" if is_long else "is no table of CSV"
    return words_of_system(error)
