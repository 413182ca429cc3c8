"""The keys of a service, which lives for long: its cell file changes, and what it passes over is counted and told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.keys.signers import Signers, keys_of_cells
from fallow.shared.runtime.files.cell_file import CellFileError, MistakeIn, no_mistake_in, read_again
from fallow.shared.runtime.process import Context

SAID_EVERY_MS = 60_000
"""Without this bound any writer of the topic could fill the disks of all logs."""

FORGED = "passed over decisions that no key of the cell proves"


class ServiceSigners(Signers):
    """Of one process. The keys change with its cell file alone; one that it refuses changes none of them."""

    def __init__(self, context: Context[Any], file: CellFile, mistake_in: MistakeIn = no_mistake_in) -> None:
        super().__init__(file)
        self._context, self._file, self._mistake_in = context, file, mistake_in
        # Of the file that was read last. Which one the process began with is not known: it may have changed since.
        self._mark: object = None
        self._reading = asyncio.Lock()
        # By cell: when it was said last, and what came since: how many records, and where they begin.
        self._said_ms: dict[str, int] = {}
        self._unsaid: dict[str, tuple[int, int]] = {}

    async def renewed(self) -> bool:
        """As its class says: compared with the keys of the moment of the call, also where another task reads them
        meanwhile. A file that cannot be used, or is refused, is told of, and changes nothing.
        """
        before = self._keys
        async with self._reading:
            await self._read_if_changed()
        return before != self._keys

    async def _read_if_changed(self) -> None:
        """The mark is of before the reading and kept after it: a change meanwhile, or a cancel, has it read again."""
        context = self._context
        mark = context.host.cell_file_mark(context.settings.cell_file)
        if mark in (None, self._mark):
            return
        try:
            self.go_by(await read_again(context, self._file, self._mistake_in))
        except CellFileError as error:
            context.logger.warning("the cell file has an error, the keys of before stay", reason=str(error))
        self._mark = mark

    def go_by(self, file: CellFile) -> None:
        """The keys of this file count from now on."""
        self._file, self._keys = file, keys_of_cells(file)

    def skipped(self, cell: str, offsets: Sequence[int]) -> None:
        """Count them, and say how many came and where they begin: of each cell at most once in `SAID_EVERY_MS`, then
        with all that came since it was said last.
        """
        self._context.telemetry.forged_decisions.labels(cell).inc(len(offsets))
        count, first = self._unsaid.get(cell, (0, offsets[0]))
        self._unsaid[cell] = count + len(offsets), first
        now_ms = self._context.host.monotonic_ms()
        if now_ms - self._said_ms.get(cell, now_ms - SAID_EVERY_MS) < SAID_EVERY_MS:
            return
        count, first = self._unsaid.pop(cell)
        self._said_ms[cell] = now_ms
        self._context.logger.warning(FORGED, cell=cell, records=count, offset=first)
