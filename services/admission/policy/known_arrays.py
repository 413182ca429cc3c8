"""How many elements the arrays have that one process has admitted: an update of one of them is one of each element.

A job's commands have one key, so they come to the process that admitted it. After a restart an array is unknown, and
counts as one job. An id keeps the most elements that it was ever admitted with: placement refuses the later ones of
that id, and a plain job that is sent under it makes no update of the array cheaper.
"""

from __future__ import annotations

ARRAYS_MAX = 100_000

Key = tuple[str, str, str]
"""The cell, tenant and id of an array."""


class KnownArrays:
    """The newest ones."""

    def __init__(self) -> None:
        self._elements: dict[Key, int] = {}
        self._of_batch: dict[Key, int] = {}

    def note(self, cell: str, tenant: str, job: str, elements: int) -> None:
        """An array of so many elements is admitted."""
        self._of_batch[cell, tenant, job] = max(elements, self.elements(cell, tenant, job))

    def elements(self, cell: str, tenant: str, job: str) -> int:
        """How many a job has; 1 where it is none that is known."""
        key = (cell, tenant, job)
        return self._of_batch.get(key) or self._elements.get(key, 1)

    def keep(self) -> None:
        """The batch before is answered, and another one begins, which may have to be handled again."""
        self._elements |= self._of_batch
        self._of_batch = {}
        while len(self._elements) > ARRAYS_MAX:
            del self._elements[next(iter(self._elements))]

    def back(self) -> None:
        """The batch is handled again: what came of it does not count."""
        self._of_batch = {}
