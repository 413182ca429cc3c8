"""What a command says of decisions that it passes over because no key of their cell proves them."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.cli.failures import say
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.signers import Signers

SAID_MOST = 5
"""Whoever may write the topic writes as many as he likes."""


class TellingSigners(Signers):
    """The keys of the cell file of a command, which says what they do not prove: once for each place."""

    def __init__(self, file: CellFile) -> None:
        super().__init__(file)
        self._places = dict[tuple[str, int], None]()

    def skipped(self, cell: str, offsets: Sequence[int]) -> None:
        """Say where they stand; of many, the first few."""
        for offset in offsets:
            if (cell, offset) in self._places or len(self._places) > SAID_MOST:
                continue
            self._places[cell, offset] = None
            if len(self._places) > SAID_MOST:
                say("fallow: passed over more of them: `fallow verify` counts them")
            else:
                say(f"fallow: cell {cell}, offset {offset}: no key of the cell proves this record, it is passed over")
