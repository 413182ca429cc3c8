"""A reload puts a file in force that lay on the disk since it was sent, with its quotas and its policy."""

from __future__ import annotations

import json

from fallow.shared.events import effects as e
from fallow.simulator.history.books import Books
from fallow.simulator.history.evidence import Answer, CellEvidence
from fallow.simulator.history.rules.requests.rules_in_force import policy_in, quotas_in

FILE = "cell-file"
"""How a refusal names what a file says."""


class Reloads:
    """Those of one cell. Not judged where it is not known what lay on the disk."""

    def __init__(self, evidence: CellEvidence) -> None:
        self._on_disk = evidence.on_disk
        self._is_contradicted = False

    def behind(self, effect: e.AnyEffect) -> None:
        """The next effect is in the books."""
        if isinstance(effect, e.ProposalRefused) and effect.proposal == FILE:
            self._is_contradicted = True

    def is_in_force(self, reload: Answer, read_at: int | None, books: Books) -> bool:
        """Whether nothing is left to be done for this one, which was read by the decision of this moment. Where the
        cell has said that some of a file contradicts others, the rest of it is not looked at.
        """
        if not self._on_disk or reload.moment is None:
            return True
        if books.cell_file not in self._since(reload.moment, read_at):
            return False
        if _stands(books):
            self._is_contradicted = False
            return True
        return self._is_contradicted

    def _since(self, sent_at: int, read_at: int | None) -> list[str]:
        """What lay there at any moment between these."""
        ends = [moment for moment, _ in self._on_disk[1:]]
        return [
            content
            for (begin, content), end in zip(self._on_disk, [*ends, None], strict=True)
            if (end is None or end > sent_at) and (read_at is None or begin <= read_at)
        ]


def _stands(books: Books) -> bool:
    """Whether the books have the quotas and the policy of their newest file."""
    file = json.loads(books.cell_file)
    for account, wanted in quotas_in(file).items():
        quota = books.quotas.get(account)
        if quota is None or any(getattr(quota, name) != value for name, value in wanted.items()):
            return False
    return all(getattr(books.policy, name, None) == value for name, value in policy_in(file, books.cell).items())
