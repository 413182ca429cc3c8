"""Removes what a user without processes has left, with the rights of that user and no others.

    python -I -S remove_as_user.py USER

removes the paths that stand in its standard input, a zero byte between them, and System V's shared memory, semaphores
and queues of the user. It is a program of its own, so that no right of the agent is there any more when the first file
goes: whatever others put in the place of a file meanwhile, the kernel lets nothing go that the user might not remove.
It needs nothing but the standard library, loaded while it may still read it.

Files of the user go, and folders of the user that are empty then. What another owns stays, also where the user might
remove it, and so do the folders above it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from pathlib import Path
from typing import NamedTuple

IPC_RMID = 0
IPC_OWNER = ("uid", "cuid")
IS_GONE = (errno.EINVAL, errno.EIDRM)

_THERE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

OPEN_TO_ITS_OWNER = 0o700


def main() -> int:
    """0, or 1 where something of the user stays: one line in the standard error says what."""
    user, paths = int(sys.argv[1]), [path for path in sys.stdin.buffer.read().split(b"\0") if path]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        become_user(user)
        for path in paths:
            remove_owned(Path(os.fsdecode(path)), user)
        remove_kernel_objects(user, libc)
    except OSError as error:
        sys.stderr.write(ascii(str(error)) + "\n")
        return 1
    return 0


def become_user(user: int) -> None:
    """Give up all rights for those of this user, for good, as a worker does (`supervisor.py`: neither program may
    import the other). Raises OSError.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    with contextlib.suppress(PermissionError):
        os.setresuid(0, 0, 0)
        raise OSError(errno.EPERM, "the rights of root are still there")


class _Level(NamedTuple):
    """A folder that is being emptied: its name in the folder above, which folder that is, the mode to give it back if
    it stays, and its folders that are still to be looked at.
    """

    name: str
    above: tuple[int, int]
    mode: int | None
    folders: list[str]


def remove_owned(path: Path, user: int) -> None:
    """Remove what this user owns of a path, and of what is below it through folders of this user; no link is followed.
    Raises OSError.
    """
    walk = _Walk(os.open(path.parent, _THERE), user)
    try:
        walk.remove(path.name)
    finally:
        walk.close()


class _Walk:
    """Goes down and up again with one open folder at a time: there may be more levels than a process has open files, or
    a path has characters.
    """

    def __init__(self, at: int, user: int) -> None:
        self._at, self._user = at, user
        self._levels = list[_Level]()

    def close(self) -> None:
        os.close(self._at)

    def remove(self, name: str) -> None:
        self._take(name)
        while self._levels:
            if self._levels[-1].folders:
                self._take(self._levels[-1].folders.pop())
            else:
                self._leave()

    def _take(self, name: str) -> None:
        """Remove a file, or begin with a folder."""
        with contextlib.suppress(FileNotFoundError):  # it went meanwhile
            found = os.stat(name, dir_fd=self._at, follow_symlinks=False)
            if found.st_uid != self._user:
                return
            if stat.S_ISDIR(found.st_mode):
                self._enter(name)
            else:
                os.unlink(name, dir_fd=self._at)

    def _enter(self, name: str) -> None:
        below, mode = self._opened(name)
        if below is None:
            return
        above, self._at = self._at, below
        self._levels.append(_Level(name, _identity(above), mode, []))
        os.close(above)
        with os.scandir(below) as entries:
            inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        self._levels[-1].folders.extend(each for each, is_folder in inside if is_folder)
        for each in (each for each, is_folder in inside if not is_folder):
            self._take(each)

    def _opened(self, name: str) -> tuple[int | None, int | None]:
        """The folder, and its mode where that was changed: the user may have closed it to itself. None where another
        stands there by now.
        """
        there = os.open(name, _THERE, dir_fd=self._at)
        try:
            found = os.fstat(there)
            if found.st_uid != self._user:
                return None, None
            mode = stat.S_IMODE(found.st_mode)
            is_closed = mode & OPEN_TO_ITS_OWNER != OPEN_TO_ITS_OWNER
            if is_closed:
                _set_mode(there, mode | OPEN_TO_ITS_OWNER)
            return os.open(".", _READ, dir_fd=there), mode if is_closed else None
        finally:
            os.close(there)

    def _leave(self) -> None:
        level, below = self._levels.pop(), self._at
        self._at = os.open("..", _THERE, dir_fd=below)
        try:
            if _identity(self._at) != level.above:
                raise OSError(errno.ESTALE, "a folder was moved while it was being removed", level.name)
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(level.name, dir_fd=self._at)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if level.mode is not None:
                _set_mode(below, level.mode)
        finally:
            os.close(below)


def _set_mode(folder: int, mode: int) -> None:
    """Of a folder that is open by O_PATH alone, too."""
    Path(f"/proc/self/fd/{folder}").chmod(mode)


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


def remove_kernel_objects(user: int, libc: ctypes.CDLL) -> None:
    """Remove System V's shared memory, semaphores and queues that a user owns or made. Raises OSError."""
    for kind, number in kernel_objects(user):
        if kind == "shm":
            failed = libc.shmctl(number, IPC_RMID, None)
        elif kind == "sem":
            failed = libc.semctl(number, 0, IPC_RMID)
        else:
            failed = libc.msgctl(number, IPC_RMID, None)
        if failed and (code := ctypes.get_errno()) not in IS_GONE:
            raise OSError(code, os.strerror(code), f"{kind} {number}")


def kernel_objects(user: int) -> list[tuple[str, int]]:
    """Kind and number of each that a user owns or made; the kernel lets both remove it."""
    found = list[tuple[str, int]]()
    for kind in ("shm", "sem", "msg"):
        try:
            # In UTF-8: the user may not be able to read the part of Python that knows another encoding.
            head, *lines = Path(f"/proc/sysvipc/{kind}").read_text("utf-8").splitlines()
        except (OSError, ValueError):
            continue  # this kernel has none
        names = head.split()
        for line in lines:
            fields = dict(zip(names, line.split(), strict=False))
            if str(user) in (fields.get(name) for name in IPC_OWNER):
                found.append((kind, int(fields[f"{kind}id" if kind != "msg" else "msqid"])))
    return found


if __name__ == "__main__":
    sys.exit(main())
