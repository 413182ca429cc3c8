"""Where connections come in at a service's HTTP port: in turns, and none while all places wait for their answers.

Any client that reaches the port may open connections as fast as it can. What one costs besides answers, to accept it,
to refuse what it brings and to close it, is paid for when it is accepted: so all of them together take at most a
quarter of the loop. A connection that is not accepted yet stands in the kernel's queue, which serves them in order.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import perf_counter

from fallow.shared.runtime.http.turns import BANKED_S, REST

CONNECTION_S = 0.0004
"""What a connection costs besides answers: measured with requests that are none, each answered by 400."""

GONE_S = 0.00005
"""The cost of a connection whose other side has gone before it was accepted: it is only closed."""

QUEUE = 512
"""How many may stand before the door: more than a machine's programs, and fewer than a probe can wait behind."""


class Door:
    """Of one port. `made` gives the protocol of a connection, `places_left` how many more may come in now."""

    def __init__(
        self, listener: socket.socket, made: Callable[[], asyncio.Protocol], places_left: Callable[[], int]
    ) -> None:
        self._listener, self._made, self._places_left = listener, made, places_left
        self._entering: set[asyncio.Task[None]] = set()
        self._next_s = 0.0

    async def serve(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listener.listen(QUEUE)
        try:
            while True:
                rest_s = self._next_s - perf_counter()
                if rest_s > 0 or self._places_left() <= len(self._entering):
                    await asyncio.sleep(max(rest_s, CONNECTION_S))
                    continue
                try:
                    connection, _ = await loop.sock_accept(self._listener)
                except OSError:  # it has gone before it was accepted, or this process has no file left
                    await asyncio.sleep(BANKED_S)
                    continue
                is_gone = has_gone(connection)
                # A loop that is busy comes by seldom, so it may accept a few at once.
                cost_s = GONE_S if is_gone else CONNECTION_S
                self._next_s = max(self._next_s, perf_counter() - BANKED_S) + (1 + REST) * cost_s
                if is_gone:
                    connection.close()
                    continue
                entering = asyncio.create_task(self._enter(loop, connection))
                self._entering.add(entering)
                entering.add_done_callback(self._entering.discard)
        finally:
            for entering in self._entering:
                entering.cancel()

    async def _enter(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(self._made, connection)
        except OSError:
            connection.close()


def has_gone(connection: socket.socket) -> bool:
    """Whether its other side has ended it and said nothing before."""
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
