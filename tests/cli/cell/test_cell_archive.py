from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from threading import Thread

import pytest

from fallow.cli.cell.archive import (
    HEADER_BYTES,
    ArchiveError,
    Unread,
    read_archive,
    write_archive,
)
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.runtime.files.unread import readable_again
from tests.cli.worlds.logs import an_honest_log

UNREAD = (Unread("jobs", b"a", b'{"x":1}', (("ce_type", b"t"),)), Unread("nodes", None, b"", ()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cell.jsonl"
    write_archive(path, an_honest_log().state, UNREAD)
    return path


def damaged(file: Path, before: bytes, after: bytes) -> Path:
    text = file.read_bytes()
    assert before in text
    file.write_bytes(text.replace(before, after, 1))
    return file


def refusal(file: Path) -> str:
    with pytest.raises(ArchiveError) as caught:
        read_archive(file)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{file}: ")


def test_a_cell_comes_back_from_its_file_as_it_was(file: Path) -> None:
    archive, state = read_archive(file), an_honest_log().state
    assert (archive.head.cell, archive.head.version, archive.unread) == ("main", 9, UNREAD)
    assert digest_of(archive.state) == digest_of(state)


def test_a_packed_file_is_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "cell.jsonl.gz"
    write_archive(path, an_honest_log().state, UNREAD)
    assert read_archive(path).unread == UNREAD
    assert path.read_bytes()[:2] == b"\x1f\x8b"


def test_no_half_written_file_is_left_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        write_archive(tmp_path / "missing" / "cell", an_honest_log().state, UNREAD)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_byte_is_found(file: Path) -> None:
    assert refusal(damaged(file, b"third", b"thirt")).startswith("is damaged: its checksum does not fit its ")


def test_a_file_that_was_cut_short_says_so(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert refusal(file) == "is cut short: its last line is missing"


def test_what_follows_the_last_line_is_damage(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"{}\n")
    assert refusal(file).startswith("is damaged: its checksum")


def test_an_empty_file_is_refused(file: Path) -> None:
    file.write_bytes(b"")
    assert refusal(file) == "is empty"


@pytest.mark.parametrize("text", [b"hello", b"{}\n", b'{"offset":0}\n', b"\xff\xfe\n", b"[" * 100_000])
def test_a_foreign_file_is_refused(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    assert refusal(file) == "is no exported cell"


def test_an_exported_log_is_told_as_such(file: Path) -> None:
    file.write_bytes(b'{"offset":0,"timestamp_ms":1,"key":null,"headers":[],"value":"","end":1}\n')
    assert refusal(file) == "is an exported log, and no cell: fallow verify --file reads it"


def test_a_file_of_a_later_format_is_refused(file: Path) -> None:
    assert refusal(damaged(file, b'"format":1', b'"format":2')) == "is of format 2, this version reads format 1"


def test_a_packed_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cell.gz"
    write_archive(path, an_honest_log().state, UNREAD)
    path.write_bytes(path.read_bytes()[:-40])
    assert refusal(path).startswith("cannot be read: ")


def test_a_packed_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cell.gz"
    path.write_bytes(b"hello")
    assert refusal(path).startswith("cannot be read: ")


def test_a_state_of_a_section_that_is_not_known_is_refused(tmp_path: Path, file: Path) -> None:
    lines = file.read_text().splitlines()
    lines[2] = json.dumps({"row": '["future",[]]'})
    forged(file, lines)
    assert refusal(file) == "its state cannot be read: snapshot section 'future' is not known to this version"


def test_a_state_that_is_another_than_the_first_line_says_is_refused(file: Path) -> None:
    lines = [line for line in file.read_text().splitlines() if '"gone' not in line and "gone" not in line]
    forged(file, lines)
    assert refusal(file) == "its state is not the one of version 9 that it was written from"


@pytest.mark.parametrize(
    ("field", "says"), [("cell", "other"), ("version", 8), ("chain", "f" * 32), ("digest", "f" * 32)]
)
def test_a_first_line_that_says_something_else_than_the_state_is_refused(
    file: Path, field: str, says: str | int
) -> None:
    head, *lines = file.read_text().splitlines()
    forged(file, [json.dumps({**json.loads(head), field: says}), *lines])
    version = says if field == "version" else 9
    assert refusal(file) == f"its state is not the one of version {version} that it was written from"


def forged(file: Path, lines: list[str]) -> None:
    """Writes other lines into the file, with a checksum that fits them."""

    content = "".join(f"{line}\n" for line in lines[:-1]).encode()
    checksum = blake2b(content, digest_size=16).hexdigest()
    last = json.dumps({"end": len(lines) - 1, "checksum": checksum}, separators=(",", ":"))
    file.write_bytes(content + last.encode() + b"\n")


def test_a_packed_file_holds_the_same_lines(tmp_path: Path, file: Path) -> None:
    packed = tmp_path / "packed.gz"
    write_archive(packed, an_honest_log().state, UNREAD)
    assert gzip.decompress(packed.read_bytes()) == file.read_bytes()


def with_unread(file: Path, record: Unread) -> Path:
    """A file whose last line fits its lines, as any user can make one."""
    write_archive(file, an_honest_log().state, (record,))
    return file


@pytest.mark.parametrize("topic", ["decisions", "snapshots", "queue", "cells", "no.such", "submissions.", "jobs.main"])
def test_records_for_what_no_cell_is_given_are_refused_with_their_line(file: Path, topic: str) -> None:
    said = refusal(with_unread(file, Unread(topic, b"b", b"{}", ())))
    assert said.endswith(f": topic = {topic}: no cell is given records there")
    assert said.startswith("line ")


@pytest.mark.parametrize("topic", ["submissions", "submissions.ada", "operations", "proposals"])
def test_records_of_what_a_cell_is_given_come_along(file: Path, topic: str) -> None:
    record = Unread(topic, b"b", b"{}", ())
    assert read_archive(with_unread(file, record)).unread == (record,)


@pytest.mark.parametrize(
    ("beginning", "most"), [(b"x", "LINE_BYTES_MAX"), (b'{"record":', "RECORD_LINE_BYTES_MAX")], ids=["row", "record"]
)
def test_a_line_that_is_longer_than_any_is_refused(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, beginning: bytes, most: str
) -> None:
    monkeypatch.setattr(f"fallow.cli.cell.archive.{most}", 10_000)
    packed = packed_of(file, beginning + b"x" * 10_000 + b"\n", tmp_path / "cell.gz")
    assert refusal(packed) == "line 2: is longer than 10000 bytes"


def packed_of(file: Path, lines: bytes, packed: Path) -> Path:
    """A packed file with these lines behind its first one, and a last line that vouches for them."""
    content = file.read_bytes().split(b"\n")[0] + b"\n" + lines
    end = {"end": content.count(b"\n"), "checksum": blake2b(content, digest_size=16).hexdigest()}
    packed.write_bytes(gzip.compress(content + json.dumps(end, separators=(",", ":")).encode() + b"\n"))
    return packed


def test_a_last_line_among_others_is_neither_a_row_nor_a_record(tmp_path: Path, file: Path) -> None:
    packed = packed_of(file, b'{"end":1,"checksum":""}\n{"row":"ab"}\n', tmp_path / "cell.gz")
    assert refusal(packed) == "is damaged: line 2 is neither a row nor a record"


def test_a_file_of_more_lines_than_any_cell_has_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.cli.cell.archive.LINES_MAX", 3)
    assert refusal(file) == "has more than 3 lines"


def test_a_cell_comes_through_a_pipe(tmp_path: Path, file: Path) -> None:
    pipe, content = tmp_path / "pipe", file.read_bytes()
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    archive = read_archive(pipe)
    writer.join()
    assert (archive.unread, archive.head) == (UNREAD, read_archive(file).head)


def test_a_file_that_is_changed_while_it_is_read_is_refused(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line has vouched for what was read first, and for nothing that is read after it."""
    before, after = b'"value":"eyJ4IjoxfQ=="', b'"value":"eyJ4Ijo5fQ=="'

    @contextmanager
    def changing(path: Path) -> Iterator[tuple[BufferedReader, Callable[[], BufferedReader]]]:
        with readable_again(path) as (first, again):

            def changed() -> BufferedReader:
                damaged(file, before, after)
                return again()

            yield first, changed

    monkeypatch.setattr("fallow.cli.cell.archive.readable_again", changing)
    assert refusal(file) == "was changed while it was read"


def test_only_what_cannot_be_read_twice_is_kept_on_the_disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(file / "missing"))
    assert read_archive(file).unread == UNREAD


MANY = 100_000
HOSTILE = {
    "a first line of objects": b'{"what":"a cell of fallow","a":[' + b"{}," * MANY + b"{}]}\n",
    "short rows": b'{"row":"ab"}\n' * MANY,
    "short objects": b"{}\n" * MANY,
    "a row of objects": b'{"row":"[\\"node\\",[' + b"{}," * MANY + b'{}]]"}\n',
    "unknown keys": b'{"row":"ab","more":[' + b"{}," * MANY + b"{}]}\n",
    "a record of objects": b'{"record":[' + b"{}," * MANY + b"{}]}\n",
    "headers": b'{"record":{"topic":"jobs","key":null,"value":null,"headers":[' + b'["",""],' * MANY + b'["",""]]}}\n',
}
"""Lines that pack to next to nothing, and that would take many times their size once they are objects."""


@pytest.mark.parametrize("is_vouched_for", [True, False])
@pytest.mark.parametrize("lines", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_cell_takes_hardly_more_memory_than_its_longest_line(
    tmp_path: Path, file: Path, lines: bytes, *, is_vouched_for: bool
) -> None:
    packed = packed_of(file, lines, tmp_path / "cell.gz")
    if not is_vouched_for:
        packed.write_bytes(gzip.compress(lines if lines.startswith(b'{"what"') else file.read_bytes() + lines))
    headers = MANY if is_vouched_for and b'["",""]' in lines else 0
    tracemalloc.start()
    try:
        refusal(packed)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    longest = max(map(len, lines.splitlines()))
    assert most < 1_500_000 + 4 * longest + HEADER_BYTES * headers


def test_headers_count_as_much_as_they_take(tmp_path: Path, file: Path) -> None:
    record = b'{"record":{"topic":"jobs","key":null,"value":null,"headers":[' + b'["",""],' * 999 + b'["",""]]}}\n'
    packed = packed_of(file, record * 10, tmp_path / "cell.gz")
    with pytest.raises(ArchiveError, match="has more than 1000000 bytes when it is unpacked"):
        read_archive(packed, unpacked_bytes_max=1_000_000)


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_held(tmp_path: Path, file: Path) -> None:
    packed, row = tmp_path / "cell.jsonl.gz", b'{"row":"' + b"x" * 3_000 + b'"}\n'
    packed.write_bytes(gzip.compress(file.read_bytes().split(b"\n")[0] + b"\n" + row * 100))
    with pytest.raises(ArchiveError, match="has more than 100000 bytes when it is unpacked"):
        read_archive(packed, unpacked_bytes_max=100_000)
