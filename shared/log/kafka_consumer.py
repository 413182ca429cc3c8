"""aiokafka's consumer, made steady: no record can stop the reading of its partition, and a failed poll loses nothing.

The name of a header is text to Kafka's clients, but no broker checks that. A single record with another kind of name
makes every poll of aiokafka fail at it, for ever, and drops what the same poll had taken from other partitions.
"""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka import TopicPartition as KafkaTopicPartition

from shared.log.port import UNREADABLE_HEADER, UNREADABLE_TEXT

STEP_WAIT_MS = 300
PREFIX_RECORDS = 500

Batches = dict[KafkaTopicPartition, list[ConsumerRecord]]
Positions = dict[KafkaTopicPartition, int]


class SteadyConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka ships no types
    """Where a batch cannot be read, empty records with UNREADABLE_HEADER come in its place, for the dead letters."""

    async def getmany(
        self, *partitions: KafkaTopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Batches:
        """As aiokafka's. After any error the position is where it was."""
        before = self._positions()
        try:
            return await self._take(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        except UnicodeDecodeError:
            return await self._step_over(before)
        except Exception:
            await self._go_back(before)
            raise

    async def _take(self, *partitions: KafkaTopicPartition, timeout_ms: int, max_records: int | None) -> Batches:
        batches: Batches = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return batches

    def _positions(self) -> Positions:
        """Where each partition stands. The public position() waits for those that do not stand anywhere yet."""
        assignment = self._subscription.subscription and self._subscription.subscription.assignment
        states = {tp: assignment.state_value(tp) for tp in assignment.tps} if assignment else {}
        return {tp: state.position for tp, state in states.items() if state.has_valid_position}

    async def _go_back(self, before: Positions) -> None:
        """Undo what a failed poll has taken and dropped, in those partitions that are still ours."""
        for tp in sorted(self.assignment()):
            if tp in before:
                self.seek(tp, before[tp])
            elif tp in self._positions():
                await self._go_to_the_start(tp)

    async def _go_to_the_start(self, tp: KafkaTopicPartition) -> None:
        """For a partition that was assigned during the failed poll, of which nothing was ever handed out.

        Not seek_to_committed(), which stays where it is when nothing, or zero, is committed.
        """
        committed = await self.committed(tp)
        if committed is None:
            await self.seek_to_beginning(tp)
        else:
            self.seek(tp, committed)

    async def _step_over(self, before: Positions) -> Batches:
        """Read each partition by itself; around what cannot be read, give the good records and a stand-in."""
        await self._go_back(before)
        try:
            for tp, start in sorted(self._positions().items()):
                try:
                    found = await self._take(tp, timeout_ms=STEP_WAIT_MS, max_records=PREFIX_RECORDS)
                except UnicodeDecodeError:
                    self.seek(tp, start)
                    found = {tp: await self._around_the_bad_batch(tp)}
                if found:
                    return found
        except Exception:
            await self._go_back(before)
            raise
        return {}

    async def _around_the_bad_batch(self, tp: KafkaTopicPartition) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        while True:
            try:
                one = await self._take(tp, timeout_ms=STEP_WAIT_MS, max_records=1)
            except UnicodeDecodeError:
                # The whole batch is decoded on the way to any record of it, so what follows in it is unreadable too.
                bad = await self.position(tp)
                found.append(_stand_in(tp, bad))
                self.seek(tp, bad + 1)
                continue
            found.extend(one.get(tp, []))
            if not one or (len(found) > 1 and _is_stand_in(found[-2])):
                return found


def _stand_in(tp: KafkaTopicPartition, offset: int) -> ConsumerRecord[Any, Any]:
    headers = ((UNREADABLE_HEADER, UNREADABLE_TEXT),)
    return ConsumerRecord(tp.topic, tp.partition, offset, 0, 0, None, None, None, -1, -1, headers)


def _is_stand_in(record: ConsumerRecord[Any, Any]) -> bool:
    return record.key is None and record.value is None and record.headers[:1] == ((UNREADABLE_HEADER, UNREADABLE_TEXT),)
