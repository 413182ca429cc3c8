"""For how long a node may be silent before its work is given to others.

A lease that a node was told holds until it has run out, also where the cell's policy names a shorter one by now: the
node goes by what its last word told, and may not have read the policy yet.
"""

from __future__ import annotations

from typing import Protocol

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import WrongField
from fallow.shared.events.operations import CellPolicy

LEASE_MS_LEAST = 1_000
"""With a shorter lease nodes that live and report would be lost between two looks of the writer."""


class TellsLease(Protocol):
    """A policy, or a word that tells by which lease its node goes."""

    @property
    def node_lease_wall_ms(self) -> int:
        """For how long a node may work without being heard, with the margin."""

    @property
    def lease_margin_wall_ms(self) -> int:
        """By how much the node ends earlier, and the cell waits longer."""


def patience_ms(told: TellsLease) -> int:
    """A node that goes by this and is silent for longer is lost."""
    return told.node_lease_wall_ms + told.lease_margin_wall_ms


def wrong_lease(policy: TellsLease) -> WrongField | None:
    """The setting of its lease that a policy cannot be given, if any. A node ends its work by half of its lease at the
    latest, so a longer margin would keep the jobs of a dead node from all others, and gain nothing. A log may hold what
    is refused here, since earlier releases took it: it is folded, and the cell waits for all of it.
    """
    lease_ms, margin_ms = policy.node_lease_wall_ms, policy.lease_margin_wall_ms
    if lease_ms < LEASE_MS_LEAST:
        return WrongField("node_lease_wall_ms", lease_ms, f"must be at least {LEASE_MS_LEAST}")
    if margin_ms > lease_ms // 2:
        rule = f"must be at most half of node_lease_wall_ms, which is {lease_ms}: set both"
        return WrongField("lease_margin_wall_ms", margin_ms, rule)
    return None


def longest_patience_ms(state: CellState) -> int:
    """A node is lost when it is silent for longer than that, whatever lease it goes by."""
    return max(patience_ms(state.policy), state.longest_patience_ms)


def longest_told_ms(state: CellState) -> int:
    """No node was ever told to go by a longer one than this: nodes go by policies that stand in the log."""
    return max(longest_patience_ms(state), state.longest_named_ms)


def longest_with(state: CellState, policy: CellPolicy) -> int:
    """What `longest_patience_ms` of the state is once this policy is in force: nodes may have read each policy that
    stood in the log. By what a state goes before its first decision no node ever went: none joins before that.
    """
    return _beyond(max(_before_ms(state), state.longest_patience_ms), policy)


def longest_named_with(state: CellState, policy: CellPolicy) -> int:
    """What `longest_named_ms` of the state is once this policy is in force. What nodes tell does not count here: else
    one that tells too long a lease would lengthen every other node's, for a writer that has not heard those.
    """
    return _beyond(max(_before_ms(state), state.longest_named_ms), policy)


def _before_ms(state: CellState) -> int:
    return patience_ms(state.policy) if state.version else 0


def _beyond(longest_ms: int, policy: CellPolicy) -> int:
    """0 where the policy's own patience is no shorter."""
    return longest_ms if longest_ms > patience_ms(policy) else 0
