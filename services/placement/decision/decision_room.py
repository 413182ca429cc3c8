"""How much the next decision may hold. While all goes well, that is as much as a record takes with ease.

A decision that cannot be written is made again with half of what it held, and so on, down to a single step: first what
is due by itself, then a single input. What cannot be written even then is the culprit. From there on the room doubles
with each decision that goes well.

A decision that raises an error is made again with half of the words that it took in, down to a single one, and then
with none. That one is the culprit with which the decision raises, and without which it does not. The walk behind the
inputs is made each time: an error of it may come from what was just taken in.
"""

from __future__ import annotations

from fallow.services.placement.decision.decision import BYTES_MAX, ONE_STEP

_LEAST_BYTES = 2_000
"""Below this a decision is made step by step."""

_ALL = 1 << 30

_WITHOUT_MAX = 8
"""So many decisions at most are made without inputs until the walk has come to its end: inputs must not wait for it
for ever.
"""


class DecisionRoom:
    """The room of one writer's next decision."""

    def __init__(self, size_bytes: int | None = None) -> None:
        """Of a writer that begins with so much, all that there may be if None: what the log has taken does not change
        with the writer.
        """
        self.bytes = BYTES_MAX if size_bytes is None else size_bytes
        self._words_max = _ALL
        self._looks_at_what_is_due = False
        self._without_left = 0
        self.has_done_without = False
        """Whether the decision before this one took in nothing, and went well."""

    @property
    def is_one_step(self) -> bool:
        """Whether it holds a single step: one input, or one thing that is due by itself."""
        return self.bytes == ONE_STEP

    @property
    def takes_inputs(self) -> bool:
        """Whether inputs are taken in, and not only what is due by itself."""
        return not self._looks_at_what_is_due

    @property
    def is_narrow(self) -> bool:
        """Whether it takes in less than all."""
        return self.words_max < _ALL

    @property
    def words_max(self) -> int:
        """How many words it takes in: an input has one, or as many as jobs, runs or nodes."""
        return 1 if self.is_one_step else self._words_max

    def narrow(self, size_bytes: int) -> None:
        """The decision of this size cannot be written."""
        half = min(self.bytes, size_bytes) // 2
        self.bytes = half if half >= _LEAST_BYTES else ONE_STEP
        self._looks_at_what_is_due, self._without_left = self.is_one_step, 0

    def narrow_words(self, words: int) -> None:
        """The decision that took in so many words raises an error."""
        self._words_max = max(1, words // 2)
        self._looks_at_what_is_due, self._without_left = words == 1, _WITHOUT_MAX

    def went_well(self, *, walk_goes_on: bool) -> None:
        """A decision is in force, or nothing came of it."""
        if self._looks_at_what_is_due:
            self._without_left -= 1
            self._looks_at_what_is_due = walk_goes_on and self._without_left > 0
            self.has_done_without = not self._looks_at_what_is_due
            return
        self.has_done_without = False
        self._words_max = min(_ALL, 2 * self._words_max)
        if self.bytes < BYTES_MAX:
            self.bytes = min(BYTES_MAX, max(_LEAST_BYTES, 2 * self.bytes))
