"""What a user without processes has left on a machine, outside of the folders of its runs: files in the folders that
are everybody's, and memory, semaphores and queues that the kernel keeps by number.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fallow.services.executor.processes.folders import remove_as_user
from fallow.services.executor.processes.folders.remove_as_user import kernel_objects

SHARED = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/dev/mqueue"), Path("/run/lock"))  # noqa: S108 - they are searched
"""Where any user may put files, and only their owner may remove them."""


def remove_traces(user: int, shared: Sequence[Path] = SHARED) -> None:
    """Remove what the user owns there, below its own folders too; what others own, and the folders that hold it, stay.
    Raises OSError where something else stays.
    """
    left = [folder / name for folder in shared for name in _owned_in(folder, user)]
    if left or kernel_objects(user):
        _remove_as(user, left)


def _owned_in(folder: Path, user: int) -> list[str]:
    found = list[str]()
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                if entry.stat(follow_symlinks=False).st_uid == user:
                    found.append(entry.name)
    return sorted(found)


def _remove_as(user: int, paths: Sequence[Path]) -> None:
    """With that user's rights alone: others may change what stands there meanwhile."""
    command = [sys.executable, "-I", "-S", remove_as_user.__file__, str(user)]
    words = b"\0".join(map(os.fsencode, paths))
    done = subprocess.run(command, check=False, input=words, env={}, cwd="/", capture_output=True)
    if done.returncode != 0:
        _, _, why = done.stderr.decode("ascii", "replace").strip().rpartition("\n")
        raise OSError(f"what user {user} has left cannot be removed: {why}")
