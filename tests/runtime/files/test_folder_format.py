"""A folder of another release is refused in one line and left as it is; one of before there was a mark is read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.errors.failures import Exit, explain
from fallow.cli.verify.verification import read_all_diaries
from fallow.local.data_folder import held
from fallow.services.executor.app.wiring import keep_on_disk
from fallow.services.executor.processes.folders.state_folder import StateFolder
from fallow.services.executor.settings import ExecutorSettings
from fallow.shared.kept_folders import AGENT, ALL, DATA, DIARIES
from fallow.shared.runtime.errors.endings import ending_of
from fallow.shared.runtime.files.folder_format import FolderFormat, FolderOfAnotherFormat, take_folder
from tests.hypothesis_profile import reaches


def by_agent(folder: Path) -> None:
    StateFolder(folder, "machine-1").close()


def by_executor(folder: Path) -> None:
    settings = ExecutorSettings.model_construct(data_dir=folder)
    keep_on_disk(settings, "cell-a", 1).take(0, wall_ms=1)


def by_up(folder: Path) -> None:
    with held(folder):
        pass


def by_verify(folder: Path) -> None:
    read_all_diaries([folder], "cell-a")


Way = Callable[[Path], None]
KEEPERS: tuple[tuple[Way, str, FolderFormat], ...] = (
    (by_agent, "format", AGENT),
    (by_executor, "diaries/format", DIARIES),
    (by_up, "format", DATA),
)
READERS = (*KEEPERS, (by_verify, "format", AGENT), (by_verify, "diaries/format", DIARIES))


def content(folder: Path) -> dict[str, bytes]:
    """Each file below, but for locks, which hold nothing."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(("way", "file", "kept"), KEEPERS)
def test_a_new_folder_says_its_format_and_is_taken_again(
    tmp_path: Path, way: Way, file: str, kept: FolderFormat
) -> None:
    for _ in range(2):
        way(tmp_path / "new")
        assert (tmp_path / "new" / file).read_text() == f"{kept}\n"


def test_an_up_and_its_executors_share_a_folder(tmp_path: Path) -> None:
    for way in (by_up, by_executor, by_verify) * 2:
        way(tmp_path)


@pytest.mark.parametrize("left", [None, "", "\0" * 30])
@pytest.mark.parametrize(("way", "file", "kept"), KEEPERS)
def test_a_folder_of_before_there_was_the_file_is_read_and_marked(
    tmp_path: Path, way: Way, file: str, kept: FolderFormat, left: str | None
) -> None:
    way(tmp_path)
    (tmp_path / "boot.json").write_text("{}")
    before = content(tmp_path) | {file: f"{kept}\n".encode()}
    (tmp_path / file).unlink()
    if left is not None:  # as a loss of power may leave it
        (tmp_path / file).write_text(left)
    if way is by_executor:  # a reign is another one each time
        before.pop("reigns/cell-a-0-of-1")
    way(tmp_path)
    assert content(tmp_path) | before == content(tmp_path)


@pytest.mark.parametrize("left", [None, ""])
@pytest.mark.parametrize("beside", [".gone/gone-0011", ".gone/7", "lost+found", "notes/old"])
@pytest.mark.parametrize("way", [by_agent, by_up])
def test_what_is_no_jobs_folder_does_not_make_a_folder_of_this_release_an_old_one(
    tmp_path: Path, way: Way, beside: str, left: str | None
) -> None:
    for name in ("ada~train/1", beside):
        (tmp_path / "runs" / name).mkdir(parents=True)
    if left is not None:
        (tmp_path / "format").write_text(left)
    way(tmp_path)
    assert (tmp_path / "format").read_text()


@pytest.mark.parametrize("where", ["runs/train-7/1", "diaries/n1.jsonl", "n1.jsonl"])
@pytest.mark.parametrize(("way", "file", "kept"), KEEPERS)
def test_a_folder_of_when_jobs_had_no_tenants_is_refused_in_one_line_and_stays_as_it_is(
    tmp_path: Path, way: Way, file: str, kept: FolderFormat, where: str
) -> None:
    folder = (tmp_path / file).parent
    (folder / where).parent.mkdir(parents=True, exist_ok=True)
    if where.endswith(".jsonl"):
        line = {"node": "n1", "job": "train-7", "attempt": 1, "event": "started", "cell_ms": 1, "wall_ms": 1}
        (folder / where).write_text(json.dumps(line, separators=(",", ":")) + "\n", encoding="utf-8")
    else:
        (folder / where).mkdir()
    before = content(tmp_path)
    with pytest.raises(FolderOfAnotherFormat) as refused:
        way(tmp_path)
    assert str(refused.value).endswith(
        "has no file format, and names jobs without their tenants; "
        "go back to the release that wrote it, or give an empty folder"
    )
    assert content(tmp_path) == before


@given(st.sampled_from(READERS), st.text(min_size=1, max_size=100))
def test_a_folder_that_says_anything_else_is_refused_in_one_line_and_stays_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, reader: tuple[Way, str, FolderFormat], said: str
) -> None:
    way, file, kept = reader
    folder = tmp_path_factory.mktemp("kept")
    (folder / "diaries").mkdir()
    (folder / file).write_text(said)
    is_own = said.strip("\0 \r\n") in {"", *map(str, ALL)}
    reaches("a word of another release", not is_own)
    if is_own:
        return
    before = content(folder)
    with pytest.raises(FolderOfAnotherFormat) as refused:
        way(folder)
    told = str(refused.value)
    assert told.isprintable()
    assert str((folder / file).parent) in told
    assert f"'{kept}'" in told
    assert content(folder) == before


@pytest.mark.parametrize(("way", "file", "kept"), KEEPERS)
def test_a_later_release_is_named_with_what_to_do(tmp_path: Path, way: Way, file: str, kept: FolderFormat) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(f"fallow {kept.kind} v9.1\n")
    with pytest.raises(FolderOfAnotherFormat) as refused:
        way(tmp_path)
    rule = f"its file format says 'fallow {kept.kind} v9.1', this release reads '{kept}'"
    way_out = "go back to the release that wrote it, or give an empty folder"
    assert str(refused.value).endswith(f" = {(tmp_path / file).parent}: {rule}; {way_out}")
    known = ending_of(refused.value)
    assert known is not None
    assert known[0].exit_code == Exit.USAGE
    assert explain(refused.value) == (Exit.USAGE, str(refused.value))


def test_an_agent_lets_go_of_a_folder_that_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("fallow agent v9.1")
    for _ in range(2):  # a second one is not told that another is at work
        with pytest.raises(FolderOfAnotherFormat):
            by_agent(tmp_path)


ODD: list[Callable[[Path], object]] = [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd")]


@pytest.mark.parametrize("make", ODD, ids=["pipe", "folder", "link"])
@pytest.mark.parametrize(("way", "file", "kept"), READERS)
def test_what_is_no_file_is_neither_waited_for_nor_followed(
    tmp_path: Path, way: Way, file: str, kept: FolderFormat, make: Callable[[Path], object]
) -> None:
    (tmp_path / "diaries").mkdir()
    make(tmp_path / file)
    with pytest.raises(FolderOfAnotherFormat, match="its file format is no regular file; move it away, and start"):
        way(tmp_path)


def test_the_file_is_for_its_user_alone_and_one_that_cannot_be_written_keeps_nobody(tmp_path: Path) -> None:
    take_folder("state_dir", tmp_path, AGENT)
    assert stat.S_IMODE((tmp_path / "format").stat().st_mode) == 0o600
    take_folder("state_dir", tmp_path / "gone", AGENT)
