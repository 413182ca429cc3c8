"""One process of production in the world: its main coroutine, on a loop of its own, with the world's ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from structlog.typing import FilteringBoundLogger

from services.simulator.process import Process, Release
from services.simulator.shells.heard import HeardLogger, Hears
from services.simulator.shells.host import WorldHost
from services.simulator.shells.log import WorldLog
from services.simulator.shells.loop import VirtualLoop
from services.simulator.shells.member import WorldMember
from services.simulator.versions import with_more
from shared.cluster.config import CellFile
from shared.log.opening import AWAY, OpenLog
from shared.log.port import Log
from shared.runtime.clocks import WallCellClock
from shared.runtime.health import Health
from shared.runtime.process import Context, wait_for
from shared.runtime.settings import ServiceSettings
from shared.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from services.simulator.world import World

NAMESPACE = "sim"

Main = Callable[[Context[Any], OpenLog], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Shell:
    """How a service is run: its name, its settings, its main coroutine, and what of its log the world listens to."""

    service: str
    settings: ServiceSettings
    main: Main
    hears: Hears


class ShellPart:
    """The whole of a process. Death drops its handles and closes its coroutines, whose ports refuse by then."""

    joins_by_itself = True

    def __init__(self, process: Process, shell_of: Callable[[World, Process], Shell]) -> None:
        self._process = process
        self._shell = shell_of(process.world, process)
        self._loop = VirtualLoop(process.world.engine, process)  # type: ignore[abstract] # no network, no signals
        is_later = process.release is Release.LATER
        self._log = WorldLog(
            process.world.broker,
            process.name,
            NAMESPACE,
            members=self._member_of,
            shaped=with_more if is_later else None,
        )
        self._members: list[WorldMember] = []

    def begin(self) -> None:
        """Run `main`, as the start of the process would."""
        main = self._shell.main(self._context(), self._opening)
        self._loop.create_task(main, name="main").add_done_callback(self._ended)

    def end(self) -> None:
        """Dead: first the ports refuse, then the coroutines are closed."""
        self._log.close()
        self._loop.die()

    def told(self, owned: frozenset[int]) -> None:
        """The group's word arrives."""
        for member in self._members:
            member.own(owned)

    def _context(self) -> Context[Any]:
        process, shell = self._process, self._shell
        telemetry, host = Telemetry(shell.service), WorldHost(process)
        return Context(
            service=shell.service,
            instance=process.name,
            settings=shell.settings,
            logger=cast("FilteringBoundLogger", HeardLogger(shell.hears)),
            telemetry=telemetry,
            health=Health(shell.service, process.name, telemetry.registry),
            clock=WallCellClock(wall=host.wall_ms),
            stopping=asyncio.Event(),
            host=host,
        )

    async def _opening(self, context: Context[Any], _file: CellFile) -> Log | None:
        async def connected() -> str | None:
            await self._log.start()
            return None

        log: Log = self._log
        return log if await wait_for(context, "the broker", connected, AWAY) else None

    def _member_of(self, group: str) -> WorldMember:
        member = WorldMember(self._process, group)
        self._members.append(member)
        return member

    def _ended(self, main: asyncio.Task[None]) -> None:
        error = RuntimeError("was cancelled") if main.cancelled() else main.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        self._process.failed(error or RuntimeError("ended by itself"))
