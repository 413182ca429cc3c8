"""What time it is at the broker, as far as its stamps tell: pure, between two stamps by monotonic time."""

from __future__ import annotations


class BrokerClock:
    """All times in milliseconds. At the monotonic time `_at_ms` the broker's is between `_low_ms` and `_high_ms`;
    from there both go on with monotonic time.
    """

    def __init__(self) -> None:
        self._low_ms = self._high_ms = self._at_ms = 0
        self._is_known = False

    def stamped(self, stamped_ms: int, sent_ms: int, answered_ms: int) -> None:
        """The broker stamped a record between these two monotonic times."""
        self._low_ms, self._high_ms = stamped_ms, stamped_ms + answered_ms - sent_ms
        self._at_ms, self._is_known = answered_ms, True

    def ahead_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """How far this machine's wall clock is ahead of the broker's at least; negative where it is behind. 0 while
        nothing is known.
        """
        passed_ms = monotonic_ms - self._at_ms
        if not self._is_known:
            return 0
        return max(0, wall_ms - self._high_ms - passed_ms) + min(0, wall_ms - self._low_ms - passed_ms)
