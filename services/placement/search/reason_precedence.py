"""The kinds of reasons for which a job waits, and which of several is told first."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeGuard

from shared.events.reasons import DeferCode


class ReasonKind(StrEnum):
    """From what only a person can change to what passes by itself."""

    STRUCTURAL = "structural"
    QUOTA = "quota"
    CAPACITY = "capacity"
    TOPOLOGY = "topology"
    POLICY = "policy"


PRECEDENCE: Final[dict[DeferCode, ReasonKind]] = {
    DeferCode.NO_SUCH_NODES: ReasonKind.STRUCTURAL,
    DeferCode.RECORD_TOO_LARGE: ReasonKind.STRUCTURAL,
    DeferCode.QUOTA_REACHED: ReasonKind.QUOTA,
    DeferCode.NO_FREE_GPUS: ReasonKind.CAPACITY,
    DeferCode.FRAGMENTED: ReasonKind.CAPACITY,
    DeferCode.UNACKNOWLEDGED: ReasonKind.CAPACITY,
    DeferCode.NODES_SILENT: ReasonKind.CAPACITY,
    DeferCode.TOPOLOGY: ReasonKind.TOPOLOGY,
    DeferCode.RESERVED_FOR_OTHER: ReasonKind.POLICY,
    DeferCode.BEHIND_HEAD: ReasonKind.POLICY,
    DeferCode.BACKOFF: ReasonKind.POLICY,
    DeferCode.MAINTENANCE: ReasonKind.POLICY,
    DeferCode.NOT_BEFORE: ReasonKind.POLICY,
    DeferCode.AFTER: ReasonKind.POLICY,
    DeferCode.ARRAY_LIMIT: ReasonKind.POLICY,
    DeferCode.HELD: ReasonKind.POLICY,
}
"""Every code with its kind, the first to be told first."""

STRUCTURAL: Final = frozenset(code for code, kind in PRECEDENCE.items() if kind is ReasonKind.STRUCTURAL)
"""What waits for another cluster, and for no room: such a job blocks no other job, in any queue."""

OF_QUOTA: Final = frozenset(code for code, kind in PRECEDENCE.items() if kind is ReasonKind.QUOTA)


def is_of_quota(code: DeferCode | None) -> TypeGuard[DeferCode]:
    """Whether a quota keeps the job off: such a job waits for what others of a tenant give back, or for good."""
    return code in OF_QUOTA


OVER_IN_LINE: Final = (None, DeferCode.NOT_BEFORE, DeferCode.AFTER, DeferCode.BACKOFF, DeferCode.HELD)
"""Reasons that are over for a job that stands in a line."""
