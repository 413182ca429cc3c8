"""Whatever stands where an agent keeps its diary, the agent does not wait for it, and says in one line what it is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.diaries import Diaries, DiaryUnreadable, Lives
from fallow.services.executor.files import DiskFiles
from fallow.services.executor.processes.driver import ProcessDriver
from fallow.services.executor.processes.folders.state_folder import StateFolderUnusable
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events.codec.encoding import encode
from fallow.shared.runtime.errors.endings import ending_of
from tests.executor.folders.test_diaries import line
from tests.hypothesis_profile import reaches

DIARY = "diaries/cell-a-0-of-1.jsonl"


def diaries_in(folder: Path, grown_bytes: int = 1_000_000) -> Diaries:
    return Diaries(DiskFiles(folder), "cell-a", 1, grown_bytes)


ODD: list[Callable[[Path], object]] = [
    os.mkfifo,
    lambda path: path.mkdir(),
    lambda path: path.symlink_to("/etc/passwd"),
    lambda path: path.symlink_to(path),
]


@pytest.mark.parametrize("make", ODD, ids=["pipe", "folder", "link to a file", "link to itself"])
@pytest.mark.parametrize("name", [DIARY, "reigns/cell-a-0-of-1"])
def test_what_is_no_file_is_neither_waited_for_nor_followed(
    tmp_path: Path, make: Callable[[Path], object], name: str
) -> None:
    (tmp_path / name).parent.mkdir()
    make(tmp_path / name)
    with pytest.raises(OSError, match=re.escape(str(tmp_path / name))) as refused:
        diaries_in(tmp_path).take(0, wall_ms=1)
    assert refused.value.filename == str(tmp_path / name)


@pytest.mark.parametrize("make", [*ODD[2:], os.mkfifo], ids=["link to a file", "link to itself", "pipe"])
def test_what_is_left_beside_a_diary_keeps_nobody_from_writing_it_anew(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    files = DiskFiles(tmp_path)
    files.close(files.open(DIARY))
    make(tmp_path / f"{DIARY}.new")
    files.replace(DIARY, b"new")
    assert files.read(DIARY) == b"new"


GOOD = encode(line())
DAMAGED = st.builds(
    lambda at, other, gone: GOOD[:at] + other + GOOD[at + gone :],
    st.integers(0, len(GOOD)),
    st.sampled_from([b"", b"1", b"a"]) | st.binary(max_size=2),
    st.integers(0, 2),
)
"""A line of which a few bytes are other ones, or none."""


@given(before=st.integers(0, 3), text=st.binary(max_size=60) | DAMAGED)
def test_of_any_bytes_in_a_diary_a_line_is_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, before: int, text: bytes
) -> None:
    folder = tmp_path_factory.mktemp("state")
    diaries = diaries_in(folder)
    diaries.take(0, wall_ms=1)
    (folder / DIARY).write_bytes((GOOD + b"\n") * before + text + b"\n")
    found, refused = told(diaries)
    reaches("a diary with any bytes in it is read", found and refused is None)
    reaches("a line of a diary is named, since it cannot be read", refused is not None)
    diaries.let_go(0)
    assert all(isinstance(each, DiaryLine) for each in found)
    assert refused is None or (refused.startswith(f"{DIARY}, line ") and len(refused) < 500 and refused.isprintable())


def told(diaries: Diaries) -> tuple[list[DiaryLine], str | None]:
    """The lines of a diary, or why they cannot be read."""
    try:
        return [each for lines in diaries.read(0, ()).values() for each in lines], None
    except DiaryUnreadable as error:
        return [], str(error)


def test_the_line_that_no_agent_wrote_is_named_also_when_the_diary_is_written_anew(tmp_path: Path) -> None:
    diaries = diaries_in(tmp_path, grown_bytes=1)
    diaries.take(0, wall_ms=1)
    assert diaries.write([line()]) == []
    with (tmp_path / DIARY).open("ab") as file:
        file.write(b"junk \x1b[31m\n")
    with pytest.raises(DiaryUnreadable, match=r"^diaries/cell-a-0-of-1.jsonl, line 2: 'junk \\x1b\[31m' is no line of"):
        diaries.read(0, ())
    assert diaries.write([line()]) == []
    with pytest.raises(DiaryUnreadable, match="line 2"):
        diaries.forget(0, Lives(1, (), ()))


def test_a_line_is_named_as_a_whole_whatever_signs_it_holds(tmp_path: Path) -> None:
    diaries = diaries_in(tmp_path)
    diaries.take(0, wall_ms=1)
    (tmp_path / DIARY).write_bytes(encode(line()) + b"\na\rb\n")
    assert (told(diaries)[1] or "").startswith(f"{DIARY}, line 2: 'a\\rb' is no line")


def test_a_line_with_a_damaged_name_of_a_field_is_named(tmp_path: Path) -> None:
    diaries = diaries_in(tmp_path)
    diaries.take(0, wall_ms=1)
    (tmp_path / DIARY).write_bytes(encode(line()).replace(b'"devices"', b'"devi\xe3es"') + b"\n")
    assert (told(diaries)[1] or "").startswith(f"{DIARY}, line 1: ")


def test_a_line_that_was_torn_is_left_out_when_the_diary_is_written_anew(tmp_path: Path) -> None:
    diaries = diaries_in(tmp_path, grown_bytes=1)
    diaries.take(0, wall_ms=1)
    assert diaries.write([line()]) == []
    with (tmp_path / DIARY).open("ab") as file:
        file.write(encode(line())[:20])
    assert diaries.forget(0, Lives(1, (), ()))
    assert (tmp_path / DIARY).read_bytes().endswith(b"\n")
    assert told(diaries)[1] is None


def test_what_stands_behind_a_link_is_not_cut(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"of another user")
    (tmp_path / "diary").symlink_to(other)
    with pytest.raises(OSError, match="diary"):
        DiskFiles(tmp_path).cut("diary", 0)
    assert other.read_bytes() == b"of another user"


def test_what_is_no_file_is_not_kept_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(5):
        with pytest.raises(OSError, match="pipe"):
            DiskFiles(tmp_path).open("pipe")
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, lambda path: path.symlink_to(path)])
def test_what_stands_in_place_of_the_folder_of_runs_ends_the_agent_in_one_line(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "runs")
    with pytest.raises(StateFolderUnusable) as ended:
        ProcessDriver("node-1", tmp_path, inherited={})
    known = ending_of(ended.value)
    assert known is not None
    assert known[0].exit_code == 2
    assert f"{tmp_path / 'runs'} is no folder: move it away" in known[1]
