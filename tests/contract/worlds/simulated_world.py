"""The simulated broker as a cluster that the log's contract is held against, its time driven by the test's own loop."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from contextlib import AbstractAsyncContextManager

import pytest

from fallow.shared.log.port import Log, Refusal, TopicPartition
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import EPOCH_MS
from fallow.simulator.shells.log import WorldLog
from fallow.simulator.shells.member import WorldMember
from fallow.simulator.storage.broker import Broker
from fallow.simulator.trouble.faults import Fault, Faults

_numbers = itertools.count()


class SimulatedWorld:
    def __init__(self) -> None:
        self._engine = Engine(random.Random(0))
        faults = Faults(self._engine, rates=dict.fromkeys(Fault, 0.0))
        self.broker = Broker(self._engine, faults, as_bytes=True)
        self._engine.run_to(_now_ms())
        self._pump = asyncio.create_task(self._drive())

    async def _drive(self) -> None:
        while True:
            self._engine.run_to(_now_ms())
            await asyncio.sleep(0.001)

    async def topic(self, partitions: int, *, stamped: bool = False) -> str:
        name = f"t{next(_numbers)}"
        self.broker.topics[name] = partitions
        return name

    async def topic_that_refuses(self, code: Refusal) -> str:
        name = await self.topic(1)
        if code is Refusal.TOO_LARGE:
            self.broker.bytes_max[name], self.broker.faults.is_active = 0, True
        else:
            self.broker.refuses[name] = code
        return name

    async def refill(self, topic: str) -> None:
        for partition in range(self.broker.topics[topic]):
            if (topic, partition) in self.broker.log:
                self.broker.lose_tail((topic, partition), len(self.broker.log[topic, partition]))

    async def transaction(self, tp: TopicPartition, values: list[bytes], *, commits: bool) -> None:
        pytest.skip("the world's broker knows no transactions: nothing of ours writes any")

    def open_transaction(self, tp: TopicPartition, values: list[bytes]) -> AbstractAsyncContextManager[None]:
        pytest.skip("the world's broker knows no transactions: nothing of ours writes any")

    async def grow(self, topic: str, partitions: int) -> None:
        self.broker.topics[topic] = partitions

    async def delete(self, topic: str) -> None:
        await self.refill(topic)
        del self.broker.topics[topic]

    async def make(self, topic: str, partitions: int) -> None:
        self.broker.topics[topic] = partitions

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        self.broker.delete_before(tp, offset)

    async def log(self) -> Log:
        log = WorldLog(self.broker, "contract", "", members=_no_member)
        await log.start()
        return log

    async def close(self) -> None:
        self._pump.cancel()


def _no_member(group: str) -> WorldMember:
    pytest.skip(f"group {group}: the groups of the world are of its processes, and shared as unkindly as can be")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000 - EPOCH_MS
