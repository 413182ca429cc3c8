"""The writer loop as a state machine without I/O: decide under a checkpoint, append one record, learn what became of
it.

A writer decides on the folded state and applies its effects there at once, under a checkpoint. The record is in force
when the log gave it the offset right behind the state: then nobody came in between. In every other case the state goes
back to the checkpoint, and the shell folds forward and looks; the writer then decides anew, on the newer state.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.cluster.fold import seal
from shared.cluster.state import CellState
from shared.events.decisions import Decision, next_chain
from shared.events.effects import AnyEffect
from shared.events.encoding import encode


@dataclass(frozen=True, slots=True)
class Draft:
    """A decision whose effects are in the state already, but which is not in the log yet."""

    decision: Decision
    value: bytes
    chain: str


class Writer:
    """One writer of one cell. The order of calls is begin, then draft or abandon; after draft, appended or unknown."""

    def __init__(self, state: CellState) -> None:
        self.state = state
        self._mark: int | None = None
        self._draft: Draft | None = None

    def begin(self) -> None:
        """Open the checkpoint under which effects are tried."""
        assert self._mark is None, "a decision is open already"
        self._mark = self.state.checkpoint()

    def abandon(self) -> None:
        """Nothing is worth a record: undo what was tried."""
        assert self._mark is not None, "begin() comes first"
        assert self._draft is None, "what was drafted may be in the log"
        self.state.rollback(self._mark)
        self._mark = None

    def draft(self, effects: list[AnyEffect], inputs: dict[str, int], at_ms: int) -> Draft:
        """The record of what was tried since begin()."""
        assert self._mark is not None, "begin() comes first"
        state = self.state
        decision = Decision(
            cell=state.cell,
            version=state.version + 1,
            epoch=state.epoch,
            inputs=inputs,
            at_ms=max(at_ms, state.at_ms),
            effects=tuple(effects),
        )
        value = encode(decision)
        self._draft = Draft(decision, value, next_chain(state.chain, value))
        return self._draft

    def appended(self, offset: int) -> bool:
        """The log put the record at `offset`. Whether it is in force; if not, fold forward and decide anew."""
        draft = self._drafted()
        if offset != self.state.offset + 1:
            self._undo()
            return False
        assert self._mark is not None
        self.state.commit(self._mark)
        seal(self.state, draft.decision, draft.chain)
        self.state.offset = offset
        self._mark = self._draft = None
        return True

    def unknown(self) -> None:
        """The log did not say what became of the record. Fold forward and look: it may be there."""
        self._drafted()
        self._undo()

    def _drafted(self) -> Draft:
        assert self._draft is not None, "draft() comes first"
        return self._draft

    def _undo(self) -> None:
        assert self._mark is not None
        self.state.rollback(self._mark)
        self._mark = self._draft = None
