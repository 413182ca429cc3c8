"""For how long a node may work without being heard, and how often it makes itself heard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from shared.cluster.lease import TellsLease, longest_patience_ms
from shared.cluster.state import CellState
from shared.events.nodes import LivingNode
from shared.events.operations import CellPolicy

REPORTS_PER_LEASE = 3
"""A lease survives the loss of all but one of so many reports."""

SETTLE_MS_MOST = 2_000


class KeptLease(NamedTuple):
    """What an agent leaves of its lease to the next one: when it was renewed and when it is over (monotonic)."""

    renewed_ms: int
    until_ms: int


@dataclass(slots=True)
class Lease:
    """One node's lease, as its words have told it; all times are monotonic.

    The cell goes by the newest word that is in the log. A node does not know at once which one that is: it may work
    only as long as each of them allows, from `renewed_ms`, the last of which it knows, on. That one allows `granted_ms`
    (None: nothing was told yet, so the policy counts), and those that tell of a shorter lease and may be there too
    allow no more than until `at_most_ms`; the last of them was made at `shortened_ms`.
    """

    renewed_ms: int
    granted_ms: int | None = None
    at_most_ms: int | None = None
    shortened_ms: int = 0

    def until_ms(self, policy_allows_ms: int) -> int:
        """Until when the node may work."""
        until_ms = self.renewed_ms + (policy_allows_ms if self.granted_ms is None else self.granted_ms)
        return until_ms if self.at_most_ms is None else min(until_ms, self.at_most_ms)

    def tell(self, made_ms: int, allowed_ms: int) -> None:
        """A word that is made now tells of a lease that allows so much. A longer one counts when it has arrived."""
        if self.granted_ms is None or allowed_ms < self.granted_ms:
            until_ms = made_ms + allowed_ms
            self.at_most_ms = until_ms if self.at_most_ms is None else min(self.at_most_ms, until_ms)
            self.shortened_ms = made_ms

    def renew(self, made_ms: int, told_ms: int | None = None) -> None:
        """What was made at `made_ms` has arrived, and told of a lease that allows `told_ms`."""
        if made_ms >= self.renewed_ms and told_ms is not None:
            self.granted_ms = told_ms
        if made_ms >= self.shortened_ms:
            self.at_most_ms = None
        self.renewed_ms = max(self.renewed_ms, made_ms)


def lease_allowed_ms(told: TellsLease) -> int:
    """How long a node works on without a confirmed report: less than its lease, by the margin."""
    lease_ms = told.lease_wall_ms
    return lease_ms - min(told.lease_margin_wall_ms, lease_ms // 2)


def gone_on_with(kept: KeptLease, state: CellState) -> Lease:
    """The lease of an agent before this one; it is no longer than the longest that any node was told."""
    return Lease(kept.renewed_ms, min(kept.until_ms - kept.renewed_ms, longest_patience_ms(state)))


def told_ms(word: LivingNode) -> int | None:
    """How long the node may work on after this word of it, as it tells; None: it tells nothing."""
    return lease_allowed_ms(word) if word.lease_wall_ms else None


def settle_ms(policy: CellPolicy) -> int:
    """How long a node that is heard again waits before it begins anything: as long as placement may take to read that,
    or to have given it up before.
    """
    return min(policy.lease_margin_wall_ms, SETTLE_MS_MOST)


def report_every_ms(policy: CellPolicy, wanted_ms: int) -> int:
    """The time between two reports of a node: as wanted, or less where leases are short."""
    return max(1, min(wanted_ms, lease_allowed_ms(policy) // REPORTS_PER_LEASE))
