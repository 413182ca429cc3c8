"""The keys of a service, which lives for long: its cell file changes, and what it passes over is counted and told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.signers import Signers, keys_of_cells
from fallow.shared.runtime.files.cell_file import CellFileError, read_again
from fallow.shared.runtime.process import Context

FORGED = "passed over decisions that no key of the cell proves"


class ServiceSigners(Signers):
    """Of one process. The keys change with its cell file alone."""

    def __init__(self, context: Context[Any], file: CellFile) -> None:
        super().__init__(file)
        self._context, self._file = context, file
        # Of the file that was read last. Which one the process began with nobody knows: it may have changed since.
        self._mark: object = None
        self._reading = asyncio.Lock()

    async def renewed(self) -> bool:
        """As its class says: compared with the keys when it was asked, whoever reads them meanwhile. A file that cannot
        be used is told of, and changes nothing.
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
            self._file = await read_again(context, self._file)
        except CellFileError as error:
            context.logger.warning("the cell file has an error, the keys of before stay", reason=str(error))
        else:
            self._keys = keys_of_cells(self._file)
        self._mark = mark

    def skipped(self, cell: str, offsets: Sequence[int]) -> None:
        """Count them, and say where they begin: once for each place, as each is read once."""
        self._context.telemetry.forged_decisions.labels(cell).inc(len(offsets))
        self._context.logger.warning(FORGED, cell=cell, records=len(offsets), offset=offsets[0])
