"""The tail of a cell's log is lost on a real Kafka; a person leads the cell back, as docs/reliability.md says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from fallow.cli.log.read_back import records_of
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.follower import Follower
from fallow.shared.log.opening import declared_topics
from fallow.shared.log.port import LogUnavailable, Outgoing
from fallow.shared.log.snapshots import read_catalogue, write_snapshot
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.cli.usage.test_commands import call
from tests.contract.eventually import eventually
from tests.e2e.worlds.running_cell import CELL, RunningCell, a_job, running_cell

pytestmark = pytest.mark.real_kafka

LOST = 6
Fallow = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    return lambda *words: call(*words, FALLOW_CELL_FILE=str(tmp_path / "cell.yaml"), **where)


async def lose_the_tail(cell: RunningCell, kafka: str, namespace: str, lost: int = LOST) -> int:
    """Make the topic anew with all but its last records; how many are left."""
    tp = cell.layout.tp("decisions", CELL)
    kept = [record async for record in records_of(cell.log, [tp])][:-lost]
    declared = declared_topics(load_cell_file(cell.folder / "cell.yaml"), namespace)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.delete_topics([tp[0]])
    await admin.close()

    async def is_made_anew() -> bool:
        try:
            return not (await create_topics(kafka, declared)).differences and await ends_at(cell, 0)
        except LogUnavailable:
            return False  # the deletion is under way

    await eventually(is_made_anew, within_s=30)
    await cell.log.publish([Outgoing(tp[0], r.value, r.key, r.headers, r.partition) for r in kept])
    return len(kept)


async def ends_at(cell: RunningCell, end: int) -> bool:
    tp = cell.layout.tp("decisions", CELL)
    return (await cell.log.end_offsets([tp]))[tp] == end


async def snapshot(cell: RunningCell) -> None:
    """A snapshot of the newest state, as queueing takes them."""
    catalogue = await read_catalogue(cell.log, cell.layout, CELL)
    await write_snapshot(cell.log, cell.layout, cell.state, catalogue, writer="test", wall_ms=0)


async def is_fenced(cell: RunningCell, name: str) -> bool:
    """Whether the service is up and does nothing for the cell."""
    port = cell.services.port(name)
    if port is None:
        return False
    try:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}/readyz/{CELL}")
    except httpx.TransportError:
        return False  # it starts
    return answer.status_code == 503 and bool(answer.json().get("fenced"))


async def test_a_lost_tail_is_noticed_repaired_by_a_person_and_the_cell_goes_on(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=2) as cell:
        await cell.submit(a_job("before"))
        await cell.until_over("before")
        await cell.submit(*(a_job(f"late-{n}") for n in range(LOST)))
        await cell.until_over(*(f"late-{n}" for n in range(LOST)))
        await snapshot(cell)
        await cell.services.stop()
        left = await lose_the_tail(cell, kafka, namespace)

        await cell.services.start()
        await eventually(lambda: is_fenced(cell, "placement"), within_s=60)
        await cell.services.stop()

        looked = fallow("log", "repair", "--json")
        found = json.loads(looked.stdout)
        assert (looked.returncode, found["end"], found["good_offset"], found["whole"]) == (1, left, left - 1, False)
        assert found["snapshots"], "the snapshot is beyond the end"
        repaired = fallow("log", "repair", "--yes")
        assert (repaired.returncode, repaired.stderr) == (0, "")
        assert f"Repaired: the cell goes on at version {found['good_version'] + 1}." in repaired.stdout
        assert fallow("log", "repair").stdout.endswith("Nothing is to be repaired.\n")

        cell.follower = Follower(cell.log, cell.layout, CELL)
        await cell.follower.start()
        await cell.services.start()
        await cell.services.wait_ready(wait_s=60)
        await cell.submit(a_job("after"))
        await cell.until_over("after", wait_s=60)
        verified = fallow("verify", "--json")
        assert (verified.returncode, json.loads(verified.stdout)["ok"]) == (0, True), verified.stdout


@pytest.mark.parametrize("how", ["made anew", "made anew and filled again", "records deleted"])
async def test_an_emptied_log_goes_on_from_the_newest_snapshot_and_no_job_that_had_ended_by_then_runs_again(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, fallow: Fallow, how: str
) -> None:
    async with running_cell(kafka, redis_url, namespace, tmp_path, nodes=2) as cell:
        await cell.submit(*(a_job(f"before-{n}") for n in range(LOST)))
        await cell.until_over(*(f"before-{n}" for n in range(LOST)))
        await cell.services.stop()
        cell.follower = Follower(cell.log, cell.layout, CELL)
        await cell.follower.start()
        await cell.follower.catch_up()
        await snapshot(cell)
        ended, version, tp = cell.state.over_next, cell.state.version, cell.layout.tp("decisions", CELL)
        if how.startswith("made anew"):
            await lose_the_tail(cell, kafka, namespace, lost=cell.state.offset + 1)
        if how.endswith("filled again"):
            await cell.log.publish([Outgoing(tp[0], b"{}", partition=tp[1])] * (cell.state.offset + 3))
        if how == "records deleted":
            await cell.log.publish([Outgoing(tp[0], b"{}", partition=tp[1])])  # what stood behind the snapshot
            await cell.log.delete_before(tp, cell.state.offset + 2)

        looked = fallow("log", "repair")
        assert looked.returncode == 1
        assert f"A repair goes on from the snapshot of version {version}, the newest whole one" in looked.stdout
        repaired = fallow("log", "repair", "--yes")
        assert (repaired.returncode, repaired.stderr) == (0, ""), repaired.stdout
        assert f"Repaired: the cell goes on at version {version + 1}." in repaired.stdout
        assert fallow("log", "repair").stdout.endswith("Nothing is to be repaired.\n")

        cell.follower = Follower(cell.log, cell.layout, CELL)
        await cell.follower.start()
        await cell.services.start()
        await cell.services.wait_ready(wait_s=60)
        await cell.submit(a_job("after"))
        await cell.until_over("after", wait_s=60)
        assert cell.state.over_next == ended + 1
        verified = fallow("verify", "--json")
        assert (verified.returncode, json.loads(verified.stdout)["ok"]) == (0, True), verified.stdout
