"""What people read of an error of Kafka's client."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import (
    BrokerResponseError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KafkaConnectionError("Unable to bootstrap from [('127.0.0.1', 1, <AddressFamily.AF_INET: 2>)]"), "nobody"),
        (KafkaConnectionError("Connection at 127.0.0.1:1 closed"), "Connection at 127.0.0.1:1 closed"),
        (TimeoutError(), "no answer in time"),
        (KafkaTimeoutError(), "KafkaTimeoutError"),
        (OSError(113, "No route to host"), "No route to host"),
        (OSError(), "OSError"),
        (TopicAuthorizationFailedError("t.jobs"), "t.jobs"),
        (
            UnknownTopicOrPartitionError(),
            "This request is for a topic or partition that does not exist on this broker",
        ),
    ],
)
def test_an_error_is_told_without_the_signs_of_python(error: Exception, words: str) -> None:
    found = words_of(error)
    assert words in found
    assert not set("<>()'[]") & set(found)
    assert not isinstance(error, BrokerResponseError) or found == words


@pytest.mark.parametrize("name", ["127.0.0.1:1", "a..b:1", f"{'a' * 64}:1"])
async def test_where_no_kafka_is_one_short_sentence_says_so(name: str) -> None:
    log = KafkaLog(name, "tests")
    with pytest.raises(LogUnavailable) as found:
        await log.start()
    await log.stop()
    assert str(found.value).startswith(f"no Kafka at {name}: ")
    assert len(str(found.value)) < 160
    assert not set("<>()'[]") & set(str(found.value))


async def test_of_somebody_who_answers_it_is_not_said_that_nobody_does() -> None:
    async def no_kafka(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(no_kafka, "127.0.0.1", 0) as server:
        log = KafkaLog(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "tests")
        with pytest.raises(LogUnavailable, match="or not as a Kafka with these settings"):
            await log.start()
        await log.stop()
