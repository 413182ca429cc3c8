"""What a command writes goes into a regular file, or nowhere: whatever else has the name stays what it is."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.arguments.paths import OUTPUT, file_in, file_to_write, to_write_in_order
from fallow.cli.cell.archive import read_archive, write_archive
from fallow.cli.errors.wrong_use import WrongValue
from fallow.cli.log.file import read_log_file, written_in_order
from fallow.cli.log.log import write_records
from fallow.shared.log.port import LogUnavailable, Record, TopicPartition
from fallow.shared.runtime.process import write_whole
from fallow.shared.whole_file import whole_file
from tests.cli.worlds.logs import an_honest_log
from tests.hypothesis_profile import reaches


def nothing(_: Path) -> None:
    """No file has the name."""


def a_file(path: Path) -> None:
    path.write_text("before")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with _within(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # its whole path may be longer than a socket's name


def a_folder(path: Path) -> None:
    path.mkdir()


def a_device(path: Path) -> None:
    if os.geteuid():  # who may not replace the machine's own
        path.symlink_to("/dev/null")
        return
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:  # in a container
        a_socket(path)


GOOD: tuple[Callable[[Path], None], ...] = (nothing, a_file)
BAD: tuple[Callable[[Path], None], ...] = (a_pipe, a_socket, a_folder, a_device)


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def seen(folder: Path) -> dict[str, object]:
    """All that a folder holds: kinds, the targets of links, and the content of files."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        kind = stat.S_IFMT(path.lstat().st_mode)
        link = str(path.readlink()) if stat.S_ISLNK(kind) else None
        found[path.name] = (kind, link, path.read_text() if stat.S_ISREG(kind) else None)
    return found


def laid_out(folder: Path, kind: Callable[[Path], None], links: int) -> tuple[Path, Path]:
    """The path to be given, and the one to which it leads by so many links."""
    (folder / "there").mkdir()
    target = given_path = folder / "there" / "target"
    kind(target)
    for number in range(links):
        link = folder / f"link{number}"
        link.symlink_to(given_path)
        given_path = link
    return given_path, target


