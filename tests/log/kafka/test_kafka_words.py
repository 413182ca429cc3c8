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
        (KafkaConnectionError("Unable to bootstrap from [('127.0.0.1', 1, <AddressFamily.AF_INET: 2>)]"), "nothing"),
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


class _Asked:
    """Kafka's client, before a Kafka that has these topics, or does not answer."""

    def __init__(self, *topics: str, is_away: bool = False) -> None:
        self._topics, self._is_away, self._client = topics, is_away, self

    async def end_offsets(self, tps: object) -> None:
        raise KafkaTimeoutError("Failed to get offsets by times in 2500 ms")

    async def fetch_all_metadata(self) -> _Asked:
        if self._is_away:
            raise KafkaConnectionError("closed")
        return self

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0} if topic in self._topics else None


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (_Asked("t.jobs"), "Kafka has no topic t.decisions. Run: fallow topics create"),
        (
            _Asked("t.jobs", "t.decisions"),
            "offsets of t.decisions/0, t.jobs/0: Failed to get offsets by times in 2500 ms",
        ),
        (_Asked(is_away=True), "offsets of t.decisions/0, t.jobs/0: Failed to get offsets by times in 2500 ms"),
    ],
)
async def test_that_a_topic_is_gone_is_told_where_kafka_says_so(asked: _Asked, told: str) -> None:
    log = KafkaLog("127.0.0.1:1", "tests")
    log._queries = asked
    with pytest.raises(LogUnavailable) as found:
        await log.end_offsets([("t.jobs", 0), ("t.decisions", 0)])
    assert str(found.value) == told


class _Stopping:
    """A consumer that has no answer while the log is stopped."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log

    async def end_offsets(self, _: object) -> None:
        await self._log.stop()
        raise KafkaTimeoutError("no answer")

    async def stop(self) -> None:
        """As the client has it."""


async def test_a_question_whose_log_is_stopped_meanwhile_ends_as_one_without_an_answer() -> None:
    log = KafkaLog("127.0.0.1:1", "tests")
    log._queries = _Stopping(log)
    with pytest.raises(LogUnavailable, match=r"offsets of t\.jobs/0: no answer"):
        await log.end_offsets([("t.jobs", 0)])
