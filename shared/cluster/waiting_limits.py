"""How many jobs of one tenant may wait, and how many bytes its live jobs may take. Without bounds of its own one tenant
fills the whole cell's, and then the jobs of all others are refused.
"""

from __future__ import annotations

from shared.cluster.config import CellFile


class WaitingLimits:
    """The bounds that a cell file sets."""

    __slots__ = ("_is_shared", "_own", "_own_bytes")

    def __init__(self, file: CellFile) -> None:
        self._own = {each.name: each.waiting_jobs_most for each in file.tenants if each.waiting_jobs_most is not None}
        self._own_bytes = {each.name: each.live_bytes_most for each in file.tenants if each.live_bytes_most is not None}
        self._is_shared = len(file.tenants) > 1

    def of(self, tenant: str, cell_most: int) -> int:
        """How many of the tenant's jobs may wait where `cell_most` of all may: what the file says; if it says nothing,
        half of that in a file of several tenants. In no case fewer than one, and in no case more than the cell takes.
        """
        return self._part(self._own.get(tenant), cell_most)

    def bytes_of(self, tenant: str, cell_most: int) -> int:
        """How many bytes the specifications of the tenant's live jobs may take, by the same rule."""
        return self._part(self._own_bytes.get(tenant), cell_most)

    def _part(self, own: int | None, cell_most: int) -> int:
        if own is None:
            own = max(1, cell_most // 2) if self._is_shared else cell_most
        return min(own, cell_most)
