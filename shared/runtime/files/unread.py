"""Opens what may be packed, and says why a file cannot be read: in our words or in the system's."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader, RawIOBase
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast

from fallow.shared.runtime.errors.system_words import words_of_system
from fallow.shared.runtime.files.table import WrongTable

READING_FAILS = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)
"""What reading a file raises, packed or not, as bytes, text or a table."""

_GZIP_BEGINS = b"\x1f\x8b"


class NoGzipFile(gzip.BadGzipFile):
    """The name of the file ends in .gz, and its bytes do not begin as such a file does."""


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name ends in .gz. Opening and reading raise `READING_FAILS`."""
    with path.open("rb") as raw, unpacked_from(path, raw) as file:
        yield file


@contextmanager
def unpacked_from(path: Path, raw: BufferedReader) -> Iterator[IO[bytes]]:
    """The unpacked bytes of the file of this name, from the reader that has it open."""
    if path.suffix != ".gz":
        yield raw
        return
    if not _GZIP_BEGINS.startswith(raw.peek(len(_GZIP_BEGINS))[: len(_GZIP_BEGINS)]):
        raise NoGzipFile
    with gzip.GzipFile(fileobj=raw) as file:
        yield cast("IO[bytes]", file)


@contextmanager
def readable_again(path: Path) -> Iterator[tuple[BufferedReader, Callable[[], BufferedReader]]]:
    """A file to be read, and what gives it once more from its beginning. What was read of a pipe is kept on the disk
    until then.
    """
    with path.open("rb") as raw:
        if raw.seekable():
            yield raw, lambda: _from_begin(raw)
            return
        with TemporaryFile() as kept:
            yield BufferedReader(_Kept(raw, kept)), lambda: _from_begin(BufferedReader(kept.raw))


def _from_begin(raw: BufferedReader) -> BufferedReader:
    raw.seek(0)
    return raw


class _Kept(RawIOBase):
    """Reads a pipe, and keeps what was read."""

    def __init__(self, pipe: BufferedReader, kept: BufferedRandom) -> None:
        self._pipe, self._kept = pipe, kept

    def readable(self) -> bool:
        return True

    def readinto(self, some: Any) -> int:
        count = self._pipe.readinto1(some)
        self._kept.write(some[:count])
        self._kept.flush()
        return count


def why_unread(error: Exception) -> str:
    """The reason behind `cannot be read: `. `error` is one of `READING_FAILS`."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, NoGzipFile):
        return "is no gzip file"
    if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
        return "is a damaged gzip file"
    if isinstance(error, WrongTable):
        return str(error)
    if isinstance(error, csv.Error):
        is_long = "field limit" in str(error)
        return f"a field has more than {csv.field_size_limit()} characters" if is_long else "is no table of CSV"
    return words_of_system(error)
