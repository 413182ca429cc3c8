"""For how long a node may work without being heard, and how often it makes itself heard."""

from __future__ import annotations

from shared.events.operations import CellPolicy

REPORTS_PER_LEASE = 3
"""A lease survives the loss of all but one of so many reports."""

SETTLE_MS_MOST = 2_000


def lease_allowed_ms(policy: CellPolicy) -> int:
    """How long a node works on without a confirmed report: less than its lease, by the margin."""
    lease_ms = policy.lease_wall_ms
    return lease_ms - min(policy.lease_margin_wall_ms, lease_ms // 2)


def settle_ms(policy: CellPolicy) -> int:
    """How long a node that is heard again waits before it begins anything: as long as placement may take to read that,
    or to have given it up before.
    """
    return min(policy.lease_margin_wall_ms, SETTLE_MS_MOST)


def report_every_ms(policy: CellPolicy, wanted_ms: int) -> int:
    """The time between two reports of a node: as wanted, or less where leases are short."""
    return max(1, min(wanted_ms, lease_allowed_ms(policy) // REPORTS_PER_LEASE))
