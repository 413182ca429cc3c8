"""A slow link: everything that goes through it is late, sometimes very late, and never out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

from fallow.shared.runtime.stack.ports import LOCAL

CHUNK = 1 << 16
USUAL_S, SLOW_S = (0.002, 0.03), (0.3, 2.0)
SLOW_PERCENT = 1


class SlowLink:
    """Passes bytes on from a port of its own to another, with delays drawn from a seed while `is_slow`."""

    def __init__(self, port: int, to_port: int, seed: int) -> None:
        self.port, self._to_port, self._random = port, to_port, random.Random(seed)
        self.is_slow = False
        self.delays = 0
        self._tasks: dict[asyncio.Task[None], None] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SlowLink]:
        """Take connections until the end of the block."""
        server = await asyncio.start_server(self._connect, LOCAL, self.port)
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        try:
            far, far_out = await asyncio.open_connection(LOCAL, self._to_port)
        except OSError:
            near_out.close()
            return
        for source, sink in ((near, far_out), (far, near_out)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with closing(sink), suppress(OSError):  # where one side goes away, so does the other
            while data := await source.read(CHUNK):
                if self.is_slow:
                    await asyncio.sleep(self._delay_s())
                sink.write(data)
                await sink.drain()

    def _delay_s(self) -> float:
        self.delays += 1
        return self._random.uniform(*(SLOW_S if self._random.randrange(100) < SLOW_PERCENT else USUAL_S))
