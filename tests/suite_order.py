"""In which order tests begin where several processes run them, so that no core is idle while tests wait.

A process takes the next file when it is done with one. Files that need a server wait for much, and come one by one
between those that compute. None of them is among the last, at whose end the other processes have nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

LAST_PART = 5
"""One in so many of the files that compute comes behind all that wait."""


def spread(waiting: Sequence[T], computing: Sequence[T]) -> list[T]:
    """Both in their own order; those that wait stand evenly among the others but for the last part of these."""
    between = len(computing) - -(-len(computing) // LAST_PART)
    found = list[T]()
    for number, each in enumerate(computing):
        begun = -(-len(waiting) * (number + 1) // between) if number < between else len(waiting)
        found += waiting[len(found) - number : begun]
        found.append(each)
    return found + list(waiting[len(found) - len(computing) :])
