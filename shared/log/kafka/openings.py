"""How many Kafka clients a process opens at the same time, where it has one for each partition.

An opening takes some ten milliseconds of the loop. Of hundreds that begin at once none ends before nearly all do, which
is later than a call may wait: so they go on some at a time, first come first served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

OPENINGS_AT_ONCE = 16
"""So few that the first are open early, and enough that the loop has work while answers are on their way."""

TURN_S = 1.0
"""An opening that takes longer waits for a broker and not for the loop: then it keeps no other one waiting. A leader
that is silent is waited for by all clients of its partitions, and those of other leaders are not to wait with them.
"""


class Openings:
    """Shared by the clients of one process. Of one event loop."""

    def __init__(self, at_once: int = OPENINGS_AT_ONCE, *, turn_s: float = TURN_S) -> None:
        self._turns, self._turn_s = asyncio.Semaphore(at_once), turn_s

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until it is this opening's turn. The turn ends with the block, or before it when its time is over."""
        await self._turns.acquire()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._turns.release()

        timer = asyncio.get_running_loop().call_later(self._turn_s, end)
        try:
            yield
        finally:
            timer.cancel()
            end()
