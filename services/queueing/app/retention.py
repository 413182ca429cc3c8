"""Retention of a cell's decisions: what is old is deleted, but nothing that no kept snapshot covers.

The broker deletes nothing of `decisions` by itself, so a cell that rested for a year finds the newest snapshot and
every record behind it.
"""

from __future__ import annotations

from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import Catalogue
from fallow.shared.log.port import Log, TopicPartition


async def delete_old(log: Log, layout: Layout, cell: str, catalogue: Catalogue, keep_ms: int, wall_ms: int) -> int:
    """Delete what is older than `keep_ms` and lies before every whole snapshot that is kept. How many records that
    were. Raises LogUnavailable.

    Age counts from the broker's stamp of the newest decision, or from `wall_ms`, this machine's clock, where that is
    earlier: of two clocks that differ, the one that keeps more counts.
    """
    tp = layout.tp("decisions", cell)
    covered = catalogue.covers_from()
    if covered is None:
        return 0
    newest_ms = await _newest_ms(log, tp)
    if newest_ms is None:
        return 0
    since = await log.first_since(tp, min(newest_ms, wall_ms) - keep_ms)
    before = covered if since is None else min(covered, since)
    begin = (await log.begin_offsets([tp]))[tp]
    if before <= begin:
        return 0
    await log.delete_before(tp, before)
    return before - begin


async def _newest_ms(log: Log, tp: TopicPartition) -> int | None:
    """When the broker wrote the newest decision; None where there is none."""
    end = (await log.end_offsets([tp]))[tp]
    newest = (await log.last_before({tp: end})).get(tp)
    return None if newest is None else newest.timestamp_ms
