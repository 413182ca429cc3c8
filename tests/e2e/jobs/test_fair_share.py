"""Two tenants behind a backlog of thousands of jobs: GPU time goes by their weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.events.effects import JobStarted
from fallow.shared.events.fields.job_ids import parted
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import Cordon, Uncordon
from tests.e2e.worlds.running_cell import RunningCell, a_job, running_cell

pytestmark = pytest.mark.real_kafka

CELL_FILE = """
cells:
  - name: main
    ordinal: 0
    pools: [{name: training, gpus: 64, gpus_per_node: 8}]
    queues: [{name: default, order: fair-share}]
    policy: {node_lease_wall_ms: 60000, fair_half_life_ms: 2000}
tenants:
  - {name: vision, quotas: [{weight: 2}]}
  - {name: speech}
"""
EACH = 3_800
STARTS = 600


def starts_of(cell: RunningCell, after: int) -> list[str]:
    """The tenants of all starts in records behind this version, in their order."""
    return [
        parted(effect.job)[0]
        for decision in cell.decisions
        for effect in decision.effects
        if isinstance(effect, JobStarted) and decision.version > after
    ]


def of_status(cell: RunningCell, status: NodeStatus) -> int:
    return sum(node.status is status for node in cell.state.nodes.values())


async def test_weights_hold_behind_a_deep_backlog(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=4, cell_file=CELL_FILE) as cell:
        nodes = sorted(cell.state.nodes)
        await cell.publish(*(Cordon(cell="main", node=node) for node in nodes))
        await cell.until(lambda c: of_status(c, NodeStatus.CORDONED) == len(nodes), what="that nothing starts")
        for tenant in ("speech", "vision"):
            await cell.submit(*(a_job(f"job-{n:05}", ms=150, tenant=tenant) for n in range(EACH)))
        await cell.until(lambda c: len(c.state.jobs) + len(c.state.finished) == 2 * EACH, what="all jobs", wait_s=120)
        full = cell.state.version
        assert cell.state.waiting == 2 * EACH
        await cell.publish(*(Uncordon(cell="main", node=node) for node in nodes))
        await cell.until(lambda c: len(starts_of(c, full)) > STARTS, what="some hundred starts", wait_s=120)
        behind = Counter(starts_of(cell, full)[STARTS // 3 : STARTS])
        assert behind["vision"] / behind["speech"] == pytest.approx(2, rel=0.2)
        assert [*cell.offences, *check_state(cell.state)] == []
