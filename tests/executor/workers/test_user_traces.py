"""What a user left in folders that are everybody's goes, and nothing that any other user owns."""

from __future__ import annotations

import inspect
import os
import random
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow.services.executor.processes import supervisor
from fallow.services.executor.processes.folders import remove_as_user
from fallow.services.executor.processes.folders.user_traces import remove_traces
from tests.executor.folders.test_remove_tree import dig

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may remove as other users")

GONE, OTHER = (3_900_000_000 + os.getpid() % 100_000 * 2 + each for each in (0, 1))
"""A user without processes, and another. No other test process has these."""

Seen = dict[Path, tuple[int, int, int]]
"""Owner, mode and number of each file by its path."""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which everybody may make files, and remove his own alone."""
    shared = Path(tempfile.mkdtemp(prefix="fallow-traces-", dir="/tmp"))
    shared.chmod(0o1777)
    yield shared
    shutil.rmtree(shared)


def of(user: int, path: Path, mode: int | None = None) -> Path:
    """The path, as this user's."""
    os.lchown(path, user, user)
    if mode is not None:
        path.chmod(mode)
    return path


def folder_of(user: int, path: Path, mode: int = 0o700) -> Path:
    path.mkdir()
    return of(user, path, mode)


def file_of(user: int, path: Path) -> Path:
    path.write_text(f"of {user}", "utf-8")
    return of(user, path, 0o600)


def seen_in(folder: Path) -> Seen:
    found = Seen()
    for at, folders, files in os.walk(folder):
        for path in (Path(at, name) for name in (*folders, *files)):
            status = path.lstat()
            found[path] = (status.st_uid, status.st_mode, status.st_ino)
    return found


def test_what_another_put_into_a_folder_of_the_gone_stays_with_the_folder(shared: Path) -> None:
    cache = folder_of(GONE, shared / "cache", 0o1777)
    file_of(OTHER, folder_of(OTHER, cache / "of-another") / "checkpoint")
    file_of(OTHER, cache / "file-of-another")
    before = seen_in(shared)
    file_of(GONE, cache / "own")
    file_of(GONE, folder_of(GONE, cache / "own-folder") / "file")
    remove_traces(GONE, [shared])
    assert seen_in(shared) == before


def test_a_folder_that_stays_has_the_mode_that_it_had(shared: Path) -> None:
    file_of(OTHER, folder_of(GONE, shared / "closed") / "file-of-another")
    (shared / "closed").chmod(0)
    before = seen_in(shared)
    remove_traces(GONE, [shared])
    assert seen_in(shared) == before


def test_what_stands_below_a_folder_of_another_stays(shared: Path) -> None:
    below = folder_of(OTHER, shared / "of-another", 0o1777)
    file_of(GONE, folder_of(GONE, below / "folder") / "file")
    before = seen_in(shared)
    remove_traces(GONE, [shared])
    assert seen_in(shared) == before


def test_no_kind_of_file_and_no_name_stays_and_no_link_is_followed(shared: Path) -> None:
    kept = file_of(GONE, folder_of(OTHER, shared / "kept", 0o755) / "kept")
    before = seen_in(shared)
    made = [shared / "link", shared / "link-to-folder", shared / "pipe", shared / "socket"]
    made[0].symlink_to(kept)
    made[1].symlink_to(kept.parent)
    os.mkfifo(made[2])
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(made[3]))
    for name in (b"\xff\xfe", b"a\nb", b"-rf", b" ", b"\x1b[2J", b"n" * 255):
        made += [file_of(GONE, shared / os.fsdecode(b"f" + name[:254])), folder_of(GONE, shared / os.fsdecode(name))]
    for path in made:
        of(GONE, path)
    closed = folder_of(GONE, folder_of(GONE, shared / "outer") / "inner")
    file_of(GONE, closed / "file")
    for path in (closed, closed.parent):
        path.chmod(0)
    remove_traces(GONE, [shared])
    assert seen_in(shared) == before


def test_folders_deeper_than_a_path_has_characters_go(shared: Path) -> None:
    dig(folder_of(GONE, shared / "deep"), 3_000)
    subprocess.run(["chown", "-R", f"{GONE}:{GONE}", shared / "deep"], check=True)
    remove_traces(GONE, [shared])
    assert seen_in(shared) == {}


@pytest.mark.parametrize("seed", range(6))
def test_exactly_what_its_owner_has_down_from_the_top_goes(shared: Path, seed: int) -> None:
    grow(shared, random.Random(seed), 4)
    before = seen_in(shared)
    remove_traces(GONE, [shared])
    expected = {path: before[path] for path in before if stays(path, before, shared)}
    assert seen_in(shared) == expected
    assert 0 < len(expected) < len(before)


def grow(folder: Path, chance: random.Random, levels: int) -> None:
    """Files and folders of both users, each with some mode."""
    for number in range(5):
        user, path = chance.choice((GONE, GONE, OTHER)), folder / str(number)
        match chance.randrange(5):
            case 0:
                file_of(user, path)
            case 1:
                path.symlink_to(folder)
                of(user, path)
            case _:
                path.mkdir()
                if levels:
                    grow(path, chance, levels - 1)
                of(user, path, chance.choice((0, 0o500, 0o700, 0o777, 0o1777)))


def stays(path: Path, before: Seen, top: Path) -> bool:
    """Whether something may not go: another owns it, one of the folders above it, or something below that stays."""
    above = path
    while above != top:
        if before[above][0] != GONE:
            return True
        above = above.parent
    is_folder = stat.S_ISDIR(before[path][1])
    return is_folder and any(stays(each, before, top) for each in before if each.parent == path)


def test_objects_of_the_kernel_that_others_own_stay() -> None:
    made = {user: memory_of(user) for user in (GONE, OTHER)}
    remove_traces(GONE, [])
    try:
        assert [user for user in made if made[user] in memories()] == [OTHER]
    finally:
        subprocess.run(["ipcrm", "-m", made[OTHER]], check=True)


def memory_of(user: int) -> str:
    told = subprocess.run(
        ["ipcmk", "-M", "4096"], user=user, group=user, extra_groups=[], check=True, capture_output=True
    )
    return told.stdout.decode().split()[-1]


def memories() -> list[str]:
    return [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text("ascii").splitlines()]


def test_what_cannot_be_removed_is_told_in_one_line(shared: Path) -> None:
    file_of(GONE, shared / "kept")
    shared.chmod(0o755)
    with pytest.raises(OSError, match=rf"user {GONE} .*Permission denied.*kept") as told:
        remove_traces(GONE, [shared])
    assert "\n" not in str(told.value)


def test_rights_are_given_up_there_as_a_worker_gives_them_up() -> None:
    """Two programs that may import nothing of each other."""
    steps = [
        [
            line
            for line in inspect.getsource(program.become_user).splitlines()
            if line.startswith("    os.") or "with" in line
        ]
        for program in (remove_as_user, supervisor)
    ]
    assert steps[0] == steps[1] != []
