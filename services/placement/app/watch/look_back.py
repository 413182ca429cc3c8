"""Reads again what nodes said before a writer took over, beside its cycles: how long each of them is silent by now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fallow.services.placement.lifecycle.nodes.earlier_reports import EarlierReports
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable, TopicPartition
from fallow.shared.log.reading import event_of

POLL_RECORDS, POLL_MS = 500, 1_000

REACH_MS_MAX = 600_000
"""No more of the topic is read again: longer leases than that begin anew with each writer."""


class LookBack:
    """One look, once. Where the log does not answer there is no answer: then every lease begins anew."""

    def __init__(self, log: Log, tp: TopicPartition, monotonic_ms: Callable[[], int]) -> None:
        self._log, self._tp, self._monotonic_ms = log, tp, monotonic_ms
        self._look: asyncio.Task[tuple[EarlierReports, int] | None] | None = None

    def begin(self, since_ms: int, pause_ms: int, on_answer: Callable[[], None] = lambda: None) -> None:
        """Read what the broker stamped `since_ms` or later. `on_answer` is called when there is an answer to be
        fetched.
        """
        self._look = asyncio.create_task(self._read(since_ms, EarlierReports(pause_ms)))
        self._look.add_done_callback(lambda _: on_answer())

    def take_answer(self) -> tuple[EarlierReports, int] | None:
        """What nodes said, up to which moment (monotonic); once."""
        look = self._look
        if look is None or not look.done():
            return None
        self._look = None
        return look.result()

    async def stop(self) -> None:
        """Read no more."""
        look, self._look = self._look, None
        if look is not None:
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)

    async def _read(self, since_ms: int, reports: EarlierReports) -> tuple[EarlierReports, int] | None:
        try:
            begin = await self._log.first_since(self._tp, max(0, since_ms))
            end = (await self._log.end_offsets([self._tp]))[self._tp]
            as_of_ms = self._monotonic_ms()
            if begin is not None:
                await self._read_to(begin, end, reports)
        except (LogUnavailable, LogTruncated):
            return None  # the watch of the log tells of it
        return reports, as_of_ms

    async def _read_to(self, begin: int, end: int, reports: EarlierReports) -> None:
        reader = self._log.reader({self._tp: begin})
        try:
            await reader.start()
            while reader.positions()[self._tp] < end:
                for record in await reader.poll(POLL_RECORDS, POLL_MS):
                    if record.offset < end:
                        reports.take(record.timestamp_ms, event_of(record))
                await asyncio.sleep(0)
        finally:
            await reader.stop()
