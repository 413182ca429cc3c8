"""A whole cell as a file: its state, and what was published for it and not read yet. JSON lines, packed by gzip when
the name ends in .gz.

The first line says what the file is; then one line for each row of the state and for each unread record; the last line
counts the lines before it and carries a checksum over their bytes. A file without its last line was cut short.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import msgspec

from fallow.cli.log.file import OF_A_CELL, packed_by_name
from fallow.shared.cluster.fold.rows import DamagedRow, count_rest, digest_of, read_row, rows_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import UNREAD, shorten
from fallow.shared.log.port import Outgoing
from fallow.shared.runtime.files.unread import READING_FAILS, readable_again, unpacked_from, why_unread
from fallow.shared.whole_file import whole_file

FORMAT = 1
UNPACKED_BYTES_MAX = 2 * 1024 * 1024 * 1024
LINES_MAX = 10_000_000
"""Each becomes a job, a node or the like, which takes some hundred bytes however short its line is."""

HEAD_BYTES_MAX = END_BYTES_MAX = 4096
LINE_BYTES_MAX = 64 * 1024 * 1024
"""The row of a job of 100,000 workers names their nodes."""

RECORD_LINE_BYTES_MAX = 8 * 1024 * 1024
"""A record has 1 MiB at most, and its headers may be all that it has."""

HEADER_BYTES = 120
"""So much memory a header of nothing takes."""

BLOCK_BYTES = 256 * 1024
END_BEGINS, RECORD_BEGINS = b'\n{"end":', b'{"record":'

SUBMISSIONS = "submissions"
ARRIVING = ("jobs", "nodes", "proposals", "operations", SUBMISSIONS)
"""The topics in which a cell may have records that it has not read, with those of `submissions.TENANT`."""


class ArchiveError(ValueError):
    """The file holds no whole cell that this version can read; names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line. `digest` is that of the state."""

    cell: str
    version: int
    at_ms: int
    chain: str
    digest: str
    format: int = FORMAT
    what: str = OF_A_CELL


@dataclass(frozen=True, slots=True)
class Unread:
    """A record that the cell had been given and had not read. `topic` has no namespace."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def outgoing(self, namespace: str, partition: int | None) -> Outgoing:
        """This record, to be written into the partition, or into the one of its key where `partition` is None."""
        return Outgoing(f"{namespace}.{self.topic}", self.value, self.key, self.headers, partition)


class _Record(msgspec.Struct):
    """An unread record in its line; bytes are base64."""

    topic: str
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]


class _Line(msgspec.Struct):
    """A line between the first and the last one: one of both."""

    row: str | None = None
    record: _Record | None = None


_READ_LINE = msgspec.json.Decoder(_Line).decode


@dataclass(frozen=True, slots=True)
class Archive:
    """What a file held."""

    head: Head
    state: CellState
    unread: tuple[Unread, ...]


def write_archive(path: Path, state: CellState, unread: Iterable[Unread]) -> Head:
    """Write the file; the name has it only once it is whole. Raises OSError."""
    head = Head(state.cell, state.version, state.at_ms, state.chain, digest_of(state))
    with whole_file(path) as part, part.open("wb") as raw, packed_by_name(path, raw) as file:
        checksum, count = blake2b(digest_size=16), 0
        for line in _lines(head, state, unread):
            file.write(line)
            checksum.update(line)
            count += 1
        file.write(_line({"end": count, "checksum": checksum.hexdigest()}))
    return head


def _lines(head: Head, state: CellState, unread: Iterable[Unread]) -> Iterator[bytes]:
    yield _line(asdict(head))
    for row in rows_of(state):
        yield _line({"row": row})
    for record in unread:
        yield _line({"record": _as_json(record)})


