"""Services as processes on this machine: start, watch, ask, kill, restart and stop them.

Each gets the common environment and its own, a free HTTP port that it reports through a file, and its output in a
file or, line by line, in a callback. They die with this process, whatever ends it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallow.shared.runtime.stack.child import StackError, environment_with, last_lines, until_parent_dies, what_it_said
from fallow.shared.runtime.stack.http_get import KeptConnection, Unanswered
from fallow.shared.runtime.stack.ports import LOCAL
from fallow.shared.runtime.telemetry import rss_bytes, rss_peak_bytes

TOP = Path(__file__).parents[4]
READY_WAIT_S = 600.0
"""A slow or busy machine may take minutes: as long as the processes live, this is for what never comes."""

READY_TOLD_S = 30.0
STOP_WAIT_S = 10.0
LOOK_AGAIN_S = 0.02
LAST_OUTPUT_WAIT_S = 1.0
LINE_BYTES_MAX = 1 << 20

Echo = Callable[[str, str], None]  # name of the service, one line that it wrote
Say = Callable[[str], None]  # gets one line at a time


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A process to run: `python -m module arguments`, under a name that is unique here."""

    name: str
    module: str
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that ended without being asked to."""

    name: str
    exit_code: int  # negative: the number of the signal
    last_lines: str
    log_file: Path

    def __str__(self) -> str:
        return f"{self.name} ended with code {self.exit_code}; {what_it_said(self.log_file, self.last_lines)}"


class Service:
    """One process and what is known of it."""

    def __init__(self, spec: ServiceSpec, run_dir: Path) -> None:
        self.spec = spec
        self.log_file = run_dir / f"{spec.name}.log"
        self.port_file = run_dir / f"{spec.name}.port"
        self.process: asyncio.subprocess.Process | None = None
        self.connection: KeptConnection | None = None
        self.is_asked_to_end = False
        self.output_begins = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.rss_peak_bytes = 0  # over all runs of this service

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self.process is not None and self.process.returncode is None

    def connect(self) -> KeptConnection | None:
        """A connection to its HTTP port, once it has told that."""
        if self.connection is None and self.port_file.exists():
            self.connection = KeptConnection(LOCAL, int(self.port_file.read_text(encoding="ascii")))
        return self.connection

    async def get_json(self, path: str) -> tuple[int, dict[str, Any]]:
        """Asks the service; Unanswered when it does not answer."""
        connection = self.connect()
        if connection is None:
            raise Unanswered(f"{self.spec.name} has not told its port yet")
        return await connection.get_json(path)

    def tail(self) -> str:
        """The last lines that it wrote since it was started last."""
        return last_lines(self.log_file, self.output_begins)


class Services:
    """All services of one run. Output goes to `run_dir`/NAME.log, and to `echo` as well when that is given."""

    def __init__(
        self, specs: Iterable[ServiceSpec], *, environment: Mapping[str, str], run_dir: Path, echo: Echo | None = None
    ) -> None:
        self._run_dir = run_dir
        self._environment = dict(environment)
        self._echo = echo
        self._services = {spec.name: Service(spec, run_dir) for spec in specs}
        self._ended: asyncio.Queue[Ended] = asyncio.Queue()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order given."""
        return tuple(self._services)

    async def start(self, *names: str) -> None:
        """Starts these (all when none is named) without waiting for their readiness."""
        self._run_dir.mkdir(parents=True, exist_ok=True)
        for name in names or self.names:
            await self._start(self._services[name])

    async def wait_ready(
        self, *names: str, wait_s: float = READY_WAIT_S, say: Say | None = None, told_s: float = READY_TOLD_S
    ) -> None:
        """Waits until these (all when none is named) are ready; every `told_s` seconds says which are not. Raises
        StackError at once where one of them has ended, also one that was ready, and where one is late in the end.
        """
        watched = names or self.names
        late = dict.fromkeys(watched, "not asked yet")
        now_s = asyncio.get_running_loop().time
        began_s = said_s = now_s()
        while late := await self._still_late(watched, late):
            if now_s() - began_s > wait_s:
                raise StackError(f"not ready after {wait_s:.0f} s: {told_late(late)}")
            if say is not None and now_s() - said_s >= told_s:
                said_s = now_s()
                say(f"not ready yet: {told_late(late)}")
            await asyncio.sleep(LOOK_AGAIN_S)

    async def not_ready(self) -> dict[str, str]:
        """The services that are not ready now, and why; those that have ended too."""
        reasons = {name: await self._obstacle(service) for name, service in self._services.items()}
        return {name: reason for name, reason in reasons.items() if reason}

    async def ended(self) -> Ended:
        """Waits for the next process that ends without being asked to."""
        return await self._ended.get()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to one service; an end that follows was asked for. SIGSTOP and SIGCONT freeze and thaw it."""
        service = self._services[name]
        service.is_asked_to_end = service.is_asked_to_end or number not in {signal.SIGSTOP, signal.SIGCONT}
        if service.process is not None and service.is_running:
            service.process.send_signal(number)

    async def wait_ended(self, name: str) -> int:
        """Waits until one service has ended; its exit code."""
        process = self._services[name].process
        if process is None:
            raise StackError(f"{name} was not started")
        return await process.wait()

    async def restart(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends one service by a signal, waits for the end, and starts it again without waiting for its readiness."""
        await self._end(self._services[name], number)
        await self._start(self._services[name])

    async def stop(self) -> None:
        """Asks all by SIGTERM at once; those that have not ended after a bound are killed."""
        await asyncio.gather(*(self._end(service, signal.SIGTERM) for service in self._services.values()))

    async def cursors(self) -> dict[str, dict[str, Any]]:
        """The answer to /cursors of each running service; Unanswered when one does not answer."""
        running = [service for service in self._services.values() if service.is_running]
        answers = await asyncio.gather(*(service.get_json("/cursors") for service in running))
        return {service.spec.name: body for service, (_, body) in zip(running, answers, strict=True)}

    def pid(self, name: str) -> int:
        """The process id of a service that was started."""
        process = self._services[name].process
        if process is None:
            raise StackError(f"{name} was not started")
        return process.pid

    def port(self, name: str) -> int | None:
        """The HTTP port of a service, once it has told that."""
        port_file = self._services[name].port_file
        return int(port_file.read_text(encoding="ascii")) if port_file.exists() else None

    def rss_mb(self) -> dict[str, float]:
        """The memory that each running service holds now, in MB."""
        return {
            name: round(rss_bytes(service.process.pid) / 1e6, 1)
            for name, service in self._services.items()
            if service.process is not None and service.is_running
        }

    def rss_peak_mb(self) -> dict[str, float]:
        """The most memory that each service held, as of the last look (now, or when it was asked to end), in MB."""
        for service in self._services.values():
            look_at_memory(service)
        return {name: round(service.rss_peak_bytes / 1e6, 1) for name, service in self._services.items()}

    async def _start(self, service: Service) -> None:
        if service.is_running:
            raise StackError(f"{service.spec.name} runs already")
        service.port_file.unlink(missing_ok=True)
        service.connection, service.is_asked_to_end = None, False
        spec = service.spec
        argv = until_parent_dies([sys.executable, "-P", "-m", spec.module, *spec.arguments])
        own = {"FALLOW_INSTANCE": spec.name, "FALLOW_HTTP_PORT": "0", "FALLOW_PORT_FILE": str(service.port_file)}
        environment = environment_with(TOP, **{**self._environment, **own, **spec.environment})
        with service.log_file.open("ab") as log_file:
            service.output_begins = log_file.tell()
            service.process = await asyncio.create_subprocess_exec(
                *argv,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if self._echo else log_file,
                stderr=asyncio.subprocess.STDOUT,
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )
        service.tasks = [asyncio.create_task(self._watch(service, service.process))]

    async def _watch(self, service: Service, process: asyncio.subprocess.Process) -> None:
        copying = asyncio.create_task(self._copy_output(service, process))
        code = await process.wait()
        # Up to the end of its output, so that its last lines are told; what it has started may hold that open.
        await asyncio.wait([copying], timeout=LAST_OUTPUT_WAIT_S)
        copying.cancel()
        if not service.is_asked_to_end:
            self._ended.put_nowait(Ended(service.spec.name, code, service.tail(), service.log_file))

    async def _copy_output(self, service: Service, process: asyncio.subprocess.Process) -> None:
        if self._echo is None or process.stdout is None:
            return
        with service.log_file.open("ab", buffering=0) as log_file:
            while line := await next_line(process.stdout):
                log_file.write(line)
                self._echo(service.spec.name, line.decode("utf-8", "replace").rstrip("\n"))

    async def _end(self, service: Service, number: signal.Signals) -> None:
        look_at_memory(service)
        self.kill(service.spec.name, number)
        if service.process is None:
            return
        try:
            async with asyncio.timeout(STOP_WAIT_S):  # not wait_for, which swallows a cancel that comes with the end
                await service.process.wait()
        except TimeoutError:
            self.kill(service.spec.name, signal.SIGKILL)
            await service.process.wait()
        await asyncio.gather(*service.tasks)
        if service.connection is not None:
            await service.connection.close()

    async def _still_late(self, watched: Iterable[str], late: Iterable[str]) -> dict[str, str]:
        """Who of `late` is not ready yet, and why; all of `watched` must live."""
        for name in watched:
            self._must_run(self._services[name])
        reasons = {name: await self._obstacle(self._services[name]) for name in late}
        return {name: reason for name, reason in reasons.items() if reason}

    def _must_run(self, service: Service) -> None:
        if service.is_running:
            return
        code = None if service.process is None else service.process.returncode
        told = what_it_said(service.log_file, service.tail())
        raise StackError(f"{service.spec.name} ended with code {code} before all services were ready; {told}")

    async def _obstacle(self, service: Service) -> str:
        if not service.is_running:
            return "it does not run"
        if service.connect() is None:
            return "its process is still starting"
        try:
            status, body = await service.get_json("/readyz")
        except Unanswered as error:
            return str(error)
        return "" if status == 200 else str(body.get("reason"))  # noqa: PLR2004 - HTTP's OK


def told_late(late: Mapping[str, str]) -> str:
    """The services that are not ready, each with the reason, in one line."""
    return "; ".join(f"{name}: {why}" for name, why in late.items())


async def next_line(output: asyncio.StreamReader) -> bytes:
    """The next line, empty at the end. One that is too long is left out, since no other task takes it off the pipe."""
    try:
        return await output.readline()
    except ValueError:  # how a StreamReader tells that the line is beyond its limit, which it then forgets
        return b"(a line of more than 1 MB is left out)\n"


def look_at_memory(service: Service) -> None:
    """Remembers the most memory that the service held, while its process still can be asked."""
    if service.process is not None and service.is_running:
        service.rss_peak_bytes = max(service.rss_peak_bytes, rss_peak_bytes(service.process.pid))
