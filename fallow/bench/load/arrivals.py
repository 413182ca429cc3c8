"""When each record of the decision log reached a reader, and, read once more afterwards, what stood in it.

While the load runs only the offset and the time are noted, so that the measuring costs little of what it measures.
"""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from dataclasses import dataclass, field
from time import monotonic

from fallow.bench.load.job_mix import number_of
from fallow.cli.log.read_back import records_of
from fallow.shared.log.port import Log, TopicPartition
from fallow.shared.runtime.tasks.cancels import end_tasks

POLL_RECORDS, POLL_WAIT_MS = 2_000, 200
NEVER = -1.0


class Arrivals:
    """A reader of one partition from its present end."""

    def __init__(self, log: Log, tp: TopicPartition) -> None:
        self._log, self.tp = log, tp
        self.first = 0
        self.at_s = array("d")
        """The monotonic second of each record from offset `first`."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Note what comes from now on."""
        self.first = (await self._log.end_offsets([self.tp]))[self.tp]
        self._task = asyncio.create_task(self._read(), name="arrivals")

    async def stop(self) -> None:
        """Note no more. Raises what ended the reading early."""
        if self._task is not None:
            await end_tasks(self._task)
            if not self._task.cancelled():
                self._task.result()

    async def _read(self) -> None:
        reader = self._log.reader({self.tp: self.first})
        await reader.start()
        try:
            while True:
                records = await reader.poll(POLL_RECORDS, POLL_WAIT_MS)
                now_s = monotonic()
                for record in records:
                    assert record.offset == self.first + len(self.at_s), "the decision log has no gaps"
                    self.at_s.append(now_s)
                    self._note(record.value or b"", now_s)
        finally:
            await reader.stop()

    def _note(self, value: bytes, now_s: float) -> None:
        """For readers that want more of a record than its time."""


ENQUEUED = b'"kind":"JobEnqueued"'
STARTED = b'"kind":"JobStarted"'
LEFT = re.compile(rb'"kind":"Job(?:Started|Failed|Cancelled)","job":"[a-z0-9-]+/bench-(\d+)"')
"""How a record says it of a job of the load: texts of others cannot, for their quotation marks are escaped."""


class Ends(Arrivals):
    """Counts by the bytes alone, so that it costs little: jobs that came into the queue, starts, and which jobs of
    the load left the queue when, in monotonic seconds: by a start, or by an end without one.
    """

    def __init__(self, log: Log, tp: TopicPartition) -> None:
        super().__init__(log, tp)
        self.enqueued = self.started = 0
        self.left: list[tuple[int, float]] = []
        self._left: set[int] = set()

    def _note(self, value: bytes, now_s: float) -> None:
        self.enqueued += value.count(ENQUEUED)
        self.started += value.count(STARTED)
        for number in map(int, LEFT.findall(value)):
            if number not in self._left:
                self._left.add(number)
                self.left.append((number, now_s))


@dataclass(slots=True)
class Told:
    """What the log says of the jobs of a load. `started_s`: when the first start of each was read, -1 if none was.
    `finished_s`: the same of its end, where that is asked for. `gone_s`: when one that had not started was cancelled or
    refused, by its number.
    """

    started_s: array[float]
    finished_s: array[float] = field(default_factory=lambda: array("d"))
    started: int = 0
    gone_s: dict[int, float] = field(default_factory=dict)
    finished: int = 0
    effects: int = 0
    records: int = 0
    last_finish_s: float = NEVER


async def told_by(arrivals: Arrivals, log: Log, jobs: int) -> Told:
    """Read the log once more, up to what had arrived. Raises LogOverflowed, LogUnavailable."""
    told = Told(array("d", [NEVER]) * jobs, array("d", [NEVER]) * jobs)
    end = arrivals.first + len(arrivals.at_s)
    async for record in records_of(log, [arrivals.tp]):
        if arrivals.first <= record.offset < end:
            _take(told, record.value or b"", arrivals.at_s[record.offset - arrivals.first])
    return told


def _take(told: Told, value: bytes, at_s: float) -> None:
    told.records += 1
    for effect in json.loads(value).get("effects", ()):
        told.effects += 1
        number = number_of(effect.get("job", ""))
        if number is None or number >= len(told.started_s):
            continue
        if effect["kind"] == "JobStarted" and told.started_s[number] == NEVER:
            told.started_s[number] = at_s
            told.started += 1
        elif effect["kind"] == "JobFinished":
            told.finished += 1
            told.finished_s[number] = told.last_finish_s = at_s
