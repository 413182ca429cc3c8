"""Services that are restarted, doubled and killed in the middle of the work: nothing is lost, nothing starts twice."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.effects import WriterStarted
from fallow.shared.view.compare import compare_view
from fallow.shared.view.reader import NoSuchCell, ViewBehind, ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from tests.e2e.worlds.running_cell import CELL, RunningCell, a_job, in_full, running_cell

pytestmark = pytest.mark.real_kafka

SERVICES = ("admission", "queueing", "loaning", "placement", "executor", "projector", "metrics")


@pytest.mark.by_turns
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_every_service_restarted_in_the_middle_loses_nothing(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, how: signal.Signals
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path) as cell:
        jobs = []
        for number, name in enumerate(SERVICES):
            batch = [f"job-{number}-{n}" for n in range(20)]
            jobs += batch
            await cell.submit(*(a_job(job, gpus=1 + n % 4, ms=300) for n, job in enumerate(batch)))
            await cell.services.restart(name, how)
        await cell.services.wait_ready(wait_s=60)
        await cell.until_over(*jobs, wait_s=60)
        assert {cell.state.finished[in_full(job)].status for job in jobs} == {JobStatus.FINISHED}
        assert [cell.story(job).count("JobStarted") for job in jobs] == [1] * len(jobs)
        assert cell.problems() == []


async def test_a_killed_writer_is_replaced_and_no_start_is_lost_or_doubled(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, replicas={"placement": 2}) as cell:
        jobs = [f"job-{n}" for n in range(300)]
        await cell.submit(*(a_job(job, ms=400) for job in jobs[:150]))
        await cell.until(lambda c: len(c.state.finished) >= 20, what="the first jobs to be over")
        epoch = cell.state.epoch
        firsts = [decision.effects[0] for decision in reversed(cell.decisions)]
        writer = next(first.writer for first in firsts if isinstance(first, WriterStarted))

        cell.services.kill(writer, signal.SIGKILL)
        await cell.submit(*(a_job(job, ms=400) for job in jobs[150:]))
        took_s = await cell.until(lambda c: c.state.epoch > epoch, what="another writer", wait_s=20)
        print(f"take-over {took_s:.2f} s after SIGKILL")  # noqa: T201 - a figure for who runs the tests with -s
        await cell.until_over(*jobs, wait_s=60)
        assert took_s < 10
        assert [cell.story(job).count("JobStarted") for job in jobs] == [1] * len(jobs)
        assert cell.problems() == []


async def test_two_of_each_share_the_work(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> None:
    async with running_cell(
        kafka, redis_url, namespace, tmp_path, nodes=16, replicas={"admission": 2, "executor": 2}
    ) as cell:
        jobs = [f"job-{n}" for n in range(400)]
        await cell.submit(*(a_job(job, ms=200) for job in jobs))
        await cell.until_over(*jobs, wait_s=60)
        cursors = await cell.services.cursors()
        shares = [
            sum(n for tp, n in cursors[name]["cursors"].items() if ".submissions/" in tp)
            for name in ("admission-1", "admission-2")
        ]
        nodes = [await nodes_of(cell, name) for name in ("executor-1", "executor-2")]
        assert sum(shares) == 400
        assert min(shares) > 0
        assert sum(nodes) == 16
        assert min(nodes) > 0
        begun_by = {line.node for line in cell.diary() if line.event == "started"}
        assert len(begun_by) == 16
        assert cell.problems() == []


async def nodes_of(cell: RunningCell, executor: str) -> int:
    """How many nodes an executor looks after, by its own figures."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{cell.services.port(executor)}/metrics")).text
    (line,) = [line for line in text.splitlines() if line.startswith("fallow_executor_nodes{")]
    return int(float(line.split(" ")[1]))


async def test_redis_flushed_in_the_middle_is_complete_again(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path) as cell:
        await cell.submit(*(a_job(f"job-{n}", ms=None) for n in range(20)))
        await cell.until(
            lambda c: sum(j.status is JobStatus.RUNNING for j in c.state.jobs.values()) == 20, what="20 running"
        )
        view = RedisFunctions(redis_url)
        reader = ViewReader(view, namespace, [CELL])
        await shows(reader, cell)
        redis = Redis.from_url(redis_url)
        await redis.delete(*[key async for key in redis.scan_iter(f"{namespace}:*")])
        await redis.aclose()
        with pytest.raises((ViewRebuilding, NoSuchCell)):
            await reader.nodes(CELL)
        await cell.submit(a_job("after", ms=100))
        await cell.until_over("after")
        await shows(reader, cell)
        assert await compare_view(reader, cell.state) == []
        await view.stop()
        assert cell.problems() == []


async def shows(reader: ViewReader, cell: RunningCell) -> None:
    """Wait until readers get all that the log has said so far."""
    async with asyncio.timeout(15):
        while True:
            await cell.poll()
            try:
                await reader.summary(CELL, at_least=cell.state.version)
            except (ViewRebuilding, ViewBehind, NoSuchCell):
                await asyncio.sleep(0.05)
            else:
                return
