"""What is taken along when a cell moves, and what is found where it is put down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from fallow.cli.cell.archive import Archive, Head, Unread, read_archive
from fallow.cli.cell.cell_transfer import Departure, NotMovable, arrive, refuse_where_something_is
from fallow.cli.verify.verification import LiveCheck
from fallow.shared.client.history import History
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.admin.group_offsets import committed_offsets
from fallow.shared.log.follower import Follower
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import Catalogue
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Outgoing
from fallow.shared.log.snapshots import newest_snapshot, read_catalogue, write_snapshot
from fallow.shared.runtime.stack.embedded_broker import EmbeddedBroker
from tests.cli.usage.test_commands import call
from tests.cli.worlds.cells import publish
from tests.cli.worlds.logs import DIGEST, LogWriter, an_honest_log, enqueued
from tests.e2e.worlds.running_cell import CELL_FILE

LAYOUT = Layout("t", {"main": 0})
TWO_CELLS = Layout("t", {"main": 0, "other": 1})
SPEC = JobSpec(id="new", tenant="vision")


@pytest.fixture
def broker() -> MemoryBroker:
    return an_empty_broker()


def an_empty_broker() -> MemoryBroker:
    made = MemoryBroker()
    for topic in ("decisions", "snapshots", "jobs", "nodes", "queue", "proposals", "operations"):
        made.create_topic(f"t.{topic}", 2)
    made.create_topic("t.submissions", 3)
    return made


async def a_cell(broker: MemoryBroker) -> MemoryLog:
    log = MemoryLog(broker)
    await publish(log, an_honest_log().records, "t")
    return log


def admitted() -> JobAdmitted:
    return JobAdmitted(cell="main", spec=SPEC, submit_ms=1, digest=DIGEST)


async def collected(log: MemoryLog, layout: Layout = LAYOUT) -> tuple[CellState, tuple[Unread, ...]]:
    return await Departure(log, layout, "main", {("t.submissions", 1): 1}, []).collect()


async def moved(written: LogWriter, unread: tuple[Unread, ...] = ()) -> MemoryLog:
    """An empty log in which the cell of this log was put down."""
    log, state = MemoryLog(an_empty_broker()), written.state
    head = Head(state.cell, state.version, state.at_ms, state.chain, digest_of(state))
    await arrive(log, LAYOUT, Archive(head, state, unread), writer="w", wall_ms=0)
    return log


def continued(written: LogWriter) -> LogWriter:
    """The cell, whose next record is the first of another log."""
    written.records.clear()
    return written


async def test_what_was_accepted_and_not_taken_in_yet_goes_along(broker: MemoryBroker) -> None:
    log = await a_cell(broker)
    await log.publish([LAYOUT.outgoing(admitted(), id="1", source="test", wall_ms=0)])
    state, unread = await collected(log)
    assert (state.version, [record.topic for record in unread]) == (9, ["jobs"])
    there = await moved(an_honest_log(), unread)
    assert (await there.end_offsets([("t.jobs", 0)]))["t.jobs", 0] == 1


async def test_submissions_behind_those_that_admission_answered_go_along(broker: MemoryBroker) -> None:
    log = await a_cell(broker)
    outgoing = LAYOUT.outgoing(SubmitJob(job=SPEC), id="1", source="test", wall_ms=0)
    await log.publish([outgoing] * 3)
    _, unread = await collected(log)
    partition = next(tp for tp, end in (await log.end_offsets([("t.submissions", n) for n in range(3)])).items() if end)
    assert len(unread) == (2 if partition[1] == 1 else 3)


async def test_of_several_cells_none_takes_submissions_that_may_be_another_s(broker: MemoryBroker) -> None:
    log = await a_cell(broker)
    await log.publish([LAYOUT.outgoing(SubmitJob(job=SPEC), id="1", source="test", wall_ms=0)] * 2)
    with pytest.raises(NotMovable, match="let admission finish"):
        await collected(log, TWO_CELLS)


async def test_a_cell_that_has_not_begun_cannot_move(broker: MemoryBroker) -> None:
    with pytest.raises(NotMovable, match="has not begun"):
        await collected(MemoryLog(broker))


@pytest.mark.parametrize("topic", ["decisions", "jobs", "nodes", "snapshots", "operations", "proposals", "queue"])
async def test_nothing_is_put_down_where_any_topic_of_the_cell_holds_a_record(broker: MemoryBroker, topic: str) -> None:
    log = MemoryLog(broker)
    await refuse_where_something_is(log, LAYOUT, "main")
    await log.publish([LAYOUT.outgoing(admitted(), id="1", source="test", wall_ms=0)] if topic == "jobs" else [])
    outgoing = LAYOUT.outgoing(admitted(), id="1", source="test", wall_ms=0)
    await log.publish([type(outgoing)(f"t.{topic}", outgoing.value, outgoing.key, outgoing.headers, 0)])
    with pytest.raises(NotMovable, match=f"t.{topic}/0 holds records"):
        await refuse_where_something_is(log, LAYOUT, "main")


async def test_a_moved_cell_is_followed_from_what_it_was(broker: MemoryBroker) -> None:
    written = an_honest_log()
    log = await moved(written)
    continued(written).write(enqueued("later"))
    await publish(log, written.records, "t")
    follower = Follower(log, LAYOUT, "main")
    await follower.start()
    await follower.catch_up()
    await follower.stop()
    assert (follower.state.version, follower.state.offset, "later" in follower.state.jobs) == (10, 0, True)


@pytest.mark.parametrize("days", [0, 3])
async def test_a_moved_log_is_verified_from_its_origin_however_many_snapshots_came_since(days: int) -> None:
    written = an_honest_log()
    log = await moved(written)
    continued(written).write(enqueued("later"))
    await publish(log, written.records, "t")
    newest = await newest_snapshot(log, LAYOUT, "main")
    assert newest is not None
    catalogue: Catalogue = await read_catalogue(log, LAYOUT, "main")
    written.state.at_ms += days * 86_400_000
    await write_snapshot(log, LAYOUT, written.state, catalogue, writer="later", wall_ms=0)
    live = LiveCheck(log, LAYOUT, "main")
    found = await live.run()
    assert (found.ok, found.from_version, found.to_version) == (True, 9, 10)


async def test_a_decision_of_a_moved_log_is_found_by_its_version() -> None:
    written = an_honest_log()
    log = await moved(written)
    continued(written)
    for job in ("a", "b", "c"):
        written.write(enqueued(job))
    await publish(log, written.records, "t")
    history = History(log, LAYOUT)
    assert [decision.version async for decision in history.decisions("main", 11, 11)] == [11]
    assert [decision.version async for decision in history.decisions("main", 12, None)] == [12]
    assert [decision.version async for decision in history.decisions("main", 99, 99)] == []


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[str]:
    """An embedded broker with a cell, and two submissions of which admission has answered the first."""
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    log = KafkaLog(broker.address, "test")
    await log.start()
    await publish(log, an_honest_log().records, "t")
    submissions = [Outgoing("t.submissions", b"{}", name, partition=0) for name in (b"one", b"two")]
    await log.publish(submissions)
    await log.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, group_id="t.admission", enable_auto_commit=False)
    await consumer.start()
    answered = KafkaTopicPartition("t.submissions", 0)
    consumer.assign([answered])
    await consumer.commit({answered: 1})
    await consumer.stop()
    yield broker.address
    broker.stop()


async def test_a_cell_on_the_embedded_broker_is_exported_with_what_admission_has_not_answered(
    embedded: str, tmp_path: Path
) -> None:
    (tmp_path / "cell.yaml").write_text(CELL_FILE, encoding="utf-8")
    where = {"FALLOW_KAFKA": embedded, "FALLOW_NAMESPACE": "t", "FALLOW_CELL_FILE": str(tmp_path / "cell.yaml")}
    done = await asyncio.to_thread(call, "snapshot", "export", str(tmp_path / "cell"), **where)
    assert done.returncode == 0
    assert "2 live jobs, 1 remembered, 2 nodes, 1 unread record in" in done.stdout
    assert done.stderr.startswith(
        "fallow: if services of namespace t still run (this Kafka cannot tell), what cell main "
    )
    assert [record.key for record in read_archive(tmp_path / "cell").unread] == [b"two"]


async def test_a_broker_that_does_not_know_yet_how_far_a_group_has_come_is_asked_again(
    embedded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a group that still loads Kafka names no partition, and aiokafka passes over the error beside that."""
    answer, asked = AIOKafkaAdminClient.list_consumer_group_offsets, []

    async def loads_at_first(*words: Any, **more: Any) -> Any:
        asked.append(words)
        return {} if len(asked) == 1 else await answer(*words, **more)

    monkeypatch.setattr(AIOKafkaAdminClient, "list_consumer_group_offsets", loads_at_first)
    tps = [("t.submissions", 0), ("t.submissions", 1)]
    assert await committed_offsets(embedded, "t.admission", tps) == {("t.submissions", 0): 1}
    assert len(asked) == 2
