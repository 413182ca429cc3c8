"""Asks whether a place of a partition can be read, and again now and then where it could not: a broker's replica may be
repaired, or another one lead.
"""

from __future__ import annotations

import asyncio

from fallow.shared.log.inputs.losses import loss_met
from fallow.shared.log.machine.losses import Loss
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable, TopicPartition, UnreadableRecords

LOOK_AGAIN_S = 30.0
POLL_WAIT_MS, POLLS_MAX = 250, 40


async def damage_at(log: Log, tp: TopicPartition, offset: int) -> Loss | None:
    """What keeps the records from this offset on from being read; None where they can be, or where there are none: it
    lies outside the log. Raises LogUnavailable.
    """
    if (await log.end_offsets([tp]))[tp] <= offset:
        return None
    reader = log.reader({tp: offset})
    await reader.start()
    try:
        for _ in range(POLLS_MAX):
            if await reader.poll(1, POLL_WAIT_MS) or reader.positions()[tp] > offset:
                return None
    except UnreadableRecords as error:
        return loss_met(error)
    except LogTruncated:
        return None
    finally:
        await reader.stop()
    raise LogUnavailable(f"{tp[0]}/{tp[1]}: nothing comes from offset {offset}")


class DamageWatch:
    """Places that could not be read, looked at beside other work."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._places: dict[TopicPartition, Loss] = {}
        self._look: asyncio.Task[list[Loss]] | None = None
        self._look_at_s = 0.0

    def put(self, loss: Loss) -> None:
        """Look at it from now on."""
        self._places[loss.tp] = loss
        self._look_at_s = asyncio.get_running_loop().time() + LOOK_AGAIN_S

    def clear(self) -> None:
        """Look at none of them any more."""
        self._places = {}

    def mended(self) -> list[Loss]:
        """What the last look has found to be readable, once. Begins a look when one is due."""
        if self._look is None:
            now_s = asyncio.get_running_loop().time()
            if self._places and now_s >= self._look_at_s:
                self._look = asyncio.create_task(self._readable(list(self._places.values())), name="look at damage")
            return []
        if not self._look.done():
            return []
        look, self._look = self._look, None
        self._look_at_s = asyncio.get_running_loop().time() + LOOK_AGAIN_S
        found = [loss for loss in look.result() if self._places.get(loss.tp) is loss]
        for loss in found:
            del self._places[loss.tp]
        return found

    async def _readable(self, losses: list[Loss]) -> list[Loss]:
        return [loss for loss in losses if await self._can_be_read(loss)]

    async def _can_be_read(self, loss: Loss) -> bool:
        """Whether a read succeeds. Where none of its records is there any more, the reader that goes on finds out."""
        try:
            return await damage_at(self._log, loss.tp, loss.next_offset) is None
        except Exception:  # noqa: BLE001 - whatever it is that keeps it from being read
            return False

    async def stop(self) -> None:
        """Let a look that is under way go."""
        look, self._look = self._look, None
        if look is not None:
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)
