"""The tree of quotas in numbers, for people and programs: who may use how much, uses it, borrows and lends."""

from __future__ import annotations

from dataclasses import dataclass

from shared.cluster.gpu_types import idle_milli
from shared.cluster.quota_room import available
from shared.cluster.quota_tree import Account, Branch
from shared.cluster.state import CellState
from shared.events.operations import Quota


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One tenant and GPU type, in milli-GPUs, with all below it. `depth` is how many are above it. Without a quota of
    its own `quota` is None. `guaranteed_milli` is never less than what is guaranteed below.

    `borrowed_milli` is used beyond the guarantee, `lent_milli` guaranteed and idle and yet not to be had now, for
    others use it; `available_milli` could be started now as far as quotas and free GPUs go.
    """

    tenant: str
    gpu_type: str
    depth: int
    quota: Quota | None
    guaranteed_milli: int
    used_milli: int
    borrowed_milli: int
    lent_milli: int
    available_milli: int


def quota_rows(state: CellState) -> list[QuotaRow]:
    """Every account that has a quota or is in use: type by type, each parent before its children, by name."""
    branches = state.tree.branches
    below: dict[Account | None, list[Account]] = {}
    for account in sorted({**branches, **state.usage}):
        branch = branches.get(account)
        above = None if branch is None or branch.parent is None else branch.parent.account
        below.setdefault(above, []).append(account)
    free = {gpu_type: idle_milli(state, gpu_type) for gpu_type in sorted({at[1]: None for at in below.get(None, ())})}
    rows = list[QuotaRow]()
    stack = [(account, 0) for account in sorted(below.get(None, ()), key=_by_type, reverse=True)]
    while stack:
        account, depth = stack.pop()
        rows.append(_row(state, account, branches.get(account), depth, free[account[1]]))
        stack += [(child, depth + 1) for child in sorted(below.get(account, ()), reverse=True)]
    return rows


def _by_type(account: Account) -> Account:
    return (account[1], account[0])


def _row(state: CellState, account: Account, branch: Branch | None, depth: int, free_milli: int) -> QuotaRow:
    used, guaranteed = state.usage.get(account, 0), 0 if branch is None else branch.guaranteed_milli
    could = available(state.tree, account, free_milli)
    return QuotaRow(
        tenant=account[0],
        gpu_type=account[1],
        depth=depth,
        quota=state.quotas.get(account),
        guaranteed_milli=guaranteed,
        used_milli=used,
        borrowed_milli=max(0, used - guaranteed),
        lent_milli=max(0, guaranteed - used - could),
        available_milli=could,
    )
