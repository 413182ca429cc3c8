"""A look at Kafka that is given up in the middle leaves nothing behind that fails the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.shared.log.kafka import looks as kafka_looks
from fallow.shared.log.kafka.looks import KafkaLooks
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.stack.ports import LOCAL

PLACE = {("jobs", 0): 1}


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[str]:
    """A server that takes connections and says nothing."""
    ends = list[asyncio.StreamWriter]()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(writer)

    server = await asyncio.start_server(serve, LOCAL, 0)
    yield f"{LOCAL}:{server.sockets[0].getsockname()[1]}"
    server.close()
    for end in ends:
        end.close()


async def test_a_look_that_is_cancelled_while_it_connects_fails_no_later_look(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_looks, "LOOK_BOUND_S", 1.0)
    looks = KafkaLooks(silent, "test")
    look = asyncio.create_task(looks.last_before(PLACE))
    await asyncio.sleep(0.2)
    look.cancel()
    await asyncio.gather(look, return_exceptions=True)
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="records at"):
            await looks.last_before(PLACE)
    await looks.stop()
