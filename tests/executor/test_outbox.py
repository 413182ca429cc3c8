"""What nodes say gets into the log in the order of its numbers, whatever the log does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import count

import pytest

from fallow.services.executor.app.outbox import EVENTS_PER_PUBLISH, Batch, Outbox, without_outdated
from fallow.services.executor.policy.records import Said
from fallow.services.executor.telemetry import ExecutorTelemetry
from fallow.shared.events import nodes as n
from fallow.shared.events.value import replace
from fallow.shared.events.values import NodeSpec, RunStatus
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Outgoing
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.process import make_context
from fallow.shared.runtime.settings import ServiceSettings
from tests.executor.cells import CELL

LAYOUT = Layout("test", {CELL: 0})


class Numbers:
    """One node that numbers its words anew when it is asked to."""

    cell = CELL

    def __init__(self) -> None:
        self._seq = count(100)

    def still_ours(self, events: Iterable[Said]) -> list[Said]:
        return list(events)

    def renumber(self, events: Iterable[Said]) -> list[Said]:
        return [replace(event, seq=next(self._seq)) for event in events]

    def confirmed(self, events: Iterable[Said], made_ms: int) -> None:
        pass

    def stamped(self, events: Iterable[Said], stamped_ms: int) -> bool:
        return True


class Listed(Numbers):
    """Knows of what it was told that it is in the log, and since when it was said."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, int]] = []

    def confirmed(self, events: Iterable[Said], made_ms: int) -> None:
        self.heard.append((made_ms, len(list(events))))


class Silenced(Numbers):
    """Lets go of all its nodes once it has looked."""

    has_looked = False

    async def look(self) -> None:
        self.has_looked = True

    def still_ours(self, events: Iterable[Said]) -> list[Said]:
        return [] if self.has_looked else list(events)


class Moody(MemoryLog):
    """A log that is away until it is told otherwise."""

    is_away = True

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        if self.is_away:
            raise LogUnavailable("not now")
        return await super().publish(messages)


@pytest.fixture
async def log() -> AsyncIterator[Moody]:
    broker = MemoryBroker()
    broker.create_topic("test.nodes", 1)
    log = Moody(broker)
    await log.start()
    yield log
    await log.stop()


def finished(job: str, seq: int) -> n.RunStatusUpdate:
    return n.RunStatusUpdate(node="node-1", boot="boot-1", seq=seq, job=job, attempt=1, status=RunStatus.FINISHED)


def report(seq: int, node: str = "node-1") -> n.NodeEvent:
    return n.NodeReport(cell=CELL, node=node, boot="boot-1", seq=seq)


