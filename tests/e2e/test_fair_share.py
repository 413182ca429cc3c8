"""Two tenants, more waiting jobs than placement looks at by itself: GPU time goes by their weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from shared.cluster.few import FEW_WAITING
from shared.cluster.invariants import check_state
from shared.events.effects import JobStarted
from shared.events.queue import QueueOrdered
from shared.log.reading import event_of
from tests.e2e.running_cell import CELL, RunningCell, a_job, running_cell

pytestmark = pytest.mark.real_kafka

CELL_FILE = """
cells:
  - name: main
    ordinal: 0
    pools: [{name: training, gpus: 64, gpus_per_node: 8}]
    queues: [{name: default, order: fair-share}]
    policy: {lease_wall_ms: 60000, fair_half_life_ms: 2000}
tenants:
  - {name: vision, quotas: [{weight: 2}]}
  - {name: speech}
"""
EACH = FEW_WAITING + 800
STARTS = 600


def starts_of(cell: RunningCell, after: int) -> list[str]:
    """The tenants of all starts in records behind this version, in their order."""
    return [
        effect.job.split("-")[0]
        for decision in cell.decisions
        for effect in decision.effects
        if isinstance(effect, JobStarted) and decision.version > after
    ]


async def tenants_shown(cell: RunningCell) -> set[str | None]:
    """Whose heads the windows show."""
    tp = cell.layout.tp("queue", CELL)
    end, found = (await cell.log.end_offsets([tp]))[tp], set[str | None]()
    reader = cell.log.reader({tp: 0})
    await reader.start()
    while reader.positions()[tp] < end:
        for record in await reader.poll(1_000):
            event = event_of(record)
            if isinstance(event, QueueOrdered):
                found |= {head.tenant for head in event.heads}
    await reader.stop()
    return found


async def test_weights_hold_while_placement_goes_by_windows(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=4, cell_file=CELL_FILE) as cell:
        for tenant in ("speech", "vision"):
            await cell.submit(*(a_job(f"{tenant}-{n:05}", ms=150, tenant=tenant) for n in range(EACH)))
        await cell.until(lambda c: len(c.state.jobs) + len(c.state.over) == 2 * EACH, what="all jobs", wait_s=120)
        full = cell.state.version
        assert cell.state.waiting > 2 * FEW_WAITING
        await cell.until(lambda c: len(starts_of(c, full)) > STARTS, what="some hundred starts", wait_s=120)
        behind = Counter(starts_of(cell, full)[STARTS // 3 : STARTS])
        assert behind["vision"] / behind["speech"] == pytest.approx(2, rel=0.2)
        assert await tenants_shown(cell) == {"speech", "vision"}
        assert [*cell.offences, *check_state(cell.state)] == []
