"""The command line from a process that has loaded it already: each call is a process of its own, forked from that one.

To start Python and to load the command takes ten times as long as most commands need. Arguments, environment, standard
streams and the code at the end are those of `python -m fallow.cli`; `cold` calls that itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

TOP = Path(__file__).parents[3]
WAIT_S = 60
NUMBER_BYTES = 4
REQUEST, STREAMS, REPLY = 0, (1, 2, 3), 4
"""The places of the descriptors that a call hands over."""


def cold(words: Sequence[str], environment: Mapping[str, str], stdin: str) -> subprocess.CompletedProcess[str]:
    """The command in a new Python."""
    command = [sys.executable, "-m", "fallow.cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, input=stdin, env=environment, cwd=TOP, timeout=WAIT_S, check=False
    )


def warm(words: Sequence[str], environment: Mapping[str, str], stdin: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that the loaded one forks. Raises subprocess.TimeoutExpired."""
    with TemporaryFile() as request, TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        request.write(json.dumps([list(words), dict(environment)]).encode())
        given.write(stdin.encode())
        for file in (request, given):
            file.flush()
            file.seek(0)
        code = _ended([request.fileno(), given.fileno(), out.fileno(), err.fileno()], words)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess(["fallow", *words], code, *said)


def _ended(descriptors: list[int], words: Sequence[str]) -> int:
    """Hand these over; the code with which the command ended, -N where signal N ended it."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            socket.send_fds(_server(), [b"call"], [*descriptors, theirs.fileno()])
        child = _number(ours)
        if not select.select([ours], [], [], WAIT_S)[0]:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["fallow", *words], WAIT_S)
        return _number(ours)


def _number(reply: socket.socket) -> int:
    return int.from_bytes(reply.recv(NUMBER_BYTES, socket.MSG_WAITALL), "big", signed=True)


@cache
def _server() -> socket.socket:
    """The end of the loaded process to which calls are sent. It ends with this one, which holds the only such end."""
    ours, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.cli.worlds.warm", str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=TOP
        )
    return ours


def load() -> None:
    """Import all of the command line, and what it imports when it is first needed."""
    import fallow.cli  # noqa: PLC0415 - in the server alone

    for module in pkgutil.walk_packages(fallow.cli.__path__, "fallow.cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def serve(calls: socket.socket) -> None:
    """Fork a command for each call. Returns in these alone, with everything set for the command to begin."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who looks after a command is not waited for
    while True:
        word, descriptors, _, _ = socket.recv_fds(calls, 64, REPLY + 1)
        if not word:
            os._exit(0)
        if os.fork() == 0:
            calls.close()
            return _begin(descriptors)
        for each in descriptors:
            os.close(each)


def _begin(descriptors: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        _tell(descriptors[REPLY], child)
        _, status = os.waitpid(child, 0)
        _tell(descriptors[REPLY], os.waitstatus_to_exitcode(status))
        os._exit(0)
    words, environment = json.loads(Path(f"/dev/fd/{descriptors[REQUEST]}").read_bytes())
    for number, place in enumerate(STREAMS):
        os.dup2(descriptors[place], number)
    for each in descriptors:
        os.close(each)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["fallow", *words]


def _tell(reply: int, number: int) -> None:
    os.write(reply, number.to_bytes(NUMBER_BYTES, "big", signed=True))


if __name__ == "__main__":
    load()
    gc.freeze()  # else each command, when it ends, looks for cycles in all that was loaded: four times its own work
    serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("fallow.cli", run_name="__main__", alter_sys=True)
