"""Who asks of a topic that is gone, or writes to it, is told so, with its name and what makes it anew."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from fallow.shared.client.direct import told
from fallow.shared.client.port import ClientUnavailable
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.port import AppendUnknown, LogUnavailable, NoTopics, Outgoing

pytestmark = pytest.mark.real_kafka

GONE = "absent.decisions"
WORDS = f"Kafka has no topic {GONE}. Run: fallow topics create"
RECORD = Outgoing(GONE, b"value", partition=0)


@pytest_asyncio.fixture
async def log(kafka: str) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(kafka, "gone")
    await log.start()
    yield log
    await log.stop()


ASKED: dict[str, Callable[[KafkaLog], Awaitable[object]]] = {
    "publish": lambda log: log.publish([RECORD]),
    "begin": lambda log: log.begin_offsets([(GONE, 0)]),
    "end": lambda log: log.end_offsets([(GONE, 0)]),
    "written end": lambda log: log.written_ends([(GONE, 0)]),
    "since": lambda log: log.first_since((GONE, 0), 1),
}


@pytest.mark.parametrize("what", ASKED)
async def test_a_topic_that_is_gone_is_told_by_its_name(log: KafkaLog, what: str) -> None:
    with pytest.raises(LogUnavailable) as found:
        await ASKED[what](log)
    assert str(found.value) == WORDS


async def test_an_append_to_it_is_told_so_too(log: KafkaLog) -> None:
    assert await log.append(RECORD) == AppendUnknown(WORDS)


def test_a_client_tells_it_in_the_same_words() -> None:
    with pytest.raises(ClientUnavailable) as found, told():
        raise NoTopics([GONE])
    assert str(found.value) == WORDS
