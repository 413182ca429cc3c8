"""What a command says of decisions that it passes over because no key of their cell proves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fallow.cli.errors.failures import say
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.keys.signers import Signers

SAID_MAX = 5
"""At most so many are listed: every user with the right to write the topic can write any number of them."""

Places = dict[tuple[str, int], None]
"""Cells and offsets of which it was said: a command may read a log more than once."""


class TellingSigners(Signers):
    """The keys of the cell file of a command, which says what they do not prove: once for each place. Behind the first
    it says what that means: whatever the command tells, it tells without them.
    """

    def __init__(self, file: CellFile, path: Path, said: Places) -> None:
        super().__init__(file)
        self._path, self._said = path, said

    def skipped(self, cell: str, offsets: Sequence[int]) -> None:
        """Say where they stand; of many, the first few."""
        for offset in offsets:
            if (cell, offset) in self._said or len(self._said) > SAID_MAX:
                continue
            is_first = not self._said
            self._said[cell, offset] = None
            if len(self._said) > SAID_MAX:
                say("fallow: passed over more of them: `fallow verify` counts them")
            else:
                say(f"fallow: cell {cell}, offset {offset}: no key of the cell proves this record, it is passed over")
            if is_first:
                what = "What such records decided is not told here, and they may come from a writer outside the cell"
                lacks = f"If the services of the cell believe them, {self._path} lacks a key in signing.keys"
                rule = "or its from_version is too early: give the command the cell file in force (--cell-file)"
                say(f"fallow: {what}. {lacks}, {rule}")
