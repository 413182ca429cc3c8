"""Folders are removed whatever a worker has made in them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fallow.services.executor.processes.folders.remove_tree import _open_to_its_owner, remove_tree


def dig(folder: Path, levels: int, name: str = "d") -> None:
    """So many folders, each in the one before, with a file in the last: further down than a path can say."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


@pytest.mark.parametrize("name", ["d", "0", "gone-0", "n" * 200])
def test_deeper_than_python_recurses_and_paths_reach(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "file").write_text("here", "utf-8")
    dig(folder, 3_000, name)
    dig(folder / "a", 30, name)
    before = len([*Path("/proc/self/fd").iterdir()])
    remove_tree(folder)
    assert ([*tmp_path.iterdir()], len([*Path("/proc/self/fd").iterdir()])) == ([], before)


def test_what_links_lead_to_stays(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    (folder / "in").mkdir(parents=True)
    other.mkdir()
    (other / "kept").write_text("kept", "utf-8")
    for name in ("link", "in/link"):
        (folder / name).symlink_to(other)
    (folder / "in" / "hard").hardlink_to(other / "kept")
    os.mkfifo(folder / "in" / "pipe")
    remove_tree(folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["other", "kept"]


def test_a_link_is_no_folder_and_stays(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    assert (tmp_path / "other").is_dir()


def test_a_link_that_takes_the_place_of_a_folder_meanwhile_opens_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o500)
    (tmp_path / "link").symlink_to(tmp_path / "other")
    at = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        _open_to_its_owner("link", at)
    os.close(at)
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o500


@pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to root")
def test_a_folder_that_its_owner_closed_goes_too(tmp_path: Path) -> None:
    closed = tmp_path / "folder" / "closed"
    (closed / "in").mkdir(parents=True)
    closed.chmod(0)
    remove_tree(tmp_path / "folder")
    assert [*tmp_path.iterdir()] == []
