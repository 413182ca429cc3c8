"""Which heads borrow from owners, as guarantees fill up in a walk.

A head borrows where it fits whole into no guarantee of its tenant's, or of those above it. So its answer changes only
when what is left of one of these comes to be less than the head is large: once in a walk, however much starts.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.owners.owners_first import borrows
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.room import lineage
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.fields.values import JobSpec

Named = tuple[bool, int]
"""Whether a head is due, and its number among those that are, or among the others."""

_LAST: Named = (True, 1 << 63)


class BorrowingHeads:
    """Some heads, with the guarantees into which they may fit."""

    __slots__ = ("_known", "_left_milli", "_sizes", "_state")

    def __init__(self, state: CellState) -> None:
        self._state = state
        self._left_milli: dict[Account, int] = {}
        self._sizes: dict[Account, list[tuple[int, Named]]] = {}
        self._known: dict[tuple[str, int, Account], bool] = {}

    def add(self, spec: JobSpec, named: Named) -> None:
        """One more, as it stands in line."""
        for gpu_type in types_for(self._state, spec):
            for branch in lineage(self._state.tree.branches.get((spec.tenant, gpu_type))):
                if branch.guaranteed_milli:
                    self._left_milli.setdefault(branch.account, branch.guaranteed_milli - branch.used_milli)
                    insort(self._sizes.setdefault(branch.account, []), (spec.gpus_milli, named))

    def borrows(self, spec: JobSpec, owner: Account) -> bool:
        """Whether a head would borrow from this owner."""
        key = (spec.tenant, spec.gpus_milli, owner)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = borrows(self._state, spec, owner)
        return known

    def started(self, tenant: str) -> list[Named]:
        """A job of this tenant has started. Returns the heads that may borrow now from tenants from which they could
        not before.
        """
        found = list[Named]()
        for gpu_type in {account[1]: None for account in self._left_milli}:
            for branch in lineage(self._state.tree.branches.get((tenant, gpu_type))):
                before = self._left_milli.get(branch.account)
                left = branch.guaranteed_milli - branch.used_milli
                if before is None or left == before:
                    continue
                self._left_milli[branch.account] = left
                sizes, (low, high) = self._sizes[branch.account], sorted((left, before))
                begin, end = (bisect_right(sizes, (bound, _LAST)) for bound in (low, high))
                found += [named for _, named in sizes[begin:end]]
        if found:
            self._known = {}
        return found
