"""Which cell file a writer goes by: the newest one that was put in force, which the log holds.

A process reads its file when it starts and at a reload. Where the log has put another one in force since then, that one
is newer. Where it has not, the process's own is: it was changed before the process started, and is put in force when
the process takes the cell over. What an earlier release accepted is read, whatever bound has come since. A file in
force that this release cannot read stays there: a newer release wrote it, and goes by it again when it writes the cell.
Until a person reloads the cell, this process puts nothing over it.
"""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import as_effect, difference, from_effect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.effects import CellFileSet


class FileInForce:
    """One process's file and the log's."""

    def __init__(self, file: CellFile, state: CellState) -> None:
        """The file was read when the log was folded to this state."""
        self._own = as_effect(file)
        self._read_behind = state.cell_files
        self._contradiction = ""
        self._read: tuple[str, CellFile | None] = ("", None)
        self._reloaded_behind: int | None = None
        self.yields = False
        """Whether the file in force cannot be read here, and stays."""

    def until_now(self, state: CellState) -> CellFile | None:
        """The file that the log has in force; None where it has none, or one that this release cannot read."""
        effect = state.cell_file
        if effect is None:
            return None
        if self._read[0] != effect.digest:
            try:
                self._read = (effect.digest, from_effect(effect))
            except ValueError:
                self._read = (effect.digest, None)
        return self._read[1]

    def reloaded(self, file: CellFile, behind: int) -> None:
        """This file, which was read again when the log had put so many in force, is to be put in force."""
        self._own, self._read_behind = as_effect(file), behind
        self._reloaded_behind, self.yields = behind, False

    def taken_over(self, file: CellFile, state: CellState) -> CellFile:
        """The file to go by from now on. `file` is the one that the process went by so far."""
        in_force, self.yields = state.cell_file, False
        if in_force is None or in_force.digest == self._own.digest:
            return file
        if state.cell_files == self._reloaded_behind:
            return file
        try:
            theirs = _file_of(in_force, state.cell)
        except ValueError as error:
            self.yields = True
            self._contradiction = (
                f"cell file {in_force.digest[:8]} is in force and cannot be read here ({error}), so it stays, and this "
                f"process decides by {self._own.digest[:8]} without putting it in force; a reload would"
            )
            return file
        if state.cell_files == self._read_behind:
            return file
        self._contradiction = (
            f"cell file {in_force.digest[:8]} is in force; the one read here, {self._own.digest[:8]}, is older and "
            f"differs in {difference(file, theirs, state.cell)}: it counts only after a reload"
        )
        self._own, self._read_behind = in_force, state.cell_files
        return theirs

    def put(self, decision: DecisionBuilder) -> None:
        """Put the file that the process goes by in force, where it is not and the record has room for it."""
        if self.is_to_be_put(decision.state) and decision.takes(len(encode(self._own))):
            decision.emit(self._own)

    def is_to_be_put(self, state: CellState) -> bool:
        """Whether the file that the process goes by is not in force yet, and shall be."""
        return not self.yields and _digest(state.cell_file) != self._own.digest

    def take_contradiction(self) -> str:
        """What is to be told, once."""
        told, self._contradiction = self._contradiction, ""
        return told


def _file_of(effect: CellFileSet, cell: str) -> CellFile:
    """The file of this effect, in which the cell stands. Raises ValueError with field, value and rule."""
    file = from_effect(effect)
    if all(each.name != cell for each in file.cells):
        raise ValueError(f"cells: none of them is {cell}")
    return file


def _digest(effect: CellFileSet | None) -> str:
    return "" if effect is None else effect.digest
