"""One load on a running cell: jobs sent at a rate, their starts read back from the log, and what that cost."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from fallow.bench.load.arrivals import NEVER, Arrivals, Told, told_by
from fallow.bench.load.job_mix import jobs
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.sender import Sender
from fallow.local.local_cell import LocalCell
from fallow.local.watch import Watch
from fallow.replay.workload import CELL
from fallow.services.metrics.policy.kant.waiting import percentile as percentile_of
from fallow.shared.runtime.clocks import wall_ms

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

    @classmethod
    def of(cls, rate: float, sender: Sender, told: Told, window: Window, rss_mb: Mapping[str, float]) -> Load:
        """With what its sender and its window know."""
        return cls(
            rate,
            sender.due_s,
            sender.handed_s,
            told,
            window.used,
            window.begin_s,
            window.end_s,
            window.rss_begin_mb,
            window.rss_end_mb,
            rss_mb,
        )

    @property
    def jobs_per_s(self) -> float:
        """Jobs whose start was read back, per second, while jobs were sent."""
        return self.starts_by(self.end_s, self.begin_s) / (self.end_s - self.begin_s)

    def starts_by(self, end_s: float, begin_s: float = 0.0) -> int:
        """How many starts had been read back by then."""
        return sum(begin_s <= at < end_s for at in self.told.started_s)

    def gone_by(self, at_s: float) -> int:
        """How many had been cancelled or refused by then without a start."""
        return sum(gone < at_s for gone in self.told.gone_s.values())

    def backlog(self, at_s: float) -> int:
        """Jobs that were due and had neither started nor gone at that moment, as far as the log was read."""
        return sum(due < at_s for due in self.due_s) - self.starts_by(at_s) - self.gone_by(at_s)

    @property
    def growth(self) -> int:
        """By how many jobs the backlog grew."""
        return self.backlog(self.end_s) - self.backlog(self.begin_s)

    @property
    def is_flat(self) -> bool:
        """Whether the backlog grew by less than one second of arrivals."""
        return self.growth < self.rate

    def waits_ms(self, numbers: Iterable[int] | None = None) -> list[float]:
        """From when a job is due to its start, in order of size, for the jobs due in the measured time, or for those of
        them with these numbers. One that never started waited for ever; one that was cancelled before does not
        count. The delay of a sender that was held up counts too: its user waits for it.
        """
        started_s, waits = self.told.started_s, []
        for number in range(len(self.due_s)) if numbers is None else numbers:
            if self.begin_s <= self.due_s[number] < self.end_s and number not in self.told.gone_s:
                waited_s = started_s[number] - self.due_s[number]
                waits.append(float("inf") if started_s[number] == NEVER else waited_s * 1000)
        return sorted(waits)

    def handed_waits_ms(self) -> list[float]:
        """From when a job was handed over to its start, in order of size, for the same jobs: without what the sender
        was late.
        """
        handed_s, started_s = self.handed_s, self.told.started_s
        measured = (number for number, due_s in enumerate(self.due_s) if self.begin_s <= due_s < self.end_s)
        jobs = [number for number in measured if number not in self.told.gone_s]
        never = float("inf")
        return sorted(
            never if NEVER in (handed_s[number], started_s[number]) else (started_s[number] - handed_s[number]) * 1000
            for number in jobs
        )

    def late_ms(self) -> list[float]:
        """By how much the sender was late, in order of size, for the same jobs. It is a part of their waits."""
        return late_ms(self.due_s, self.handed_s, self.begin_s, self.end_s)


def late_ms(due_s: Sequence[float], handed_s: Sequence[float], begin_s: float, end_s: float) -> list[float]:
    """By how much a sender was late with the jobs that were due in this time, in order of size; with one that it never
    handed over without bound.
    """
    pairs = [pair for pair in zip(due_s, handed_s, strict=True) if begin_s <= pair[0] < end_s]
    return sorted(float("inf") if handed == NEVER else (handed - due) * 1000 for due, handed in pairs)


def percentile(ordered: list[float], percent: int) -> float | None:
    """As `fallow.services.metrics` tells it, to a tenth; None where there is none or it is without bound."""
    found = percentile_of(ordered, percent)
    return None if found is None or found == float("inf") else round(found, 1)


def pids_of(stage: LocalCell) -> dict[str, int]:
    """All processes of the run, this one included, where they are ours to measure."""
    servers = {"kafka": stage.servers.kafka.server, "redis": stage.servers.redis.server}
    known = {name: pid for name, server in servers.items() if (pid := getattr(server, "pid", None))}
    services = {name: stage.services.pid(name) for name in stage.services.names}
    return {**services, **known, GENERATOR: os.getpid()}


async def nodes_joined(stage: LocalCell, nodes: int) -> None:
    """Wait until all nodes are there and what came with them is over. Raises TimeoutError."""
    watch = Watch(stage)
    await watch.start()
    try:
        await watch.nodes_joined(nodes)
    finally:
        await watch.stop()
    await asyncio.sleep(SETTLE_S)


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a load: its two moments in monotonic seconds, what was used between them, and the memory of
    each process at both, in MB.
    """

    begin_s: float
    end_s: float
    used: Used
    rss_begin_mb: Mapping[str, float]
    rss_end_mb: Mapping[str, float]


async def window_of(stage: LocalCell, sending: asyncio.Task[Any], warm_s: float) -> Window:
    """Measure from so many seconds from now on until what is sent is sent. Raises what ended the sending."""
    await asyncio.wait({sending}, timeout=warm_s)
    begin_s, watch, rss_begin = monotonic(), ProcessorTime(pids_of(stage)), stage.services.rss_mb()
    await sending
    return Window(begin_s, monotonic(), watch.used(), rss_begin, stage.services.rss_mb())


async def put_load(
    stage: LocalCell, *, first: int, rate: float, seconds: float, run_ms: int, warm_part: float = WARM_PART
) -> Load:
    """Send jobs from number `first` on, wait until all have started or nothing comes any more, and read back."""
    topic = stage.layout.topic("submissions")
    count = int(rate * seconds)
    ready = list(jobs(first, count, run_ms, await stage.log.partitions(topic), wall_ms()))
    sender = Sender(stage.servers.kafka_access, topic)
    arrivals = Arrivals(stage.log, stage.layout.tp("decisions", CELL))
    await sender.start()
    try:
        await arrivals.start()
        await asyncio.sleep(LOOK_AGAIN_S)
        sending = asyncio.create_task(sender.send(ready, rate), name="sender")
        window = await window_of(stage, sending, seconds * warm_part)
        await quiet(arrivals, DRAIN_WAIT_S)
    finally:
        await arrivals.stop()
        await sender.stop()
    told = await told_by(arrivals, stage.log, first + count)
    del told.started_s[:first], told.finished_s[:first]
    return Load.of(rate, sender, told, window, stage.rss_mb())


async def quiet(arrivals: Arrivals, wait_s: float) -> None:
    """Until the log has stood still, at most for so long; reports of nodes make no decisions."""
    end_s, seen, since_s = monotonic() + wait_s, -1, monotonic()
    while monotonic() < end_s and monotonic() - since_s < QUIET_S:
        if len(arrivals.at_s) != seen:
            seen, since_s = len(arrivals.at_s), monotonic()
        await asyncio.sleep(LOOK_AGAIN_S)
