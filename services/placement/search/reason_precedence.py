"""The kinds of reasons for which a job waits, and which of several is told first."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeGuard

from fallow.shared.events.reasons import PendingReason


class ReasonKind(StrEnum):
    """From what only a person can change to what passes by itself."""

    STRUCTURAL = "structural"
    QUOTA = "quota"
    CAPACITY = "capacity"
    TOPOLOGY = "topology"
    POLICY = "policy"


PRECEDENCE: Final[dict[PendingReason, ReasonKind]] = {
    PendingReason.NO_SUCH_NODES: ReasonKind.STRUCTURAL,
    PendingReason.RECORD_TOO_LARGE: ReasonKind.STRUCTURAL,
    PendingReason.QUOTA_REACHED: ReasonKind.QUOTA,
    PendingReason.NO_FREE_GPUS: ReasonKind.CAPACITY,
    PendingReason.FRAGMENTED: ReasonKind.CAPACITY,
    PendingReason.UNACKNOWLEDGED: ReasonKind.CAPACITY,
    PendingReason.NODES_SILENT: ReasonKind.CAPACITY,
    PendingReason.TOPOLOGY: ReasonKind.TOPOLOGY,
    PendingReason.RESERVED_FOR_OTHER: ReasonKind.POLICY,
    PendingReason.BEHIND_HEAD: ReasonKind.POLICY,
    PendingReason.MAKING_ROOM: ReasonKind.POLICY,
    PendingReason.BACKOFF: ReasonKind.POLICY,
    PendingReason.MAINTENANCE: ReasonKind.POLICY,
    PendingReason.NOT_BEFORE: ReasonKind.POLICY,
    PendingReason.AFTER: ReasonKind.POLICY,
    PendingReason.ARRAY_LIMIT: ReasonKind.POLICY,
    PendingReason.HELD: ReasonKind.POLICY,
}
"""Every code with its kind, the first to be told first."""

STRUCTURAL: Final = frozenset(code for code, kind in PRECEDENCE.items() if kind is ReasonKind.STRUCTURAL)
"""What waits for another cluster, and for no room: such a job blocks no other job, in any queue."""

OF_QUOTA: Final = frozenset(code for code, kind in PRECEDENCE.items() if kind is ReasonKind.QUOTA)


def is_of_quota(code: PendingReason | None) -> TypeGuard[PendingReason]:
    """Whether a quota keeps the job off: such a job waits for what others of a tenant give back, or for good."""
    return code in OF_QUOTA


OVER_IN_LINE: Final = (
    None,
    PendingReason.NOT_BEFORE,
    PendingReason.AFTER,
    PendingReason.BACKOFF,
    PendingReason.HELD,
    PendingReason.MAKING_ROOM,
)
"""Reasons that are over for a job that stands in a line."""
