"""The port of the view onto the simulated Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from fallow.simulator.shells.log import Dead
from fallow.simulator.storage.redis import Call, Redis


class WorldFunctions:
    """The view's functions as one process sees them: over a network. `close` is called when the process dies."""

    def __init__(self, redis: Redis, who: str) -> None:
        self._redis, self._who = redis, who
        self.is_closed = False

    def close(self) -> None:
        """The process is dead."""
        self.is_closed = True

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """The answer. Raises ViewUnavailable, ViewMisused, and Dead for a process that is."""
        if self.is_closed:
            raise Dead(self._who)
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._redis.perform(self._who, Call(name, keys, arguments), partial(self._tell, told))
        answer = await told
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stop(self) -> None:
        """Nothing is held."""

    def _tell(self, told: asyncio.Future[Any], answer: Any) -> None:
        if not (self.is_closed or told.done()):
            told.set_result(answer)
