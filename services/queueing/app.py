"""Queueing's process: for each cell that it owns, read the log and the admitted jobs, and publish windows."""

from __future__ import annotations

import asyncio
import contextlib

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.queueing.service import QueueingService
from services.queueing.settings import QueueingSettings
from shared.cluster.config import CellFile
from shared.cluster.few import FEW_WAITING
from shared.events.operations import AdvanceTime
from shared.log.cell_tasks import Tenure
from shared.log.continued import ContinuedReader
from shared.log.follower import Follower
from shared.log.layout import Layout
from shared.log.machine.losses import Place
from shared.log.opening import OpenLog, layout_of, open_log
from shared.log.owned_cells import work_on_owned_cells
from shared.log.port import Log, LogTruncated, LogUnavailable, Reader, Record
from shared.log.reading import checksum_of, event_of
from shared.log.topic_fence import TopicFence
from shared.runtime.clocks import SteppedCellClock, WallCellClock
from shared.runtime.process import Context, wait_for
from shared.runtime.together import together

FOLD_RECORDS_MOST = 50
READ_RECORDS_MOST = 2_000
WAIT_MS = 2_500
"""How long each task waits for news before it begins to wait anew: it is woken when something comes."""

FENCED_WAIT_MS = 200
"""While the topic of jobs is fenced its reader also looks whether a person has lifted the fence; and while it is being
looked at, what the look has found.
"""

AWAY_FIRST_S = 0.25
EARLY_MOST = 50_000
"""So many jobs are read ahead of placement at most."""

FULL_PAUSE_S = 0.1

PATIENT_MS = 40
"""So long may records gather before they are read. While few jobs wait no window is published, and where many wait a
window shows enough of them for as long.
"""

SHOW_MS = 500
"""How often the lengths of all queues are told: there may be a thousand queues."""


