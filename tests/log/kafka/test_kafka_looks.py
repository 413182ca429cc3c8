"""A look at Kafka that is given up in the middle leaves nothing behind that fails the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from aiokafka import TopicPartition as KafkaTopicPartition

from fallow.shared.log.kafka.looks import KafkaLooks
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.stack.ports import LOCAL
from tests.log.worlds.late_consumer import LateBroker
from tests.log.worlds.late_loop import now_s, virtual

PLACE = {("jobs", 0): 1}


class Silent:
    """A server that takes connections and says nothing."""

    def __init__(self) -> None:
        self.address, self.ends = "", list[asyncio.StreamWriter]()

    async def serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ends.append(writer)


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[Silent]:
    silent = Silent()
    server = await asyncio.start_server(silent.serve, LOCAL, 0)
    silent.address = f"{LOCAL}:{server.sockets[0].getsockname()[1]}"
    yield silent
    server.close()
    for end in silent.ends:
        end.close()


async def test_a_look_that_is_cancelled_while_it_connects_fails_no_later_look(silent: Silent) -> None:
    looks = KafkaLooks(silent.address, "test", bound_s=1.0)
    look = asyncio.create_task(looks.last_before(PLACE))
    await asyncio.sleep(0.2)
    look.cancel()
    await asyncio.gather(look, return_exceptions=True)
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="records at"):
            await looks.last_before(PLACE)
    await looks.stop()


async def test_the_wait_for_another_look_counts_to_the_bound_of_a_look(silent: Silent) -> None:
    looks = KafkaLooks(silent.address, "test", bound_s=0.5)
    found = await asyncio.gather(*[looks.last_before(PLACE) for _ in range(3)], return_exceptions=True)
    assert [type(each) for each in found] == [LogUnavailable] * 3
    assert len(silent.ends) == 1, "no other look has begun behind the first"
    await looks.stop()


async def test_a_consumer_that_a_look_had_no_time_to_open_is_opened_for_the_next(silent: Silent) -> None:
    looks = KafkaLooks(silent.address, "test", bound_s=0.3)
    for _ in range(3):
        with pytest.raises(LogUnavailable, match="records at"):
            await looks.stands_before(("jobs", 0), 1)
    assert len(silent.ends) == 1, "it is the same connection"
    waiting = asyncio.create_task(looks.stands_before(("jobs", 0), 1))
    await asyncio.sleep(0.1)
    await looks.stop()
    with pytest.raises(LogUnavailable, match="closed while it was opened"):
        await waiting


async def test_a_step_of_an_opening_that_is_not_answered_ends_it(silent: Silent) -> None:
    looks = KafkaLooks(silent.address, "test", step_bound_s=0.3)
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="nothing answers there"):
            await looks.stands_before(("jobs", 0), 1)
    assert len(silent.ends) == 2, "the second look has opened anew"
    await looks.stop()


TP, AT, BOUND_S = ("jobs", 0), KafkaTopicPartition("jobs", 0), 3.0


def looks_at(broker: LateBroker) -> KafkaLooks:
    return KafkaLooks("nowhere:1", "test", bound_s=BOUND_S, consumer=broker.consumer)


async def looked(looks: KafkaLooks, offset: int) -> bytes | str | None:
    """The value of the record before it, or the error in words."""
    try:
        record = await looks.stands_before(TP, offset)
    except LogUnavailable as error:
        return str(error).rpartition(": ")[2]
    return None if record is None else record.value


@pytest.mark.parametrize(("answers", "late_s", "failed"), [(4, 1.0, 1), (12, 1.0, 4), (12, 1.3, 6)])
@virtual
async def test_a_writer_whose_broker_answers_late_looks_when_its_consumer_is_open(
    answers: int, late_s: float, failed: int
) -> None:
    broker = LateBroker([b"a", b"b"], late_s=late_s, answers_to_open=answers)
    looks = looks_at(broker)
    assert {await looked(looks, 2) for _ in range(failed)} == {"no answer in time"}
    began_s = now_s()
    assert [await looked(looks, offset) for offset in (2, 1, 2)][1:] == [b"a", b"b"]
    assert now_s() - began_s <= 3 * late_s + BOUND_S
    assert len(broker.consumers) == 1
    await looks.stop()


LOOKS: dict[str, Callable[[KafkaLooks], Awaitable[object]]] = {
    "one record": lambda looks: looks.stands_before(TP, 2),
    "deleted": lambda looks: looks.stands_before(TP, 1),
    "beyond the end": lambda looks: looks.stands_before(TP, 4),
    "last before": lambda looks: looks.last_before({TP: 3}),
    "first from": lambda looks: looks.first_from({TP: 1}),
    "nothing from": lambda looks: looks.first_from({TP: 3}),
}


@pytest.mark.parametrize("look", LOOKS)
@virtual
async def test_a_consumer_reads_nothing_between_two_looks(look: str) -> None:
    broker = LateBroker([b"b", b"c"], late_s=0.1, begin=1)
    looks = looks_at(broker)
    for _ in range(2):
        await LOOKS[look](looks)
        assert broker.consumers[0].reads == set()
    assert len(broker.consumers) == 1
    await looks.stop()


@virtual
async def test_a_silent_link_costs_one_look() -> None:
    """Whether the consumer was open before, or was opened in the time of that look."""
    broker = LateBroker([b"a"], late_s=0.1)
    looks = looks_at(broker)
    first = asyncio.create_task(looked(looks, 1))
    await asyncio.sleep(0.45)
    assert broker.consumers[0].reads == {AT}
    broker.cut_off()
    assert await first == "no answer in time"
    assert await looked(looks, 1) == b"a"
    broker.cut_off()
    assert [await looked(looks, 1) for _ in range(2)] == ["no answer in time", b"a"]
    assert [each.is_closed.is_set() for each in broker.consumers] == [True, True, False]
    await looks.stop()


@virtual
async def test_a_look_that_is_cancelled_while_it_is_asked_closes_its_consumer() -> None:
    broker = LateBroker([b"a"], late_s=0.1)
    looks = looks_at(broker)
    assert await looked(looks, 1) == b"a"
    look = asyncio.create_task(looks.stands_before(TP, 1))
    await asyncio.sleep(0.05)
    look.cancel()
    assert isinstance((await asyncio.gather(look, return_exceptions=True))[0], asyncio.CancelledError)
    assert [await looked(looks, 1), len(broker.consumers)] == [b"a", 2]
    await looks.stop()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("is_open", [True, False])
@virtual
async def test_a_stop_ends_the_looks_that_wait_and_leaves_nothing_behind(look: str, is_open: bool) -> None:
    broker = LateBroker([b"b", b"c"], late_s=0.3, begin=1)
    looks = looks_at(broker)
    if is_open:
        await LOOKS[look](looks)
    waiting = [asyncio.ensure_future(LOOKS[look](looks)) for _ in range(2)]
    await asyncio.sleep(0.2)
    began_s = now_s()
    await looks.stop()
    told = await asyncio.gather(*waiting, LOOKS[look](looks), return_exceptions=True)
    assert [type(each) for each in told] == [LogUnavailable] * 3
    assert now_s() - began_s < 0.3, "none of them waited for an answer"
    assert [each.is_closed.is_set() for each in broker.consumers] == [True]
