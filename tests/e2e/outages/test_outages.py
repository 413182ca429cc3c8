"""Kafka or Redis goes away, at the start or in the middle: each service says what it waits for; nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.local.service_set import KINDS, service_set
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.opening import declared_topics
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.stack import kafka_jars
from fallow.shared.runtime.stack.choose import choose_redis
from fallow.shared.runtime.stack.http_get import Unanswered
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from fallow.shared.runtime.stack.server import Server, Source
from fallow.shared.runtime.stack.services import Services
from fallow.shared.view.compare import compare_view
from fallow.shared.view.reader import NoSuchCell, ViewBehind, ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from tests.contract.eventually import eventually
from tests.e2e.worlds.running_cell import CELL, CELL_FILE, RunningCell, a_job, in_full, running_cell

NAMES = tuple(kind.name for kind in KINDS)
AWAY_S = 5.0


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaFromJars]:
    """A Kafka that may be stopped: no other test uses it."""
    why_not = kafka_jars.obstacle()
    if why_not:
        pytest.skip(f"needs a Kafka of its own: {why_not}")
    server = KafkaFromJars(tmp_path / "kafka")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A Redis that may be killed."""
    server = choose_redis(tmp_path / "redis").server
    if server.source is Source.GIVEN:
        pytest.skip("needs a Redis of its own")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def cell(
    own_kafka: KafkaFromJars, own_redis: Server, namespace: str, tmp_path: Path
) -> AsyncIterator[RunningCell]:
    async with running_cell(own_kafka.address, own_redis.address, namespace, tmp_path) as cell:
        yield cell


async def reason(cell: RunningCell, name: str) -> str:
    """Why this service is not ready; nothing while it does not even answer."""
    try:
        _, body = await cell.services._services[name].get_json("/readyz")
    except Unanswered:
        return ""
    return body["reason"] or ""


async def until_waiting(cell: RunningCell, what: str, *names: str) -> None:
    """Wait until all of these services say that they wait for this."""

    async def all_say_so() -> bool:
        return all([what in await reason(cell, name) for name in names or NAMES])

    await eventually(all_say_so, within_s=30)


def all_finished(cell: RunningCell, jobs: list[str]) -> bool:
    return {cell.state.finished[in_full(job)].status for job in jobs} == {JobStatus.FINISHED}


async def test_kafka_stops_in_the_middle_and_comes_back_with_its_data(
    cell: RunningCell, own_kafka: KafkaFromJars
) -> None:
    jobs = [f"job-{n}" for n in range(60)]
    await cell.submit(*(a_job(job, gpus=1 + n % 4, ms=1_500) for n, job in enumerate(jobs)))
    await cell.until(lambda c: len(c.state.finished) >= 10, what="the first jobs to be over")
    await asyncio.to_thread(own_kafka.kill)
    await until_waiting(cell, "Kafka")
    await asyncio.sleep(AWAY_S)
    await asyncio.to_thread(own_kafka.start)
    await cell.services.wait_ready()
    await cell.submit(a_job("after", ms=100))
    await cell.until_over(*jobs, "after", wait_s=60)
    assert all_finished(cell, [*jobs, "after"])
    assert [cell.story(job).count("JobStarted") for job in jobs] == [1] * len(jobs)
    assert cell.problems() == []


async def test_redis_is_killed_in_the_middle_and_no_job_waits_for_it(cell: RunningCell, own_redis: Server) -> None:
    jobs = [f"job-{n}" for n in range(40)]
    await cell.submit(*(a_job(job, ms=300) for job in jobs[:20]))
    await cell.until_over(*jobs[:20])
    await asyncio.to_thread(own_redis.kill)
    await cell.submit(*(a_job(job, ms=300) for job in jobs[20:]))
    await until_waiting(cell, "Redis", "projector")
    await cell.until_over(*jobs[20:])
    await asyncio.to_thread(own_redis.start)
    await cell.services.wait_ready()
    view = RedisFunctions(own_redis.address)
    assert await compare_view(await caught_up(view, cell), cell.state) == []
    await view.stop()
    assert cell.problems() == []


