"""Starts again what dies while `fallow up` runs: services, Kafka and Redis. Says in one line what died, and why."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.runtime.errors.endings import FENCED, WRONG_SETTINGS
from fallow.shared.runtime.stack.child import StackError, telling_line
from fallow.shared.runtime.stack.restarts import WORDLESS, Deaths, Restarts, how_it_ended
from fallow.shared.runtime.stack.server import Server, Source
from fallow.shared.runtime.stack.services import READY_TOLD_S, Ended, Services, told_late

LOOK_AGAIN_S = 0.25
NO_START = "did not start"
REPAIR = "In another terminal: fallow log repair; then start this again."


T = TypeVar("T")


@dataclass
class Upkeep:
    """`servers` are started again on the thread of `starter`, which must outlive them: the kernel kills a child when
    the thread that started it ends. `say` gets one line at a time.
    """

    services: Services
    servers: Mapping[str, Server]
    starter: Executor
    say: Callable[[str], None]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    restarts: Restarts = field(default_factory=Restarts)

    async def run(self) -> None:
        """Until `stopping` is set. Raises StackError for what no start again can mend."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, server in self.servers.items():
                    if server.source is not Source.GIVEN:
                        tasks.create_task(self._keep_server(name, server))
                await self._keep_services(tasks)
        except ExceptionGroup as group:
            raise group.exceptions[0] from group

    async def begin(self, told: str) -> None:
        """Start all services, and say `told`, if anything, once all are ready; until then say now and then which are
        not, and why.
        """
        await self.services.start()
        said_s = asyncio.get_running_loop().time()
        while obstacles := await self.services.not_ready():
            if asyncio.get_running_loop().time() - said_s >= READY_TOLD_S:
                said_s = asyncio.get_running_loop().time()
                self.say(f"not ready yet: {told_late(obstacles)}")
            await asyncio.sleep(LOOK_AGAIN_S)
        if told:
            self.say(told)

    async def _keep_services(self, tasks: asyncio.TaskGroup) -> None:
        stop = asyncio.create_task(self.stopping.wait())
        ended = asyncio.create_task(self.services.ended())
        try:
            while not stop.done():
                await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    tasks.create_task(self._start_again(ended.result()))
                    ended = asyncio.create_task(self.services.ended())
        finally:
            ended.cancel()
            stop.cancel()

    async def _start_again(self, ended: Ended) -> None:
        line = telling_line(ended.last_lines)
        if ended.exit_code == FENCED:
            self.say(f"{ended.name} is fenced and is not restarted: operator action needed. {REPAIR} Last line: {line}")
            return
        if ended.exit_code == WRONG_SETTINGS:
            raise StackError(str(ended))
        deaths, words = self.restarts.of(ended.name, 0), "" if ended.exit_code in WORDLESS else line
        if await self._pause(ended.name, how_it_ended(ended.exit_code), words, deaths):
            await self.services.restart(ended.name)
            deaths.started(monotonic_ms())

    async def _keep_server(self, name: str, server: Server) -> None:
        deaths, starts = self.restarts.of(name, 0), True
        while await self._goes_on(LOOK_AGAIN_S):
            if await self._beside(lambda: server.is_running):
                continue
            if server.source is Source.EMBEDDED:
                raise StackError(f"{server.description} died, and with it all that it held:\n{server.tail()}")
            how, words = (
                await self._beside(lambda: _end_of(server)) if starts else (NO_START, telling_line(server.tail()))
            )
            if not await self._pause(name, how, words, deaths):
                return
            starts = not await self._did_not_start(server)
            deaths.started(monotonic_ms())
            if starts:
                self.say(f"{name} runs again at {server.address}")

    async def _did_not_start(self, server: Server) -> bool:
        try:
            await self._beside(server.start)
        except StackError:  # its last line is told with the next pause
            return True
        return False

    async def _pause(self, name: str, how: str, line: str, deaths: Deaths) -> bool:
        """Say it and wait; whether it is to be started again. `line`: what it said of its end, "" for nothing."""
        wait_s = deaths.died(monotonic_ms()) / 1000
        often = "" if deaths.in_a_row == 1 else f", {deaths.in_a_row} times in a row"
        said = f" It said: {line}" if line else ""
        self.say(f"{name} {how}{often}; it is started again in {wait_s:g} s.{said}")
        return await self._goes_on(wait_s)

    async def _goes_on(self, wait_s: float) -> bool:
        with contextlib.suppress(TimeoutError):  # the pause is over
            async with asyncio.timeout(wait_s):
                await self.stopping.wait()
        return not self.stopping.is_set()

    async def _beside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.starter, work)


def _end_of(server: Server) -> tuple[str, str]:
    """How a server ended, and what it said of it: nothing where it was killed."""
    code = server.exit_code
    words = "" if code in WORDLESS else telling_line(server.tail())
    return ("died" if code is None else how_it_ended(code)), words
