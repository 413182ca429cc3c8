"""How many jobs of one tenant may wait, and how many bytes its live jobs may take. Without bounds of its own one tenant
fills the whole cell's, and then the jobs of all others are refused.
"""

from __future__ import annotations

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.state import CellState


class WaitingLimits:
    """The bounds that a cell file sets."""

    __slots__ = ("_is_shared", "_own", "_own_bytes")

    def __init__(self, file: CellFile) -> None:
        self._own = {each.name: each.max_pending_jobs for each in file.tenants if each.max_pending_jobs is not None}
        self._own_bytes = {each.name: each.live_bytes_max for each in file.tenants if each.live_bytes_max is not None}
        self._is_shared = len(file.tenants) > 1

    def have_room(self, state: CellState, tenant: str, jobs: int, text_bytes: int) -> bool:
        """Whether so many jobs more of this tenant may wait, whose texts take so many bytes together. Jobs without
        texts are never refused for those of others.
        """
        policy, waiting = state.policy, state.waiting_of.get(tenant, 0) + jobs
        if state.waiting + jobs > policy.max_pending_jobs or waiting > self.of(tenant, policy.max_pending_jobs):
            return False
        if not text_bytes:
            return True
        is_within = state.live_bytes + text_bytes <= policy.live_bytes_max
        held = state.live_bytes_of.get(tenant, 0) + text_bytes
        return is_within and held <= self.bytes_of(tenant, policy.live_bytes_max)

    def of(self, tenant: str, cell_max: int) -> int:
        """How many of the tenant's jobs may wait where `cell_max` of all may: what the file says; if it says nothing,
        half of that in a file of several tenants. In no case fewer than one, and in no case more than the cell takes.
        """
        return self._part(self._own.get(tenant), cell_max)

    def bytes_of(self, tenant: str, cell_max: int) -> int:
        """How many bytes the specifications of the tenant's live jobs may take, by the same rule."""
        return self._part(self._own_bytes.get(tenant), cell_max)

    def _part(self, own: int | None, cell_max: int) -> int:
        if own is None:
            if not self._is_shared:
                return cell_max
            own = max(1, cell_max // 2)
        return min(own, cell_max)
