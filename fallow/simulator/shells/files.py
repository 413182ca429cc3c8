"""The port of the diaries' files onto a disk of the world."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext

from fallow.simulator.process import Process
from fallow.simulator.shells.log import Dead
from fallow.simulator.storage.disk import Folder, Stored
from fallow.simulator.trouble.faults import Fault

NO_LOCK = nullcontext()
"""Nothing else happens in the world while a process works on a file."""

SYNC_MS_MAX = 12


class WorldFiles:
    """One process's handle onto a disk. `end` is called when the process dies: from then on all is refused.

    A process may die in the middle of what it appends: then a part of it is there.
    """

    def __init__(self, process: Process, folder: Folder) -> None:
        self._process, self._folder = process, folder
        self._open: list[Stored | None] = []
        self._names: list[str] = []
        self.is_closed = False

    def end(self) -> None:
        """The process is dead."""
        self.is_closed = True

    def open(self, name: str, *, to_append: bool = False) -> int:  # noqa: ARG002 - files check the writer's rights
        """As the port says."""
        self._reach()
        self._open.append(self._folder.setdefault(name, Stored()))
        self._names.append(name)
        return len(self._open) - 1

    def close(self, file: int) -> None:
        """As the port says."""
        self._open[file] = None

    def locked(self, file: int) -> AbstractContextManager[None]:  # noqa: ARG002 - any
        """As the port says."""
        return NO_LOCK

    def read_begin(self, file: int, max_bytes: int) -> bytes:
        """As the port says."""
        return bytes(self._of(file).text[:max_bytes])

    def write_begin(self, file: int, text: bytes) -> None:
        """As the port says."""
        self._of(file).text[: len(text)] = text
        if self._folder is self._process.world.disk.folder:
            self._process.world.disk.took_reign(self._names[file])

    def append(self, file: int, text: bytes) -> None:
        """As the port says."""
        stored, world = self._of(file), self._process.world
        if world.faults.happens(Fault.TORN, self._process.name):
            text = text[: world.engine.between(0, len(text) - 1)]
            self._write(stored, text)
            self._process.dies()
        self._write(stored, text)

    async def sync(self, name: str, file: int) -> None:  # noqa: ARG002 - the number is enough here
        """As the port says. It takes a while."""
        stored = self._of(file)
        size_bytes = len(stored.text)
        await asyncio.sleep(self._process.world.engine.between(0, SYNC_MS_MAX) / 1_000)
        self._reach()
        stored.certain_bytes = max(stored.certain_bytes, size_bytes)

    def size_bytes(self, file: int) -> int:
        """As the port says."""
        return len(self._of(file).text)

    def read(self, name: str) -> bytes:
        """As the port says."""
        self._reach()
        stored = self._folder.get(name)
        return b"" if stored is None else bytes(stored.text)

    def cut(self, name: str, size_bytes: int) -> None:
        """As the port says."""
        self._reach()
        del self._folder[name].text[size_bytes:]

    def replace(self, name: str, text: bytes) -> None:
        """As the port says."""
        self._reach()
        process = self._process
        is_hit = process.world.faults.happens(Fault.TORN, process.name)
        if not is_hit or process.world.engine.between(0, 1):
            self._folder[name] = Stored(bytearray(text), len(text))
        if is_hit:
            process.dies()

    # Inside.

    def _reach(self) -> None:
        if self.is_closed:
            raise Dead(self._process.name)

    def _of(self, file: int) -> Stored:
        self._reach()
        stored = self._open[file]
        assert stored is not None, "a file that was closed is used no more"
        return stored

    def _write(self, stored: Stored, text: bytes) -> None:
        stored.text += text
        self._process.world.disk.wrote(self._process.name, text)