def _line(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def _as_json(record: Unread) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def read_archive(path: Path, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> Archive:
    """The cell of a file, after every check of it. Of what the last line does not vouch for nothing is kept, so the
    file is read twice, and has to be the same both times. Raises ArchiveError.
    """
    try:
        with readable_again(path) as (first, again):
            with unpacked_from(path, first) as file:
                head, lines, checksum = _vouched_head(path, file, unpacked_bytes_max)
            with unpacked_from(path, again()) as file:
                state, unread, second = _content(path, file, lines, unpacked_bytes_max)
        found = digest_of(state)
    except READING_FAILS as error:
        raise ArchiveError(f"{path}: cannot be read: {why_unread(error)}") from error
    except DamagedRow as error:
        raise ArchiveError(f"{path}: its state cannot be read: {error}") from error
    if second != checksum:
        raise ArchiveError(f"{path}: was changed while it was read")
    says, holds = (head.cell, head.version, head.chain, head.digest), (state.cell, state.version, state.chain, found)
    if says != holds:
        raise ArchiveError(f"{path}: its state is not the one of version {head.version} that it was written from")
    return Archive(head, state, tuple(unread))


def _vouched_head(path: Path, file: IO[bytes], bytes_max: int) -> tuple[Head, int, bytes]:
    """The first line, how many there are before the last one, and the checksum of all these, once that one has vouched
    for their bytes. They are counted and hashed as they come, and none is kept.
    """
    line = file.readline(HEAD_BYTES_MAX + 1)
    head = _head(path, line)
    checksum, lines, size, rest = blake2b(digest_size=16), 0, len(line), line
    while block := file.read(BLOCK_BYTES):
        size += len(block)
        hashed, rest = _parted(rest + block)
        checksum.update(hashed)
        lines += hashed.count(b"\n")
        _must_be_bounded(path, size, lines, bytes_max)
    before, mark, _ = rest.rpartition(END_BEGINS)
    if not mark:
        raise ArchiveError(f"{path}: is cut short: its last line is missing")
    checksum.update(before + b"\n")
    lines += before.count(b"\n") + 1
    _must_be_bounded(path, size, lines, bytes_max)
    if rest[len(before) + 1 :] != _line({"end": lines, "checksum": checksum.hexdigest()}):
        raise ArchiveError(f"{path}: is damaged: its checksum does not fit its {lines} lines")
    return head, lines, checksum.digest()


def _parted(some: bytes) -> tuple[bytes, bytes]:
    """What cannot be of the last line, and what may be."""
    at = max(0, len(some) - END_BYTES_MAX)
    return some[:at], some[at:]


def _must_be_bounded(path: Path, size: int, lines: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise ArchiveError(f"{path}: has more than {bytes_max} bytes when it is unpacked")
    if lines > LINES_MAX:
        raise ArchiveError(f"{path}: has more than {LINES_MAX} lines")


def _content(path: Path, file: IO[bytes], lines: int, bytes_max: int) -> tuple[CellState, list[Unread], bytes]:
    """The state and the unread records of so many lines, one by one, and their checksum: the first that is none of both
    ends it. Raises DamagedRow.
    """
    state, unread, size = CellState(""), list[Unread](), 0
    checksum = blake2b(file.readline(HEAD_BYTES_MAX + 1), digest_size=16)
    for number in range(2, lines + 1):
        line = _bounded_line(path, file, number)
        checksum.update(line)
        content = _decoded(path, number, line)
        if content.row is not None:
            read_row(state, content.row)
            continue
        record = _record(path, number, content.record)
        unread.append(record)
        size += len(line) + HEADER_BYTES * len(record.headers)
        _must_be_bounded(path, size, number, bytes_max)
    count_rest(state)
    return state, unread, checksum.digest()


def _bounded_line(path: Path, file: IO[bytes], number: int) -> bytes:
    line = file.readline(LINE_BYTES_MAX + 1)
    most = RECORD_LINE_BYTES_MAX if line.startswith(RECORD_BEGINS) else LINE_BYTES_MAX
    if len(line) > most:
        raise ArchiveError(f"{path}: line {number}: is longer than {most} bytes")
    return line


def _decoded(path: Path, number: int, line: bytes) -> _Line:
    try:
        content = _READ_LINE(line)
    except UNREAD as error:
        told = shorten(str(error))
        raise ArchiveError(f"{path}: is damaged: line {number} is neither a row nor a record: {told}") from error
    if (content.row is None) == (content.record is None):
        raise ArchiveError(f"{path}: is damaged: line {number} is neither a row nor a record")
    return content


def _head(path: Path, line: bytes) -> Head:
    if not line:
        raise ArchiveError(f"{path}: is empty")
    body: Any = None
    with suppress(ValueError, RecursionError):
        body = json.loads(line)
    if not isinstance(body, dict) or body.get("what") != OF_A_CELL:
        is_log = line.startswith(b'{"offset":') and b',"headers":[' in line
        what = "is an exported log, and no cell: fallow verify --file reads it" if is_log else "is no exported cell"
        raise ArchiveError(f"{path}: {what}")
    if body.get("format") != FORMAT:
        raise ArchiveError(f"{path}: is of format {shorten(body.get('format'))}, this version reads format {FORMAT}")
    kinds = {"cell": str, "version": int, "at_ms": int, "chain": str, "digest": str}
    for name, kind in kinds.items():
        if type(body.get(name)) is not kind:
            raise ArchiveError(f"{path}: line 1: {name} is missing or of the wrong kind")
    return Head(**{name: body[name] for name in kinds})


def _record(path: Path, number: int, said: _Record | None) -> Unread:
    assert said is not None, "a line that has no row has a record"
    try:
        headers = tuple((name, _bytes(value) or b"") for name, value in said.headers)
        record = Unread(said.topic, _bytes(said.key), _bytes(said.value), headers)
    except ValueError as error:
        raise ArchiveError(f"{path}: is damaged: line {number}: its record is no base64") from error
    if not _may_arrive(record.topic):
        raise ArchiveError(f"{path}: line {number}: topic = {shorten(record.topic)}: no cell is given records there")
    return record


def _may_arrive(topic: str) -> bool:
    name, _, tenant = topic.partition(".")
    return topic in ARRIVING or (name == SUBMISSIONS and bool(tenant))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
