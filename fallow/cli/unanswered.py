"""What is told of a command that the cell has not answered in time: it may lie behind a topic that nobody reads on."""

from __future__ import annotations

from collections.abc import Collection


def unanswered(about: str) -> str:
    """The line of one job, node or other thing that a command was about."""
    return f"no answer yet about {about}; the request is on its way. If none comes: is placement ready (`/readyz`)?"


def first_of(names: Collection[str]) -> str:
    """The first of these, and how many more there are."""
    first = next(iter(names))
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"
