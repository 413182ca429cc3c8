"""Of the time that comes with a record, only one that the broker has stamped is believed."""

from __future__ import annotations

import pytest
from aiokafka.structs import RecordMetadata, TopicPartition

from fallow.shared.log.kafka.log import KafkaLog

BY_SENDER, BY_BROKER = 0, 1


@pytest.mark.parametrize(
    ("kind", "has_clock", "stamped_ms"), [(BY_BROKER, True, 77), (BY_SENDER, True, None), (BY_BROKER, False, None)]
)
async def test_a_time_that_the_sender_set_is_none_of_the_broker(
    kind: int, has_clock: bool, stamped_ms: int | None
) -> None:
    """It is the sender's own clock, by which the sender would then judge its clock to be right."""
    answer = RecordMetadata("nodes", 0, TopicPartition("nodes", 0), 5, 77, kind, 0)
    assert KafkaLog("127.0.0.1:9092", "tests", has_clock=has_clock)._stamp_of(answer) == stamped_ms