def filled(path: Path) -> None:
    """Fills a pipe without waiting for its reader."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
        file.write("after")


def by_option(path: Path) -> None:
    file_to_write(path)
    filled(path)


def by_folder(path: Path) -> None:
    with file_in(path.parent, path.name) as part:
        filled(part)


def at_once(path: Path) -> None:
    write_whole(path, "after")


def archived(path: Path) -> None:
    write_archive(path, an_honest_log().state, ())
    assert read_archive(path).head.version == 9
    filled(path)


WAYS: tuple[Callable[[Path], None], ...] = (by_option, by_folder, at_once, archived)


@given(st.sampled_from((*GOOD, *BAD)), st.integers(0, 3), st.sampled_from(WAYS))
def test_a_regular_file_is_written_and_nothing_else_is_touched(
    tmp_path_factory: pytest.TempPathFactory, kind: Callable[[Path], None], links: int, way: Callable[[Path], None]
) -> None:
    folder = tmp_path_factory.mktemp("written")
    path, target = laid_out(folder, kind, links)
    before = seen(folder)
    reaches("what is no regular file", kind in BAD)
    if kind in BAD:
        with pytest.raises((OSError, WrongValue), match="must be a regular file, and is a "):
            way(path)
        assert seen(folder) == before
        return
    way(path)
    assert target.read_text() == "after"
    assert seen(folder) == before | {"target": (stat.S_IFREG, None, "after")}


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for way in WAYS:
        with pytest.raises((OSError, WrongValue)):
            way(loop)
    assert str(loop.readlink()) == str(loop)


def test_what_failed_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    with pytest.raises(FileNotFoundError), whole_file(file) as part:
        part.write_text((tmp_path / "missing").read_text())
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("before", [file])


def test_a_file_that_is_written_anew_keeps_who_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    file.chmod(0o640)
    write_whole(file, "after")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("length", [214, 251])
def test_a_file_may_have_the_longest_name_there_is(tmp_path: Path, length: int) -> None:
    file = tmp_path / f"{'ä' * (length // 2)}.gz"
    with whole_file(file) as part:
        assert os.fsencode(part.name).isascii() is False
        part.write_text("after")
    assert [*tmp_path.iterdir()] == [file]


def test_a_packed_file_names_itself_and_not_the_part_in_which_it_was_written(tmp_path: Path) -> None:
    write_archive(tmp_path / "cell.gz", an_honest_log().state, ())
    assert b"cell\0" in (tmp_path / "cell.gz").read_bytes()[:40]


class BrokenOff(BaseException):
    """As Ctrl-C, which is no Exception."""


def break_off_in_order(path: Path) -> None:
    with written_in_order(path) as output:
        output.write("after" * 100_000)
        raise BrokenOff


def break_off_in_a_folder(path: Path) -> None:
    with file_in(path.parent, path.name) as part:
        part.write_text("after")
        raise BrokenOff


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("links", [0, 2])
@pytest.mark.parametrize("way", [break_off_in_order, break_off_in_a_folder])
def test_what_breaks_off_leaves_the_old_file_or_none(
    tmp_path: Path, kind: Callable[[Path], None], links: int, way: Callable[[Path], None]
) -> None:
    path, _ = laid_out(tmp_path, kind, links)
    before = seen(tmp_path)
    with pytest.raises(BrokenOff):
        way(path)
    assert seen(tmp_path) == before


class Silent:
    """As much of a log and its reader as an export asks for: it tells an end, and gives these records and no more."""

    def __init__(self, records: list[Record], end: int) -> None:
        self.left, self.end, self.position = records, end, 0

    async def begin_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.end)

    def reader(self, _: object) -> Silent:
        return self

    async def start(self) -> None:
        """Nothing to do."""

    stop = start

    async def poll(self, *_: int) -> list[Record]:
        some, self.left = self.left, []
        self.position += len(some)
        return some

    def positions(self) -> dict[TopicPartition, int]:
        return {TP: self.position}


TP = ("fallow.decisions", 0)


def export(records: list[Record], end: int, path: Path) -> Coroutine[Any, Any, tuple[int, list[str]]]:
    log: Any = Silent(records, end)
    return write_records(log, TP, path)


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
@pytest.mark.parametrize("kind", GOOD)
async def test_an_export_of_a_log_that_falls_silent_leaves_the_old_file_or_none(
    tmp_path: Path, kind: Callable[[Path], None], name: str
) -> None:
    records, path = an_honest_log().records, tmp_path / name
    kind(path)
    before = seen(tmp_path)
    with pytest.raises(
        LogUnavailable, match=f"{name} is not written: the log ends at offset 99, and nothing from 10 on"
    ):
        await export(records, 99, path)
    assert seen(tmp_path) == before
    assert await export(records, len(records), path) == (len(records), [])
    assert sum(len(some) for some, _ in read_log_file(path, TP)) == len(records)


async def test_a_pipe_keeps_what_came_before_a_log_fell_silent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(LogUnavailable, match="pipe is cut short: the log ends at offset 99"):
        await export(an_honest_log().records, 99, tmp_path / "pipe")
    assert os.read(reading, 100)
    os.close(reading)


def in_order(path: Path) -> None:
    to_write_in_order(path)
    with written_in_order(path) as output:
        output.write("after")


def test_a_pipe_takes_what_is_written_in_order(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    in_order(tmp_path / "pipe")
    assert os.read(reading, 100) == b"after"
    os.close(reading)


def test_a_pipe_without_a_name_takes_it_too() -> None:
    reading, writing = os.pipe()
    in_order(Path(f"/dev/fd/{writing}"))
    os.close(writing)
    assert os.read(reading, 100) == b"after"
    os.close(reading)


def test_a_device_takes_it_and_no_folder_and_no_socket(tmp_path: Path) -> None:
    in_order(Path("/dev/null"))
    a_socket(tmp_path / "socket")
    for path, what in ((tmp_path, "a folder"), (tmp_path / "socket", "a socket")):
        with pytest.raises(WrongValue, match=f"must be a regular file, and is {what}"):
            in_order(path)


@pytest.mark.parametrize("path", [OUTPUT, Path("/dev/stdout"), Path("file")])
def test_what_standard_output_held_before_stays_there(tmp_path: Path, path: Path) -> None:
    """As `>> file` has it."""
    code = (
        "import sys, pathlib; from fallow.cli.log.file import written_in_order\n"
        "with written_in_order(pathlib.Path(sys.argv[1])) as output: output.write('after')"
    )
    file = tmp_path / "file"
    file.write_text("before ")
    with file.open("a") as said:
        subprocess.run([sys.executable, "-c", code, str(path)], stdout=said, cwd=tmp_path, check=True)
    assert file.read_text() == "before after"
