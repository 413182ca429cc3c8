"""Waits for placement where it is behind: follows in the decision log how far it has read the jobs of each cell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from prometheus_client import Counter, Gauge

from services.admission.policy.backpressure import Backpressure
from services.admission.settings import AdmissionSettings
from shared.events.encoding import UNREAD
from shared.log.layout import Layout
from shared.log.machine.sights import Sights
from shared.log.port import Log, LogTruncated, LogUnavailable, Reader, Record
from shared.runtime.process import Context

LOOK_EVERY_S, PATIENT_MS = 0.5, 250
DECISIONS_MOST = 2_000
"""Of one poll: far more than are written meanwhile."""

WAIT_AGAIN_S = 0.1
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
        return _DECODER.decode(decision).inputs.get(f"jobs-{partition}")
    except UNREAD:
        return None


class KeepingPace:
    """One process's waiting. A cell of which nothing is known is not waited for."""

    def __init__(self, context: Context[AdmissionSettings], log: Log, layout: Layout, cells: Sequence[str]) -> None:
        self._context, self._log = context, log
        self._cells = {layout.ordinals[cell]: cell for cell in cells}
        self._decisions = [layout.tp("decisions", cell) for cell in cells]
        self._jobs = {cell: layout.tp("jobs", cell) for cell in cells}
        self._backpressure = Backpressure(context.settings.jobs_behind_wall_ms, len(cells))
        self._sights = {cell: Sights() for cell in cells}
        self._read: dict[str, int] = {}
        self._has_passed_on = False
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
        reader = self._log.reader(await self._log.end_offsets(self._decisions), patient_ms=PATIENT_MS)
        await reader.start()
        self._reader = reader

    async def end(self) -> None:
        """Let go of what `begin` has begun."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()

    async def follow(self) -> None:
        """See again and again how far placement has come, until cancelled."""
        while True:
            await self.look()
            await self._context.pause(LOOK_EVERY_S)

    async def look(self) -> None:
        """See how far placement has come. While the log is away what was seen last stands."""
        reader = self._reader
        assert reader is not None, "a process begins before it looks"
        try:
            while records := await reader.poll(DECISIONS_MOST, wait_ms=0):
                self._note(records)
                if len(records) < DECISIONS_MOST:
                    break
        except LogTruncated as error:
            # Of what is older nothing is of use, and what is lost of the log is told of by those who fold it.
            reader.seek(error.tp, error.end)
            self._read.pop(self._cells.get(error.tp[1], ""), None)
        await self._compare()

    def _note(self, records: Sequence[Record]) -> None:
        """Note where placement goes on with each cell's jobs: a decision names only inputs of which it took some."""
        for record in records:
            cell = self._cells.get(record.partition)
            next_offset = jobs_read_to(record.value or b"", record.partition)
            if cell is not None and next_offset is not None:
                self._read[cell] = next_offset

    async def _compare(self) -> None:
        """See where each cell's jobs end, if this process has passed any on since it last saw all of them read."""
        if not self._has_passed_on:
            return
        try:
            ends = await self._log.end_offsets(list(self._jobs.values()))
        except LogUnavailable:
            return  # what is passed on waits for the log, too
        now_ms = self._context.host.monotonic_ms()
        self._has_passed_on = False
        for cell, tp in self._jobs.items():
            sights = self._sights[cell]
            sights.note(ends[tp], now_ms)
            read = self._read.get(cell, ends[tp])
            behind_ms = sights.behind_ms(read, now_ms)
            self._has_passed_on = self._has_passed_on or read < ends[tp]
            self._behind.labels(cell).set(behind_ms / 1_000)
            self._backpressure.saw(cell, read, behind_ms, now_ms)

    async def wait(self) -> None:
        """Return when placement is not too far behind in every cell, or the process is to stop. Then jobs are passed
        on.
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
        self._has_passed_on = True
