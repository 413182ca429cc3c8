"""What looks for places cost: counted, since who looks has no clock."""

from __future__ import annotations


class Effort:
    """How many nodes were looked at one by one so far, in all pools of a cell. What takes longer for each node counts
    each as several. `comparisons` is how often a job was held against a head, to find out whether they compete; to ask
    for heads counts as several.
    """

    __slots__ = ("comparisons", "looks")

    def __init__(self) -> None:
        self.looks = self.comparisons = 0
