"""A whole cell as a file: its state, and what was published for it and not read yet. JSON lines, packed by gzip when
the name ends in .gz.

The first line says what the file is; then one line for each row of the state and for each unread record; the last line
counts the lines before it and carries a checksum over their bytes. A file without its last line was cut short.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from fallow.cli.log.file import packed_by_name
from fallow.shared.cluster.fold.rows import DamagedRow, digest_of, rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.encoding import shorten
from fallow.shared.log.port import Outgoing
from fallow.shared.runtime.files.unread import READING_FAILS, unpacked, why_unread
from fallow.shared.whole_file import whole_file

FORMAT = 1
WHAT = "a cell of fallow"
LINE_BYTES_MOST = 64 * 1024 * 1024
UNPACKED_BYTES_MOST = 2 * 1024 * 1024 * 1024
"""The lines of a cell are held in memory until the last one has vouched for them."""

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
    what: str = WHAT


@dataclass(frozen=True, slots=True)
class Unread:
    """A record that the cell had been given and had not read. `topic` has no namespace."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def outgoing(self, namespace: str, partition: int | None) -> Outgoing:
        """The same record, to be written into a partition, or where its key leads."""
        return Outgoing(f"{namespace}.{self.topic}", self.value, self.key, self.headers, partition)


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


def read_archive(path: Path, unpacked_bytes_most: int = UNPACKED_BYTES_MOST) -> Archive:
    """The cell of a file, after every check of it. Raises ArchiveError."""
    try:
        with unpacked(path) as file:
            head, rows, unread = _checked(path, _bounded_lines(path, file, unpacked_bytes_most))
        state = state_from(rows)
        found = digest_of(state)
    except READING_FAILS as error:
        raise ArchiveError(f"{path}: cannot be read: {why_unread(error)}") from error
    except DamagedRow as error:
        raise ArchiveError(f"{path}: its state cannot be read: {error}") from error
    says, holds = (head.cell, head.version, head.chain, head.digest), (state.cell, state.version, state.chain, found)
    if says != holds:
        raise ArchiveError(f"{path}: its state is not the one of version {head.version} that it was written from")
    return Archive(head, state, tuple(unread))


def _checked(path: Path, lines: Iterator[bytes]) -> tuple[Head, list[str], list[Unread]]:
    """The lines' content, once the last line has vouched for their bytes."""
    checksum, count = blake2b(digest_size=16), 0
    rows, unread = list[str](), list[Unread]()
    head: Head | None = None
    for line in lines:
        body = _body(path, count + 1, line)
        if head is None:
            head = _head(path, body)
        elif "end" in body:
            if body != {"end": count, "checksum": checksum.hexdigest()} or next(lines, b""):
                raise ArchiveError(f"{path}: is damaged: its checksum does not fit its {count} lines")
            return head, rows, unread
        elif isinstance(body.get("row"), str):
            rows.append(body["row"])
        else:
            unread.append(_record(path, count + 1, body.get("record")))
        checksum.update(line)
        count += 1
    raise ArchiveError(f"{path}: is cut short: its last line is missing" if count else f"{path}: is empty")


def _bounded_lines(path: Path, file: IO[bytes], unpacked_bytes_most: int) -> Iterator[bytes]:
    """The lines of a file that may unpack to more than there is memory."""
    number = unpacked_bytes = 0
    while line := file.readline(LINE_BYTES_MOST + 1):
        number, unpacked_bytes = number + 1, unpacked_bytes + len(line)
        if len(line) > LINE_BYTES_MOST:
            raise ArchiveError(f"{path}: line {number}: is longer than {LINE_BYTES_MOST} bytes")
        if unpacked_bytes > unpacked_bytes_most:
            raise ArchiveError(f"{path}: has more than {unpacked_bytes_most} bytes when it is unpacked")
        yield line


def _body(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        text = "is no exported cell" if number == 1 else f"is damaged: line {number} is no JSON"
        raise ArchiveError(f"{path}: {text}") from error
    if not isinstance(body, dict):
        raise ArchiveError(f"{path}: line {number} is no object")
    return body


def _head(path: Path, body: dict[str, Any]) -> Head:
    if body.get("what") != WHAT:
        is_log = {"offset", "headers", "value"} <= body.keys()
        what = "is an exported log, and no cell: fallow verify --file reads it" if is_log else "is no exported cell"
        raise ArchiveError(f"{path}: {what}")
    if body.get("format") != FORMAT:
        raise ArchiveError(f"{path}: is of format {shorten(body.get('format'))}, this version reads format {FORMAT}")
    kinds = {"cell": str, "version": int, "at_ms": int, "chain": str, "digest": str}
    for name, kind in kinds.items():
        if type(body.get(name)) is not kind:
            raise ArchiveError(f"{path}: line 1: {name} is missing or of the wrong kind")
    return Head(**{name: body[name] for name in kinds})


def _record(path: Path, number: int, body: Any) -> Unread:
    try:
        headers = tuple((str(name), _bytes(value) or b"") for name, value in body["headers"])
        record = Unread(str(body["topic"]), _bytes(body["key"]), _bytes(body["value"]), headers)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ArchiveError(f"{path}: is damaged: line {number} is neither a row nor a record") from error
    if not _may_arrive(record.topic):
        raise ArchiveError(f"{path}: line {number}: topic = {shorten(record.topic)}: no cell is given records there")
    return record


def _may_arrive(topic: str) -> bool:
    name, _, tenant = topic.partition(".")
    return topic in ARRIVING or (name == SUBMISSIONS and bool(tenant))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
