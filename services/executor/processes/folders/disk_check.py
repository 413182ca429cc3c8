"""Whether the machine itself lets a file be written in a folder just now. It is tried beside everything else that the
process does: a disk may not answer for minutes, and an agent that stands still meanwhile renews no lease.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from pathlib import Path

from fallow.services.executor.processes.supervisor import monotonic_ms

OF_THE_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO))
"""What an access to a file fails for where its disk is full, read-only or broken."""

BYTES_WRITTEN = 8 * 1024
PATIENCE_MS = 5_000
"""So long a disk may take to answer. One that is only slow, since a job keeps it busy, is not at fault."""


class DiskCheck:
    """One try to make, write and remove a file; it begins at once, and never raises."""

    def __init__(self, folder: Path, patience_ms: int = PATIENCE_MS) -> None:
        self._folder, self._until_ms = folder, monotonic_ms() + patience_ms
        self._has_ended = threading.Event()
        self._error: OSError | None = None
        # No end of the process waits for it.
        thread = threading.Thread(target=self._work, name="check of the disk", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._has_ended.set()  # the system has no thread left, which tells nothing of its disk

    def is_at_work(self) -> bool:
        """Whether the disk has not answered yet, however long it takes."""
        return not self._has_ended.is_set()

    def is_over(self) -> bool:
        """Whether it is known what the check finds: the disk has answered, or no caller waits for it any longer."""
        return not self.is_at_work() or monotonic_ms() > self._until_ms

    def has_found_fault(self) -> bool:
        """Whether the disk has refused the file since it is full, read-only or broken. Errors of other kinds do not
        count: any process of the agent's user may close the folder or move it away.
        """
        return not self.is_at_work() and self._error is not None and self._error.errno in OF_THE_DISK

    def _work(self) -> None:
        try:
            _write_a_file(self._folder)
        except OSError as error:
            self._error = error
        finally:
            self._has_ended.set()


def _write_a_file(folder: Path) -> None:
    """Write a file that is gone again with its last byte. Raises OSError."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(os.urandom(BYTES_WRITTEN))  # zeros might take no room
        file.flush()
        os.fsync(file.fileno())
