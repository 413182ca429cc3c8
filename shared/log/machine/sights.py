"""For how long something has stood behind a reader of a partition."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SIGHTS_MAX = 512


@dataclass(slots=True)
class Sights:
    """Where one partition ended, and when (monotonic) that was seen, the oldest first."""

    seen: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, end: int, now_ms: int) -> None:
        """The partition ends here now."""
        if not self.seen or self.seen[-1][0] < end:
            self.seen.append((end, now_ms))
        if len(self.seen) > SIGHTS_MAX:
            # A lag that lasts is told a little less exactly: every other sight behind the oldest is forgotten.
            self.seen = deque([self.seen[0], *list(self.seen)[2::2]])

    def behind_ms(self, cursor: int, now_ms: int) -> int:
        """For how long there has been something behind the cursor; 0 where there is nothing."""
        while self.seen and self.seen[0][0] <= cursor:
            self.seen.popleft()
        return now_ms - self.seen[0][1] if self.seen else 0
