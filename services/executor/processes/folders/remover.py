"""Removes folders beside everything else that the process does: one of a hundred thousand files takes a second or more,
and an agent that stands still meanwhile renews no lease.

A folder that shall go is renamed at once, so what comes next may have its name, and is removed by a thread, one folder
after the other. What a process leaves there at its end is removed by the next one.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from fallow.services.executor.processes.folders.remove_tree import remove_tree


class Remover:
    """The folders that shall go, in a folder of their own until they are gone. Only one process at a time has it."""

    def __init__(self, aside: Path, also: Callable[[str], None] | None = None) -> None:
        """`aside` is on the same file system as what shall go. `also` removes what belongs to a folder and stands
        elsewhere, before the folder goes; it gets the folder's name here, and raises OSError.
        """
        self._aside, self._also = aside, also
        self._lock = threading.Lock()
        self._waiting: deque[Path] = deque()
        self._current: Path | None = None
        self._is_at_work = self._is_closed = False

    def remove(self, folder: Path, prefix: str = "") -> None:
        """Let nothing stand there any more; what stood there is gone after a while. Until then its name begins with
        `prefix`. Raises OSError.
        """
        with self._lock:
            if self._aside.is_symlink() or not self._aside.is_dir():
                self._aside.unlink(missing_ok=True)  # a worker has put something else there
                self._aside.mkdir(mode=0o700)
            if not folder.is_symlink():
                folder.chmod(0o700)  # a worker may have closed it to its own user
            place = self._aside / f"{prefix}gone-{secrets.token_hex(8)}"
            folder.rename(place)
            self._waiting.append(place)
        self._go_on()

    def remove_rest(self) -> None:
        """Remove all that stands aside: what an earlier process left, and what could not be removed before."""
        with self._lock:
            self._waiting = deque(place for place in _inside(self._aside) if place != self._current)
        self._go_on()

    def close(self) -> None:
        """Begin with no further folder."""
        with self._lock:
            self._is_closed = True

    def _go_on(self) -> None:
        with self._lock:
            if self._is_at_work or self._is_closed or not self._waiting:
                return
            # No end of the process waits for it.
            thread = threading.Thread(target=self._work, name="remover of folders", daemon=True)
            with contextlib.suppress(RuntimeError):  # the system has no thread left: the next call tries again
                thread.start()
                self._is_at_work = True

    def _work(self) -> None:
        while (place := self._next()) is not None:
            with contextlib.suppress(OSError):  # something of it cannot be removed: `remove_rest` tries again
                if self._also is not None:
                    self._also(place.name)
                _remove(place)

    def _next(self) -> Path | None:
        with self._lock:
            is_over = self._is_closed or not self._waiting
            self._current = None if is_over else self._waiting.popleft()
            if is_over:
                self._is_at_work = False
                with contextlib.suppress(OSError):  # something could not be removed, or never stood there
                    self._aside.rmdir()
            return self._current


def _inside(folder: Path) -> list[Path]:
    """What stands in a folder; nothing where it is none itself, as links to others are not."""
    try:
        return [] if folder.is_symlink() else sorted(folder.iterdir())
    except OSError:
        return []


def _remove(place: Path) -> None:
    try:
        remove_tree(place)
    except NotADirectoryError:
        place.unlink()  # a worker has put a link in the place of its folder
