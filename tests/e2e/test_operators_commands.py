"""Planned maintenance, a drain with a deadline, and an array, by the command line on the running services."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.cluster.job import JobStatus
from shared.events.values import NodeStatus
from tests.cli.test_commands import call
from tests.e2e.running_cell import RunningCell, a_job, running_cell

Fallow = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.real_kafka


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    return lambda *words: call(*words, FALLOW_CELL_FILE=str(tmp_path / "cell.yaml"), **where)


def runs_on(job: str, node: str) -> Callable[[RunningCell], bool]:
    return lambda c: c.state.jobs[job].status is JobStatus.RUNNING and c.state.jobs[job].workers[0].node == node


async def test_a_job_yields_to_maintenance_and_to_the_deadline_of_a_drain(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=2) as cell:
        await cell.until(lambda c: len(c.state.nodes) == 2, what="both nodes")
        first, second = sorted(cell.state.nodes)
        assert fallow("node", "cordon", second).returncode == 0
        await cell.submit(a_job("stays", gpus=8, ms=None))
        await cell.until(lambda c: "stays" in c.state.jobs and runs_on("stays", first)(c), what="stays to run")
        planned = fallow("node", "maintain", first, "--from", "8s", "--until", "16s", "--reason", "fans")
        assert (planned.returncode, planned.stderr) == (0, "")
        assert "(fans)" in planned.stdout
        assert "maintenance from" in fallow("node", "show", first).stdout
        assert fallow("node", "uncordon", second).returncode == 0
        await cell.until(runs_on("stays", second), what="stays to run elsewhere")
        assert cell.state.nodes[first].status is NodeStatus.DRAINING
        await cell.until(lambda c: c.state.nodes[first].status is NodeStatus.READY, what="the end of maintenance")
        assert fallow("node", "drain", second, "--within", "5s").returncode == 0
        await cell.poll()
        assert runs_on("stays", second)(cell)
        await cell.until(runs_on("stays", first), what="stays to run where it was")
        assert cell.state.jobs["stays"].failures == 0
        assert cell.problems() == []


async def test_an_array_is_submitted_told_and_cancelled_by_its_id(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    file = tmp_path / "many.json"
    file.write_text('{"id": "many", "tenant": "vision", "array_most_running": 1, "run": {"driver": "virtual"}}')
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=1) as cell:
        sent = fallow("submit", str(file), "--array", "3", "--until", "accepted", "--json")
        assert (sent.returncode, sent.stderr) == (0, "")
        assert list(json.loads(sent.stdout)["jobs"]) == ["many.0", "many.1", "many.2"]
        await cell.until(
            lambda c: "many" in c.state.arrays and c.state.jobs["many.0"].status is JobStatus.RUNNING,
            what="one element to run",
        )
        assert json.loads(fallow("hold", "many", "--json").stdout)["ok"]
        told = json.loads(fallow("job", "many", "--json").stdout)["array"]
        assert (told["elements"], told["by_status"]) == (3, {"held": 2, "running": 1})
        assert "3 elements" in fallow("job", "many").stdout
        assert json.loads(fallow("cancel", "many", "--json").stdout)["ok"]
        await cell.until_over("many", "many.0", "many.1", "many.2")
        assert cell.state.over["many"].status is JobStatus.CANCELLED
        assert cell.problems() == []
