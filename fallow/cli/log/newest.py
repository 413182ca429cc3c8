"""A cell as the end of its log says."""

from __future__ import annotations

from fallow.cli.access import Access
from fallow.cli.log.past import Then, past_of
from fallow.shared.cluster.model.state import CellState


async def newest_state(access: Access, cell: str) -> CellState:
    """The cell behind its newest decision. Raises as `past_of` does."""
    newest = Then()
    async with past_of(access, cell, newest) as past:
        return await past.go_to(newest)
