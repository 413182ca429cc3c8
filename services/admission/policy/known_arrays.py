"""How many elements the arrays have that one process has admitted: what concerns one of them concerns each element.

A job's commands have one key, so they come to the process that admitted it. After a restart an array is unknown, and
counts as one job.
"""

from __future__ import annotations

ARRAYS_MOST = 100_000


class KnownArrays:
    """The newest ones."""

    def __init__(self) -> None:
        self._elements: dict[tuple[str, str], int] = {}

    def note(self, tenant: str, job: str, elements: int) -> None:
        """This array is admitted."""
        self._elements[tenant, job] = elements
        if len(self._elements) > ARRAYS_MOST:
            del self._elements[next(iter(self._elements))]

    def elements(self, tenant: str, job: str) -> int:
        """How many a job has; 1 where it is none that is known."""
        return self._elements.get((tenant, job), 1)
