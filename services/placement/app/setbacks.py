"""Retry and give-up rules for failed appends: pauses, and in the end another writer.

An append without an answer, and one that the log refuses for good, are no reason to decide at once again: the next one
would fare the same, hundreds of times a second.
"""

from __future__ import annotations

from fallow.shared.log.port import AppendRefused, AppendUnknown, LogRefused, LogUnavailable
from fallow.shared.runtime.tasks.backoff import BackOff

FIRST_S, MAX_S = 0.1, 2.0
REFUSED_MAX = 5
"""After so many refusals in a row another process may try: about three seconds."""

UNANSWERED_MAX = 20
"""After so many appends without an answer in a row, too: half a minute at least. This process may be the only one that
does not reach the leader of the partition.
"""

AWAY_FIRST_S, AWAY_MAX_S = 30.0, 600.0
"""For so long a process declines a cell that it cannot write: longer each time, until it has written it again."""


class CannotWrite(Exception):
    """What this process writes does not get into the log of its cell, time after time."""


class Setbacks:
    """The failures of one cell's writer since its last success."""

    def __init__(self, pause: BackOff, away: BackOff) -> None:
        """`pause` lies between two tries, `away` between giving the cell up and taking it again."""
        self._refused = self._unanswered = 0
        self._pause, self._away = pause, away
        self.is_append_refused = False
        """Whether an append was refused for good, and none was taken since."""

    @property
    def is_serious(self) -> bool:
        """Whether readiness should fail: a single append without an answer is nothing yet."""
        return bool(self._refused) or self._unanswered > 1

    def failed(self, why: AppendUnknown | AppendRefused | LogUnavailable) -> float:
        """How long to wait before the next try, in seconds. Raises CannotWrite where there is to be none."""
        if isinstance(why, AppendRefused | LogRefused):
            self._refused += 1
            self.is_append_refused |= isinstance(why, AppendRefused)
        elif isinstance(why, AppendUnknown):
            self._unanswered += 1
        if self._refused >= REFUSED_MAX or self._unanswered >= UNANSWERED_MAX:
            times = f"{self._refused} refused, {self._unanswered} without an answer"
            self._refused = self._unanswered = 0
            raise CannotWrite(f"{why if isinstance(why, Exception) else why.reason} ({times} in a row)")
        return self._pause.next_s()

    def away_s(self) -> float:
        """For how long to leave the cell to others."""
        return self._away.next_s()

    def log_answers(self) -> None:
        """The log can be read: whether it can be written is another matter."""
        self._pause.reset()

    def append_taken(self) -> None:
        """The log takes records again."""
        self.is_append_refused = False

    def succeeded(self) -> None:
        """What was decided is in the log, and so are the dead letters before it."""
        self._refused = self._unanswered = 0
        self.is_append_refused = False
        self._pause.reset()
        self._away.reset()
