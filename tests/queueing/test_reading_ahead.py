"""A flood of jobs waits in the log: queueing reads only so far ahead of placement."""

from __future__ import annotations

import asyncio

import pytest

from services.queueing.app import CellQueues, QueueingMetrics
from services.queueing.settings import QueueingSettings
from shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from shared.events.encoding import encode
from shared.events.jobs import JobAdmitted
from shared.events.values import JobSpec
from shared.log.cell_tasks import Tenure
from shared.log.layout import Layout
from shared.log.memory import MemoryBroker, MemoryLog
from shared.runtime.cell_file import parse_cell_file
from shared.runtime.process import make_context
from tests.contract.eventually import eventually

LAYOUT = Layout("t", {"main": 0})
TEXT = "cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 8}]}]\ntenants: [{name: vision}]\n"
FLOOD, AT_ONCE = 1_700, 500


def passed_over(jobs: int) -> Decision:
    """Placement has taken in so many records of `jobs` and refused them all."""
    return Decision(cell="main", version=1, epoch=1, at_ms=1, inputs={"jobs-0": jobs})


async def test_a_flood_is_read_as_far_as_placement_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.queueing.app.EARLY_MOST", 10)
    monkeypatch.setattr("services.queueing.app.READ_RECORDS_MOST", AT_ONCE)
    broker = MemoryBroker()
    for topic in ("decisions", "snapshots", "jobs", "operations", "queue"):
        broker.create_topic(f"t.{topic}", 1)
    log, file = MemoryLog(broker), parse_cell_file(TEXT, "cell")
    jobs = [
        JobAdmitted(cell="main", spec=JobSpec(id=f"j{n}", tenant="vision"), submit_ms=n, digest="0" * 32)
        for n in range(FLOOD)
    ]
    await log.publish([LAYOUT.outgoing(job, id="1", source="test", wall_ms=0) for job in jobs])
    context = make_context("queueing", QueueingSettings(namespace="t"))
    metrics = QueueingMetrics(context.registry)
    queues = CellQueues(context, log, LAYOUT, file, Tenure("main"), metrics, few=-1)
    running, cursors = asyncio.create_task(queues.run()), context.health.progress.cursors
    await eventually(lambda: cursors.get("t.jobs/0") == AT_ONCE)
    await asyncio.sleep(0.3)
    assert cursors["t.jobs/0"] == AT_ONCE
    decision = passed_over(AT_ONCE)
    chain = next_chain(CHAIN_START, encode(decision)).encode()
    await log.publish(
        [LAYOUT.outgoing(decision, id="1", source="test", wall_ms=0, more=((CHAIN_HEADER, chain),))],
    )
    await eventually(lambda: cursors.get("t.jobs/0") == 2 * AT_ONCE)
    context.stopping.set()
    await asyncio.wait_for(running, 5)
