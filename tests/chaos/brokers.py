"""Three brokers on one machine, each record on all of them and acknowledged by two; and what goes wrong with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest

from fallow.shared.log.port import TopicPartition
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from fallow.shared.runtime.stack.ports import LOCAL
from fallow.shared.runtime.stack.server import Source
from tests.chaos.mishaps import Mishaps

T = TypeVar("T")

BROKERS = 3
HEAP_MB_MAX = 300
BROKER_DOWN_S = (0.0, 3.0)
MOVE_WAIT_MS = 10_000
MOVE_TRIES_MAX = 60
ASK_WAIT_MS = 5_000
HALF_MOVED_S = (0.0, 2.0)
WHOLE_WAIT_S = 300.0


class Brokers:
    """Three nodes that elect a controller among themselves. They are one server with three addresses."""

    source = Source.JARS

    def __init__(self, folder: Path) -> None:
        self.all = {n: KafkaFromJars(folder / f"broker-{n}", heap_mb_max=HEAP_MB_MAX) for n in range(1, BROKERS + 1)}
        voters = ",".join(f"{number}@{LOCAL}:{broker.controller_port}" for number, broker in self.all.items())
        for number, broker in self.all.items():
            broker.more.update(_together(number, voters))

    @property
    def address(self) -> str:
        """The addresses of all brokers: a client asks the first that answers."""
        return ",".join(broker.address for broker in self.all.values())

    @property
    def description(self) -> str:
        """Name, version and number."""
        return f"{BROKERS} brokers of {self.all[1].description}"

    @property
    def is_running(self) -> bool:
        """Whether all of them run."""
        return all(broker.is_running for broker in self.all.values())

    @property
    def exit_code(self) -> int | None:
        """That of the first that has ended."""
        codes = (broker.exit_code for broker in self.all.values())
        return next((code for code in codes if code is not None), None)

    def start(self) -> None:
        """Starts all at once: none answers before two are there."""
        for broker in self.all.values():
            broker.launch()
        for broker in self.all.values():
            broker.wait_until_up()

    def stop(self) -> None:
        """Ends all at once."""
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(KafkaFromJars.stop, self.all.values()))

    def kill(self) -> None:
        """Ends all by SIGKILL."""
        for broker in self.all.values():
            broker.kill()

    def tail(self) -> str:
        """The last lines of each."""
        return "\n".join(broker.tail() for broker in self.all.values())


def _together(number: int, voters: str) -> dict[str, str]:
    """What the lone broker's settings say otherwise."""
    kept = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "default.replication.factor": str(BROKERS),
        "min.insync.replicas": str(BROKERS - 1),
        **{f"{topic}.replication.factor": str(BROKERS) for topic in kept},
        "transaction.state.log.min.isr": str(BROKERS - 1),
        "share.coordinator.state.topic.min.isr": str(BROKERS - 1),
    }


@dataclass(kw_only=True)
class BrokerMishaps(Mishaps):
    """Mostly the brokers are hit: the leader of the log above all, at any time; its partition moves about."""

    brokers: Brokers
    tp: TopicPartition

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (34, self._kill_leader),
            (20, self._kill_broker),
            (10, self._restart_broker),
            (16, self._move),
            (16, self._kill),
            (4, self._pause),
        ]

    async def run(self) -> None:
        """As all mishaps; and every broker is up when this returns."""
        await super().run()
        await self._until_whole()

    async def _kill_leader(self) -> None:
        """The broker that leads the decisions, if it is known now; else any."""
        leader = await self._leader()
        self.others["leaders killed"] += leader is not None
        await self._kill_one(leader or self._any())

    async def _kill_broker(self) -> None:
        await self._kill_one(self._any())

    async def _kill_one(self, number: int) -> None:
        """It is started again; a process of ours may be killed before it is there."""
        await self._until_whole()
        broker = self.brokers.all[number]
        self.kills[f"broker-{number}"] += 1
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(self._between(BROKER_DOWN_S))
        await asyncio.to_thread(broker.launch)

    async def _restart_broker(self) -> None:
        """In order: it hands over what it leads."""
        await self._until_whole()
        broker = self.brokers.all[self._any()]
        self.others["broker restarts"] += 1
        await asyncio.to_thread(broker.stop)
        await asyncio.sleep(self._between(BROKER_DOWN_S))
        await asyncio.to_thread(broker.start)

    async def _move(self) -> None:
        """The partition leaves its leader for the other two, and is copied to all three again, in another order."""
        await self._until_whole()
        leader = await self._leader() or self._any()
        others = [number for number in self.brokers.all if number != leader]
        self._random.shuffle(others)
        if await self._assign(others):
            self.others["partition moves"] += 1
        await asyncio.sleep(self._between(HALF_MOVED_S))
        for _ in range(MOVE_TRIES_MAX):
            if await self._assign([*others, leader]):
                return
            await asyncio.sleep(1)
        raise AssertionError(f"the brokers do not take {self.tp} back to all of them")

    async def _until_whole(self) -> None:
        """Until every partition is on all brokers again. The promise is to bear the loss of one of them: the killing of
        a second one before the first has caught up may take acknowledged records along, and the cell is fenced.
        """

        async def missing(admin: AIOKafkaAdminClient) -> int:
            found = [part for topic in await admin.describe_topics() for part in topic["partitions"]]
            return sum(len(part["isr"]) < BROKERS for part in found)

        end_s = time.monotonic() + WHOLE_WAIT_S
        for broker in self.brokers.all.values():
            await asyncio.to_thread(broker.wait_until_up)
        while await self._asked(missing) != 0:
            if time.monotonic() > end_s:
                raise AssertionError(f"not on all brokers after {WHOLE_WAIT_S:.0f} s: {self.brokers.tail()}")
            await asyncio.sleep(0.5)

    def _any(self) -> int:
        return self._random.choice(list(self.brokers.all))

    async def _leader(self) -> int | None:
        async def leader(admin: AIOKafkaAdminClient) -> int | None:
            (topic,) = await admin.describe_topics([self.tp[0]])
            found = [part["leader"] for part in topic["partitions"] if part["partition"] == self.tp[1]]
            return found[0] if found and found[0] in self.brokers.all else None

        return await self._asked(leader)

    async def _assign(self, numbers: list[int]) -> bool:
        """Whether the brokers have taken the order to keep the partition on these, the first of them leading."""

        async def assign(admin: AIOKafkaAdminClient) -> bool:
            partition: tuple[int, list[int], dict[int, Any]] = (self.tp[1], numbers, {})
            request = AlterPartitionReassignmentsRequest(MOVE_WAIT_MS, [(self.tp[0], [partition], {})], {})
            response = await admin._send_request(request)
            codes = [part[1] for topic in response.responses for part in topic[1]]
            return response.error_code == 0 and not any(codes)

        return bool(await self._asked(assign))

    async def _asked(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T | None:
        """The answer of the brokers, or None where none answers now."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers.address, request_timeout_ms=ASK_WAIT_MS)
        try:
            await admin.start()
            return await ask(admin)
        except (KafkaError, TimeoutError, OSError):
            return None
        finally:
            await admin.close()
