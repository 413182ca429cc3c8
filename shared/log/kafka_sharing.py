"""The consumer of those who share a topic with their replicas: it commits seldom, and is woken seldom under load."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka import ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaError

from shared.log.kafka_consumer import Batches, SteadyConsumer

COMMIT_EVERY_S = 1.0
"""What was handled since the last commit is handled again by the next owner when this process is killed."""

POLL_WAIT_MS = 200
"""An empty poll lasts at least so long, whatever it is asked for: FastStream sleeps after each."""

BUSY_RECORDS, BUSY_WAIT_MS_MIN, BUSY_WAIT_MS_MAX, BUSY_BYTES = 8, 4, 12, 1_048_576
"""After a poll with so many records the next fetch stays at the broker for so long, the longer the more they were,
unless so many bytes are there: under load a few larger batches cost much less than many small ones, here and for all
who read what comes of them.
"""

IDLE_WAIT_MS = 50

logger = logging.getLogger(__name__)


class SharingConsumer(SteadyConsumer):
    """`is_paced` is False for the embedded broker, where a fetch that waits does not wake when something comes."""

    def __init__(self, *topics: str, is_paced: bool = True, **settings: Any) -> None:
        super().__init__(*topics, **settings)
        self._is_paced = is_paced
        self._handled: dict[KafkaTopicPartition, int] = {}
        self._commit_due_s = 0.0
        self._commit_later: asyncio.TimerHandle | None = None
        self._commits: set[asyncio.Task[None]] = set()

    async def getmany(
        self, *partitions: KafkaTopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Batches:
        """As SteadyConsumer's, but an empty one takes its time."""
        wait_ms = max(timeout_ms, POLL_WAIT_MS)
        found = await super().getmany(*partitions, timeout_ms=wait_ms, max_records=max_records)
        if self._is_paced:
            self._pace(sum(map(len, found.values())))
        return found

    def _pace(self, records: int) -> None:
        """Say how the next fetch waits; it goes out behind this poll. Reaches into the fetcher of aiokafka 0.14."""
        is_busy = records >= BUSY_RECORDS
        wait_ms = min(BUSY_WAIT_MS_MIN + records // 4, BUSY_WAIT_MS_MAX) if is_busy else IDLE_WAIT_MS
        self._fetcher._fetch_min_bytes = BUSY_BYTES if is_busy else 1  # noqa: SLF001 - see above
        self._fetcher._fetch_max_wait_ms = wait_ms  # noqa: SLF001

    def handled(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit these next offsets within a second, at once if there was no commit for so long."""
        self._handled.update(offsets)
        if self._commit_later is None:
            loop = asyncio.get_running_loop()
            self._commit_later = loop.call_at(max(loop.time(), self._commit_due_s), self._begin_commit)

    def _begin_commit(self) -> None:
        self._commit_later = None
        self._commit_due_s = asyncio.get_running_loop().time() + COMMIT_EVERY_S
        task = asyncio.create_task(self.commit_handled(), name="commit")
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def commit_handled(self) -> None:
        """Commit what was handled, of those partitions that are still ours. A failure is told, not raised: the work is
        done, and their next owner may do it again.
        """
        assigned = self.assignment()
        offsets = {tp: offset for tp, offset in self._handled.items() if tp in assigned}
        self._handled.clear()
        if not offsets:
            return
        try:
            await self.commit(offsets)
        except KafkaError as error:
            logger.warning("the offsets of handled batches are not committed: %r", error)

    async def stop(self) -> None:
        """Commit what is left, then as aiokafka's."""
        later, self._commit_later = self._commit_later, None
        if later is not None:
            later.cancel()
        if self._handled:
            await self.commit_handled()
        await super().stop()


class CommitBeforeLeaving(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """Before partitions go to somebody else, what was handled of them is committed."""

    def __init__(self) -> None:
        self.consumer: SharingConsumer | None = None

    async def on_partitions_revoked(self, revoked: Collection[KafkaTopicPartition]) -> None:  # noqa: ARG002
        """The consumer still holds them here."""
        if self.consumer is not None:
            await self.consumer.commit_handled()

    async def on_partitions_assigned(self, assigned: Collection[KafkaTopicPartition]) -> None:
        """Nothing to do."""
