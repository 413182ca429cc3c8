"""The consumer of those who share a topic with their replicas: it commits seldom, and is woken seldom under load."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from aiokafka import ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from shared.log.kafka_consumer import Batches, SteadyConsumer
from shared.log.machine.losses import Loss, LossKind
from shared.log.port import TopicPartition

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
SHARE_OF_OTHERS = 4
"""A full batch is made larger by this part of it for each topic that found no room."""

logger = logging.getLogger(__name__)


def tell_loss(loss: Loss) -> None:
    """Write it into the log of the process."""
    logger.error("%s", loss)


class SharingConsumer(SteadyConsumer):
    """`is_paced` is False for the embedded broker, where a fetch that waits does not wake when something comes.

    `on_loss` is told of a partition that does not hold the position that its group has committed. Where the position is
    beyond the end, records are lost: the partition is read no further until its next owner finds it whole. It is never
    read from its beginning for that, where thousands were handled already. Where records were deleted before they were
    read, reading goes on where the partition begins.
    """

    def __init__(
        self, *topics: str, is_paced: bool = True, on_loss: Callable[[Loss], None] = tell_loss, **settings: Any
    ) -> None:
        super().__init__(*topics, **{**settings, "auto_offset_reset": "none"})
        self._is_paced, self._on_loss = is_paced, on_loss
        self._told: dict[KafkaTopicPartition, Loss] = {}
        self._handled: dict[KafkaTopicPartition, int] = {}
        self._commit_due_s = 0.0
        self._commit_later: asyncio.TimerHandle | None = None
        self._commits: set[asyncio.Task[None]] = set()

    async def getmany(
        self, *partitions: KafkaTopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Batches:
        """As SteadyConsumer's, but an empty one takes its time, and a full one has something of every topic."""
        try:
            return await self._get(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        except NoOffsetForPartitionError as error:
            # The group has never committed anything of it: all of it is new.
            await self.seek_to_beginning(error.args[0])
        except OffsetOutOfRangeError as error:
            await self._judge(error.args[0])
        return {}

    async def _judge(self, asked: Mapping[KafkaTopicPartition, int]) -> None:
        begins, ends = await self.beginning_offsets(list(asked)), await self.end_offsets(list(asked))
        for tp in [tp for tp in asked if tp in self.assignment()]:
            kind = LossKind.DELETED_UNREAD if asked[tp] < begins[tp] else LossKind.BEYOND_END
            if kind is LossKind.BEYOND_END:
                self.pause(tp)
            else:
                self.seek(tp, begins[tp])
            self._tell(tp, Loss(kind, (tp.topic, tp.partition), asked[tp], begins[tp], ends[tp]))

    def _tell(self, tp: KafkaTopicPartition, loss: Loss) -> None:
        """Report a loss once: a fetch that was under way meets it again, and so does each new share of the group."""
        known = self._told.get(tp)
        if known is None or (known.kind, known.next_offset) != (loss.kind, loss.next_offset):
            self._told[tp] = loss
            self._on_loss(loss)

    async def _get(self, *partitions: KafkaTopicPartition, timeout_ms: int, max_records: int | None) -> Batches:
        wait_ms = max(timeout_ms, POLL_WAIT_MS)
        found = await super().getmany(*partitions, timeout_ms=wait_ms, max_records=max_records)
        if max_records is not None and sum(map(len, found.values())) >= max_records:
            self._go_behind(found)
            await self._take_from_others(found, max_records)
        if self._is_paced:
            self._pace(sum(map(len, found.values())))
        return found

    def _go_behind(self, found: Batches) -> None:
        """Let the next poll begin with partitions that this one had no room for: aiokafka takes from the one that was
        fetched first until it is empty, and a flood fills it with thousands.
        """
        fetched = self._fetcher._records  # noqa: SLF001 - see SteadyConsumer
        for tp in found:
            if tp in fetched:
                fetched.move_to_end(tp)

    async def _take_from_others(self, found: Batches, max_records: int) -> None:
        """Add some of each topic that the batch has nothing of: a tenant's own topic keeps no other one waiting."""
        topics = {tp.topic for tp in found}
        others: dict[str, list[KafkaTopicPartition]] = {}
        for tp in list(self._fetcher._records):  # noqa: SLF001 - see above
            if tp.topic not in topics:
                others.setdefault(tp.topic, []).append(tp)
        for waiting in others.values():
            try:
                more = await super().getmany(*waiting, timeout_ms=0, max_records=max(1, max_records // SHARE_OF_OTHERS))
            except KafkaError as error:
                # What was found stands. The others are where they were, and the next poll begins with them.
                logger.warning("some topics are left for the next poll: %r", error)
                return
            for tp, records in more.items():
                found.setdefault(tp, []).extend(records)

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
        self.assigned: frozenset[TopicPartition] = frozenset()

    async def on_partitions_revoked(self, revoked: Collection[KafkaTopicPartition]) -> None:  # noqa: ARG002
        """The consumer still holds them here."""
        if self.consumer is not None:
            await self.consumer.commit_handled()

    async def on_partitions_assigned(self, assigned: Collection[KafkaTopicPartition]) -> None:
        """From here on these are ours, and no others."""
        self.assigned = frozenset((tp.topic, tp.partition) for tp in assigned)
