"""Far more submissions than the cell can take: nothing accepted is lost, and one tenant's flood is not another's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.effects import JobStarted
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.jobs import JobAdmitted, JobRejected
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.port import Outgoing
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.clocks import wall_ms
from tests.admitted import singly
from tests.e2e.worlds.running_cell import CELL, RunningCell, a_job, in_full, running_cell

pytestmark = pytest.mark.real_kafka

DELAY_S_MAX = 3.0
"""The bound: a flood of a tenant that has a topic and a limit of its own delays most jobs of another by no more."""

STARVED_S = 15.0
"""A machine that stalls may hold up a single one; behind the whole flood each of them would wait for longer."""

NORMAL_S = 1.0
NODES = 128
PER_S, BURST = 100, 200
CELL_FILE = """
cells:
  - name: main
    ordinal: 0
    pools: [{name: training, gpus: 1024, gpus_per_node: 8}]
    queues: [{name: default, discipline: best-effort-fifo}]
    policy: {node_lease_wall_ms: 60000}
tenants:
  - {name: vision}
  - {name: noisy, own_topic: true, submissions: {per_s: 100, burst: 200}}
"""


@dataclass
class Flood:
    """Submissions of one tenant, made before they are sent, so that sending them costs as little as can be."""

    cell: RunningCell
    tenant: str
    topic: str
    sent: list[str] = field(default_factory=list)
    began_s: float = 0.0

    def made(self, count: int) -> list[Outgoing]:
        layout, made = self.cell.layout, []
        for _ in range(count):
            job = f"{self.tenant}-{len(self.sent)}"
            self.sent.append(full_id(self.tenant, job))
            event = SubmitJob(job=a_job(job, ms=50, tenant=self.tenant))
            found = layout.outgoing(event, id=job, source="test", wall_ms=wall_ms())
            made.append(Outgoing(layout.topic(self.topic), found.value, found.key, found.headers))
        return made

    async def run(self, per_s: int, seconds: float) -> None:
        """So many a second, a tenth of them at a time; more than Kafka takes go as fast as it takes them."""
        batches = [self.made(per_s // 10) for _ in range(int(seconds * 10))]
        self.began_s = begin_s = time.monotonic()
        for number, batch in enumerate(batches):
            await self.cell.log.publish(batch)
            await asyncio.sleep(max(0.0, begin_s + (number + 1) / 10 - time.monotonic()))


def told(figures: str) -> None:
    """For who runs the tests with -s."""
    print(figures)  # noqa: T201 - that is where it goes


async def delay_s(cell: RunningCell, job: str, wait_s: float = 120.0) -> float:
    """From before its submission to its start as the log tells it."""
    before_ms = wall_ms()
    await cell.submit(a_job(job, ms=50))
    await cell.until_over(job, wait_s=wait_s)
    return (started_ms(cell, in_full(job)) - before_ms) / 1000


def started_ms(cell: RunningCell, job: str) -> int:
    found = [
        decision.at_ms
        for decision in cell.decisions
        for effect in decision.effects
        if isinstance(effect, JobStarted) and effect.job == job
    ]
    return found[0]


async def answers(cell: RunningCell) -> dict[str, str]:
    """Admission's answer to each job: `admitted`, or the code of its rejection."""
    tp = cell.layout.tp("jobs", CELL)
    end, found = (await cell.log.end_offsets([tp]))[tp], dict[str, str]()
    reader = cell.log.reader({tp: 0})
    await reader.start()
    while reader.positions()[tp] < end:
        for record in await reader.poll(5_000):
            for event in singly(event_of(record)):
                if isinstance(event, JobAdmitted):
                    found.setdefault(event.spec.id, "admitted")
                elif isinstance(event, JobRejected):
                    found.setdefault(event.job, event.code.value)
    await reader.stop()
    return found


async def all_answered(cell: RunningCell, jobs: Sequence[str], wait_s: float = 120.0) -> dict[str, str]:
    end_s = time.monotonic() + wait_s
    while True:
        await cell.poll()
        found = await answers(cell)
        if all(job in found for job in jobs):
            return found
        assert time.monotonic() < end_s, f"{sum(job not in found for job in jobs)} submissions have no answer"


@pytest.fixture
async def cell(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[RunningCell]:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=NODES, cell_file=CELL_FILE) as found:
        await found.until(lambda c: len(c.state.nodes) == NODES, what="all nodes")
        yield found


async def test_a_flood_loses_nothing_that_was_accepted_and_leaves_no_trace(cell: RunningCell) -> None:
    flood = Flood(cell, "vision", "submissions")
    await flood.run(40_000, 1)
    over_s = time.monotonic()
    await cell.until(lambda c: len(c.state.finished) == len(flood.sent), what="the end of the flood", wait_s=180)
    told(f"{len(flood.sent)} jobs in {over_s - flood.began_s:.1f} s, over {time.monotonic() - over_s:.1f} s later")
    assert {over.status for over in cell.state.finished.values()} == {JobStatus.FINISHED}
    assert sorted(cell.state.finished) == sorted(flood.sent)
    delays = [await delay_s(cell, f"after-{number}") for number in range(5)]
    told(f"afterwards: {delays}")
    assert min(delays) <= NORMAL_S
    assert cell.problems() == []


async def test_one_tenant_s_flood_hardly_delays_another_s_jobs(cell: RunningCell) -> None:
    quiet = [await delay_s(cell, f"before-{number}") for number in range(3)]
    flood = Flood(cell, "noisy", "submissions.noisy")
    begin_ms = wall_ms()
    task = asyncio.create_task(flood.run(15_000, 4))
    delays: list[float] = []
    while not task.done():
        delays.append(await delay_s(cell, f"beside-{len(delays)}"))
    await task
    took_s = (wall_ms() - begin_ms) / 1000
    found = await all_answered(cell, flood.sent)
    accepted = [job for job in flood.sent if found[job] == "admitted"]
    told(f"{len(flood.sent)} sent, {len(accepted)} accepted; beside: {delays}; without: {quiet}")
    assert {found[job] for job in flood.sent} == {"admitted", "too_many_submissions"}
    assert BURST <= len(accepted) <= BURST + PER_S * (took_s + 1)
    assert len(delays) > 1
    assert median(delays) <= DELAY_S_MAX
    assert max(delays) <= STARVED_S
    await cell.until(
        lambda c: all(job in c.state.finished for job in accepted), what="all that was accepted", wait_s=60
    )
    assert cell.problems() == []


async def test_every_service_tells_how_far_it_is_behind(cell: RunningCell) -> None:
    flood = Flood(cell, "vision", "submissions")
    await flood.run(2_000, 3)
    await cell.until(lambda c: len(c.state.finished) == len(flood.sent), what="the end of the flood", wait_s=120)
    await asyncio.sleep(4.5)
    shown = {
        name: await metrics_of(cell, name)
        for name in ("admission", "placement", "queueing", "projector", "metrics", "executor")
    }
    assert {name: "fallow_lag_records{" in text for name, text in shown.items()} == dict.fromkeys(shown, True)
    assert {name: "fallow_lag_seconds{" in text for name, text in shown.items()} == dict.fromkeys(shown, True)


async def metrics_of(cell: RunningCell, name: str) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{cell.services.port(name)}/metrics")).text
