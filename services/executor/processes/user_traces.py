"""What a user without processes has left on a machine, outside of the folders of its runs: files in the folders that
are everybody's, and memory, semaphores and queues that the kernel keeps by number.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from fallow.services.executor.processes.remove_tree import remove_tree

SHARED = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/dev/mqueue"), Path("/run/lock"))  # noqa: S108 - they are searched
"""Where any user may put files, and only their owner may remove them."""

IPC_RMID = 0
IPC_OWNER = ("uid", "cuid")


def remove_traces(user: int, shared: Sequence[Path] = SHARED) -> None:
    """Remove all of it. Raises OSError where something stays."""
    for folder in shared:
        for name in _owned_in(folder, user):
            _remove(folder / name)
    remove_kernel_objects(user)


def _owned_in(folder: Path, user: int) -> list[str]:
    found = list[str]()
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                if entry.stat(follow_symlinks=False).st_uid == user:
                    found.append(entry.name)
    return sorted(found)


def _remove(path: Path) -> None:
    try:
        remove_tree(path)
    except NotADirectoryError:
        path.unlink(missing_ok=True)


def remove_kernel_objects(user: int) -> None:
    """Remove System V's shared memory, semaphores and queues of a user."""
    libc = ctypes.CDLL(None)
    for kind, number in _kernel_objects(user):
        if kind == "shm":
            libc.shmctl(number, IPC_RMID, None)
        elif kind == "sem":
            libc.semctl(number, 0, IPC_RMID)
        else:
            libc.msgctl(number, IPC_RMID, None)


def _kernel_objects(user: int) -> list[tuple[str, int]]:
    found = list[tuple[str, int]]()
    for kind in ("shm", "sem", "msg"):
        try:
            head, *lines = Path(f"/proc/sysvipc/{kind}").read_text("ascii").splitlines()
        except (OSError, ValueError):
            continue  # this kernel has none
        names = head.split()
        for line in lines:
            fields = dict(zip(names, line.split(), strict=False))
            if str(user) in (fields.get(name) for name in IPC_OWNER):
                found.append((kind, int(fields[f"{kind}id" if kind != "msg" else "msqid"])))
    return found
