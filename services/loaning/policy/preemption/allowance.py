"""How much each tenant may still lose, and what the next loss costs, while a set of victims grows.

A tenant loses as long as it borrows; what a whole job takes beyond what is borrowed counts as its owner's. Which sets
the rules let yield together is asked of them in the end (`objection`); this keeps the search from sets that they never
would.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.loaning.policy.preemption.candidates import Candidate
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim, apart_of
from fallow.shared.cluster.preemption.rules import fair_milli
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.reasons import PreemptionCause

Level = tuple[bool, int]
"""Whether its tenant would have less than what is guaranteed to it, then its priority: what weighs more than how many
yield.
"""

Cost = tuple[Level, int, int, int, int, tuple[int, int, str]]
SetCost = tuple[tuple[Level, ...], int, tuple[int, ...], tuple[int, ...], int, tuple[tuple[int, int, str], ...]]
"""What a set of victims costs: the dearest of them first, then how many; the work lost; the starts; from whom; how
many GPUs; and when they came.
"""

OWN_COST = 3
"""So much of it goes by the victims alone: the rest changes with every other one that yields."""


class Allowance:
    """What the accounts of victims have left, by a claim, beside those that yield by now."""

    __slots__ = ("_cause", "_claim", "_guaranteed", "_left", "_shares", "_state")

    def __init__(self, state: CellState, claim: Claim) -> None:
        self._state = state
        self._claim, self._cause = claim, claim.cause
        self._shares: dict[Account, int] = {}
        self._left: dict[Account, int] = {}
        self._guaranteed: dict[Account, int] = {}

    def left(self, account: Account) -> int:
        """What the account uses without those that yield."""
        known = self._left.get(account)
        if known is None:
            known = self._left[account] = self._state.usage.get(account, 0)
        return known

    def guaranteed(self, account: Account) -> int:
        """What is guaranteed to it."""
        known = self._guaranteed.get(account)
        if known is None:
            branch = self._state.tree.branches.get(account)
            known = self._guaranteed[account] = 0 if branch is None else branch.guaranteed_milli
        return known

    def allows(self, victim: Candidate) -> bool:
        """Whether this one may yield beside the others."""
        if self._cause is PreemptionCause.FAIR_SHARE:
            return all(self.left(account) - milli >= self._fair(account) for account, milli in victim.parts)
        for account, milli in victim.parts:
            left, guaranteed = self.left(account), self.guaranteed(account)
            is_reclaim = self._cause is PreemptionCause.QUOTA_RECLAIM
            if left <= guaranteed if is_reclaim else left - milli < guaranteed:
                return False
        return True

    def _fair(self, account: Account) -> int:
        """What it keeps for its fair share: of a branch below another one of its own the latter tells."""
        known = self._shares.get(account)
        if known is None:
            tenant = self._claim.preemptor.spec.tenant
            is_top = apart_of(self._state.quotas, account[0], tenant, account[1])[-1] == account
            known = self._shares[account] = fair_milli(self._state, self._claim, account) if is_top else 0
        return known

    def take(self, victim: Candidate) -> None:
        """This one yields."""
        for account, milli in self._charged(victim):
            self._left[account] = self.left(account) - milli

    def give_back(self, victim: Candidate) -> None:
        """This one does not yield after all."""
        for account, milli in self._charged(victim):
            self._left[account] = self.left(account) + milli

    @staticmethod
    def _charged(victim: Candidate) -> Sequence[tuple[Account, int]]:
        return victim.parts or ((victim.leaf, victim.milli),)

    def level(self, victim: Candidate) -> Level:
        """What it weighs that this one yields next."""
        dips = any(self.left(account) - milli < self.guaranteed(account) for account, milli in victim.parts)
        return (dips, victim.job.spec.priority)

    def borrowed(self, victim: Candidate) -> int:
        """How much its tenant has beyond what is guaranteed to it."""
        return self.left(victim.leaf) - self.guaranteed(victim.leaf)

    def cost_now(self, victim: Candidate) -> Cost:
        """What it costs that this one yields next: in the order of the rules, and of equals one of the tenant that
        borrows most, then the one that came last.
        """
        submit_ms, number, name = victim.came
        return (
            self.level(victim),
            victim.lost_ms,
            -victim.started_ms,
            -self.borrowed(victim),
            victim.milli,
            (-submit_ms, -number, name),
        )

    def cost_of_set(self, victims: Sequence[Candidate]) -> SetCost:
        """What it costs that these yield beside the others, whichever is first."""
        levels, borrowed = list[Level](), list[int]()
        # Of one tenant the largest first: so what is taken of a guarantee is the same however a set was found.
        ordered = sorted(victims, key=lambda each: (each.job.spec.priority, -each.milli, each.came))
        for victim in ordered:
            levels.append(self.level(victim))
            borrowed.append(-self.borrowed(victim))
            self.take(victim)
        for victim in ordered:
            self.give_back(victim)
        levels.sort(reverse=True)
        return (
            tuple(levels),
            sum(each.lost_ms for each in victims),
            tuple(sorted((-each.started_ms for each in victims), reverse=True)),
            tuple(sorted(borrowed)),
            sum(each.milli for each in victims),
            tuple(sorted((-each.came[0], -each.came[1], each.came[2]) for each in victims)),
        )


def cost_alone(victim: Candidate) -> tuple[int, int, int, int, tuple[int, int, str]]:
    """In which order jobs of one tenant yield, whatever others do."""
    submit_ms, number, name = victim.came
    return (
        victim.job.spec.priority,
        victim.lost_ms,
        -victim.started_ms,
        victim.milli,
        (-submit_ms, -number, name),
    )
