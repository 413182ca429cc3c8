"""How many elements the arrays have that one process has admitted: an update of one of them is one of each element.

A job's commands have one key, so they come to the process that admitted it. After a restart an array is unknown, and
counts as one job. An array that placement then refuses is known all the same, until its id is admitted anew.
"""

from __future__ import annotations

ARRAYS_MOST = 100_000


class KnownArrays:
    """The newest ones."""

    def __init__(self) -> None:
        self._elements: dict[tuple[str, str, str], int] = {}

    def note(self, cell: str, tenant: str, job: str, elements: int | None) -> None:
        """This job is admitted: an array of so many elements, or a plain job."""
        if elements is not None:
            self._elements[cell, tenant, job] = elements
        elif self._elements:
            self._elements.pop((cell, tenant, job), None)
        if len(self._elements) > ARRAYS_MOST:
            del self._elements[next(iter(self._elements))]

    def elements(self, cell: str, tenant: str, job: str) -> int:
        """How many a job has; 1 where it is none that is known."""
        return self._elements.get((cell, tenant, job), 1)
