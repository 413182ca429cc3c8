"""What the log does when the broker hangs or is gone: it answers in time and repeats nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fallow.shared.log.kafka.groups.group_timers import EMBEDDED
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.opening import log_for
from fallow.shared.log.port import Appended, AppendUnknown, LogUnavailable, Outgoing
from tests.contract.eventually import eventually
from tests.contract.worlds.log_worlds import KafkaWorld

BOUND_S = 4.0


class OwnBroker:
    """A broker process that a test may freeze and kill."""

    def __init__(self, process: asyncio.subprocess.Process, bootstrap: str) -> None:
        self._process = process
        self.bootstrap = bootstrap

    async def freeze(self) -> None:
        """Returns when the kernel has really stopped it."""
        self._process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self._process.pid}/stat")
        await eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[OwnBroker]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.worlds.broker_process", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    own = OwnBroker(process, (await process.stdout.readline()).decode().strip())
    yield own
    await own.kill()


@pytest_asyncio.fixture
async def log(broker: OwnBroker) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(broker.bootstrap, "away", publish_bound_ms=3_000)
    await log.start()
    assert await log.append(Outgoing("t", b"before", partition=0)) == Appended(0)
    yield log
    await log.stop()


async def test_the_embedded_broker_gives_no_time(broker: OwnBroker) -> None:
    log = log_for(broker.bootstrap, "embedded", embedded=True)
    await log.start()
    answer = await log.append(Outgoing("t", b"value", partition=0))
    await log.stop()
    assert isinstance(answer, Appended)
    assert answer.stamped_ms is None


async def values(log: KafkaLog, least: int) -> list[bytes | None]:
    """All values in the partition, once there are `least` of them and no more came for half a second."""
    reader = log.reader({("t", 0): 0})
    await reader.start()
    found: list[bytes | None] = []
    async with asyncio.timeout(10):
        while len(found) < least:
            found.extend(r.value for r in await reader.poll(wait_ms=200))
    found.extend(r.value for r in await reader.poll(wait_ms=500))
    await reader.stop()
    return found


async def append_until_accepted(log: KafkaLog, value: bytes) -> None:
    async def is_accepted() -> bool:
        return isinstance(await log.append(Outgoing("t", value, partition=0)), Appended)

    await eventually(is_accepted)


async def test_append_to_a_frozen_broker_is_unknown_within_its_bound(broker: OwnBroker, log: KafkaLog) -> None:
    await broker.freeze()
    began = time.monotonic()
    answer = await log.append(Outgoing("t", b"frozen", partition=0))
    assert isinstance(answer, AppendUnknown)
    assert time.monotonic() - began < BOUND_S
    broker.thaw()


async def test_append_to_a_dead_broker_is_unknown_within_its_bound(broker: OwnBroker, log: KafkaLog) -> None:
    await broker.kill()
    began = time.monotonic()
    assert isinstance(await log.append(Outgoing("t", b"gone", partition=0)), AppendUnknown)
    assert isinstance(await log.append(Outgoing("t", b"still gone", partition=0)), AppendUnknown)
    assert time.monotonic() - began < 2 * BOUND_S


async def test_publish_to_a_dead_broker_raises_within_its_bound(broker: OwnBroker, log: KafkaLog) -> None:
    await broker.kill()
    began = time.monotonic()
    with pytest.raises(LogUnavailable):
        await log.publish([Outgoing("t", b"%d" % n) for n in range(100)])
    with pytest.raises(LogUnavailable):
        await log.end_offsets([("t", 0)])
    with pytest.raises(LogUnavailable):
        await log.partitions("t")
    assert time.monotonic() - began < 3 * BOUND_S


async def test_what_was_unknown_is_there_at_most_once_and_nothing_is_sent_later(
    broker: OwnBroker, log: KafkaLog
) -> None:
    await broker.freeze()
    answers = await asyncio.gather(
        log.append(Outgoing("t", b"on the wire", partition=0)),
        log.append(Outgoing("t", b"in the queue", partition=0)),
    )
    assert [type(answer) for answer in answers] == [AppendUnknown, AppendUnknown]
    broker.thaw()
    await append_until_accepted(log, b"after")
    found = await values(log, 2)
    assert found[0] == b"before"
    assert found.count(b"after") == 1
    assert found.count(b"on the wire") <= 1
    assert found.count(b"in the queue") <= 1
    assert b"in the queue" not in found or found.index(b"in the queue") == found.index(b"on the wire") + 1


async def test_readers_see_an_absent_broker_as_silence_and_go_on_when_it_is_back(
    broker: OwnBroker, log: KafkaLog
) -> None:
    reader = log.reader({("t", 0): 1})
    await reader.start()
    await broker.freeze()
    assert await reader.poll(wait_ms=200) == []
    broker.thaw()
    await append_until_accepted(log, b"after")
    found: list[bytes | None] = []
    async with asyncio.timeout(15):
        while b"after" not in found:
            found.extend(r.value for r in await reader.poll(wait_ms=200))
    await reader.stop()
    assert found[-1] == b"after"


async def test_starting_without_a_broker_says_so(broker: OwnBroker) -> None:
    await broker.kill()
    with pytest.raises(LogUnavailable):
        await KafkaLog(broker.bootstrap, "early").start()
    with pytest.raises(LogUnavailable):
        await KafkaLog(broker.bootstrap, "early").reader({("t", 0): 0}).start()
    with pytest.raises(LogUnavailable):
        await KafkaLog(broker.bootstrap, "early").member("g", "t").start()


async def test_a_member_of_the_embedded_broker_gets_its_share_and_keeps_it(broker: OwnBroker) -> None:
    log = KafkaLog(broker.bootstrap, "embedded", compression="gzip", timers=EMBEDDED)
    member = log.member("g", "t")
    await member.start()
    await eventually(lambda: member.owned() == {0, 1, 2, 3})
    await asyncio.sleep(2)
    assert member.owned() == {0, 1, 2, 3}
    await member.stop()


async def test_the_log_in_memory_is_away_in_the_same_way() -> None:
    cluster = MemoryBroker()
    cluster.create_topic("t", 1)
    log = MemoryLog(cluster)
    cluster.is_away = True
    assert isinstance(await log.append(Outgoing("t", b"v", partition=0)), AppendUnknown)
    with pytest.raises(LogUnavailable):
        await log.publish([Outgoing("t", b"v")])
    with pytest.raises(LogUnavailable):
        await log.end_offsets([("t", 0)])
    cluster.is_away = False
    assert await log.append(Outgoing("t", b"v", partition=0)) == Appended(0)


async def test_the_log_in_memory_can_lose_an_acknowledgement() -> None:
    cluster = MemoryBroker()
    cluster.create_topic("t", 1)
    cluster.acknowledgements_to_lose = 1
    log = MemoryLog(cluster)
    assert isinstance(await log.append(Outgoing("t", b"first", partition=0)), AppendUnknown)
    assert await log.append(Outgoing("t", b"second", partition=0)) == Appended(1)


@pytest.mark.real_kafka
async def test_a_killed_member_is_replaced(kafka: str) -> None:
    world = KafkaWorld(kafka)
    await world.start()
    topic = await world.topic(2)
    log = await world.log()
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.contract.worlds.member_process", kafka, f"group-{topic}", topic),
        stdout=asyncio.subprocess.PIPE,
    )
    assert victim.stdout is not None
    assert await victim.stdout.readline() == b"[0, 1]\n"
    survivor = log.member(f"group-{topic}", topic)
    await survivor.start()
    async with asyncio.timeout(10):
        while len(survivor.owned()) != 1:
            await survivor.changed()
    os.kill(victim.pid, signal.SIGKILL)
    killed = time.monotonic()
    async with asyncio.timeout(10):
        while survivor.owned() != {0, 1}:
            await survivor.changed()
    takeover_s = time.monotonic() - killed
    await victim.wait()
    await survivor.stop()
    await world.close()
    sys.stdout.write(f"takeover after SIGKILL: {takeover_s:.2f} s\n")
