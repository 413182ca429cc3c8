"""One process of production in the world: its main coroutine, on a loop of its own, with the world's ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from structlog.typing import FilteringBoundLogger

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.opening import AWAY, OpenLog
from fallow.shared.log.port import Log, LogTruncated
from fallow.shared.runtime.clocks import WallCellClock
from fallow.shared.runtime.http.health import Health
from fallow.shared.runtime.process import Context, wait_for
from fallow.shared.runtime.settings import ServiceSettings
from fallow.shared.runtime.telemetry import Telemetry
from fallow.simulator.process import Process, Release
from fallow.simulator.shells.heard import HeardLogger, Hears
from fallow.simulator.shells.host import WorldHost
from fallow.simulator.shells.log import WorldLog
from fallow.simulator.shells.loop import VirtualLoop
from fallow.simulator.shells.member import WorldMember
from fallow.simulator.storage.broker import Message
from fallow.simulator.trouble.versions import with_more

if TYPE_CHECKING:
    from fallow.simulator.world import World

NAMESPACE = "sim"

Main = Callable[[Context[Any], OpenLog], Coroutine[Any, Any, None]]


Rewritten = Callable[[Message], Sequence[Message]]


def _as_it_is(message: Message) -> Sequence[Message]:
    return (message,)


@dataclass(frozen=True, slots=True)
class Shell:
    """How a service is run: its name, its settings, its main coroutine, and what of its log the world listens to.

    `closes` are called when the process dies, to let its other ports refuse. `watched` sees each record that the
    process writes, `earlier` makes of it what an earlier release would write. After one of `ends` it begins again.
    `told` hears which partitions of its group should be its own, beside the members that it has opened.
    """

    service: str
    settings: ServiceSettings
    main: Main
    hears: Hears = field(default_factory=dict)
    closes: tuple[Callable[[], None], ...] = ()
    watched: Callable[[Message], None] | None = None
    earlier: Rewritten = _as_it_is
    ends: tuple[type[Exception], ...] = ()
    told: Callable[[frozenset[int]], None] = lambda _: None


class ShellPart:
    """The whole of a process. Death drops its handles and closes its coroutines, whose ports refuse by then."""

    def __init__(self, process: Process, shell_of: Callable[[World, Process], Shell]) -> None:
        self._process = process
        self._shell = shell_of(process.world, process)
        self._loop = VirtualLoop(process.world.engine, process)  # type: ignore[abstract] # no network, no signals
        self._log = WorldLog(
            process.world.broker, process.name, NAMESPACE, members=self._member_of, shaped=self._shaped()
        )
        self._members: list[WorldMember] = []
        self._health: Health | None = None

    def begin(self) -> None:
        """Run `main`, as the start of the process would."""
        main = self._shell.main(self._context(), self._opening)
        self._loop.create_task(main, name="main").add_done_callback(self._ended)

    def end(self) -> None:
        """Dead: first the ports refuse, then the coroutines are closed."""
        self._log.close()
        for close in self._shell.closes:
            close()
        self._loop.die()

    @property
    def is_ready(self) -> bool:
        """What the process would show at /readyz."""
        return self._health is not None and self._health.is_ready

    def told(self, owned: frozenset[int]) -> None:
        """The group's word arrives."""
        for member in self._members:
            member.own(owned)
        with self._loop.as_running():
            self._shell.told(owned)

    def _context(self) -> Context[Any]:
        process, shell = self._process, self._shell
        telemetry, host = Telemetry(shell.service), WorldHost(process, self._cell_failed)
        self._health = Health(shell.service, process.name, telemetry.registry)
        return Context(
            service=shell.service,
            instance=process.name,
            settings=shell.settings,
            logger=cast("FilteringBoundLogger", HeardLogger(shell.hears)),
            telemetry=telemetry,
            health=self._health,
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

    def _shaped(self) -> Rewritten | None:
        release, watched = self._process.release, self._shell.watched
        shape = self._shell.earlier if release is Release.EARLIER else _as_it_is
        if release is Release.LATER:
            shape = _with_more
        if watched is None:
            return None if shape is _as_it_is else shape

        def seen(message: Message) -> Sequence[Message]:
            watched(message)
            return shape(message)

        return seen

    def _cell_failed(self, error: BaseException) -> None:
        """The work on a cell has ended. Where it may begin anew, the world looks at why."""
        error = _first_of(error)
        if isinstance(error, self._shell.ends) or (isinstance(error, LogTruncated) and error.asked < error.begin):
            return  # the process ends by it, or records were cleaned away that a snapshot covers
        self._process.cell_failed(error)

    def _ended(self, main: asyncio.Task[None]) -> None:
        error = RuntimeError("was cancelled") if main.cancelled() else main.exception()
        error = _first_of(error or RuntimeError("ended by itself"))
        if isinstance(error, self._shell.ends):
            self._process.world.crash(self._process)
        else:
            self._process.failed(error)


def _with_more(message: Message) -> Sequence[Message]:
    return (with_more(message),)


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
