"""The folder in which one `fallow up` keeps its data: no other may use it at the same time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallow.shared.kept_folders import DATA
from fallow.shared.runtime.files.folder_format import take_folder


class DataFolderInUse(Exception):
    """Another process uses this folder. One line: the option, the folder and the process."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder, which is made if need be. The kernel lets it go when this process ends, however it ends.

    Raises DataFolderInUse, FolderOfAnotherFormat.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Not inherited: what is started here must not hold the folder after this process.
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            rule = f"process {holder or '?'} uses it; end it, or give another --data"
            raise DataFolderInUse(f"--data = {str(folder)!r}: {rule}") from error
        take_folder("--data", folder, DATA)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(lock)
