"""How much the next decision may hold. While all goes well, that is as much as a record takes with ease.

A decision that cannot be written is made again with half of what it held, and so on, down to a single step: first what
is due by itself, then a single input. What cannot be written even then is the culprit. From there on the room doubles
with each decision that goes well.
"""

from __future__ import annotations

from services.placement.policy.turn import BYTES_MOST, ONE_STEP

_LEAST_BYTES = 2_000
"""Below this a decision is made step by step."""

_ALL = 1 << 30


class Room:
    """The room of one writer's next decision."""

    def __init__(self) -> None:
        self.bytes = BYTES_MOST
        self._looks_at_what_is_due = False

    @property
    def is_one_step(self) -> bool:
        """Whether it holds a single step: one input, or one thing that is due by itself."""
        return self.bytes == ONE_STEP

    @property
    def takes_inputs(self) -> bool:
        """Whether inputs are taken in, and not only what is due by itself."""
        return not self._looks_at_what_is_due

    @property
    def inputs_most(self) -> int:
        """How many inputs it takes in."""
        return 1 if self.is_one_step else _ALL

    def narrow(self, size_bytes: int) -> None:
        """The decision of this size cannot be written."""
        half = min(self.bytes, size_bytes) // 2
        self.bytes = half if half >= _LEAST_BYTES else ONE_STEP
        self._looks_at_what_is_due = self.is_one_step

    def went_well(self) -> None:
        """A decision is in force, or nothing came of it."""
        if self._looks_at_what_is_due:
            self._looks_at_what_is_due = False
        elif self.bytes < BYTES_MOST:
            self.bytes = min(BYTES_MOST, max(_LEAST_BYTES, 2 * self.bytes))
