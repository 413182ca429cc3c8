"""Harm of one kind each: the log's disk is full; the links to Kafka and Redis are slow."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallow.shared.runtime.stack import kafka_jars
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from fallow.shared.runtime.stack.ports import free_port
from tests.chaos.links import SlowLink
from tests.chaos.run import Parts, chaos, parts_in
from tests.contract.eventually import eventually

DISK_MB = 96
LEFT_BYTES = 64_000
SLOW_S = 25.0
FULL_S = 3.0


@pytest.fixture(autouse=True)
def a_kafka_of_its_own() -> None:
    why_not = kafka_jars.obstacle()
    if why_not:
        pytest.skip(f"needs a Kafka of its own: {why_not}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where Kafka keeps its log, on a disk that can be filled."""
    disk = tmp_path / "kafka" / "log"
    disk.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@dataclass
class FullDisk:
    """The disk fills up until the broker gives up; then there is room again and it is started."""

    kafka: KafkaFromJars
    disk: Path
    seed: int = 1
    kills: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        ballast = self.disk.parent / "log" / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(self.disk).free - LEFT_BYTES)
        await eventually(lambda: not self.kafka.is_running, within_s=40)
        self.others["the broker gave up"] += 1
        await asyncio.sleep(FULL_S)
        ballast.unlink()
        await asyncio.to_thread(self.kafka.start)
        await asyncio.sleep(FULL_S)


@pytest.mark.by_turns
async def test_a_full_disk_stops_the_log_and_loses_nothing(tmp_path: Path, namespace: str, small_disk: Path) -> None:
    kafka = KafkaFromJars(tmp_path / "kafka")
    parts = Parts(kafka, parts_in(tmp_path).redis)
    outcome = await chaos(tmp_path, namespace, parts, lambda _: FullDisk(kafka, small_disk))
    assert outcome.violations == ()
    assert outcome.body["others"] == {"the broker gave up": 1}
    assert outcome.body["lost"] == 0


@dataclass
class SlowLinks:
    """Both links are slow for a while."""

    links: tuple[SlowLink, ...]
    seed: int = 1
    kills: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        for slow in (True, False):
            for link in self.links:
                link.is_slow = slow
            await asyncio.sleep(SLOW_S if slow else 1.0)
        self.others["delays"] = sum(link.delays for link in self.links)


@pytest.mark.by_turns
async def test_slow_links_delay_and_lose_nothing(tmp_path: Path, namespace: str) -> None:
    shown, redis = free_port(), parts_in(tmp_path).redis
    kafka = KafkaFromJars(tmp_path / "kafka", shown_port=shown)
    parts = Parts(kafka, redis)
    to_redis = SlowLink(free_port(), int(parts.redis.address.rpartition(":")[2].partition("/")[0]), seed=1)
    to_kafka = SlowLink(shown, kafka.port, seed=2)
    addresses = (f"127.0.0.1:{shown}", f"redis://127.0.0.1:{to_redis.port}/0")
    async with to_redis.open(), to_kafka.open():
        outcome = await chaos(tmp_path, namespace, parts, lambda _: SlowLinks((to_redis, to_kafka)), addresses)
    assert outcome.violations == ()
    assert outcome.body["lost"] == 0
    assert outcome.body["others"]["delays"] > 100  # type: ignore[index]
