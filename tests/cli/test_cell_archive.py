from __future__ import annotations

import gzip
import json
from hashlib import blake2b
from pathlib import Path

import pytest

from fallow.cli.cell.archive import LINE_BYTES_MOST, ArchiveError, Unread, read_archive, write_archive
from fallow.shared.cluster.fold.rows import digest_of
from tests.cli.logs import an_honest_log

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


def forged(file: Path, lines: list[str]) -> None:
    """The same file with other lines, and a checksum that fits them."""

    content = "".join(f"{line}\n" for line in lines[:-1]).encode()
    checksum = blake2b(content, digest_size=16).hexdigest()
    last = json.dumps({"end": len(lines) - 1, "checksum": checksum}, separators=(",", ":"))
    file.write_bytes(content + last.encode() + b"\n")


def test_a_packed_file_holds_the_same_lines(tmp_path: Path, file: Path) -> None:
    packed = tmp_path / "packed.gz"
    write_archive(packed, an_honest_log().state, UNREAD)
    assert gzip.decompress(packed.read_bytes()) == file.read_bytes()


def with_unread(file: Path, record: Unread) -> Path:
    """A file whose last line fits its lines, as anybody can make one."""
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


def test_a_line_that_is_longer_than_any_row_is_refused(tmp_path: Path, file: Path) -> None:
    packed = tmp_path / "cell.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes().split(b"\n")[0] + b"\n" + b"x" * (LINE_BYTES_MOST + 1)))
    assert refusal(packed) == f"line 2: is longer than {LINE_BYTES_MOST} bytes"


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_held(tmp_path: Path, file: Path) -> None:
    packed, row = tmp_path / "cell.jsonl.gz", b'{"row":"' + b"x" * 3_000 + b'"}\n'
    packed.write_bytes(gzip.compress(file.read_bytes().split(b"\n")[0] + b"\n" + row * 100))
    with pytest.raises(ArchiveError, match="has more than 100000 bytes when it is unpacked"):
        read_archive(packed, unpacked_bytes_most=100_000)
