"""Jobs whose number of workers changes while they run, on real services: a service that is scaled, and a job that
grows as room comes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import Job
from fallow.shared.events.fields.values import JobKind, NodeStatus, ProcessRun, RunStatus
from fallow.shared.events.nodes import SEQ_LEAD_WALL_MS, SEQ_PER_MS, NodeLost
from fallow.shared.events.submissions import CancelJob, JobChanges, UpdateJob
from fallow.shared.runtime.clocks import wall_ms
from tests.cli.usage.test_commands import call
from tests.e2e.jobs.test_process_jobs import live, two_agents
from tests.e2e.worlds.running_cell import CELL, RunningCell, a_job, in_full, running_cell

pytestmark = pytest.mark.real_kafka

Fallow = Callable[..., "subprocess.CompletedProcess[str]"]


def running(job: Job | None) -> int:
    """How many of its workers run."""
    return 0 if job is None else sum(status is RunStatus.RUNNING for status in job.runs.values())


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    return lambda *words: call(*words, FALLOW_CELL_FILE=str(tmp_path / "cell.yaml"), **where)


def scaled(workers: int) -> UpdateJob:
    return UpdateJob(job="web", tenant="vision", changes=JobChanges(workers=workers))


def lost_node(cell: RunningCell, node: str) -> NodeLost:
    """A person who knows says that the node is gone, with a number above those of its agent, which begin ahead of the
    clock.
    """
    boot, seq = cell.state.nodes[node].boot, (wall_ms() + 2 * SEQ_LEAD_WALL_MS) * SEQ_PER_MS
    return NodeLost(cell=CELL, node=node, boot=boot, seq=seq, reason="power")


async def until_it_has(cell: RunningCell, job: str, workers: int) -> None:
    """Wait until just so many workers of the job are there, and all of them run."""
    named = in_full(job)
    await cell.until(
        lambda c: named in c.state.jobs and len(c.state.jobs[named].workers) == workers == running(c.state.jobs[named]),
        what=f"{workers} workers of {job}",
    )


async def test_a_service_is_scaled_up_and_down_and_goes_on_when_a_node_is_lost(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=3) as cell:
        await cell.submit(a_job("web", workers=2, gpus=4, ms=None, kind=JobKind.INFERENCE, workers_min=1))
        await until_it_has(cell, "web", 2)
        done = fallow("job", "scale", "web", "4")
        assert (done.returncode, done.stdout) == (0, "Job vision/web now has 1 to 4 workers and priority 0.\n")
        await until_it_has(cell, "web", 4)
        assert "workers: 4 held, 4 wanted" in fallow("job", "web").stdout
        gone = cell.state.jobs["vision/web"].workers[0].node
        await cell.publish(lost_node(cell, gone))
        await cell.until(lambda c: c.state.nodes[gone].status is NodeStatus.LOST, what="the loss of a node")
        await until_it_has(cell, "web", 4)
        assert gone not in [place.node for place in cell.state.jobs["vision/web"].workers]
        await cell.publish(scaled(1))
        await until_it_has(cell, "web", 1)
        assert cell.state.jobs["vision/web"].attempt == 1
        await cell.publish(CancelJob(job="web", tenant="vision"))
        await cell.until_over("web")
        assert cell.problems() == []


async def test_a_job_without_a_gang_grows_as_room_comes_and_ends_when_all_of_its_workers_have(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=1) as cell:
        await cell.submit(a_job("before", gpus=7, ms=3_000))
        await cell.until(lambda c: "JobRunning" in c.story("before"), what="the job before to run")
        await cell.submit(a_job("job", workers=4, ms=6_000, gang=False))
        await until_it_has(cell, "job", 1)
        await cell.until_over("before")
        await until_it_has(cell, "job", 4)
        await cell.until_over("job")
        assert cell.state.finished["vision/job"].status == "finished"
        assert "JobRequeued" not in cell.story("job")
        assert cell.problems() == []


async def test_processes_of_a_service_come_and_go_on_agents_and_see_each_other(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with two_agents(kafka, redis_url, namespace, tmp_path) as cell:
        run = ProcessRun(argv=("sh", "-c", "echo $RANK of $WORLD_SIZE; exec sleep 600"))
        await cell.submit(a_job("web", workers=1, run=run, pools=("machines",), kind=JobKind.INFERENCE))
        await until_it_has(cell, "web", 1)
        await cell.publish(scaled(3))
        await until_it_has(cell, "web", 3)
        await cell.until(lambda _: shown(tmp_path) == {3}, what="three workers in each file")
        await cell.publish(scaled(1))
        await until_it_has(cell, "web", 1)
        assert len(live("web")) == 1
        await cell.publish(CancelJob(job="web", tenant="vision"))
        await cell.until_over("web")
        assert live("web") == []
        assert cell.problems() == []


def shown(folder: Path) -> set[int]:
    """How many workers the file of each agent tells of."""
    worlds = folder.glob("machine-*/runs/vision~web/1/world.json")
    return {len(json.loads(world.read_text())["workers"]) for world in worlds}
