"""Waits until a cell's log is folded to the end that it has: nodes that have their lease again begin nothing before."""

from __future__ import annotations

import asyncio

from fallow.shared.log.follower import Follower
from fallow.shared.log.port import Log, LogUnavailable, TopicPartition
from fallow.shared.runtime.process import Context
from fallow.shared.runtime.settings import ServiceSettings

AWAY_FIRST_S = 0.25
LOOK_AGAIN_MS = 5_000
"""So often the log is asked again where it ends: it may have lost records of its end meanwhile."""

TOLD_AFTER_MS = 10_000
"""What takes longer is told to people."""


class CatchingUp:
    """One cell's waiting. The task that folds the log calls `has_read` each time."""

    def __init__(self, context: Context[ServiceSettings], log: Log, tp: TopicPartition, cell: str) -> None:
        self._context, self._log, self._tp, self._cell = context, log, tp, cell
        self._note = f"leases of cell {cell}"
        self._has_read = asyncio.Event()

    def has_read(self) -> None:
        """The follower has folded what came."""
        self._has_read.set()

    async def wait(self, follower: Follower) -> None:
        """Return when the log is folded to the end that it has now; or to the end that is left of it, where it has lost
        records behind what is folded: no others will come in their place. What is folded and lost the follower itself
        tells. Where it takes long, the health names both offsets.
        """
        host = self._context.host
        begun_ms = asked_ms = host.monotonic_ms()
        end = await self._end()
        try:
            while follower.next_offset < end:
                self._has_read.clear()
                await self._has_read_or(LOOK_AGAIN_MS)
                now_ms = host.monotonic_ms()
                if now_ms - asked_ms >= LOOK_AGAIN_MS:
                    end, asked_ms = min(end, await self._end()), now_ms
                if now_ms - begun_ms >= TOLD_AFTER_MS:
                    self._tell(follower.next_offset, end, now_ms - begun_ms)
        finally:
            self._context.health.noted(self._note)

    async def _has_read_or(self, wait_ms: int) -> None:
        try:
            await asyncio.wait_for(self._has_read.wait(), wait_ms / 1_000)
        except TimeoutError:
            return

    def _tell(self, next_offset: int, end: int, waits_ms: int) -> None:
        where = f"{self._tp[0]}/{self._tp[1]} is read to offset {next_offset}, and must be to {end}"
        text = f"nodes have their lease again and begin nothing since {waits_ms // 1_000} s: {where}"
        self._context.health.noted(self._note, text)

    async def _end(self) -> int:
        """The end of the log, as soon as it answers."""
        away = self._context.back_off(AWAY_FIRST_S)
        while True:
            try:
                return (await self._log.end_offsets([self._tp]))[self._tp]
            except LogUnavailable as error:
                self._context.logger.warning("cannot read", cell=self._cell, reason=str(error))
                await asyncio.sleep(away.next_s())
