"""Decisions and inputs of which a disk has damaged a batch: commands say where, and a person leads the cell back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import pytest_asyncio

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.follower import Follower
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.opening import declared_topics, layout_of
from fallow.shared.log.port import Outgoing
from fallow.shared.log.snapshots import read_catalogue, write_snapshot
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.stack.choose import Choice
from tests.cli.usage.test_commands import call
from tests.histories import CELL, History, outgoing
from tests.kafka.worlds.damage import Segment, segment_of

pytestmark = pytest.mark.real_kafka

FILE = f"cells: [{{name: {CELL}, ordinal: 0, pools: [{{name: pool-0, gpus: 8}}]}}]\ntenants: [{{name: acme}}]\n"
Fallow = Callable[..., CompletedProcess[str]]


class Cell:
    """A cell of 30 decisions, each a batch, with a snapshot at version 20."""

    def __init__(self, log: KafkaLog, layout: Layout) -> None:
        self.log, self.layout = log, layout
        self.tp, self.jobs = layout.tp("decisions", CELL), layout.tp("jobs", CELL)
        self.history = History(5)
        self.decided: list[Decision] = []
        self.records: list[Outgoing] = []

    async def live(self) -> None:
        for count in (20, 10):
            self.decided += self.history.decisions(count)
            some = outgoing(self.layout, self.decided)[-count:]
            self.records += some
            for record in some:
                await self.log.publish([record])
            if count == 20:
                catalogue = await read_catalogue(self.log, self.layout, CELL)
                await write_snapshot(self.log, self.layout, self.history.state, catalogue, writer="test", wall_ms=0)
        for name in ("jobs", "nodes"):
            read = self.history.state.inputs.get(f"{name}-0", 0)
            topic = self.layout.topic(name)
            await self.log.publish([Outgoing(topic, b"early %d" % number, partition=0) for number in range(read)])

    def value(self, version: int) -> bytes:
        value = self.records[version - 1].value
        assert value is not None
        return value

    async def state(self) -> CellState:
        """What a reader that starts afresh folds to."""
        reader = Follower(self.log, self.layout, CELL)
        await reader.start()
        await reader.catch_up()
        await reader.stop()
        return reader.state


@pytest_asyncio.fixture
async def cell(kafka: str, namespace: str, tmp_path: Path) -> AsyncIterator[Cell]:
    (tmp_path / "cell.yaml").write_text(FILE, encoding="utf-8")
    file = load_cell_file(tmp_path / "cell.yaml")
    await create_topics(kafka, declared_topics(file, namespace))
    log = KafkaLog(kafka, "test")
    await log.start()
    cell = Cell(log, layout_of(file, namespace))
    await cell.live()
    yield cell
    await log.stop()


@pytest.fixture
def fallow(kafka: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_NAMESPACE": namespace, "FALLOW_CELL_FILE": str(tmp_path / "cell.yaml")}
    return lambda *words: call(*words, **where)


async def test_an_old_batch_of_decisions_that_cannot_be_read_costs_nothing_that_was_decided_since(
    cell: Cell, fallow: Fallow, kafka_choice: Choice, tmp_path: Path
) -> None:
    segment_of(kafka_choice, cell.tp).damage(cell.value(11))
    place = f"{cell.tp[0]}/0 cannot be read at offset 10 ("
    verified = fallow("verify")
    assert (verified.returncode, verified.stderr.count("\n")) == (1, 1)
    assert place in verified.stderr
    assert "fallow log repair" in verified.stderr
    exported = fallow("log", "export", str(tmp_path / "before.jsonl"))
    assert (exported.returncode, exported.stdout) == (1, f"29 records in {tmp_path / 'before.jsonl'}\n")
    assert place in exported.stderr
    looked = fallow("log", "repair", "--json")
    found = json.loads(looked.stdout)
    assert (looked.returncode, found["good_version"], found["damage_offset"], found["base_version"]) == (1, 30, 10, 20)
    repaired = fallow("log", "repair", "--yes")
    assert (repaired.returncode, repaired.stderr) == (0, "")
    assert place in repaired.stdout
    assert "Repaired: the cell goes on at version 31." in repaired.stdout
    assert fallow("verify").returncode == 0
    assert set((await cell.state()).jobs) == set(cell.history.state.jobs)


@pytest.mark.parametrize("damage", [Segment.damage, Segment.lengthen])
async def test_the_newest_batches_of_decisions_are_left_behind_where_one_cannot_be_read(
    cell: Cell, fallow: Fallow, kafka_choice: Choice, damage: Callable[[Segment, bytes], None]
) -> None:
    damage(segment_of(kafka_choice, cell.tp), cell.value(28))
    repaired = fallow("log", "repair", "--yes")
    assert (repaired.returncode, repaired.stderr) == (0, "")
    assert "The last good version is 27, at offset 26: " in repaired.stdout
    assert fallow("log", "repair").stdout.endswith("Nothing is to be repaired.\n")
    assert fallow("verify").returncode == 0
    assert (await cell.state()).version == 28


async def test_an_input_that_cannot_be_read_is_read_on_behind_the_bad_batch(
    cell: Cell, fallow: Fallow, kafka_choice: Choice
) -> None:
    end = (await cell.log.end_offsets([cell.jobs]))[cell.jobs]
    for number in range(3):
        await cell.log.publish([Outgoing(cell.jobs[0], b"later %d" % number, partition=0)])
    segment_of(kafka_choice, cell.jobs).damage(b"later 0")
    looked = fallow("log", "repair")
    assert f"{cell.jobs[0]}/0 cannot be read at offset {end} (" in looked.stdout
    repaired = fallow("log", "repair", "--yes", "--inputs", "begin")
    assert (repaired.returncode, repaired.stderr) == (0, "")
    assert (await cell.state()).inputs["jobs-0"] == end + 1
