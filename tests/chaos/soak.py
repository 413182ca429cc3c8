"""Hours of operation in fast motion: `python -m tests.chaos.soak [--minutes M] [--speed X] [--rate N] [--json]`.

Cell time runs `speed` times as fast as the wall clock, the log keeps only its newest megabytes, and few ended jobs are
remembered. Memory and open files of each process, the log and Redis must then stay what they are: their growth for an
hour of cell time is reported, by a straight line through the second half of the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from redis.asyncio import Redis

from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.process import loop_factory
from fallow.shared.runtime.stack.choose import choose_redis
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from fallow.simulator.history.evidence import Wish
from tests.e2e.worlds.running_cell import RunningCell, a_job, in_full, running_cell

REMEMBERED = 5_000
CELL_FILE = f"""
cells:
  - name: main
    ordinal: 0
    pools: [{{name: training, gpus: 1024, gpus_per_node: 8}}]
    policy: {{node_lease_wall_ms: 60000, finished_jobs_max: {REMEMBERED}}}
tenants:
  - {{name: vision}}
"""
NODES = 32
RUN_CELL_MS = (20_000, 120_000)
SAMPLE_S = 2.0
SEGMENT_BYTES, KEPT_BYTES = 1 << 20, 4 << 20
CLEAN_EVERY_MS = 5_000
DRAIN_WAIT_S = 60.0
HOUR_S = 3_600.0


@dataclass
class Samples:
    """What was measured, by name, beside the wall seconds since the start."""

    at_s: list[float] = field(default_factory=list)
    by_name: dict[str, list[float]] = field(default_factory=dict)

    def add(self, at_s: float, values: Mapping[str, float]) -> None:
        """One look at everything."""
        self.at_s.append(at_s)
        for name, value in values.items():
            self.by_name.setdefault(name, []).append(value)

    def slope_per_hour(self, name: str, speed: float) -> float:
        """Growth for an hour of cell time, over the second half of the samples."""
        half = len(self.at_s) // 2
        line = statistics.linear_regression(self.at_s[half:], self.by_name[name][half:])
        return round(line.slope * HOUR_S / speed, 2)

    def last(self, name: str) -> float:
        """The newest value."""
        return round(self.by_name[name][-1], 1)


def open_files(pid: int) -> int:
    """How many file descriptors a process holds."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def disk_mb(folder: Path) -> float:
    """What the files below a folder take up on the disk, in MB. Kafka deletes some while this looks."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total / 1e6


async def keep_little(kafka: str, namespace: str) -> None:
    """Let every topic that is not compacted keep only its newest megabytes."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    names = [name for name in await admin.list_topics() if name.startswith(f"{namespace}.")]
    wanted = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(KEPT_BYTES)}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=wanted) for name in names])
    await admin.close()


async def look(cell: RunningCell, folder: Path, redis: Redis) -> dict[str, float]:
    """Every figure once."""
    memory = await redis.info("memory")
    found = {"log_mb": disk_mb(folder / "kafka" / "log"), "redis_mb": memory["used_memory"] / 1e6}
    for name, mb in cell.services.rss_mb().items():
        found[f"{name} rss_mb"] = mb
        found[f"{name} fds"] = open_files(cell.services.pid(name))
    return found


async def submit(cell: RunningCell, rate: float, stop: asyncio.Event) -> list[Wish]:
    """Jobs at a rate until told to stop; all of them confirmed."""
    chance, wishes, begin_s = random.Random(1), list[Wish](), time.monotonic()
    while not stop.is_set():
        specs = [_spec(len(wishes) + n, chance) for n in range(int((time.monotonic() - begin_s) * rate) - len(wishes))]
        wishes += [Wish("submit", in_full(spec.id)) for spec in specs]
        out = [
            cell.layout.outgoing(SubmitJob(job=spec), id=f"soak/{spec.id}", source="soak", wall_ms=wall_ms())
            for spec in specs
        ]
        try:
            await cell.log.publish(out)
        except LogUnavailable as error:
            raise AssertionError("nothing goes wrong in this run") from error
        await asyncio.sleep(0.1)
    return wishes


def _spec(number: int, chance: random.Random) -> JobSpec:
    workers = chance.choice((1, 1, 1, 1, 2, 4))
    return a_job(f"job-{number:07}", workers=workers, ms=chance.randint(*RUN_CELL_MS))


async def soak(folder: Path, *, minutes: float, speed: float, rate: float) -> dict[str, object]:
    """One run, and what it came to."""
    own = {"log.retention.check.interval.ms": str(CLEAN_EVERY_MS), "file.delete.delay.ms": "1000"}
    kafka, server = KafkaFromJars(folder / "kafka", quick_start=False, more=own), choose_redis(folder / "redis").server
    async with AsyncExitStack() as stack:
        for part in (kafka, server):
            await asyncio.to_thread(part.start)
            stack.callback(part.stop)
        more = {"FALLOW_CLOCK_SPEED": repr(speed), "FALLOW_CLOCK_ORIGIN_MS": str(wall_ms())}
        cell = await stack.enter_async_context(
            running_cell(kafka.address, server.address, "soak", folder, nodes=NODES, cell_file=CELL_FILE, more=more)
        )
        await keep_little(kafka.address, "soak")
        await cell.until(lambda c: len(c.state.nodes) == NODES, what="all nodes to join")
        redis = Redis.from_url(server.address)
        stack.push_async_callback(redis.aclose)
        stop, samples, begin_s = asyncio.Event(), Samples(), time.monotonic()
        sending = asyncio.create_task(submit(cell, rate, stop))
        while time.monotonic() - begin_s < minutes * 60:
            await cell.poll()
            if time.monotonic() - begin_s > len(samples.at_s) * SAMPLE_S:
                samples.add(time.monotonic() - begin_s, await look(cell, folder, redis))
        stop.set()
        wishes = await sending
        await cell.until(lambda c: not c.state.jobs, what="the end of all jobs", wait_s=DRAIN_WAIT_S)
        return report(samples, cell, len(wishes), speed)


def report(samples: Samples, cell: RunningCell, jobs: int, speed: float) -> dict[str, object]:
    """The last value and the growth of each figure."""
    cell_hours = samples.at_s[-1] * speed / HOUR_S
    return {
        "cell_hours": round(cell_hours, 1),
        "jobs": jobs,
        "versions": cell.state.version,
        "problems": [str(problem) for problem in cell.problems()],
        "last": {name: samples.last(name) for name in samples.by_name},
        "growth_per_cell_hour": {name: samples.slope_per_hour(name, speed) for name in samples.by_name},
    }


def main() -> int:
    """Run it and print what came of it. The exit code says whether a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--speed", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="fallow-soak-") as folder,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        body = runner.run(soak(Path(folder), minutes=wanted.minutes, speed=wanted.speed, rate=wanted.rate))
    text = json.dumps(body) if wanted.json else "\n".join(f"{key}: {value}" for key, value in body.items())
    sys.stdout.write(text + "\n")
    return 1 if body["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
