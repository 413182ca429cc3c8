"""One hop of the baseline: a process that moves bytes with bare aiokafka, and neither reads nor decides anything.

`python -m fallow.bench.load.relay JSON`. What it reads says by its key for how many jobs it stands; what it writes is
as large, and comes as often, as the records of the service that stands at this hop. It comes in at Kafka by the
settings of a service.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORD_BYTES_MAX, BATCH_BYTES_MAX = 500_000, 131_072
POLL_RECORDS, POLL_WAIT_MS = 2_000, 200


@dataclass(frozen=True, slots=True)
class Hop:
    """What a hop reads and writes. `counted` is the topic whose jobs it passes on; what else it reads it drops.

    For each job go `records` of `size_bytes` to the topic `to`; as one record for all jobs of a poll if `is_joined`.
    """

    name: str
    bootstrap: str
    reads: dict[str, int]
    counted: str = ""
    to: str = ""
    records: float = 1.0
    size_bytes: int = 0
    is_joined: bool = False
    headers: list[tuple[str, str]] = field(default_factory=list)

    def to_json(self) -> str:
        """As the process takes it."""
        return json.dumps(asdict(self))


async def relay(hop: Hop, connection: dict[str, Any]) -> None:
    """Copy records until killed. `connection` holds the client arguments: the address and the user."""
    consumer = AIOKafkaConsumer(
        **connection,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=20 if sum(hop.reads.values()) > 1 else 500,
    )
    producer = AIOKafkaProducer(**connection, enable_idempotence=True, max_batch_size=BATCH_BYTES_MAX)
    await consumer.start()
    await producer.start()
    consumer.assign([TopicPartition(topic, number) for topic, count in hop.reads.items() for number in range(count)])
    headers = [(name, text.encode()) for name, text in hop.headers]
    owed = 0.0
    while True:
        batches = await consumer.getmany(timeout_ms=POLL_WAIT_MS, max_records=POLL_RECORDS)
        jobs = [int(record.key) for tp, batch in batches.items() if tp.topic == hop.counted for record in batch]
        if not jobs or not hop.to:
            continue
        if hop.is_joined:
            await _joined(producer, hop, sum(jobs), headers)
            continue
        owed += sum(jobs) * hop.records
        count = max(1, int(owed))
        owed = max(0.0, owed - count)
        await _apart(producer, hop, count, sum(jobs), headers)


async def _apart(producer: AIOKafkaProducer, hop: Hop, count: int, jobs: int, headers: list[tuple[str, bytes]]) -> None:
    """So many records that stand for so many jobs, in as few batches as they need; until all are acknowledged."""
    waiting, batch, value = [], producer.create_batch(), bytes(hop.size_bytes)
    each, more = divmod(jobs, count)
    for number in range(count):
        key = b"%d" % (each + (number < more))
        while batch.append(key=key, value=value, timestamp=None, headers=headers) is None:
            waiting.append(await producer.send_batch(batch, hop.to, partition=0))
            batch = producer.create_batch()
    if batch.record_count():
        waiting.append(await producer.send_batch(batch, hop.to, partition=0))
    await asyncio.gather(*waiting)


async def _joined(producer: AIOKafkaProducer, hop: Hop, jobs: int, headers: list[tuple[str, bytes]]) -> None:
    """One record after the other, each acknowledged before the next, as a writer of decisions must."""
    most = max(1, RECORD_BYTES_MAX // max(1, hop.size_bytes))
    while jobs:
        part = min(jobs, most)
        value, key = bytes(part * hop.size_bytes), b"%d" % part
        await producer.send_and_wait(hop.to, value=value, key=key, partition=0, headers=headers)
        jobs -= part


def main() -> None:
    """Read the hop from the command line, and relay with the same event loop as the services."""
    from fallow.shared.runtime.process import loop_factory  # noqa: PLC0415 - not for callers that only describe a hop
    from fallow.shared.runtime.settings import KafkaSecurity  # noqa: PLC0415 - the same

    hop = Hop(**json.loads(sys.argv[1]))
    access = KafkaSecurity.load().access_at(hop.bootstrap)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(relay(hop, access.client_options()))


if __name__ == "__main__":
    main()
