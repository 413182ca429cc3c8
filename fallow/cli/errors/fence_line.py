"""The warning to a reader of a fenced cell: what is shown may be history."""

from __future__ import annotations

from fallow.cli.errors.failures import say

WHAT_NEXT = "Run: fallow verify. What to do then: docs/reliability.md, section 3"


class FenceLine:
    """Says it once for each cell, however often a command reads."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, cell: str, version: int) -> None:
        """On standard error, since standard output belongs to the answer."""
        if cell not in self._said:
            self._said.add(cell)
            say(fence_line(cell, version))


def fence_line(cell: str, version: int) -> str:
    """That the cell stands still, and as of which version it is shown."""
    return (
        f"fallow: cell {cell} is fenced: its log lacks records or contradicts itself, so nothing goes on there. "
        f"The view is as of version {version}. {WHAT_NEXT}"
    )
