"""One load on a running cell: jobs sent at a rate, their starts read back from the log, and what that cost."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from services.cli.bench.arrivals import NEVER, Arrivals, Told, told_by
from services.cli.bench.job_mix import jobs
from services.cli.bench.processor_time import ProcessorTime, Used
from services.cli.bench.sender import Sender
from services.cli.stage import Stage
from services.cli.watch import Watch
from services.cli.workload import CELL
from shared.runtime.clocks import wall_ms

GENERATOR = "generator"
"""This process: it sends, and reads the decision log."""

WARM_PART = 0.2
"""The first part of a load, in which the cell fills up, is left out of the figures."""

DRAIN_WAIT_S = 40.0
SETTLE_S = 3.0
QUIET_S = 5.0
"""When the log has stood still for so long, nothing comes any more: on a full machine a cell may rest for a second."""

LOOK_AGAIN_S = 0.25


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one load. Times in monotonic seconds: `due_s` by the schedule of the load, `handed_s` when the
    sender got so far. `used` and the two moments of memory are of the time from `begin_s` to `end_s`, in which jobs
    were sent, the first part left out; `rss_mb` is the most that was ever held.
    """

    rate: float
    due_s: array[float]
    handed_s: array[float]
    told: Told
    used: Used
    begin_s: float
    end_s: float
    rss_begin_mb: Mapping[str, float]
    rss_end_mb: Mapping[str, float]
    rss_mb: Mapping[str, float]

    @property
    def jobs_per_s(self) -> float:
        """Jobs whose start was read back, per second, while jobs were sent."""
        return self.starts_by(self.end_s, self.begin_s) / (self.end_s - self.begin_s)

    def starts_by(self, end_s: float, begin_s: float = 0.0) -> int:
        """How many starts had been read back by then."""
        return sum(begin_s <= at < end_s for at in self.told.started_s)

    def backlog(self, at_s: float) -> int:
        """Jobs that were due and whose start had not been read back at that moment."""
        return sum(due < at_s for due in self.due_s) - self.starts_by(at_s)

    @property
    def growth(self) -> int:
        """By how many jobs the backlog grew."""
        return self.backlog(self.end_s) - self.backlog(self.begin_s)

    @property
    def is_flat(self) -> bool:
        """Whether the backlog grew by less than one second of arrivals."""
        return self.growth < self.rate

    def waits_ms(self) -> list[float]:
        """From when a job is due to its start, in order of size, for the jobs due behind the first part; a job that
        never started waited for ever. That the sender was held up is in it: whoever waits for it waits.
        """
        pairs = zip(self.due_s, self.told.started_s, strict=True)
        waits = [float("inf") if at == NEVER else (at - due) * 1000 for due, at in pairs if due >= self.begin_s]
        return sorted(waits)

    def late_ms(self) -> list[float]:
        """By how much the sender was late, in order of size, for the same jobs. It is a part of their waits."""
        pairs = zip(self.due_s, self.handed_s, strict=True)
        return sorted((handed - due) * 1000 for due, handed in pairs if due >= self.begin_s)


def percentile(ordered: list[float], percent: float) -> float | None:
    """The smallest value that so many percent do not exceed; None where there is none or it is without bound."""
    if not ordered:
        return None
    found = ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
    return None if found == float("inf") else round(found, 1)


def pids_of(stage: Stage) -> dict[str, int]:
    """All processes of the run, this one included, where they are ours to measure."""
    servers = {"kafka": stage.servers.kafka.server, "redis": stage.servers.redis.server}
    known = {name: pid for name, server in servers.items() if (pid := getattr(server, "pid", None))}
    services = {name: stage.services.pid(name) for name in stage.services.names}
    return {**services, **known, GENERATOR: os.getpid()}


async def nodes_joined(stage: Stage, nodes: int) -> None:
    """Wait until all nodes are there and what came with them is over. Raises TimeoutError."""
    watch = Watch(stage)
    await watch.start()
    try:
        await watch.nodes_joined(nodes)
    finally:
        await watch.stop()
    await asyncio.sleep(SETTLE_S)


async def put_load(
    stage: Stage, *, first: int, rate: float, seconds: float, run_ms: int, warm_part: float = WARM_PART
) -> Load:
    """Send jobs from number `first` on, wait until all have started or nothing comes any more, and read back."""
    topic = stage.layout.topic("submissions")
    count = int(rate * seconds)
    ready = list(jobs(first, count, run_ms, await stage.log.partitions(topic), wall_ms()))
    sender = Sender(stage.servers.kafka.server.address, topic)
    arrivals = Arrivals(stage.log, stage.layout.tp("decisions", CELL))
    await sender.start()
    try:
        await arrivals.start()
        await asyncio.sleep(LOOK_AGAIN_S)
        sending = asyncio.create_task(sender.send(ready, rate), name="sender")
        await asyncio.wait({sending}, timeout=seconds * warm_part)
        begin_s, watch, rss_begin = monotonic(), ProcessorTime(pids_of(stage)), stage.services.rss_mb()
        await sending
        end_s, used, rss_end = monotonic(), watch.used(), stage.services.rss_mb()
        await _quiet(arrivals)
    finally:
        await arrivals.stop()
        await sender.stop()
    told = await told_by(arrivals, stage.log, first + count)
    del told.started_s[:first]
    return Load(rate, sender.due_s, sender.handed_s, told, used, begin_s, end_s, rss_begin, rss_end, stage.rss_mb())


async def _quiet(arrivals: Arrivals) -> None:
    """Until the log has stood still; reports of nodes make no decisions."""
    end_s, seen, since_s = monotonic() + DRAIN_WAIT_S, -1, monotonic()
    while monotonic() < end_s and monotonic() - since_s < QUIET_S:
        if len(arrivals.at_s) != seen:
            seen, since_s = len(arrivals.at_s), monotonic()
        await asyncio.sleep(LOOK_AGAIN_S)