class Stamped(Listed):
    """Knows with which times its words were stamped. The numbers of the first ones are `wrong`: this happens then."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[Callable[[], None]] = []
        self.stamps: list[tuple[list[int], int]] = []

    def stamped(self, events: Iterable[Said], stamped_ms: int) -> bool:
        self.stamps.append(([event.seq for event in events], stamped_ms))
        if not self.wrong:
            return True
        self.wrong.pop()()
        return False


TOO_LARGE = n.NodeJoined(
    cell=CELL,
    node="node-2",
    boot="b",
    seq=1,
    spec=NodeSpec(id="node-2", pool="p", gpus=8, labels={f"label-{number}": "x" * 60 for number in range(20_000)}),
)


@pytest.mark.parametrize("beside", [(), (TOO_LARGE,)], ids=["alone", "beside one that the log does not take"])
async def test_whoever_speaks_learns_the_time_that_the_broker_stamped_on_the_words(beside: tuple[Said, ...]) -> None:
    context, speaker = make_context("executor", ServiceSettings()), Stamped()
    broker = MemoryBroker(now_ms=lambda: 77)
    broker.create_topic("test.nodes", 1)
    log = MemoryLog(broker)
    await log.start()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    running = asyncio.create_task(outbox.run())
    outbox.put([report(5), *beside], 0)
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert speaker.stamps == [([5, *(word.seq for word in beside)], 77)]


async def test_words_whose_numbers_no_reader_takes_are_said_again_before_all_that_waits_and_renew_nothing() -> None:
    context, speaker = make_context("executor", ServiceSettings()), Stamped()
    broker = MemoryBroker(now_ms=lambda: 77)
    broker.create_topic("test.nodes", 1)
    log = MemoryLog(broker)
    await log.start()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    speaker.wrong = [lambda: outbox.put([finished("c", 7)], 4)]
    running = asyncio.create_task(outbox.run())
    outbox.put([finished("a", 5), finished("b", 6)], 3)
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert [seqs for seqs, _ in speaker.stamps] == [[5, 6], [100, 101, 102]]
    assert speaker.heard == [(3, 2), (4, 1)]


async def test_what_came_in_while_the_log_was_away_keeps_its_order_and_its_numbers_grow(log: Moody) -> None:
    context = make_context("executor", ServiceSettings())
    telemetry = ExecutorTelemetry(context.registry, dict, dict)
    outbox = Outbox(context, log, LAYOUT, Numbers(), telemetry)
    running = asyncio.create_task(outbox.run())
    outbox.put([finished("first", 1)], 0)
    await asyncio.sleep(0.02)
    outbox.put([finished("second", 2), finished("third", 3)], 1)
    await asyncio.sleep(0.2)
    assert "node reports are not being published: not now" in (context.health.waiting_for or "")
    log.is_away = False
    async with asyncio.timeout(5):
        await outbox.drained()
    assert "what nodes say" not in (context.health.waiting_for or "")
    running.cancel()
    reader = log.reader({("test.nodes", 0): 0})
    await reader.start()
    records = [event_of(record) for record in await reader.poll()]
    words = [word for record in records if isinstance(record, n.RunsReported) for word in record.words]
    assert [word.job for word in words] == ["first", "second", "third"]
    numbers = [word.seq for word in words]
    assert numbers == sorted(set(numbers))
    assert numbers[0] >= 100, "what may have arrived is said again under a new number: the old one would be ignored"


def test_of_a_nodes_reports_that_pile_up_only_the_newest_is_said() -> None:
    run, other = finished("job", 2), report(7, "node-2")
    batches = [Batch(1, [report(1), run]), Batch(2, [other]), Batch(3, [report(3)])]
    assert [list(batch.events) for batch in without_outdated(batches)] == [[run], [other], [report(3)]]


async def test_who_finds_before_it_speaks_that_others_speak_for_its_nodes_is_silent(log: Moody) -> None:
    log.is_away = False
    context, speaker = make_context("executor", ServiceSettings()), Silenced()
    telemetry = ExecutorTelemetry(context.registry, dict, dict)
    outbox = Outbox(context, log, LAYOUT, speaker, telemetry, before_publish=speaker.look)
    running = asyncio.create_task(outbox.run())
    outbox.put([finished("first", 1)], 0)
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert await log.end_offsets([("test.nodes", 0)]) == {("test.nodes", 0): 0}


async def test_what_the_log_will_never_take_is_left_unsaid_and_keeps_nothing_back(log: Moody) -> None:
    log.is_away = False
    context = make_context("executor", ServiceSettings())
    telemetry = ExecutorTelemetry(context.registry, dict, dict)
    outbox = Outbox(context, log, LAYOUT, Numbers(), telemetry)
    running = asyncio.create_task(outbox.run())
    outbox.put([finished("first", 1), TOO_LARGE, report(2), finished("second", 3)], 0)
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    reader = log.reader({("test.nodes", 0): 0})
    await reader.start()
    records = [event_of(record) for record in await reader.poll()]
    words = {word.job for record in records if isinstance(record, n.RunsReported) for word in record.words}
    assert words == {"first", "second"}
    assert any(isinstance(record, n.NodeReport) for record in records)
    assert not any(isinstance(record, n.NodeJoined) for record in records)
    assert context.registry.get_sample_value("fallow_executor_too_large_total", {"cell": CELL}) == 1


def test_of_a_report_in_parts_all_parts_are_said() -> None:
    parts = [replace(report(seq), partial=True) for seq in (3, 4)]
    batches = [Batch(1, [report(1), report(2)]), Batch(2, parts)]
    assert [list(batch.events) for batch in without_outdated(batches)] == [[], parts]


@pytest.mark.parametrize("many", [1, EVENTS_PER_PUBLISH, EVENTS_PER_PUBLISH + 1])
async def test_words_however_many_count_from_when_they_were_made_and_not_from_when_they_arrived(
    log: Moody, many: int
) -> None:
    log.is_away = False
    context, speaker = make_context("executor", ServiceSettings()), Listed()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    outbox.put([finished(f"job-{number}", number) for number in range(many)], 7)
    outbox.put([finished("last", many)], 9)
    running = asyncio.create_task(outbox.run())
    async with asyncio.timeout(10):
        await outbox.drained()
    running.cancel()
    assert speaker.heard == [(7, many), (9, 1)]
