"""The key with which this process signs its decisions, and whether the readers of a cell believe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.writer import Sign
from fallow.shared.runtime.process import Context

if TYPE_CHECKING:
    from fallow.shared.log.keys.ed25519 import SigningKey

UNSIGNED = "decisions are not signed: the cell file names no keys"


class Signing:
    """Of one cell. It has keys or none, as the cell file says that the process accepted last."""

    def __init__(self, layout: Layout, cell: str, settings: PlacementSettings) -> None:
        self._signers, self._cell, self._file = layout.signers, cell, settings.cell_file
        self._key = _key_of(settings)

    async def renew(self) -> None:
        """Read the cell's keys again, where the file has changed and the process does not refuse it."""
        await self._signers.renewed()

    def go_by(self, file: CellFile) -> None:
        """The writer has accepted this file."""
        self._signers.go_by(file)

    def why_not(self) -> str | None:
        """Why readers would pass over what this process writes; None where they would not."""
        keys = self._signers.of(self._cell)
        if keys is None:
            return None
        if self._key is None:
            return f"{self._file} names keys for cell {self._cell}, and this process has none: see FALLOW_SIGNING_KEY"
        if not keys.may_write(self._key.public):
            return f"{self._file} does not name {self._key.public}, the key of this process, for cell {self._cell}"
        return None

    @property
    def sign(self) -> Sign | None:
        """What signs a chain; None where the cell has no keys."""
        is_signed = self._key is not None and self._signers.of(self._cell) is not None
        return self._key.sign if is_signed and self._key is not None else None


def tell_of_unsigned(context: Context[PlacementSettings], file: CellFile) -> None:
    """In one line, at the start of the process."""
    unsigned = [cell.name for cell in file.cells if cell.signing is None]
    if unsigned:
        context.logger.info(UNSIGNED, cells=unsigned)


def _key_of(settings: PlacementSettings) -> SigningKey | None:
    text = settings.signing_key.get_secret_value()
    if not text:
        return None
    from fallow.shared.log.keys.ed25519 import SigningKey  # noqa: PLC0415 - megabytes, which no cell without keys needs

    return SigningKey.read(text)
