"""A cell's decision log as a file: JSON lines, one for each record, compressed when the name ends in .gz.

A line holds `offset`, `timestamp_ms`, `key`, `headers` (name and text), `value` (base64 of the bytes as received) and
`end`, the offset at which the log ended when the file was written; the last line of a whole file names the offset
behind its own. So a file that was cut short says so itself.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import msgspec

from fallow.cli.arguments.paths import OUTPUT
from fallow.shared.events.base import Count, Value
from fallow.shared.events.codec.encoding import UNREAD, judged, shorten
from fallow.shared.log.port import Record, TopicPartition
from fallow.shared.runtime.files.unread import READING_FAILS, unpacked, why_unread
from fallow.shared.whole_file import what_else, whole_file

LINES_AT_ONCE = 500

LINE_CHARS_MAX = 4 * 1024 * 1024
"""A record of the log has 1 MiB at most, and its bytes are written as text: a longer line is none of its."""

CHARS_AT_ONCE = 16 * 1024 * 1024


OF_A_CELL = "a cell of fallow"
"""What the first line of a cell's file says in `what` (`fallow.cli.cell.archive`)."""


class LogFileError(ValueError):
    """The file is no exported log; names file, line and what is wrong."""


class LogLine(Value, forbid_unknown_fields=False):
    """One line of the file."""

    offset: Count
    value: str | None
    headers: tuple[tuple[str, str], ...]
    key: str | None = None
    timestamp_ms: int = 0
    end: Count | None = None


_READ = msgspec.json.Decoder(LogLine).decode


def write_line(output: IO[str], record: Record, end: int) -> None:
    """Write one record. Headers of Fallow are text; bytes that are none are escaped."""
    line = {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": None if record.key is None else record.key.decode("utf-8", "backslashreplace"),
        "headers": [[name, value.decode("utf-8", "backslashreplace")] for name, value in record.headers],
        "value": None if record.value is None else base64.b64encode(record.value).decode("ascii"),
        "end": end,
    }
    output.write(json.dumps(line, separators=(",", ":")) + "\n")


@contextmanager
def written_in_order(path: Path) -> Iterator[IO[str]]:
    """A file, a pipe or a device as text to be written from its begin to its end, compressed or not by its name. A
    regular file has its name only once it is whole, and stays as it was where something fails. Raises OSError.
    """
    with _opened(path) as raw, packed_by_name(path, raw) as output, TextIOWrapper(output, encoding="utf-8") as text:
        yield text


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Where the path leads to standard output that one is written: opened anew, a file behind it would lose what it
    holds.
    """
    if is_output(path):
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as raw:
            yield raw
    elif keeps_a_part(path):
        with path.open("wb") as raw:
            yield raw
    else:
        with whole_file(path) as part, part.open("wb") as raw:
            yield raw


def keeps_a_part(path: Path) -> bool:
    """Whether what was written there stays though the rest fails: at standard output, in a pipe, at a device."""
    return is_output(path) or what_else(path) is not None


def packed_by_name(path: Path, raw: IO[bytes]) -> AbstractContextManager[Any]:
    """What is written into this, compressed where the path ends in .gz, goes to `raw`, whatever that is called."""
    return gzip.GzipFile(path.name, "wb", fileobj=raw) if path.suffix == ".gz" else nullcontext(raw)


def is_output(path: Path) -> bool:
    """Whether what is written there goes to standard output: `-`, and whatever leads to the same."""
    if path == OUTPUT:
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except OSError:
        return False  # nothing is there yet


def read_log_file(path: Path, tp: TopicPartition) -> Iterator[tuple[list[Record], int]]:
    """Some records at a time, each time with the end that the file names. Raises LogFileError."""
    some: list[Record] = []
    end = chars = 0
    try:
        with unpacked(path) as packed, TextIOWrapper(packed, encoding="utf-8") as file:
            for number, line in enumerate(_lines(path, file), start=1):
                record, end = _record(path, number, line, tp)
                some.append(record)
                chars += len(line)
                if len(some) == LINES_AT_ONCE or chars >= CHARS_AT_ONCE:
                    yield some, end
                    some, chars = [], 0
    except READING_FAILS as error:
        raise LogFileError(f"{path}: cannot be read: {why_unread(error)}") from error
    if some:
        yield some, end


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    """The lines of a file that may unpack to more than there is memory."""
    number = 0
    while line := file.readline(LINE_CHARS_MAX + 1):
        number += 1
        if len(line) > LINE_CHARS_MAX:
            raise LogFileError(f"{path}: line {number}: is longer than {LINE_CHARS_MAX} characters")
        yield line


def _begins_a_cell(text: str) -> bool:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("what") == OF_A_CELL


def _record(path: Path, number: int, text: str, tp: TopicPartition) -> tuple[Record, int]:
    try:
        line = _READ(text)
        value = None if line.value is None else base64.b64decode(line.value, validate=True)
    except UNREAD as error:
        if number == 1 and _begins_a_cell(text):
            raise LogFileError(f"{path}: is an exported cell, and no log: fallow snapshot import reads it") from error
        is_empty = not text.strip()
        told = "is empty" if is_empty else judged(LogLine, text.encode("utf-8", "replace")) or shorten(str(error))
        raise LogFileError(f"{path}: line {number}: is no record of an exported log: {told}") from error
    except ValueError as error:
        told = f"value: must be base64 (got {shorten(line.value)})"
        raise LogFileError(f"{path}: line {number}: is no record of an exported log: {told}") from error
    record = Record(
        *tp,
        offset=line.offset,
        key=None if line.key is None else line.key.encode(),
        value=value,
        headers=tuple((name, said.encode()) for name, said in line.headers),
        timestamp_ms=line.timestamp_ms,
    )
    return record, line.offset + 1 if line.end is None else line.end
