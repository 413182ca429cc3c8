"""Sends ready submissions at a given rate, whatever becomes of them: batches by partition, one of each at a time."""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaProducer

from fallow.bench.load.job_mix import Ready
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.runtime.collector import tune_collector
from fallow.shared.runtime.kafka_access import KafkaAccess

TICK_S, FULL_TICK_S = 0.005, 0.01
"""Jobs that fall due within this time go out together, as a sender's client gathers them; the longer one is for loads
above FULL_RATE jobs in a second.
"""

FULL_RATE = 2_000

AT_ONCE = 2_000
BATCH_BYTES_MAX = 131_072
NEVER, NO_JOB = -1.0, -1
ACKNOWLEDGED_WAIT_S = 60.0


class Sender:
    """One producer. For each job in its order `due_s` holds the monotonic second at which its schedule has it, and
    `handed_s` the one at which it was handed over: a sender that is held up is late, and its jobs are due as before.

    As a client does, it has one batch of a partition on its way at a time, and gathers what comes meanwhile: where each
    batch is flushed, many small ones would be more than a broker takes.
    """

    def __init__(self, kafka: str | KafkaAccess, topic: str) -> None:
        self._topic = topic
        self._producer = AIOKafkaProducer(
            **client_options(kafka),
            client_id="fallow-bench",
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES_MAX,
        )
        self._waiting: defaultdict[int, deque[tuple[int, Ready]]] = defaultdict(deque)
        self._on_way: dict[int, asyncio.Future[Any]] = {}
        self._cancels: deque[tuple[float, Ready]] = deque()
        self.due_s, self.handed_s = array("d"), array("d")

    async def start(self) -> None:
        """Connect, and learn where the partitions are. What is to be sent is there by now, and no garbage."""
        tune_collector()
        await self._producer.start()
        await self._producer.partitions_for(self._topic)

    async def stop(self) -> None:
        """Wait for what is on the way."""
        async with asyncio.timeout(ACKNOWLEDGED_WAIT_S):
            await self._producer.stop()

    async def send(self, jobs: Sequence[Ready], rate: float | None) -> None:
        """All of them, `rate` in a second, or as fast as they go: then each is due at once. Raises KafkaError."""
        begin_s, done, tick_s = monotonic(), 0, TICK_S if (rate or 0) <= FULL_RATE else FULL_TICK_S
        while done < len(jobs):
            due = len(jobs) if rate is None else min(len(jobs), int((monotonic() - begin_s) * rate) + 1)
            due = min(due, done + AT_ONCE)
            if due > done:
                now_s = monotonic()
                self.due_s.extend(now_s if rate is None else begin_s + number / rate for number in range(done, due))
                await self._hand_over(jobs[done:due])
                done = due
            await self._cancel()
            behind = rate is None or done / rate < monotonic() - begin_s
            await asyncio.sleep(0 if behind else tick_s)
        await self._all_acknowledged()

    async def send_for_each(
        self, another: Callable[[int], Ready], events: Sequence[tuple[int, float]], seconds: float
    ) -> None:
        """For so long, another job for each event from now on, due at that moment. Events, which grow meanwhile, are
        numbers of jobs and monotonic seconds. Raises KafkaError.
        """
        begin_s, done = monotonic(), len(events)
        while monotonic() - begin_s < seconds:
            due = min(len(events), done + AT_ONCE)
            if due > done:
                self.due_s.extend(at_s for _, at_s in events[done:due])
                await self._hand_over([another(number) for number, _ in events[done:due]])
                done = due
            await self._cancel()
            await asyncio.sleep(TICK_S)
        await self._all_acknowledged()

    async def send_when_due(self, jobs: Sequence[tuple[float, Ready]]) -> None:
        """All of them, each so many seconds after the beginning, in their order. Raises KafkaError."""
        begin_s, done = monotonic(), 0
        while done < len(jobs):
            now_s, due = monotonic() - begin_s, done
            while due < len(jobs) and jobs[due][0] <= now_s:
                due += 1
            if due > done:
                self.due_s.extend(begin_s + at_s for at_s, _ in jobs[done:due])
                await self._hand_over([ready for _, ready in jobs[done:due]])
                done = due
            await self._go_on()
            await asyncio.sleep(TICK_S)
        await self._all_acknowledged()

    async def cancel_what_is_left(self) -> None:
        """Wait for the cancels that are not due yet, and send them too. Raises KafkaError."""
        while self._cancels:
            await self._cancel()
            await asyncio.sleep(TICK_S)
        await self._all_acknowledged()

    async def _all_acknowledged(self) -> None:
        while any(self._waiting.values()):
            await self._go_on()
            await asyncio.sleep(TICK_S)
        await asyncio.gather(*self._on_way.values())
        self._on_way.clear()

    async def _cancel(self) -> None:
        while self._cancels and self._cancels[0][0] <= monotonic():
            cancel = self._cancels.popleft()[1]
            self._waiting[cancel.partition].append((NO_JOB, cancel))
        await self._go_on()

    async def _hand_over(self, jobs: Sequence[Ready]) -> None:
        first = len(self.handed_s)
        self.handed_s.extend([NEVER] * len(jobs))
        for number, job in enumerate(jobs, first):
            self._waiting[job.partition].append((number, job))
        await self._go_on()

    async def _go_on(self) -> None:
        """What waits goes out, one batch of a partition at a time."""
        for partition, waiting in self._waiting.items():
            before = self._on_way.get(partition)
            if waiting and (before is None or before.done()):
                if before is not None:
                    before.result()
                batch = self._batch_of(waiting)
                self._on_way[partition] = await self._producer.send_batch(batch, self._topic, partition=partition)

    def _batch_of(self, waiting: deque[tuple[int, Ready]]) -> Any:
        batch, now_s = self._producer.create_batch(), monotonic()
        while waiting:
            number, ready = waiting[0]
            if batch.append(key=ready.key, value=ready.value, timestamp=None, headers=ready.headers) is None:
                return batch
            waiting.popleft()
            if number != NO_JOB:
                self.handed_s[number] = now_s
            if ready.cancel is not None:
                # All cancels are as far behind their jobs: those of later jobs are later.
                self._cancels.append((now_s + ready.cancel_after_s, ready.cancel))
        return batch
