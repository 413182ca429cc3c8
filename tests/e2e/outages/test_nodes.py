"""Nodes that fall silent: their work goes on elsewhere or later, and nothing that was declared over goes on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import NodeStatus
from tests.e2e.worlds.running_cell import CELL_FILE, RunningCell, a_job, running_cell

pytestmark = pytest.mark.real_kafka

SHORT_LEASES = CELL_FILE.replace("node_lease_wall_ms: 60000", "node_lease_wall_ms: 1500, lease_margin_wall_ms: 500")
REPORTS = {"FALLOW_REPORT_EVERY_WALL_MS": "300"}


def nodes_in(cell: RunningCell, status: NodeStatus) -> int:
    return sum(node.status is status for node in cell.state.nodes.values())


async def test_silent_nodes_are_lost_and_their_jobs_run_again_when_they_return(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with running_cell(
        kafka, redis_url, namespace, tmp_path, nodes=2, cell_file=SHORT_LEASES, more=REPORTS
    ) as cell:
        await cell.submit(a_job("gang", workers=2, gpus=8, ms=None), a_job("waits", gpus=8, ms=200))
        await cell.until(lambda c: "JobRunning" in c.story("gang"), what="the gang to run")
        cell.services.kill("executor", signal.SIGKILL)
        await cell.until(lambda c: nodes_in(c, NodeStatus.LOST) == 2, what="both nodes to be lost")
        await cell.until(lambda c: "JobRequeued" in c.story("gang"), what="the gang to be queued again")
        assert cell.state.jobs["vision/gang"].failures == 0
        await cell.services.restart("executor")
        await cell.until(lambda c: c.story("gang").count("JobRunning") == 2, what="the gang to run again")
        assert nodes_in(cell, NodeStatus.READY) == 2
        assert cell.state.jobs["vision/gang"].attempt == 2
        assert cell.problems() == []


async def test_many_silent_nodes_at_once_are_not_declared_lost(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with running_cell(
        kafka, redis_url, namespace, tmp_path, nodes=8, cell_file=SHORT_LEASES, more=REPORTS
    ) as cell:
        await cell.submit(*(a_job(f"job-{n}", gpus=8, ms=None) for n in range(8)))
        running = JobStatus.RUNNING
        await cell.until(lambda c: sum(j.status is running for j in c.state.jobs.values()) == 8, what="all to run")
        cell.services.kill("executor", signal.SIGSTOP)
        with pytest.raises(AssertionError, match="not within"):
            await cell.until(lambda c: nodes_in(c, NodeStatus.LOST) > 0, what="a lost node", wait_s=5)
        cell.services.kill("executor", signal.SIGCONT)
        # Agents that could not renew their leases stop their own work; it is queued again and runs again.
        await asyncio.sleep(2)
        while await cell.poll():
            continue
        await cell.until(lambda c: sum(j.status is running for j in c.state.jobs.values()) == 8, what="all to run")
        kinds = {effect.kind for decision in cell.decisions for effect in decision.effects}
        assert "LeaseExpired" not in kinds
        assert sum(job.failures for job in cell.state.jobs.values()) == 0
        assert cell.problems() == []
