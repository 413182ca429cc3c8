"""What people read of an error of Kafka's client."""

from __future__ import annotations

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, TopicAuthorizationFailedError

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
        (TopicAuthorizationFailedError("t.jobs"), "TopicAuthorizationFailedError: t.jobs"),
    ],
)
def test_an_error_is_told_without_the_signs_of_python(error: Exception, words: str) -> None:
    found = words_of(error)
    assert words in found
    assert not set("<>()'") & set(found)


@pytest.mark.parametrize("name", ["127.0.0.1:1", "a..b:1", f"{'a' * 64}:1"])
async def test_where_no_kafka_is_one_short_sentence_says_so(name: str) -> None:
    log = KafkaLog(name, "tests")
    with pytest.raises(LogUnavailable) as found:
        await log.start()
    await log.stop()
    assert str(found.value).startswith(f"no Kafka at {name}: ")
    assert len(str(found.value)) < 160
    assert not set("<>()'[]") & set(str(found.value))
