"""How soon a group notices that a member is gone."""

from __future__ import annotations

from dataclasses import dataclass

METADATA_AGE_MS = 10_000
"""So long a topic that was deleted and made anew may stay unread: the group leaves out what is not there, and asks what
is there so often. Each time is one small request.
"""


@dataclass(frozen=True, slots=True)
class GroupTimers:
    """`session_ms`: a silent member is replaced after this long; `heartbeat_ms`: how often a member speaks up."""

    session_ms: int
    heartbeat_ms: int

    def __post_init__(self) -> None:
        """Two lost heartbeats in a row must not cost a membership."""
        if not 0 < 3 * self.heartbeat_ms <= self.session_ms:
            raise ValueError(
                f"heartbeat_ms: {self.heartbeat_ms}, must be at most a third of session_ms {self.session_ms}"
            )


QUICK = GroupTimers(session_ms=1_500, heartbeat_ms=300)
"""For a real broker, which must allow it: group.min.session.timeout.ms at most 1,000."""

EMBEDDED = GroupTimers(session_ms=9_000, heartbeat_ms=1_000)
"""For the embedded broker: it holds a first member back for 3 s and would meanwhile take it for dead."""