class QueueingMetrics:
    """What the queueing process counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.windows = Counter("fallow_windows_total", "Head windows published", ["cell"], registry=registry)
        self.waiting = Gauge("fallow_queue_jobs", "Jobs that wait in a queue", ["cell", "queue"], registry=registry)


async def main(context: Context[QueueingSettings], opening: OpenLog = open_log, few: int = FEW_WAITING) -> None:
    """Order the owned cells' queues until told to stop.

    `few`: up to how many waiting jobs no window is published.
    """
    file = context.host.cell_file(context.settings.cell_file)
    log = await opening(context, file)
    if log is None:
        return
    layout, metrics = layout_of(file, context.settings.namespace), QueueingMetrics(context.registry)

    async def work(tenure: Tenure) -> None:
        await CellQueues(context, log, layout, file, tenure, metrics, few).run()

    try:
        await work_on_owned_cells(context, log, layout, "queueing", work)
    finally:
        await log.stop()


class CellQueues:
    """One cell in a queueing process. Three tasks share the service; each changes it only between two awaits."""

    def __init__(
        self,
        context: Context[QueueingSettings],
        log: Log,
        layout: Layout,
        file: CellFile,
        tenure: Tenure,
        metrics: QueueingMetrics,
        few: int = FEW_WAITING,
    ) -> None:
        """`few`: up to how many waiting jobs no window is published."""
        self._context, self._log, self._layout, self._metrics = context, log, layout, metrics
        self._host = context.host
        self._tenure, self._part, self._few = tenure, file.cell(tenure.cell), few
        self._patient_ms = 0 if isinstance(context.clock, SteppedCellClock) else PATIENT_MS
        self._follower = Follower(log, layout, tenure.cell, patient_ms=self._patient_ms, service=context.service)
        self._news = asyncio.Event()
        self._jobs = layout.tp("jobs", tenure.cell)
        self._operations = layout.tp("operations", tenure.cell)
        self._operations_offset = 0
        self._show_at_ms, self._is_unshown = 0, True
        self._shown_queues: dict[str, int] = {}
        self._fence = TopicFence(context, log, tenure.cell, self._jobs)
        self._service: QueueingService
        self._reader: Reader | None = None
        tenure.on_change = self._news.set

    async def run(self) -> None:
        """Until the task is cancelled. An exception means that the log cannot be trusted."""
        what, cell = f"the log of cell {self._tenure.cell}", self._tenure.cell
        try:
            if await wait_for(self._context, what, self._begin, (LogUnavailable,), about=cell):
                await self._follow_and_publish()
        finally:
            await self._fence.end()
            if self._reader is not None:
                await self._reader.stop()
            await self._follower.stop()
            self._context.health.ready(cell)

    async def _follow_and_publish(self) -> None:
        assert self._reader is not None, "_begin() comes first"
        self._context.health.ready()
        work = {"decisions": self._follow(), "jobs": self._read(self._reader), "windows": self._publish()}
        await together(self._context.stopping, until_stopped={}, cut_off=work)

    async def _begin(self) -> str | None:
        await self._follower.start()
        await self._follower.catch_up()
        self._service = QueueingService(
            self._follower.state,
            self._part,
            writer=f"{self._context.instance}-{self._host.wall_ms()}",
            jobs_source=f"jobs-{self._jobs[1]}",
            stepped=isinstance(self._context.clock, SteppedCellClock),
            few=self._few,
        )
        self._reader = await self._open()
        return None

    async def _open(self) -> Reader:
        """Jobs from the state's cursor; operations, which only matter to a stepped clock, from their beginning."""
        checksum = self._follower.state.input_checksums.get(f"jobs-{self._jobs[1]}")
        place = Place(self._service.jobs_offset, checksum)
        await self._fence.begin(place)
        begin = await self._log.begin_offsets([self._jobs, self._operations])
        self._operations_offset = begin[self._operations]
        # A fenced topic is read only to be passed over: its position in the log does not matter until it is lifted.
        first = 0 if self._fence.is_up else self._service.jobs_offset
        positions = {self._jobs: max(first, begin[self._jobs])}
        if isinstance(self._context.clock, SteppedCellClock):
            positions[self._operations] = self._operations_offset
        known = {} if self._fence.is_up else {self._jobs: place}
        reader = ContinuedReader(self._log, positions, known, self._patient_ms)
        await reader.start()
        return reader

    async def _follow(self) -> None:
        away = self._context.back_off(AWAY_FIRST_S)
        while True:
            try:
                decisions = await self._follower.poll(WAIT_MS, FOLD_RECORDS_MOST)
            except LogUnavailable as error:
                self._context.logger.warning("cannot read", cell=self._tenure.cell, reason=str(error))
                await self._context.pause(away.next_s())
                continue
            away.reset()
            if decisions:
                self._service.take_decisions(decisions, self._now_ms())
                self._news.set()

    async def _read(self, reader: Reader) -> None:
        resumes = self._service.resumes
        while True:
            if self._service.early > EARLY_MOST and not isinstance(self._context.clock, SteppedCellClock):
                # A flood waits in the log, not in memory: placement is no further, and has these to begin with.
                await asyncio.sleep(FULL_PAUSE_S)
                continue
            try:
                wait_ms = FENCED_WAIT_MS if self._fence.is_up or self._fence.is_looking else WAIT_MS
                records = await reader.poll(READ_RECORDS_MOST, wait_ms)
            except LogTruncated as error:
                self._refused(reader, error)
                continue
            if self._service.resumes != resumes:
                resumes = self._service.resumes
                self._fence.lift()
                reader.seek(self._jobs, self._service.jobs_offset)
                records = [record for record in records if record.topic != self._jobs[0]]
            self._fence.look()
            self._take(records)
            if records:
                self._news.set()

    def _refused(self, reader: Reader, error: LogTruncated) -> None:
        if error.tp == self._jobs and not self._fence.is_up:
            self._fence.refused(error)
        else:
            self._context.logger.warning("inputs were deleted unread", reason=str(error))
        reader.seek(error.tp, error.begin)

    def _take(self, records: list[Record]) -> None:
        newest: Record | None = None
        for record in records:
            if record.topic == self._jobs[0]:
                if self._fence.is_up:
                    continue
                # What cannot be read here is placement's to set aside: it reads the same records.
                self._service.take_job(event_of(record) if self._service.reads_ahead else None, record.offset + 1)
                newest = record
            else:
                event = event_of(record)
                self._operations_offset = record.offset + 1
                if isinstance(event, AdvanceTime) and isinstance(self._context.clock, SteppedCellClock):
                    self._context.clock.advance_to(event.now_ms)
        if newest is not None:
            self._fence.read(newest.offset + 1, checksum_of(newest.key, newest.value))

    async def _publish(self) -> None:
        sent_ms = 0
        while True:
            self._is_unshown = self._is_unshown or self._news.is_set()
            self._news.clear()
            self._service.wake(self._now_ms())
            at = (self._follower.next_offset, self._service.jobs_offset, self._operations_offset)
            if self._tenure.holds and self._service.due_in_ms(self._host.monotonic_ms()) == 0:
                await self._pace(sent_ms)
                at = (self._follower.next_offset, self._service.jobs_offset, self._operations_offset)
                await self._send()
                sent_ms = self._host.monotonic_ms()
            self._show(*at)
            await self._wait()

    async def _pace(self, sent_ms: int) -> None:
        rest_ms = sent_ms + self._context.settings.window_wall_ms - self._host.monotonic_ms()
        if rest_ms > 0 and not isinstance(self._context.clock, SteppedCellClock):
            await asyncio.sleep(rest_ms / 1000)

    async def _send(self) -> None:
        """The newest window, until it is in the log or a newer one is due."""
        away = self._context.back_off(AWAY_FIRST_S)
        while True:
            parts = self._service.window(self._host.monotonic_ms())
            source = self._context.instance
            messages = [
                self._layout.outgoing(
                    part, id=f"{part.writer}/{part.window}/{part.part}", source=source, wall_ms=self._host.wall_ms()
                )
                for part in parts
            ]
            try:
                await self._log.publish(messages)
            except LogUnavailable as error:
                self._context.health.not_ready(f"Kafka is away: {error}", self._tenure.cell)
                self._context.logger.warning("the log is away", cell=self._tenure.cell, reason=str(error))
                await self._context.pause(away.next_s())
                continue
            self._context.health.ready(self._tenure.cell)
            self._metrics.windows.labels(self._tenure.cell).inc()
            return

    async def _wait(self) -> None:
        """Until something changes, a window is due again or a pause ends."""
        with contextlib.suppress(TimeoutError):  # the time is over: that is what was waited for
            async with asyncio.timeout(self._wait_ms() / 1000):  # not wait_for, which may swallow a cancel
                await self._news.wait()

    def _wait_ms(self) -> int:
        now_ms, clock, waits_ms = self._host.monotonic_ms(), self._context.clock, [WAIT_MS]
        if self._tenure.holds:
            window_ms = self._service.due_in_ms(now_ms)
            if window_ms is not None:
                waits_ms.append(window_ms)
        if self._is_unshown:
            waits_ms.append(self._show_at_ms - now_ms)
        due_ms = self._service.next_cell_ms()
        if due_ms is not None and isinstance(clock, WallCellClock):
            waits_ms.append(clock.wall_wait_ms(due_ms))
        return max(1, min(waits_ms))

    def _now_ms(self) -> int:
        return self._context.clock.now_ms()

    def _show(self, decisions: int, jobs: int, operations: int) -> None:
        health, cell = self._context.health, self._tenure.cell
        topic, partition = self._layout.tp("decisions", cell)
        health.handled(topic, partition, decisions)
        health.handled(*self._jobs, jobs)
        if isinstance(self._context.clock, SteppedCellClock):
            health.handled(*self._operations, operations)
        health.progress.version[cell] = self._follower.state.version
        health.progress.next_due_ms = self._service.next_cell_ms()
        health.turned()
        if self._is_unshown and self._host.monotonic_ms() >= self._show_at_ms:
            self._is_unshown, self._show_at_ms = False, self._host.monotonic_ms() + SHOW_MS
            shown, self._shown_queues = self._shown_queues, self._service.waiting_by_queue()
            for queue in shown.keys() - self._shown_queues.keys():
                self._metrics.waiting.remove(cell, queue)
            for queue, waiting in self._shown_queues.items():
                self._metrics.waiting.labels(cell, queue).set(waiting)
