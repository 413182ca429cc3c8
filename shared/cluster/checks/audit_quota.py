"""What quotas mean, worked out from their definition each time: for checking the fold, which keeps it by delta.

It shares no arithmetic with the fold, and is as slow as it is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fallow.shared.events.operations import Quota

Account = tuple[str, str]


@dataclass(frozen=True, slots=True)
class QuotaBooks:
    """Quotas, the children that name each account as their parent, and what each tenant itself uses, in milli-GPUs.
    Good for as long as none of them changes: what was worked out once is remembered.
    """

    quotas: Mapping[Account, Quota]
    children: Mapping[Account, Mapping[str, None]]
    own_use: Mapping[Account, int]
    known: dict[tuple[str, Account], int] = field(default_factory=dict)

    def _once(self, what: str, account: Account, work_out: Callable[[list[Account]], int]) -> int:
        """The number, worked out from the children of the account if it is not known."""
        found = self.known.get((what, account))
        if found is None:
            below = [(child, account[1]) for child in self.children.get(account, {})]
            found = self.known[what, account] = work_out(below)
        return found

    def use(self, account: Account) -> int:
        """All use of the account and below it."""
        own = self.own_use.get(account, 0)
        return self._once("use", account, lambda below: own + sum(map(self.use, below)))

    def guaranteed(self, account: Account) -> int:
        """What is guaranteed to it, at least all that is guaranteed below it."""
        quota = self.quotas.get(account)
        named = 0 if quota is None else quota.guaranteed_milli
        return self._once("guaranteed", account, lambda below: max(named, sum(map(self.guaranteed, below))))

    def kept_below(self, account: Account) -> int:
        """What is never lent to the account from below it."""
        return self._once("kept", account, lambda below: sum(self.kept_below(at) + self.at_home(at) for at in below))

    def at_home(self, account: Account) -> int:
        """What the account never lends to what is above it."""
        quota = self.quotas.get(account)
        if quota is None or (quota.lends and quota.lend_limit_milli is None):
            return 0
        lent_max = quota.lend_limit_milli if quota.lends and quota.lend_limit_milli is not None else 0
        return max(0, self.guaranteed(account) - self.kept_below(account) - lent_max)

    def drawn(self, account: Account) -> int:
        """Its use without what its children serve at home."""
        own = self.own_use.get(account, 0)
        return self._once(
            "drawn", account, lambda below: own + sum(max(0, self.drawn(at) - self.at_home(at)) for at in below)
        )

    def drawn_max(self, account: Account) -> int | None:
        """How much it may draw with what it may borrow; None: as much as there is."""
        quota = self.quotas.get(account)
        if quota is None or (quota.borrows and quota.borrow_limit_milli is None):
            return None
        more = quota.borrow_limit_milli if quota.borrows and quota.borrow_limit_milli is not None else 0
        return self.guaranteed(account) - self.kept_below(account) + more

    def over(self, account: Account) -> str | None:
        """The first limit, or right to borrow, that the use of the account passes, there or above it; in words.

        What is served at home draws on no tenant above it, so it passes no tenant's right to borrow there.
        """
        draws, above = True, {account: None}
        while True:
            quota = self.quotas.get(account)
            limit = None if quota is None else quota.limit_milli
            if limit is not None and self.use(account) > limit:
                return f"{account[0]} uses {self.use(account)} milli-GPUs of {account[1]}, its limit is {limit}"
            most = self.drawn_max(account) if draws else None
            if most is not None and self.drawn(account) > most:
                return f"{account[0]} draws {self.drawn(account)} milli-GPUs of {account[1]}, it may {most}"
            home = self.at_home(account)
            draws = draws and (not home or self.drawn(account) > home)
            if quota is None or quota.parent is None or (quota.parent, account[1]) in above:
                return None
            account = (quota.parent, account[1])
            above[account] = None
