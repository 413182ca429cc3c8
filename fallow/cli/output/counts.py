"""Numbers of things as people write them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `1,000 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def first_named(names: Sequence[str], most: int, unnamed: int = 0) -> str:
    """The first names and how many more there are, with the `unnamed` ones: `a, b, c and 2 more`."""
    more = max(0, len(names) - most) + unnamed
    first = ", ".join(names[:most])
    return f"{first} and {more:,} more" if more > 0 else first
