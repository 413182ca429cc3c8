"""A way to a Kafka by which every answer comes later, and which it names as its own address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fallow.shared.runtime.stack.ports import LOCAL

Answers = asyncio.Queue[tuple[float, bytes] | None]


class LateProxy:
    """To one broker, which clients reach in the clear. `late_s` is for each answer that comes from now on, and
    `once_s` for the next one beside. `connections` is how many are open, and `connected` how many there were.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._host, self._port, self._own_port = host, int(port), 0
        self.late_s = self.once_s = 0.0
        self.connections = self.connected = 0

    @property
    def address(self) -> str:
        return f"{LOCAL}:{self._own_port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[LateProxy]:
        tasks = set[asyncio.Task[None]]()

        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with suppress(asyncio.CancelledError):
                await self._serve(reader, writer)
            tasks.discard(task)

        server = await asyncio.start_server(taken, LOCAL, 0)
        self._own_port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected += 1
        answers, ends = Answers(), [writer]
        try:
            broker, to_broker = await asyncio.open_connection(self._host, self._port)
            ends.append(to_broker)
            ways = [self._requests(reader, to_broker), self._take(broker, answers), self._give(answers, writer)]
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self.connections -= 1
            for end in ends:
                end.close()

    async def _requests(self, reader: asyncio.StreamReader, to_broker: asyncio.StreamWriter) -> None:
        while some := await reader.read(65_536):
            to_broker.write(some)
        to_broker.close()

    async def _take(self, broker: asyncio.StreamReader, answers: Answers) -> None:
        clock = asyncio.get_running_loop().time
        told, own = (port.to_bytes(4, "big") for port in (self._port, self._own_port))
        names = [(name.encode() + told, name.encode() + own) for name in {self._host, LOCAL}]
        try:
            while True:
                size = await broker.readexactly(4)
                answer = await broker.readexactly(int.from_bytes(size, "big"))
                for name, own_name in names:
                    answer = answer.replace(name, own_name)
                answers.put_nowait((clock() + self.late_s + self.once_s, size + answer))
                self.once_s = 0.0
        finally:
            answers.put_nowait(None)

    async def _give(self, answers: Answers, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while (next_one := await answers.get()) is not None:
            at_s, answer = next_one
            await asyncio.sleep(max(0.0, at_s - clock()))
            writer.write(answer)
        writer.close()
