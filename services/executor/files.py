"""The files that the diaries are made of, on a disk."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """Files below one folder, by their names. A file is told by its name or, once it is open, by a number.

    What was written is there for every process at once. After a loss of power only what was replaced is certain, and
    what stood in a file when `sync` was called for it.
    """

    def open(self, name: str, *, to_append: bool = False) -> int:
        """Open a file, which is made where there is none. One that is opened to append is written in no other way."""

    def close(self, file: int) -> None:
        """Let go of an open file."""

    def locked(self, file: int) -> AbstractContextManager[None]:
        """Until the end of the block, every other process waits that would lock the file."""

    def read_begin(self, file: int, max_bytes: int) -> bytes:
        """The first bytes."""

    def write_begin(self, file: int, text: bytes) -> None:
        """Put these in the place of the first bytes."""

    def append(self, file: int, text: bytes) -> None:
        """Write behind the end. Of the text of a process that dies meanwhile a part may be there."""

    async def sync(self, name: str, file: int) -> None:
        """What stands in this open file now is there after a loss of power, too. It may be closed meanwhile."""

    def size_bytes(self, file: int) -> int:
        """How long the file is."""

    def read(self, name: str) -> bytes:
        """All of a file; nothing where there is none."""

    def cut(self, name: str, size_bytes: int) -> None:
        """Take away what stands behind so many bytes."""

    def replace(self, name: str, text: bytes) -> None:
        """Put a new file with this content in the place of another, so that one of the two is there whatever happens.
        Open ones stay with the old file.
        """


CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A user who may write in the folder may put there what is no file: a link is not followed, and nothing is waited for.
"""


class NoRegularFile(OSError):
    """Something that is no regular file, or may not be opened, has a file's name: says which, and what to do."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EINVAL, what, str(path))

    def __str__(self) -> str:
        """The file first."""
        way = "end the workers of the node, move it away, and start again"
        return f"{self.filename} {self.strerror}; only a process of this user can have done that: {way}"


class DiskFiles:
    """Files below a folder of the operating system. Raises OSError: NoRegularFile where something else has a file's
    name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entered: dict[str, None] = {}

    def open(self, name: str, *, to_append: bool = False) -> int:
        """As the port says."""
        path = self._folder / name
        _make_folder(path.parent)
        return _opened(path, os.O_RDWR | os.O_CREAT | (os.O_APPEND if to_append else 0))

    def close(self, file: int) -> None:
        """As the port says."""
        os.close(file)

    @contextmanager
    def locked(self, file: int) -> Iterator[None]:
        """As the port says."""
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def read_begin(self, file: int, max_bytes: int) -> bytes:
        """As the port says."""
        return os.pread(file, max_bytes, 0)

    def write_begin(self, file: int, text: bytes) -> None:
        """As the port says."""
        os.pwrite(file, text, 0)

    def append(self, file: int, text: bytes) -> None:
        """As the port says."""
        while text:
            text = text[os.write(file, text) :]

    async def sync(self, name: str, file: int) -> None:
        """As the port says."""
        own = os.dup(file)
        try:
            await asyncio.to_thread(os.fdatasync, own)
        finally:
            os.close(own)
        if name not in self._entered:
            await asyncio.to_thread(_sync_folder, (self._folder / name).parent)
            self._entered[name] = None

    def size_bytes(self, file: int) -> int:
        """As the port says."""
        return os.fstat(file).st_size

    def read(self, name: str) -> bytes:
        """As the port says."""
        try:
            file = _opened(self._folder / name, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        with os.fdopen(file, "rb") as opened:
            return opened.read()

    def cut(self, name: str, size_bytes: int) -> None:
        """As the port says."""
        file = _opened(self._folder / name, os.O_WRONLY)
        try:
            os.ftruncate(file, size_bytes)
        finally:
            os.close(file)

    def replace(self, name: str, text: bytes) -> None:
        """As the port says."""
        path = self._folder / name
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)  # of a process that died meanwhile
        with os.fdopen(_opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_folder(path.parent)


_NOT_TO_BE_OPENED = {errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM}
"""What a link, a pipe, a socket, a folder, or a file without rights says."""


def _opened(path: Path, flags: int) -> int:
    try:
        file = os.open(path, flags | CAREFUL, 0o644)
    except OSError as error:
        if error.errno in _NOT_TO_BE_OPENED:
            raise NoRegularFile(path, _what_is_wrong(path, error)) from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NoRegularFile(path, _IS_NONE)
    return file


_IS_NONE = "is no regular file"


def _what_is_wrong(path: Path, error: OSError) -> str:
    try:
        is_regular = stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        is_regular = True
    return f"cannot be opened: {error.strerror}" if is_regular else _IS_NONE


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NoRegularFile(path, "is no folder") from error


def _sync_folder(path: Path) -> None:
    """The names in this folder are there after a loss of power."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
