"""The keys of a service, which lives for long: its cell file changes, and what it passes over is counted and told."""

from __future__ import annotations

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
        self._mark = context.host.cell_file_mark(context.settings.cell_file)

    async def renewed(self) -> bool:
        """As its class says. A file that cannot be used is told of, and changes nothing."""
        mark = self._context.host.cell_file_mark(self._context.settings.cell_file)
        if mark in (None, self._mark):
            return False
        self._mark = mark
        try:
            file = await read_again(self._context, self._file)
        except CellFileError as error:
            self._context.logger.warning("the cell file has an error, the keys of before stay", reason=str(error))
            return False
        before = {cell.name: cell.signing for cell in self._file.cells}
        self._file, self._keys = file, keys_of_cells(file)
        return before != {cell.name: cell.signing for cell in file.cells}

    def skipped(self, cell: str, offsets: Sequence[int]) -> None:
        """Count them, and say where they begin: once for each place, as each is read once."""
        self._context.telemetry.forged_decisions.labels(cell).inc(len(offsets))
        self._context.logger.warning(FORGED, cell=cell, records=len(offsets), offset=offsets[0])
