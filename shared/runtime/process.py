"""The life of a service's process: set up, serve its health, run until told to stop, end in order.

    serve("placement", main, PlacementSettings)

Exit codes: 0 ended in order, 1 failed (an invariant broke, an unexpected error, or no end in time), 2 wrong
settings, cell file or topics, 3 fenced (the decision log is damaged: a process that keeps its cells apart stays up).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry
from structlog.typing import FilteringBoundLogger

from fallow.shared.runtime.clocks import SteppedCellClock, WallCellClock, clock_from
from fallow.shared.runtime.collector import tune_collector
from fallow.shared.runtime.errors.endings import FAILED, WRONG_SETTINGS, ending_of
from fallow.shared.runtime.errors.system_words import words_of_system
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.http.health import Health, HealthServer
from fallow.shared.runtime.logs import set_up_logs
from fallow.shared.runtime.settings import ServiceSettings, SettingsError, shown
from fallow.shared.runtime.standard_streams import open_missing_streams
from fallow.shared.runtime.tasks.backoff import FIRST_S, MAX_S, BackOff
from fallow.shared.runtime.telemetry import Telemetry
from fallow.shared.whole_file import whole_file

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)
SettingsT_co = TypeVar("SettingsT_co", bound=ServiceSettings, covariant=True)

OK = 0
STOP_WAIT_S = 20.0
LOOP_CHECK_S, LOOP_WINDOW_CHECKS = 0.25, 20


@dataclass(frozen=True)
class Context(Generic[SettingsT_co]):
    """What the main coroutine of a service is given."""

    service: str
    instance: str
    settings: SettingsT_co
    logger: FilteringBoundLogger
    telemetry: Telemetry
    health: Health
    clock: WallCellClock | SteppedCellClock
    stopping: asyncio.Event
    host: Host = field(default_factory=Host)
    beside: list[asyncio.Task[None]] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    """The topics that it reads, by their names without the namespace: it is not ready while one is gone."""

    def run_beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something for as long as the process lives, whose end would not change its work."""
        self.beside.append(asyncio.create_task(work, name=name))

    @property
    def registry(self) -> CollectorRegistry:
        """Where the service registers metrics of its own."""
        return self.telemetry.registry

    def back_off(self, first_s: float = FIRST_S, max_s: float = MAX_S) -> BackOff:
        """The pauses of one thing that is tried again and again."""
        return BackOff(first_s, max_s, self.host.chance)

    async def pause(self, wait_s: float) -> bool:
        """Waits `wait_s`, or less when the process is to stop; whether it goes on."""
        await asyncio.sleep(0)  # a loop of pauses lets others run and can be cancelled, also when it is to stop
        with contextlib.suppress(TimeoutError):  # the time is over: that is what was waited for
            async with asyncio.timeout(wait_s):  # not wait_for, which swallows a cancel that comes with the end
                await self.stopping.wait()
        return not self.stopping.is_set()


Main = Callable[[Context[SettingsT]], Awaitable[None]]


