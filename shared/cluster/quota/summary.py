"""The tree of quotas in numbers, for people and programs: who may use how much, uses it, borrows and lends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fallow.shared.cluster.capacity.gpu_types import idle_anywhere_milli
from fallow.shared.cluster.capacity.taken_alone import with_whole_nodes
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.room import left_by_others, within_rooms
from fallow.shared.cluster.quota.tree import Account, Branch
from fallow.shared.events.operations import Quota


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One tenant and GPU type, in milli-GPUs, with all below it. `depth` is how many are above it. Without a quota of
    its own `quota` is None. `guaranteed_milli` is never less than what is guaranteed below.

    `borrowed_milli` is used beyond the guarantee, `lent_milli` guaranteed and idle and yet not to be had now, for
    others use it; `available_milli` could be started now as far as quotas go and GPUs are free on nodes that take new
    work.
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
    left = _left_by_others(state, sorted({**branches, **state.usage}))
    rows = list[QuotaRow]()
    stack = [(account, 0) for account in sorted(below.get(None, ()), key=_by_type, reverse=True)]
    while stack:
        account, depth = stack.pop()
        rows.append(_row(state, account, branches.get(account), depth, *left[account]))
        stack += [(child, depth + 1) for child in sorted(below.get(account, ()), reverse=True)]
    return rows


def _by_type(account: Account) -> Account:
    return (account[1], account[0])


def _left_by_others(state: CellState, accounts: Sequence[Account]) -> dict[Account, tuple[int, int]]:
    """How much others leave each account of what is unused, and of what is free on nodes that take new work."""
    types = dict.fromkeys(gpu_type for _, gpu_type in accounts)
    idle, free = {each: idle_anywhere_milli(state, each) for each in types}, _free_milli(state)
    with with_whole_nodes(state):
        return {
            account: (
                left_by_others(state.tree, account, idle[account[1]]),
                left_by_others(state.tree, account, free.get(account[1], 0)),
            )
            for account in accounts
        }


def _free_milli(state: CellState) -> dict[str, int]:
    """What is free of each GPU type on the nodes that take new work, and that no exclusive job has alone."""
    free: dict[str, int] = {}
    for node in state.nodes.values():
        if node.takes_work and node.alone is None:
            free[node.spec.gpu_type] = free.get(node.spec.gpu_type, 0) + node.idle_milli
    return free


def _row(
    state: CellState, account: Account, branch: Branch | None, depth: int, unused_milli: int, left_milli: int
) -> QuotaRow:
    used, guaranteed = state.usage.get(account, 0), 0 if branch is None else branch.guaranteed_milli
    could = within_rooms(state.tree, account, unused_milli)
    return QuotaRow(
        tenant=account[0],
        gpu_type=account[1],
        depth=depth,
        quota=state.quotas.get(account),
        guaranteed_milli=guaranteed,
        used_milli=used,
        borrowed_milli=max(0, used - guaranteed),
        lent_milli=max(0, guaranteed - used - could),
        available_milli=within_rooms(state.tree, account, left_milli),
    )
