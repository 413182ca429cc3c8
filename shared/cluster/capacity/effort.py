"""What looks for places cost: counted, since who looks has no clock."""

from __future__ import annotations


class Effort:
    """How many nodes were looked at one by one so far, in all pools of a cell. What takes longer for each node counts
    each as several.
    """

    __slots__ = ("looks",)

    def __init__(self) -> None:
        self.looks = 0
