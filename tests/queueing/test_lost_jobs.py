"""What queueing does where `jobs` has lost records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from zlib import crc32

import pytest

from services.queueing.app import CellQueues, QueueingMetrics
from services.queueing.settings import QueueingSettings
from shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from shared.events.effects import InputResumed
from shared.events.encoding import encode
from shared.events.jobs import JobAdmitted
from shared.events.values import JobSpec
from shared.log import losses
from shared.log.cell_tasks import Tenure
from shared.log.layout import Layout
from shared.log.memory import MemoryBroker, MemoryLog
from shared.runtime.cell_file import parse_cell_file
from shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually

LAYOUT, JOBS = Layout("t", {"main": 0}), ("t.jobs", 0)
TEXT = "cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 8}]}]\ntenants: [{name: vision}]\n"


class JobsWorld:
    def __init__(self) -> None:
        self.broker, self._chain = MemoryBroker(), CHAIN_START
        for topic in ("decisions", "snapshots", "jobs", "operations", "queue"):
            self.broker.create_topic(f"t.{topic}", 1)

    def admit(self, *names: str) -> None:
        for name in names:
            spec = JobSpec(id=name, tenant="vision")
            job = JobAdmitted(cell="main", spec=spec, submit_ms=0, digest="0" * 32)
            self.broker.write(LAYOUT.outgoing(job, id="1", source="test", wall_ms=0))

    def decide(self, decision: Decision) -> None:
        self._chain = next_chain(self._chain, encode(decision))
        more = ((CHAIN_HEADER, self._chain.encode()),)
        self.broker.write(LAYOUT.outgoing(decision, id="1", source="test", wall_ms=0, more=more))

    def placement_has_read(self, count: int) -> None:
        last = self.broker.partition(JOBS).records[count - 1]
        checksum = crc32(last.value or b"", crc32(last.key or b""))
        sums = {"jobs-0": checksum}
        self.decide(Decision(cell="main", version=1, epoch=1, at_ms=1, inputs={"jobs-0": count}, input_checksums=sums))

    @asynccontextmanager
    async def queueing(self) -> AsyncIterator[Context[QueueingSettings]]:
        context = make_context("queueing", QueueingSettings(namespace="t"))
        file, metrics = parse_cell_file(TEXT, "cell"), QueueingMetrics(context.registry)
        queues = CellQueues(context, MemoryLog(self.broker), LAYOUT, file, Tenure("main"), metrics, few=-1)
        running = asyncio.create_task(queues.run())
        try:
            yield context
        finally:
            context.stopping.set()
            await asyncio.wait_for(running, 5)


@pytest.fixture
def world() -> JobsWorld:
    return JobsWorld()


def jobs_read(context: Context[QueueingSettings]) -> int | None:
    return context.health.progress.cursors.get("t.jobs/0")


async def test_jobs_of_a_topic_that_was_filled_anew_enter_no_line_until_a_person_decides(world: JobsWorld) -> None:
    world.admit("a", "b", "c")
    world.placement_has_read(3)
    world.broker.cut(JOBS, 0)
    world.admit("d", "e", "f", "g")
    async with world.queueing() as context:
        await eventually(lambda: "another record at offset 2" in (context.health.waiting_for or ""))
        await asyncio.sleep(0.1)
        assert jobs_read(context) == 3
        resumed = InputResumed(input="jobs-0", from_offset=3, to_offset=0)
        world.decide(Decision(cell="main", version=2, epoch=1, at_ms=2, effects=(resumed,)))
        await eventually(lambda: jobs_read(context) == 4)
        assert context.health.waiting_for is None


async def test_a_topic_that_ends_before_what_was_read_is_noticed_while_it_is_followed(world: JobsWorld) -> None:
    async with world.queueing() as context:
        world.admit("a", "b", "c")
        await eventually(lambda: jobs_read(context) == 3)
        world.broker.cut(JOBS, 1)
        await eventually(lambda: "was read to offset 3 and ends at 1" in (context.health.waiting_for or ""))
        assert jobs_read(context) == 3


async def test_a_topic_that_was_filled_anew_to_the_same_end_is_noticed_at_rest(
    world: JobsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "LOOK_EVERY_S", 0.05)
    async with world.queueing() as context:
        world.admit("a", "b", "c")
        await eventually(lambda: jobs_read(context) == 3)
        world.broker.cut(JOBS, 0)
        world.admit("d", "e", "f")
        await eventually(lambda: "another record at offset 2" in (context.health.waiting_for or ""))
        assert jobs_read(context) == 3


async def test_jobs_that_were_deleted_before_queueing_read_them_put_up_no_fence(world: JobsWorld) -> None:
    """Placement has read them, or is fenced itself: what comes behind them enters its line."""
    world.admit("a", "b", "c", "d", "e")
    world.placement_has_read(2)
    world.broker.delete_before(JOBS, 4)
    async with world.queueing() as context:
        await eventually(lambda: jobs_read(context) == 5)
        assert context.health.waiting_for is None
        world.admit("f")
        await eventually(lambda: jobs_read(context) == 6)
        assert context.health.waiting_for is None
