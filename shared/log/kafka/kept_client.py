"""One client of Kafka that calls share: the first call that needs it opens it, and it is kept for the next ones.

Behind a broker that answers late, or to prove a user, connecting takes longer than one call may wait. So the opening
goes on behind the call that began it, and the next call joins it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from enum import StrEnum
from typing import Any, Generic, TypeVar

from aiokafka.errors import KafkaConnectionError

from fallow.shared.log.kafka.openings import Openings

Client = TypeVar("Client")

LEFT_OF_OPENING = 1 / 3
"""A call uses a client that was opened in its time only if it has as much time left as this part of the opening took: a
client is open after four answers at least, and a call needs one. A call that asks with less time than that would fail,
and its client would be closed for nothing.
"""


class State(StrEnum):
    """Of a kept client."""

    CLOSED = "closed"
    """The next call begins to open one."""

    OPENING = "opening"
    """Or waiting for its turn to. It ends with the client open, or closed again where it fails or takes longer than its
    bound.
    """

    OPEN = "open"
    """Until `close`."""

    STOPPED = "stopped"
    """For good."""


class KeptClient(Generic[Client]):
    """Of one event loop. `make` builds a client without any I/O, `start` connects it, `close` closes it within a bound
    of its own, also where it is half open. `bound_s` is for one opening, from when it begins: with `openings`, which
    clients share, that is when its turn comes.
    """

    def __init__(
        self,
        make: Callable[[], Client],
        start: Callable[[Client], Awaitable[object]],
        close: Callable[[Client], Awaitable[object]],
        *,
        bound_s: float,
        openings: Openings | None = None,
    ) -> None:
        self._openings = openings
        self._make, self._start, self._close, self._bound_s = make, start, close, bound_s
        self._client: Client | None = None
        self._opening: asyncio.Task[Client] | None = None
        self._closings: set[asyncio.Future[object]] = set()
        self._is_stopped, self._took_s = False, 0.0

    @property
    def state(self) -> State:
        """Which of the four it is in now."""
        if self._is_stopped:
            return State.STOPPED
        if self._client is not None:
            return State.OPEN
        return State.CLOSED if self._opening is None else State.OPENING

    async def opened(self, until_s: float) -> Client:
        """The client, for a call that ends at this time of the loop's clock; one that is cancelled before leaves the
        opening alone.

        Raises what the opening raised, KafkaConnectionError where a stop ended it, and TimeoutError where the opening
        has left the call too little time to use the client: it is there for the next one.
        """
        if self._client is not None:
            return self._client
        if self._is_stopped:
            raise KafkaConnectionError("closed for good")
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open_in_turn())
            opening.add_done_callback(heard)
        await asyncio.wait({opening})
        if opening.cancelled():
            raise KafkaConnectionError("closed while it was opened")
        client = opening.result()
        if client is not self._client:
            raise KafkaConnectionError("closed since it was opened")
        if until_s - asyncio.get_running_loop().time() < LEFT_OF_OPENING * self._took_s:
            raise TimeoutError
        return client

    async def _open_in_turn(self) -> Client:
        try:
            async with nullcontext() if self._openings is None else self._openings.turn():
                return await self._open()
        finally:
            self._opening = None

    async def _open(self) -> Client:
        clock = asyncio.get_running_loop().time
        began_s, client = clock(), self._make()
        try:
            async with asyncio.timeout(self._bound_s):
                await self._start(client)
        except BaseException:  # also when it is cancelled: one that is half open is of no use
            self._close_behind(client)
            raise
        self._client, self._took_s = client, clock() - began_s
        return client

    def close(self, client: Client) -> None:
        """Hand out this client no more. It is closed behind the call; harmless where that was done already."""
        if self._client is client:
            self._client = None
            self._close_behind(client)

    def _close_behind(self, client: Client) -> None:
        closing = asyncio.ensure_future(self._close(client))
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    async def stop(self) -> None:
        """End the opening, close the client, and return when every client that was ever made here is closed."""
        self._is_stopped = True
        opening = self._opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening})
        if self._client is not None:
            self.close(self._client)
        if self._closings:
            await asyncio.wait(set(self._closings))


def end_of(bound: asyncio.Timeout) -> float:
    """When it ends a call, by the loop's clock; `inf` where it does not."""
    when = bound.when()
    return math.inf if when is None else when


def heard(opening: asyncio.Task[Any]) -> None:
    """Takes up the error of an opening that no call waits for any more: the next call opens anew."""
    if not opening.cancelled():
        opening.exception()
