"""Tells in the log of the process what of its cell file is not in force: as a process starts, no command waits for an
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fallow.shared.cluster.fold.fold import LogRecord
from fallow.shared.cluster.model.file_in_force import refuses_file
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import AnyEffect, ProposalRefused
from fallow.shared.log.machine.writer import Draft
from fallow.shared.runtime.process import Context

NOT_AS_FILED = "the cell does not go by its cell file in all that the file says"


class FileWarnings:
    """Those of one cell's decisions that this process has made, each told once it is in force."""

    def __init__(self, context: Context[Any], cell: str) -> None:
        self._context, self._cell = context, cell
        self._unanswered: dict[str, Draft] = {}
        """By its chain each decision whose append had no answer: it may be in the log all the same."""

    def in_force(self, draft: Draft) -> None:
        """The log has taken this decision, so no earlier one without an answer can come into force any more."""
        self._unanswered.clear()
        for text in _refused(draft.decision.effects):
            self._context.logger.warning(NOT_AS_FILED, cell=self._cell, reason=text)

    def unanswered(self, draft: Draft) -> None:
        """The append of this decision had no answer."""
        if _refused(draft.decision.effects):
            self._unanswered[draft.chain] = draft

    def before_fold(self, state: CellState, record: LogRecord) -> None:
        """This record is about to be folded: perhaps it is one that had no answer, and stands where it was to be."""
        draft = self._unanswered.get(record.chain)
        if draft is not None and draft.before == state.chain:
            self.in_force(draft)


def _refused(effects: Sequence[AnyEffect]) -> list[str]:
    """Why parts of the cell file are not in force by these effects."""
    return [effect.text for effect in effects if isinstance(effect, ProposalRefused) and refuses_file(effect)]
