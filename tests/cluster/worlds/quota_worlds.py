"""Random trees of quotas and of use, and what they mean by the definition."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from fallow.shared.cluster.checks.audit_quota import QuotaBooks
from fallow.shared.cluster.fold.undo_log import UndoLog
from fallow.shared.cluster.quota.quota import charge, over_limit
from fallow.shared.cluster.quota.tree import Account, QuotaTree
from fallow.shared.events.operations import Quota

TYPE = "gpu"
NAMES = ("a", "b", "c", "d", "e", "f")
MAX = 12

PARENTS = st.lists(st.integers(-1, 4), min_size=len(NAMES), max_size=len(NAMES))
"""For each tenant the number of an earlier one that is its parent; others have none."""


@st.composite
def quotas(draw: st.DrawFn) -> list[Quota]:
    """A tree of quotas; not all tenants have one."""
    found = []
    for number, parent in enumerate(draw(PARENTS)):
        guaranteed = draw(st.integers(0, MAX))
        limit = draw(st.none() | st.integers(guaranteed, 3 * MAX))
        if draw(st.integers(0, 5)):
            found.append(
                Quota(
                    tenant=NAMES[number],
                    gpu_type=TYPE,
                    guaranteed_milli=guaranteed,
                    limit_milli=limit,
                    lends=draw(st.booleans()),
                    borrows=draw(st.booleans()),
                    parent=NAMES[parent] if 0 <= parent < number else None,
                    borrow_limit_milli=draw(st.none() | st.integers(0, MAX)),
                    lend_limit_milli=draw(st.none() | st.integers(0, MAX)),
                )
            )
    return found


CHANGES = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, MAX)), max_size=12)
"""Starts: who wants how much more."""


def tree_of(listed: Iterable[Quota]) -> QuotaTree:
    """A tree in which nothing is used."""
    return QuotaTree({(quota.tenant, quota.gpu_type): quota for quota in listed}, {})


class Use:
    """What was started in a tree, tenant by tenant."""

    def __init__(self, tree: QuotaTree) -> None:
        self.tree, self.own, self.journal = tree, dict[Account, int](), UndoLog()

    def force(self, tenant: str, milli: int) -> None:
        """Use more (negative: less), whatever any limit says."""
        self.own[tenant, TYPE] = self.own.get((tenant, TYPE), 0) + milli
        charge(self.journal.entries, self.tree, (tenant, TYPE), milli)

    def start(self, tenant: str, milli: int) -> bool:
        """Use more if no limit is passed by it."""
        is_within = over_limit(self.tree, tenant, TYPE, milli) is None
        if is_within:
            self.force(tenant, milli)
        return is_within

    def books(self) -> QuotaBooks:
        """The books of this use by the definition."""
        return books_of(self.tree, self.own)

    def counted(self) -> list[tuple[Account, int, int, int, int, int]]:
        """All that the tree counts of each branch."""
        branches = self.tree.branches
        return [
            (at, b.guaranteed_milli, b.used_milli, b.drawn_milli, b.home_milli, b.idle_below_milli)
            for at, b in sorted(branches.items())
        ]


def books_of(tree: QuotaTree, own: dict[Account, int]) -> QuotaBooks:
    """Books over the quotas of a tree and this use."""
    children: dict[Account, dict[str, None]] = {}
    for quota in tree.quotas.values():
        if quota.parent is not None:
            children.setdefault((quota.parent, quota.gpu_type), {})[quota.tenant] = None
    return QuotaBooks(tree.quotas, children, own)


def available_by_trying(use: Use, tenant: str, free: int) -> int:
    """The most that may be started: tried one by one, each from the definition."""
    most = 0
    for more in range(1, free + 1):
        own = {**use.own, (tenant, TYPE): use.own.get((tenant, TYPE), 0) + more}
        if is_forbidden(use.books(), books_of(use.tree, own), (tenant, TYPE)):
            break
        if drawn_from_cell(use.books(), books_of(use.tree, own), use.tree) > max(0, free - home_idle(use)):
            break
        most = more
    return most


def is_forbidden(before: QuotaBooks, after: QuotaBooks, account: Account) -> bool:
    """Whether the step from one to the other passes a limit or a right to borrow on the account's line."""
    line = [account]
    while (quota := before.quotas.get(line[-1])) is not None and quota.parent is not None:
        line.append((quota.parent, account[1]))
    for at in line:
        found, most = before.quotas.get(at), after.drawn_max(at)
        if found is not None and found.limit_milli is not None and after.use(at) > found.limit_milli:
            return True
        if most is not None and after.drawn(at) > before.drawn(at) and after.drawn(at) > most:
            return True
    return False


def roots(tree: QuotaTree, own: Iterable[Account]) -> list[Account]:
    """The accounts without a parent."""
    above = {at for at, quota in tree.quotas.items() if quota.parent is not None}
    named = {(quota.parent, quota.gpu_type) for quota in tree.quotas.values() if quota.parent is not None}
    return sorted({*tree.quotas, *named, *own} - above)


def drawn_from_cell(before: QuotaBooks, after: QuotaBooks, tree: QuotaTree) -> int:
    """How much more all draw from the cell after a step."""
    drawn = 0
    for root in roots(tree, after.own_use):
        drawn += max(0, after.drawn(root) - after.at_home(root)) - max(0, before.drawn(root) - before.at_home(root))
    return drawn


def home_idle(use: Use) -> int:
    """What all leave idle of what they do not lend."""
    books = use.books()
    accounts = {*use.tree.quotas, *roots(use.tree, use.own)}
    return sum(max(0, books.at_home(at) - books.drawn(at)) for at in accounts)
