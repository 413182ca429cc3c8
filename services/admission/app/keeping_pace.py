"""Waits for placement where it is behind: follows in the decision log how far it has read the jobs of each cell. Where
another release writes that log, nothing is passed on at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from prometheus_client import Counter, Gauge

from fallow.services.admission.policy.backpressure import Backpressure
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.cluster.fold.fold import DamagedLog, OtherRelease
from fallow.shared.events.codec.encoding import UNREAD
from fallow.shared.events.decisions import input_name
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.sights import Sights
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable, Reader, Record, TopicPartition
from fallow.shared.log.reading import unproven_from
from fallow.shared.log.release import Trail, trail_of
from fallow.shared.runtime.process import Context

LOOK_EVERY_S, PATIENT_MS = 0.5, 250
DECISIONS_MAX = 2_000
"""Of one poll: far more than are written meanwhile."""

READ_WAIT_MS = 3 * PATIENT_MS
"""So long decisions that are in the log may take to come: a reader that is patient gets them late, and one batch at a
time from some brokers. An empty answer before that does not say that all is read.
"""

WAIT_AGAIN_S = 0.1
LOOK_AGAIN_MS = 5_000
"""To see whose a log is, all of it is read from its newest snapshot on."""

NOTE = "backpressure"


class _Inputs(msgspec.Struct):
    """What is read of a decision: all else in it is passed over."""

    inputs: dict[str, int] = {}


_DECODER = msgspec.json.Decoder(_Inputs)


def jobs_read_to(decision: bytes, partition: int) -> int | None:
    """Where placement goes on with the jobs of a partition by this decision; None if it took none of them, or if this
    is no decision, of which those tell who fold the log.
    """
    try:
        return _DECODER.decode(decision).inputs.get(input_name("jobs", partition))
    except UNREAD:
        return None


class KeepingPace:
    """One process's waiting. A cell of which nothing is known is not waited for."""

    def __init__(self, context: Context[AdmissionSettings], log: Log, layout: Layout, cells: Sequence[str]) -> None:
        self._context, self._log, self._signers, self._layout = context, log, layout.signers, layout
        self._cells = {layout.ordinals[cell]: cell for cell in cells}
        self._decisions = {cell: layout.tp("decisions", cell) for cell in cells}
        self._jobs = {cell: layout.tp("jobs", cell) for cell in cells}
        self._backpressure = Backpressure(context.settings.jobs_behind_wall_ms, len(cells))
        self._sights = {cell: Sights() for cell in cells}
        self._read: dict[str, int] = {}
        self._has_passed_on = False
        self._trails: dict[str, Trail | None] = {}
        self._may_be_others = False
        self._look_again_ms: int | None = None
        """When to ask whose logs they are of which nothing is known: behind damage a person mends the log."""
        self._reader: Reader | None = None
        self._behind = Gauge(
            "fallow_admission_behind_seconds",
            "For how long jobs that were passed on have waited to be read by placement, at the last look",
            ["cell"],
            registry=context.registry,
        )
        self._waited = Counter(
            "fallow_admission_waited_seconds", "Time spent waiting for placement", registry=context.registry
        )

    async def begin(self) -> None:
        """Stand at the end of the decisions. Raises LogUnavailable."""
        reader = self._log.reader(await self._log.end_offsets(list(self._decisions.values())), patient_ms=PATIENT_MS)
        await reader.start()
        self._reader = reader

    async def end(self) -> None:
        """Let go of what `begin` has begun."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()

    async def others(self) -> str | None:
        """Which cells have a log of another release, for which nothing may be passed on: who can read that log cannot
        read what this release writes. Raises LogUnavailable.
        """
        others = list[str]()
        for cell in self._decisions:
            try:
                self._trails[cell] = await trail_of(self._log, self._layout, cell)
            except OtherRelease as other:
                self._trails[cell] = None
                others.append(f"cell {cell}: {other}")
        self._may_be_others, self._look_again_ms = bool(others), None
        return "; ".join(others) or None

    async def follow(self) -> None:
        """See again and again how far placement has come, until cancelled. Raises OtherRelease."""
        while True:
            await self.look()
            await self._context.pause(LOOK_EVERY_S)

    async def look(self) -> None:
        """See how far placement has come. While the log is away what was seen last stands. Raises OtherRelease where
        another release has gone on with the log.
        """
        while len(await self._take(wait_ms=0)) == DECISIONS_MAX:
            pass
        if (self._may_be_others or self._is_to_look_again()) and not await self._has_looked_again():
            return
        if not self._has_passed_on:
            return
        try:
            ends = await self._log.end_offsets([*self._decisions.values(), *self._jobs.values()])
        except LogUnavailable:
            return  # what is passed on waits for the log, too
        self._has_passed_on = False
        while self._unread(ends) and await self._take(wait_ms=READ_WAIT_MS):
            pass
        self._compare(ends)

    async def _take(self, wait_ms: int) -> Sequence[Record]:
        """Note what the decisions say that have come."""
        reader = self._reader
        assert reader is not None, "a process begins before it looks"
        try:
            records = await reader.poll(DECISIONS_MAX, wait_ms=wait_ms)
        except LogTruncated as error:
            # Older entries are of no use, and the readers that fold the log report what it has lost.
            reader.seek(error.tp, error.end)
            self._may_be_others = True  # perhaps the topic is another one now
            self._read.pop(self._cells.get(error.tp[1], ""), None)
            return ()
        await self._note(records)
        return records

    def _unread(self, ends: Mapping[TopicPartition, int]) -> frozenset[str]:
        """The cells of which decisions below these ends are not read yet."""
        assert self._reader is not None, "a process begins before it looks"
        positions = self._reader.positions()
        return frozenset(cell for cell, tp in self._decisions.items() if positions[tp] < ends[tp])

    async def renew_keys(self) -> None:
        """Read the cells' keys again, where the cell file has changed."""
        await self._signers.renewed()

    async def _note(self, records: Sequence[Record]) -> None:
        """Note where placement goes on with each cell's jobs: a decision names only inputs of which it took some."""
        unproven = [self._unproven_from(record) for record in records]
        is_proven = unproven.count(None) == len(unproven)
        if not is_proven and await self._signers.renewed():  # perhaps its writer's key was added
            unproven = [self._unproven_from(record) for record in records]
        for record, since in zip(records, unproven, strict=True):
            cell = self._cells.get(record.partition)
            if cell is None:
                continue
            self._go_on(cell, record, since)
            if since is not None:
                continue  # of a cell with keys only what one of them proves counts, whatever version it names
            next_offset = jobs_read_to(record.value or b"", record.partition)
            if next_offset is not None:
                self._read[cell] = next_offset

    def _go_on(self, cell: str, record: Record, unproven: int | None) -> None:
        """Follow whose log it is. Raises OtherRelease."""
        trail = self._trails.get(cell)
        if trail is None:
            if cell in self._trails and self._look_again_ms is None:
                self._look_again_ms = self._context.host.monotonic_ms() + LOOK_AGAIN_MS
            return
        try:
            trail.follow(record, unproven)
        except OtherRelease as other:
            self._may_be_others = True
            raise OtherRelease(f"cell {cell}: {other}") from other
        except DamagedLog:
            self._trails[cell] = None  # the readers that fold the log are fenced, and report it

    async def _has_looked_again(self) -> bool:
        """Ask again whose logs they are. Whether to go on: where another release may be the one that reads the jobs,
        none are passed on before that is known. Raises OtherRelease.
        """
        try:
            why = await self.others()
        except LogUnavailable:
            self._look_again_ms = self._context.host.monotonic_ms() + LOOK_AGAIN_MS
            return not self._may_be_others
        if why is not None:
            raise OtherRelease(why)
        return True

    def _is_to_look_again(self) -> bool:
        return self._look_again_ms is not None and self._context.host.monotonic_ms() >= self._look_again_ms

    def _unproven_from(self, record: Record) -> int | None:
        cell = self._cells.get(record.partition)
        return None if cell is None else unproven_from(record, self._signers.of(cell))

    def _compare(self, ends: Mapping[TopicPartition, int]) -> None:
        """See how far each cell's jobs are read, up to where they ended.

        A cell of which there are decisions that have not come here yet may have read all its jobs: it is not behind.
        """
        now_ms, unread = self._context.host.monotonic_ms(), self._unread(ends)
        for cell, tp in self._jobs.items():
            sights = self._sights[cell]
            sights.note(ends[tp], now_ms)
            read = self._read.get(cell, ends[tp])
            behind_ms = 0 if cell in unread else sights.behind_ms(read, now_ms)
            self._has_passed_on = self._has_passed_on or read < ends[tp] or cell in unread
            self._behind.labels(cell).set(behind_ms / 1_000)
            self._backpressure.saw(cell, read, behind_ms, now_ms)

    async def wait(self) -> None:
        """Return when placement is not too far behind in every cell, or the process is to stop. Then jobs are passed
        on. Raises LogUnavailable while another release may be the one that reads them.
        """
        host, begin_ms = self._context.host, None
        while slow := self._backpressure.slow(host.monotonic_ms()):
            if begin_ms is None:
                begin_ms = host.monotonic_ms()
                self._context.logger.info("waits for placement", behind_ms=slow)
            cells = ", ".join(f"{cell} by {behind_ms} ms" for cell, behind_ms in sorted(slow.items()))
            self._context.health.noted(NOTE, f"reads no submissions until placement has caught up: behind in {cells}")
            if not await self._context.pause(WAIT_AGAIN_S):
                break
        if begin_ms is not None:
            self._waited.inc((host.monotonic_ms() - begin_ms) / 1_000)
            self._context.health.noted(NOTE)
        if self._may_be_others:
            raise LogUnavailable("there are records of another release in the decision log")
        self._has_passed_on = True
