"""Those who use the cell meanwhile: one submits and cancels, one reads the view. They remember what they were told."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

from fallow.shared.events.fields.values import JobSpec, ProcessRun, RetryPolicy
from fallow.shared.events.submissions import CancelJob, SubmitJob
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.view.reader import NoSuchCell, ViewBehind, ViewReader, ViewRebuilding
from fallow.shared.view.store import ViewUnavailable
from fallow.simulator.history.evidence import Reading, Wish
from tests.e2e.worlds.running_cell import CELL, a_job, in_full

RATE = 50
"""Jobs a second."""

TICK_S = 0.1
AGAIN_S = 0.2
PROCESS_PERCENT, CANCEL_PERCENT, GANG_PERCENT = 1, 4, 12


@dataclass
class Submitter:
    """Sends jobs at a rate, and each again until the log has confirmed it."""

    log: KafkaLog
    layout: Layout
    seed: int
    wishes: list[Wish] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; everything begun is confirmed then."""
        begin_s, sent = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - begin_s) * RATE)
            # After an outage the cell gets what was missed in slices, as from a client with a queue of its own.
            commands = [self._command(sent + n) for n in range(min(due - sent, 2 * RATE))]
            await self._confirm(commands)
            sent += len(commands)
            await asyncio.sleep(TICK_S)

    def _command(self, number: int) -> SubmitJob | CancelJob:
        if self.jobs and self._random.randrange(100) < CANCEL_PERCENT:
            job = self._random.choice(self.jobs[-200:])
            self.wishes.append(Wish("cancel", job))
            return CancelJob(job=job, tenant="vision")
        spec = self._spec(f"job-{number:06}")
        self.jobs.append(in_full(spec.id))
        self.wishes.append(Wish("submit", self.jobs[-1]))
        return SubmitJob(job=spec)

    def _spec(self, job: str) -> JobSpec:
        kind = self._random.randrange(100)
        retry = RetryPolicy(budget=2, backoff_ms=200, backoff_max_ms=1_000)
        if kind < PROCESS_PERCENT:
            return a_job(job, run=ProcessRun(argv=("sleep", "0.2")), pools=("machines",), retry=retry)
        workers = self._random.randint(2, 6) if kind < PROCESS_PERCENT + GANG_PERCENT else 1
        return a_job(job, workers=workers, gpus=self._random.choice((1, 1, 1, 2)), ms=self._random.randint(100, 800))

    async def _confirm(self, commands: list[SubmitJob | CancelJob]) -> None:
        source, now_ms = "chaos", wall_ms()
        out = [self.layout.outgoing(c, id=f"chaos/{c.key()}", source=source, wall_ms=now_ms) for c in commands]
        while out:
            try:
                await self.log.publish(out)
            except LogUnavailable:
                await asyncio.sleep(AGAIN_S)
                continue
            return


@dataclass
class Watcher:
    """Reads the view and asks never to be shown less than it has seen."""

    reader: ViewReader
    submitter: Submitter
    seed: int
    readings: list[Reading] = field(default_factory=list)
    refusals: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        chance, seen = random.Random(self.seed), 0
        while not stop.is_set():
            await asyncio.sleep(TICK_S)
            if not self.submitter.jobs:
                continue
            job = chance.choice(self.submitter.jobs[-500:])
            try:
                read = await self.reader.job(CELL, job, at_least=seen)
            except (NoSuchCell, ViewRebuilding, ViewBehind, ViewUnavailable):
                self.refusals += 1
                continue
            shown = None if read.value is None else (str(read.value.status), read.value.attempt)
            self.readings.append(Reading("watcher", read.version, seen, {job: shown}))
            seen = read.version
