"""Retention of a cell's decisions: what is old is deleted, but nothing that no kept snapshot covers.

The broker deletes nothing of `decisions` by itself, so a cell that rested for a year finds the newest snapshot and
every record behind it.
"""

from __future__ import annotations

from shared.log.layout import Layout
from shared.log.machine.snapshot import Catalogue
from shared.log.port import Log


async def delete_old(log: Log, layout: Layout, cell: str, catalogue: Catalogue, before_wall_ms: int) -> int:
    """Delete what is older than this moment and lies before every whole snapshot that is kept. How many records that
    were. Raises LogUnavailable.
    """
    tp = layout.tp("decisions", cell)
    covered = catalogue.covers_from()
    if covered is None:
        return 0
    since = await log.first_since(tp, before_wall_ms)
    before = covered if since is None else min(covered, since)
    begin = (await log.begin_offsets([tp]))[tp]
    if before <= begin:
        return 0
    await log.delete_before(tp, before)
    return before - begin
