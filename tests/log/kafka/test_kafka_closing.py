"""A Kafka client that does not come to its start is closed: nothing of it lives on."""

from __future__ import annotations

import asyncio
import gc

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import TopicPartition

from fallow.shared.log.kafka.closing import start_or_close
from fallow.shared.log.kafka.producer import _close_without_sending
from fallow.shared.log.port import LogUnavailable

BOUND_S = 0.05


class Client:
    """Its start never comes to an end, or raises this error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.stops = error, 0

    async def start(self) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize("error", [None, KafkaConnectionError("refused"), OSError("no route")], ids=repr)
async def test_a_client_that_does_not_reach_kafka_in_time_is_closed(error: Exception | None) -> None:
    client = Client(error)
    with pytest.raises(LogUnavailable, match="group g: "):
        await start_or_close(client, BOUND_S, "group g")
    assert client.stops == 1


async def test_a_client_that_breaks_is_closed_and_its_error_told() -> None:
    client = Client(ValueError("a defect"))
    with pytest.raises(ValueError, match="a defect"):
        await start_or_close(client, BOUND_S, "group g")
    assert client.stops == 1


async def test_a_client_whose_start_is_cancelled_is_closed() -> None:
    client = Client()
    starting = asyncio.create_task(start_or_close(client, 60.0, "group g"))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert client.stops == 1


async def test_what_an_abandoned_producer_still_held_fails_without_a_word_of_asyncio() -> None:
    told = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about["message"]))
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=100)
    accumulator, batch = producer._message_accumulator, producer.create_batch()
    batch.append(key=None, value=b"many", timestamp=None)
    batch.close()
    (await accumulator.add_message(TopicPartition("t", 0), b"key", b"one", 1.0)).cancel()
    (await accumulator.add_batch(batch, TopicPartition("t", 1), 1.0)).cancel()
    await _close_without_sending(producer)
    del producer, accumulator, batch
    gc.collect()
    await asyncio.sleep(0)
    assert told == []
