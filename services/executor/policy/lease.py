"""For how long a node may work without being heard, and how often it makes itself heard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fallow.shared.cluster.model.lease import TellsLease, longest_patience_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.nodes import LivingNode
from fallow.shared.events.operations import CellPolicy

REPORTS_PER_LEASE = 3
"""A lease survives the loss of all but one of so many reports."""

SETTLE_MS_MAX = 2_000


class KeptLease(NamedTuple):
    """What an agent leaves of its lease to the next one: when it was renewed and when it is over (monotonic)."""

    renewed_ms: int
    until_ms: int


@dataclass(slots=True)
class Words:
    """Words of a node, one behind the other, that tell of a lease which allows equally much."""

    allowed_ms: int
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class Lease:
    """One node's lease, as its words have told it; all times are monotonic.

    The cell goes by the newest word that is in the log. A node does not know at once which one that is: the last of
    which it knows, or one that it has made since. So it may work only as long as each of these allows. The first was
    made at `renewed_ms` and allows `granted_ms` (None: nothing was told yet, so the policy counts). The others are
    `unconfirmed`, in the order in which they were made; as long as the policy stays, all of them are one entry.
    """

    renewed_ms: int
    granted_ms: int | None = None
    unconfirmed: list[Words] = field(default_factory=list)

    def until_ms(self, policy_allows_ms: int) -> int:
        """Until when the node may work."""
        granted_ms = policy_allows_ms if self.granted_ms is None else self.granted_ms
        return min([self.renewed_ms + granted_ms, *(words.first_ms + words.allowed_ms for words in self.unconfirmed)])

    def tell(self, made_ms: int, allowed_ms: int) -> None:
        """A report made now says that the lease allows `allowed_ms`."""
        if self.unconfirmed and self.unconfirmed[-1].allowed_ms == allowed_ms:
            self.unconfirmed[-1].last_ms = made_ms
        else:
            self.unconfirmed.append(Words(allowed_ms, made_ms, made_ms))

    def renew(self, made_ms: int, told_ms: int | None = None) -> None:
        """What was made at `made_ms` has arrived, and told of a lease that allows `told_ms`."""
        if made_ms >= self.renewed_ms and told_ms is not None:
            self.granted_ms = told_ms
        self.renewed_ms = max(self.renewed_ms, made_ms)
        self.unconfirmed = [words for words in self.unconfirmed if words.last_ms > made_ms]
        if self.unconfirmed:
            first = self.unconfirmed[0]
            first.first_ms = max(first.first_ms, made_ms)


def has_first_decision(state: CellState) -> bool:
    """Whether a decision says by which lease the cell's nodes go. Until there is one no node speaks: it would tell a
    lease that stands nowhere in the log, and a writer that takes over would wait for it less long than it works.
    """
    return state.version > 0


def lease_allowed_ms(told: TellsLease) -> int:
    """How long a node works on without a confirmed report: less than its lease, by the margin."""
    lease_ms = told.node_lease_wall_ms
    return lease_ms - min(told.lease_margin_wall_ms, lease_ms // 2)


def gone_on_with(kept: KeptLease, state: CellState) -> Lease:
    """The lease of an agent before this one; it is no longer than the longest that any node was told."""
    return Lease(kept.renewed_ms, min(kept.until_ms - kept.renewed_ms, longest_patience_ms(state)))


def told_ms(word: LivingNode) -> int | None:
    """How long the node may work on after this word of it, as it tells; None: it tells nothing."""
    return lease_allowed_ms(word) if word.node_lease_wall_ms else None


def is_silent(state: CellState, node_id: str) -> bool:
    """Whether the log says that nothing was heard of the node for long: not even what it has said since, as yet."""
    node = state.nodes.get(node_id)
    return node is not None and node.silent_wall_ms > 0


def settle_ms(policy: CellPolicy) -> int:
    """How long a node that is heard again waits before it begins anything: as long as placement may take to read that,
    or to have given it up before.
    """
    return min(policy.lease_margin_wall_ms, SETTLE_MS_MAX)


def report_every_ms(policy: CellPolicy, wanted_ms: int) -> int:
    """The time between two reports of a node: as wanted, or less where leases are short."""
    return max(1, min(wanted_ms, lease_allowed_ms(policy) // REPORTS_PER_LEASE))
