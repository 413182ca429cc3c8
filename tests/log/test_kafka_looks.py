"""A look at Kafka that is given up in the middle leaves nothing behind that fails the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.shared.log.kafka.looks import KafkaLooks
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.stack.ports import LOCAL

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
