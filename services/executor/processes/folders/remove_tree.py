"""Removes a folder with all that is in it, whatever a worker has made there: also in more levels than Python calls
itself, a process has open files, or a path has characters. `shutil.rmtree` calls itself for each level.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: Path) -> None:
    """Remove the folder; no link is followed. Raises OSError, when a part may be gone.

    Each folder further down is first moved up, beside the others that are still to be emptied: so nothing is ever
    deeper than two levels.
    """
    root = os.open(folder, _FOLDER)
    try:
        waiting = _new_folder(root)
        rest = os.open(waiting, _FOLDER, dir_fd=root)
        try:
            _empty_all(root, rest, keep=waiting)
        finally:
            os.close(rest)
        os.rmdir(waiting, dir_fd=root)
    finally:
        os.close(root)
    folder.rmdir()


def _new_folder(root: int) -> str:
    """The name of a folder that was not there before."""
    names = {*os.listdir(root)}
    name = next(name for number in count() if (name := f"gone-{number}") not in names)
    os.mkdir(name, dir_fd=root)
    return name


def _empty_all(root: int, rest: int, keep: str) -> None:
    numbers = count()
    _empty(root, rest, numbers, keep)
    while names := os.listdir(rest):
        for name in names:
            folder = os.open(name, _FOLDER, dir_fd=rest)
            try:
                _empty(folder, rest, numbers)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=rest)


def _empty(folder: int, rest: int, numbers: count[int], keep: str = "") -> None:
    """Remove the files of a folder, and move its folders into `rest`."""
    with os.scandir(folder) as entries:
        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name != keep]
    for name, is_folder in inside:
        if is_folder:
            _open_to_its_owner(name, folder)
            os.rename(name, str(next(numbers)), src_dir_fd=folder, dst_dir_fd=rest)
        else:
            os.unlink(name, dir_fd=folder)


def _open_to_its_owner(name: str, folder: int) -> None:
    """A worker may have closed it to its own user. It may also be a link by now, and root changes nothing elsewhere."""
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        Path(f"/proc/self/fd/{found}").chmod(0o700)
    finally:
        os.close(found)
