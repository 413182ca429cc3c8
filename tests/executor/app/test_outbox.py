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
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeSpec, RunStatus
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Outgoing, RecordTooLarge
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ServiceSettings
from tests.contract.eventually import eventually
from tests.executor.worlds.cells import CELL

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


class Tried(Numbers):
    """Knows how many words each record was to have. This happens when one is in the log."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._then = then

    def confirmed(self, events: Iterable[Said], made_ms: int) -> None:
        self._then()

    def still_ours(self, events: Iterable[Said]) -> list[Said]:
        ours = super().still_ours(events)
        self.sizes.append(len(ours))
        return ours


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


class Strict(MemoryLog):
    """A log whose topic takes records of some bytes. Where it refuses one of several, the others are there."""

    bytes_max = 5_000

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        """Raises RecordTooLarge."""
        fitting = [message for message in messages if len(message.value or b"") <= self.bytes_max]
        stamped_ms = await super().publish(fitting)
        if len(fitting) < len(messages):
            raise RecordTooLarge("MESSAGE_TOO_LARGE")
        return stamped_ms


async def strict_log() -> Strict:
    broker = MemoryBroker(now_ms=lambda: 77)
    broker.create_topic("test.nodes", 1)
    log = Strict(broker)
    await log.start()
    return log


def bytes_of_a_word() -> int:
    """How many a record of one word of one job takes."""
    one = LAYOUT.outgoing(n.RunsReported(cell=CELL, words=(finished("job-00", 1),)), id="", source="", wall_ms=0)
    return len(one.value or b"")


async def records_in(log: MemoryLog) -> list[Event | Undecodable]:
    reader = log.reader({("test.nodes", 0): 0})
    await reader.start()
    return [event_of(record) for record in await reader.poll()]


async def words_in(log: MemoryLog) -> list[n.RunStatusUpdate]:
    return [word for record in await records_in(log) if isinstance(record, n.RunsReported) for word in record.words]


def refusals(context: Context[ServiceSettings]) -> float:
    return context.registry.get_sample_value("fallow_executor_too_large_total", {"cell": CELL}) or 0


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
    spec=NodeSpec(id="node-2", pool="p", gpus=8, labels={f"label-{number}": "x" * 60 for number in range(200)}),
)


async def test_whoever_speaks_learns_the_time_that_the_broker_stamped_on_the_words() -> None:
    context, speaker = make_context("executor", ServiceSettings()), Stamped()
    broker = MemoryBroker(now_ms=lambda: 77)
    broker.create_topic("test.nodes", 1)
    log = MemoryLog(broker)
    await log.start()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    running = asyncio.create_task(outbox.run())
    outbox.put([report(5)], 0)
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert speaker.stamps == [([5], 77)]


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


async def test_a_word_that_the_topic_refuses_for_its_size_is_kept_and_no_lease_is_renewed_by_it() -> None:
    context, speaker, log = make_context("executor", ServiceSettings()), Stamped(), await strict_log()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    running = asyncio.create_task(outbox.run())
    log.bytes_max = 0
    outbox.put([report(1)], 3)
    await eventually(lambda: refusals(context) > 2)
    why = context.health.waiting_for or ""
    assert "topic test.nodes refuses a word of node node-1 for its size" in why
    assert "max.message.bytes" in why
    assert (speaker.heard, speaker.stamps, outbox.is_empty) == ([], [], False)
    log.bytes_max = 10**5
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert speaker.heard == [(3, 1)]
    assert "size" not in (context.health.waiting_for or "")
    assert len(await records_in(log)) == 1


@pytest.mark.parametrize("words", [2, 7, 100])
async def test_of_a_record_that_is_too_large_the_words_go_out_in_smaller_ones_and_each_counts_once(words: int) -> None:
    context, speaker, log = make_context("executor", ServiceSettings()), Stamped(), await strict_log()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    log.bytes_max = bytes_of_a_word() + 20
    running = asyncio.create_task(outbox.run())
    outbox.put([finished(f"job-{number:02}", number) for number in range(words)], 3)
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    said = await words_in(log)
    assert [word.job for word in said] == [f"job-{number:02}" for number in range(words)]
    assert [word.seq for word in said] == sorted({word.seq for word in said})
    assert said[0].seq >= 100, "some of it may have arrived"
    assert sum(count for _, count in speaker.heard) == words
    assert "size" not in (context.health.waiting_for or "")


async def test_what_waits_behind_words_that_are_too_large_together_is_said_too() -> None:
    context, speaker, log = make_context("executor", ServiceSettings()), Listed(), await strict_log()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    log.bytes_max = bytes_of_a_word() + 20
    outbox.put([finished(f"job-{number:02}", number) for number in range(7)], 3)
    outbox.put([finished(f"job-{number:02}", number) for number in range(7, 9)], 4)
    running = asyncio.create_task(outbox.run())
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert [word.job for word in await words_in(log)] == [f"job-{number:02}" for number in range(9)]
    assert sum(count for made_ms, count in speaker.heard if made_ms == 4) == 2


async def test_what_the_log_refuses_for_another_reason_than_its_size_is_not_cut_and_the_process_not_ready(
    log: Moody,
) -> None:
    context, speaker = make_context("executor", ServiceSettings()), Tried()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    running = asyncio.create_task(outbox.run())
    outbox.put([finished(f"job-{number}", number) for number in range(8)], 3)
    await eventually(lambda: len(speaker.sizes) > 1)
    assert "node reports are not being published: not now" in (context.health.waiting_for or "")
    log.is_away = False
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert set(speaker.sizes) == {8}


async def test_after_a_record_that_was_too_large_the_next_ones_grow_from_what_the_topic_took() -> None:
    context, log = make_context("executor", ServiceSettings()), await strict_log()
    speaker = Tried(lambda: setattr(log, "bytes_max", 10**5))
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    log.bytes_max = bytes_of_a_word() + 20
    outbox.put([finished(f"job-{number:02}", number) for number in range(16)], 3)
    running = asyncio.create_task(outbox.run())
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert speaker.sizes == [16, 8, 4, 2, 1, 2, 4, 8, 1]


async def test_what_stands_before_a_word_that_is_too_large_counts_and_what_stands_behind_it_waits() -> None:
    context, speaker, log = make_context("executor", ServiceSettings()), Listed(), await strict_log()
    outbox = Outbox(context, log, LAYOUT, speaker, ExecutorTelemetry(context.registry, dict, dict))
    running = asyncio.create_task(outbox.run())
    outbox.put([finished("first", 1), TOO_LARGE, report(2), finished("second", 3)], 4)
    await eventually(lambda: refusals(context) > 5)
    outbox.put([finished("third", 10_000)], 5)
    assert "a word of node node-2" in (context.health.waiting_for or "")
    assert speaker.heard == [(4, 1)]
    log.bytes_max = 10**5
    async with asyncio.timeout(5):
        await outbox.drained()
    running.cancel()
    assert sum(count for _, count in speaker.heard) == 5
    words = await words_in(log)
    newest = {word.job: word.seq for word in words}
    assert sorted(newest, key=newest.__getitem__) == ["first", "second", "third"]
    numbers = [word.seq for word in words]
    assert numbers == sorted(numbers), "a number below one that was heard is ignored"
    assert any(isinstance(record, n.NodeJoined) for record in await records_in(log))


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
