"""A batch that Kafka's own client cannot read: one of its headers has a name that is not UTF-8."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy


class NotText(str):
    """A header's name as a careless client may send it."""

    __slots__ = ()

    def encode(self, *_args: Any) -> bytes:
        return b"\xff\xfe"


async def unreadable_batch(producer: AIOKafkaProducer, topic: str, partition: int, values: list[bytes]) -> None:
    """One batch whose middle record has a header with a name that is not UTF-8."""
    names = ["fine"] * len(values)
    names[len(values) // 2] = NotText("bad")
    batch = producer.create_batch()
    batch._builder = _DefaultRecordBatchBuilderPy(
        2, 0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=0, batch_size=10_000
    )
    for name, value in zip(names, values, strict=True):
        assert batch.append(timestamp=None, key=None, value=value, headers=[(name, b"v")])
    await (await producer.send_batch(batch, topic, partition=partition))
