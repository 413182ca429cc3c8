"""Files that a user or a setting names: what else may have their name, and how one is written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME_BYTES_MAX = 255
"""The longest name that a file may have."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def what_else(path: Path) -> str | None:
    """What stands where this path leads to, in words; None for a regular file, and for nothing. Raises OSError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no regular file")


def target_of(path: Path) -> Path:
    """Where to write what goes to this path: behind its links, also where nothing is there yet. Raises OSError where
    something that is no regular file is there: its own is no content, and to replace it takes it from all others.
    """
    # By the path itself: what a link below /dev leads to, such as a pipe, has no name that could be looked up.
    if what := what_else(path):
        raise OSError(errno.EINVAL, f"must be a regular file, and is {what}", str(path))
    return Path(os.path.realpath(path))


def _beside(target: Path, suffix: str) -> Path:
    """A name that says whose it is, cut where there would be too much of it."""
    most = NAME_BYTES_MAX - len(suffix)
    return target.with_name(f"{os.fsencode(target.name)[:most].decode('utf-8', 'ignore')}{suffix}")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new and empty file to be filled, which becomes the one of this path when nothing failed. Raises OSError."""
    target = target_of(path)
    part = _beside(target, f".{os.getpid()}.{secrets.token_hex(4)}.part")
    opened: int | None = None
    try:
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        if target.exists():  # the readers of the old one may read the new one
            os.fchmod(opened, stat.S_IMODE(target.stat().st_mode))
        yield part
        part.replace(target_of(target))
    finally:
        part.unlink(missing_ok=True)
        if opened is not None:
            os.close(opened)
