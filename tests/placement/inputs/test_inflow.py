"""A writer's inputs come from readers of their own: none waits for another, and nothing is handed out twice or lost."""

from __future__ import annotations

import pytest

from fallow.services.placement.app.watch.inflow import Inflow
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.memory.reader import MemoryReader
from fallow.shared.log.port import LogTruncated, LogUnavailable, Outgoing, Reader

JOBS, NODES = ("jobs", 0), ("nodes", 0)


class Inputs:
    """Two topics, and what became of their records."""

    def __init__(self, poll_records: int = 100) -> None:
        self.broker, self.truncated = MemoryBroker(), list[LogTruncated]()
        for topic, _ in (JOBS, NODES):
            self.broker.create_topic(topic, 1)
        log = MemoryLog(self.broker)
        readers = {topic: log.reader({(topic, 0): 0}) for topic, _ in (JOBS, NODES)}
        self.inflow = Inflow(readers, poll_records, self.refused)

    def refused(self, error: LogTruncated) -> bool:
        self.truncated.append(error)
        return error.asked < error.begin

    def write(self, topic: str, *values: str) -> None:
        for value in values:
            self.broker.write(Outgoing(topic, value.encode(), partition=0))

    async def taken(self, without: frozenset[str] = frozenset()) -> list[str]:
        """What there is, without waiting for more than a moment."""
        await self.inflow.wait(50, without=without)
        return [(record.value or b"").decode() for record in await self.inflow.take()]


async def test_what_has_come_is_handed_out_once_and_in_its_order() -> None:
    inputs = Inputs()
    inputs.write("jobs", "a", "b")
    assert await inputs.taken() == ["a", "b"]
    assert await inputs.taken() == []
    inputs.write("jobs", "c")
    inputs.write("nodes", "d")
    assert sorted(await inputs.taken() + await inputs.taken()) == ["c", "d"]
    await inputs.inflow.stop()


async def test_what_came_behind_the_first_news_comes_along_up_to_a_bound() -> None:
    inputs = Inputs(poll_records=3)
    inputs.write("jobs", "a")
    await inputs.inflow.wait(50)
    inputs.write("jobs", "b", "c", "d", "e")
    assert [(record.value or b"").decode() for record in await inputs.inflow.take()] == ["a", "b", "c"]
    assert await inputs.taken() == ["d", "e"]
    await inputs.inflow.stop()


async def test_a_topic_that_is_let_be_is_not_read() -> None:
    inputs = Inputs()
    inputs.write("jobs", "a")
    inputs.write("nodes", "b")
    assert await inputs.taken(without=frozenset({"jobs"})) == ["b"]
    assert await inputs.taken() == ["a"]
    await inputs.inflow.stop()


async def test_reading_goes_on_where_the_log_begins_when_records_were_deleted_unread() -> None:
    inputs = Inputs()
    inputs.write("jobs", "a", "b", "c")
    inputs.write("nodes", "d")
    inputs.broker.delete_before(JOBS, 2)
    assert sorted(await inputs.taken() + await inputs.taken()) == ["c", "d"]
    assert [(error.asked, error.begin) for error in inputs.truncated] == [(0, 2)]
    await inputs.inflow.stop()


async def test_a_log_that_is_away_is_told() -> None:
    inputs = Inputs()
    inputs.broker.is_away = True
    with pytest.raises(LogUnavailable):
        await inputs.inflow.start()
    await inputs.inflow.stop()


async def test_where_one_reader_cannot_start_none_stays_open() -> None:
    class Counted(MemoryReader):
        opened = closed = 0

        async def start(self) -> None:
            Counted.opened += 1
            await super().start()

        async def stop(self) -> None:
            Counted.closed += 1
            await super().stop()

    class Away(Counted):
        async def start(self) -> None:
            raise LogUnavailable("no Kafka")

    broker = MemoryBroker()
    readers: dict[str, Reader] = {}
    for name, kind in (("nodes", Counted), ("jobs", Away), ("queue", Counted)):
        broker.create_topic(name, 1)
        readers[name] = kind(broker, {(name, 0): 0})
    with pytest.raises(LogUnavailable):
        await Inflow(readers, 100, lambda _: True).start()
    assert (Counted.opened, Counted.closed) == (2, 3)