async def caught_up(view: RedisFunctions, cell: RunningCell) -> ViewReader:
    """A reader that is shown all that the log has said so far."""
    reader = ViewReader(view, cell.layout.namespace, [CELL])
    async with asyncio.timeout(20):
        while True:
            await cell.poll()
            try:
                await reader.summary(CELL, at_least=cell.state.version)
            except (ViewRebuilding, ViewBehind, NoSuchCell):
                await asyncio.sleep(0.05)
            else:
                return reader


async def test_with_both_away_at_the_start_services_wait_and_go_on_where_they_were(
    cell: RunningCell, own_kafka: KafkaFromJars, own_redis: Server
) -> None:
    jobs = [f"job-{n}" for n in range(10)]
    await cell.submit(*(a_job(job, ms=1_000) for job in jobs))
    await cell.until(lambda c: "vision/job-9" in c.state.jobs, what="all jobs to be there")
    await asyncio.to_thread(own_kafka.kill)
    await asyncio.to_thread(own_redis.kill)
    await asyncio.gather(*(cell.services.restart(name) for name in NAMES))
    await until_waiting(cell, "waiting for Kafka at")
    await asyncio.sleep(3)
    await asyncio.to_thread(own_kafka.start)
    await asyncio.to_thread(own_redis.start)
    await cell.services.wait_ready()
    await cell.submit(a_job("after", ms=100))
    await cell.until_over(*jobs, "after", wait_s=60)
    assert all_finished(cell, [*jobs, "after"])
    assert cell.problems() == []


@pytest.fixture
async def lone(kafka: str, namespace: str, tmp_path: Path) -> AsyncIterator[Services]:
    """All services, none of them started, on a real Kafka without a single topic of theirs."""
    (tmp_path / "cell.yaml").write_text(CELL_FILE)
    (tmp_path / "nodes.jsonl").write_text("")
    wanted = service_set(
        kafka=kafka,
        redis="redis://127.0.0.1:1/0",
        namespace=namespace,
        cell_file=tmp_path / "cell.yaml",
        data_dir=tmp_path / "data",
        nodes_file=tmp_path / "nodes.jsonl",
    )
    services = Services(wanted.specs, environment=wanted.environment, run_dir=tmp_path / "run")
    yield services
    await services.stop()


async def test_a_service_without_its_topics_stops_and_names_them(
    lone: Services, namespace: str, tmp_path: Path
) -> None:
    await lone.start("queueing")
    assert await lone.wait_ended("queueing") == 2
    log = (tmp_path / "run" / "queueing.log").read_text()
    assert "the topics are not as declared" in log
    assert f"{namespace}.decisions" in log
    assert "Run: fallow topics create" in log
    assert "Traceback" not in log


async def test_a_service_on_other_topics_than_declared_stops_with_the_difference(
    lone: Services, kafka: str, namespace: str, tmp_path: Path
) -> None:
    declared = declared_topics(load_cell_file(tmp_path / "cell.yaml"), namespace)
    other = [replace(spec, partitions=13) if spec.name == f"{namespace}.executor-slots" else spec for spec in declared]
    await create_topics(kafka, other)
    await lone.start("admission")
    assert await lone.wait_ended("admission") == 2
    log = (tmp_path / "run" / "admission.log").read_text()
    assert f"{namespace}.executor-slots has 13 partitions, only 12 are used; Kafka cannot shrink it" in log
    assert "Traceback" not in log


async def test_no_service_starts_with_a_wrong_cell_file_and_each_names_the_line(lone: Services, tmp_path: Path) -> None:
    (tmp_path / "cell.yaml").write_text(CELL_FILE.replace("gpus: 1024", "gpus: -1"))
    await lone.start("executor", "metrics")
    assert [await lone.wait_ended(name) for name in ("executor", "metrics")] == [2, 2]
    logs = [(tmp_path / "run" / f"{name}.log").read_text() for name in ("executor", "metrics")]
    assert ["line 5: cells[0].pools[0].gpus = -1" in log for log in logs] == [True, True]
    assert ["Traceback" in log for log in logs] == [False, False]