def serve(name: str, main: Main[SettingsT], settings: SettingsT | type[SettingsT]) -> None:
    """Runs a service until it ends, then ends the process with its exit code. Given a class, reads the settings
    first.
    """
    open_missing_streams()
    try:
        loaded = settings.load() if isinstance(settings, type) else settings
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            code = runner.run(run(name, main, loaded))
    except SettingsError as error:
        sys.stderr.write(f"{name}: wrong settings\n{error}\n")
        sys.exit(WRONG_SETTINGS)
    sys.exit(code)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where there is one."""
    try:
        import uvloop  # noqa: PLC0415 - not every platform has it
    except ImportError:
        return None
    return uvloop.new_event_loop


async def run(name: str, main: Main[SettingsT], settings: SettingsT) -> int:
    """Sets everything up, runs `main`, and returns the exit code. Raises SettingsError where it cannot serve its health
    as the settings say.
    """
    context = make_context(name, settings)
    stop_on_signals(context)  # before any other process can learn of it and ask it to stop
    server = await serve_health(context)
    tune_collector()
    context.logger.info("started", http_port=server.port, process=os.getpid())
    watch = asyncio.create_task(watch_loop(context), name="loop watch")
    try:
        return await run_to_end(context, main)
    finally:
        watch.cancel()
        await end_beside(context)
        await server.stop()


async def serve_health(context: Context[SettingsT]) -> HealthServer:
    """Serve it from now on, and write down at which port. Raises SettingsError."""
    settings = context.settings
    try:
        server = HealthServer(context.health, settings.http_host, settings.http_port)
    except (OSError, UnicodeError) as error:
        host, port = shown(settings.http_host), settings.http_port
        why = "is no name of a host" if isinstance(error, UnicodeError) else words_of_system(error)
        raise SettingsError(f"FALLOW_HTTP_HOST = {host}: cannot listen there at port {port}: {why}") from error
    await server.start()
    try:
        if settings.port_file is not None:
            write_whole(settings.port_file, str(server.port))
    except (OSError, ValueError) as error:
        await server.stop()
        path = shown(str(settings.port_file))
        raise SettingsError(f"FALLOW_PORT_FILE = {path}: cannot be written: {words_of_system(error)}") from error
    return server


def make_context(name: str, settings: SettingsT) -> Context[SettingsT]:
    """Everything that `main` is given, from the settings."""
    # The host belongs to it: in containers all replicas have the same process id.
    instance = settings.instance or f"{name}-{socket.gethostname()}-{os.getpid()}"
    telemetry = Telemetry(name)
    return Context(
        service=name,
        instance=instance,
        settings=settings,
        logger=set_up_logs(settings.log_format, settings.log_level, service=name, instance=instance),
        telemetry=telemetry,
        health=Health(name, instance, telemetry.registry),
        clock=clock_from(settings),
        stopping=asyncio.Event(),
    )


def stop_on_signals(context: Context[ServiceSettings]) -> None:
    """SIGTERM and SIGINT ask the service to stop; its readiness goes first, so that no client sends it more."""

    def ask(number: signal.Signals) -> None:
        context.logger.info("stopping", signal=number.name)
        context.health.not_ready("stopping", "stop")
        context.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ask, number)


async def run_to_end(context: Context[SettingsT], main: Main[SettingsT]) -> int:
    """Runs `main`; when asked to stop it has STOP_WAIT_S to return. An error of any kind ends the process."""
    work = asyncio.ensure_future(main(context))
    asked = asyncio.create_task(context.stopping.wait(), name="stop asked")
    await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    done, _ = await asyncio.wait({work}, timeout=STOP_WAIT_S)
    if not done:
        context.logger.error("did not stop in time", wait_s=STOP_WAIT_S)
        work.cancel()
        await asyncio.wait({work}, timeout=1.0)
        return FAILED
    error = work.exception()
    if error is None:
        context.logger.info("ended")
        return OK
    known = ending_of(error)
    if known is None:
        context.logger.error("failed", exc_info=error)
        return FAILED
    ending, reason = known
    context.logger.error(ending.event, reason=reason)
    return ending.exit_code


async def end_beside(context: Context[ServiceSettings]) -> None:
    """End what ran beside the service's own work; an error that it met is told."""
    for task in context.beside:
        task.cancel()
    for ended in await asyncio.gather(*context.beside, return_exceptions=True):
        if isinstance(ended, Exception):
            context.logger.warning("something beside the work failed", reason=repr(ended))


async def watch_loop(context: Context[ServiceSettings]) -> None:
    """Measures how late the loop wakes up: whatever blocks it shows here. Also keeps the readiness metric."""
    loop = asyncio.get_running_loop()
    late_s: list[float] = []
    while True:
        due_s = loop.time() + LOOP_CHECK_S
        await asyncio.sleep(LOOP_CHECK_S)
        late_s = [*late_s[1 - LOOP_WINDOW_CHECKS :], max(0.0, loop.time() - due_s)]
        context.telemetry.loop_delay.set(max(late_s))
        context.telemetry.ready.labels(context.service).set(context.health.is_ready)


async def wait_for(
    context: Context[ServiceSettings],
    what: str,
    check: Callable[[], Awaitable[str | None]],
    errors: tuple[type[Exception], ...] = (OSError,),
    *,
    about: str = "",
) -> bool:
    """Waits until `check` returns None; a text is the reason why not yet, and so is one of `errors`.

    What waits is the service itself, or the cell `about`.

    Says in one line what it waits for, and again only when the reason changes. Tries with growing, jittered pauses
    for as long as it takes. Returns False when the process is to stop before that.
    """
    pause, said = context.back_off(), None
    while not context.stopping.is_set():
        try:
            reason = await check()
        except errors as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            if about:
                context.health.ready(about)
            if said is not None:
                context.logger.info("found", what=what)
            return True
        context.health.not_ready(f"waiting for {what}: {reason}", about, cell=about)
        if reason != said:
            context.logger.warning("waiting", what=what, reason=reason)
            said = reason
        await context.pause(pause.next_s())
    return False


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader sees all of it or none."""
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
