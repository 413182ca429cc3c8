"""One worker's folder as the agent sees it: what its supervisor was told, whether it lives, how the worker ended.

What the agent knows of a worker stands in files, so an agent that comes back knows as much as before. Workers may write
there as well, so no file says that a worker is over: its processes do.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fallow.services.executor.processes import supervisor
from fallow.services.executor.processes.searches import Searches
from fallow.services.executor.processes.supervisor import Owners
from fallow.services.executor.processes.supervisors import Supervisors, tell
from fallow.services.executor.processes.sweep import Sweep

SUPERVISOR = Path(supervisor.__file__)
LAST_WORDS_BYTES, LAST_WORDS_CHARS = 4_096, 200
CODE_MAX = 255

OVERDUE_MS = 5_000
"""So long after its time to end a worker's supervisor is asked again, and then made to."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended. `why`: "" by itself, "stop" because it was told to, "lease" because the node's lease was
    over, "vanished" with its supervisor. `has_crashed`: the supervisor ended by itself, unkilled, which no file
    tells.
    """

    code: int | None
    signal: int | None
    why: str
    text: str = ""
    has_crashed: bool = False

    @property
    def is_good(self) -> bool:
        """Whether its work is done."""
        return self.why == "" and self.code == 0

    @property
    def is_failure(self) -> bool:
        """Whether it ended badly by itself."""
        return self.why == "" and self.code != 0


@dataclass(frozen=True, slots=True)
class Rights:
    """What a worker may do and use. `user`: the user as which it runs, None: the agent's; `makes`: a folder that it
    makes as that user before it begins; `scoped`: it can signal and trace no process but its own. A limit of 0 is none.
    """

    user: int | None = None
    makes: str | None = None
    scoped: bool = False
    open_files: int = 0
    processes: int = 0
    log_mib: int = 0
    memory_mib: int = 0
    cpu_milli: int = 0


WITHOUT_USER = Rights()


class WorkerFolder:
    """The folder of one worker of one attempt."""

    def __init__(
        self,
        path: Path,
        mark: str,
        cgroup: Path | None,
        searches: Searches,
        owners: Callable[[], Owners] = lambda: None,
    ) -> None:
        """`mark` is in the environment of all of the worker's processes, which are of these `owners`; `cgroup` holds
        them, where there is one; `searches` are those that it shares with the other workers of its agent.
        """
        self.path, self.mark, self.cgroup = path, mark, cgroup
        self.child: subprocess.Popen[bytes] | None = None
        self._end: WorkerEnd | None = None
        self._searches = searches
        self._sweep = Sweep(mark, searches.listed, owners)
        self._supervisors = Supervisors(mark, listed=searches.listed)
        self._stops_ms: int | None = None

    def is_of_another(self, ordered_ms: int) -> bool:
        """Whether the folder is of a worker that was ordered at another time: one of an earlier job of the same id.
        Raises OSError, ValueError, TypeError.
        """
        try:
            order = supervisor.read_plain(self.path / "order.json", supervisor.ORDER_BYTES_MAX)
        except FileNotFoundError:
            return False
        return bool(order) and _object_of(order.decode()).get("ordered_ms", ordered_ms) != ordered_ms

    def begin(
        self,
        argv: tuple[str, ...],
        env: dict[str, str],
        folder: str,
        lease: Path,
        *,
        ordered_ms: int,
        rights: Rights = WITHOUT_USER,
    ) -> None:
        """Start a supervisor for the worker; harmless when there is or was one. Raises OSError."""
        if self.was_begun():
            return
        self.path.mkdir(parents=True, exist_ok=True)
        if rights.user is not None:
            self.path.chmod(0o700)
        order: dict[str, Any] = {
            "argv": argv,
            "env": {**env, supervisor.MARK: self.mark},
            "dir": folder,
            "stdout": str(self.path / "stdout"),
            "stderr": str(self.path / "stderr"),
            "mark": self.mark,
            "lease": str(lease),
            "ordered_ms": ordered_ms,
            "cgroup": None if self.cgroup is None else str(self.cgroup),
            **asdict(rights),
        }
        supervisor.write_whole(self.path / "order.json", json.dumps(order))
        log_flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | supervisor.CAREFUL
        with os.fdopen(os.open(self.path / "supervisor.log", log_flags, 0o644), "ab") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SUPERVISOR), str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={supervisor.SUPERVISES: self.mark},
                cwd="/",
                start_new_session=True,
            )

    def stop(self, at_ms: int) -> None:
        """Ask the worker to end, and have it killed at `at_ms` (monotonic). An earlier time, set before, stays."""
        if self._end is not None:
            return
        self._stops_ms = min(at_ms, at_ms if self._stops_ms is None else self._stops_ms, self._told_ms(at_ms))
        word = signal.SIGTERM
        try:
            supervisor.write_whole(self.path / "stop", str(self._stops_ms))
        except OSError:
            # A disk that is full must not keep a worker alive.
            word = supervisor.END_AT_ONCE
        for pid in self._live_supervisors():
            tell(pid, word)

    def _told_ms(self, otherwise_ms: int) -> int:
        """What an agent before this one has set, if that can be read."""
        with contextlib.suppress(OSError, ValueError):
            return int(supervisor.read_whole(self.path / "stop") or otherwise_ms)
        return otherwise_ms

    @property
    def has_begun(self) -> bool:
        """Whether the worker has begun to run its program; it may be over."""
        return (self.path / "worker").exists()

    def look(self) -> WorkerEnd | None:
        """How the worker ended, once nothing of it is left; where its supervisor is gone, what is left is ended here,
        when its turn to search the machine has come.
        Raises OSError, ValueError, KeyError, TypeError where that cannot be read.
        """
        if self._end is None and self._is_seen_over():
            self._end = self._written_end() if self._is_believed() else None
            if self._end is None:
                self._end = self._vanished()
                with contextlib.suppress(OSError):  # it is only for the next look
                    supervisor.write_whole(self.path / "exit", json.dumps(asdict(self._end)))
        return self._end

    def is_over(self) -> bool:
        """Whether nothing of it is left, however it ended. It searches the machine without waiting for its turn."""
        return not self._is_supervised() and (self.ended_in_order() or self._nothing_is_left())

    def _is_seen_over(self) -> bool:
        return not self._is_supervised() and (self.ended_in_order() or self._is_swept())

    def destroy(self) -> bool:
        """End all of the worker, whatever its files say, when its turn has come. Whether nothing of it is left."""
        return self._is_swept() and (self.child is None or self.child.poll() is not None)

    def ended_in_order(self) -> bool:
        """Whether the agent's own supervisor says by the code of its end that nothing is left: no file proves that."""
        return self.child is not None and self.child.returncode == 0

    def _is_believed(self) -> bool:
        """Whether the file that tells of the end can be a supervisor's: one that was killed has written none."""
        return self.child is None or self.ended_in_order()

    def _written_end(self) -> WorkerEnd | None:
        written = supervisor.read_whole(self.path / "exit")
        if written is None:
            return None
        said = _object_of(written)
        code, number, why, text = said["code"], said["signal"], said["why"], said["text"]
        are_numbers = all(each is None or (type(each) is int and 0 <= each <= CODE_MAX) for each in (code, number))
        if not (are_numbers and type(why) is str and type(text) is str):
            raise ValueError("its end cannot be understood")
        text.encode()  # raises ValueError where no record could tell of it
        text = text[:LAST_WORDS_CHARS] or ("" if code == 0 else last_line(self.path / "stderr"))
        return WorkerEnd(code, number, why, text)

    def _vanished(self) -> WorkerEnd:
        if (self.path / "stop").exists():
            return WorkerEnd(None, None, "stop")
        has_crashed = self.child is not None and self.child.returncode > 0
        text = f"its supervisor is gone: {last_line(self.path / 'supervisor.log')}"
        return WorkerEnd(None, None, "vanished", text, has_crashed)

    def was_begun(self) -> bool:
        """Whether a supervisor is or was here: no worker is begun twice, whatever of its files it has removed."""
        is_told = any(os.path.lexists(self.path / name) for name in ("supervisor", "exit"))
        return is_told or (self.path.exists() and bool(self._supervisors.live()))

    def _is_supervised(self) -> bool:
        if not self._live_supervisors():
            return False
        is_overdue = self._stops_ms is not None and supervisor.monotonic_ms() > self._stops_ms + OVERDUE_MS
        if is_overdue and self._searches.may_search(self.mark):
            self._supervisors.end()
        return True

    def _live_supervisors(self) -> list[int]:
        """The agent's own child, or the supervisors that an agent before this one has begun."""
        if self.child is None:
            return self._supervisors.live(lambda: self._searches.supervisors(self.mark))
        return [self.child.pid] if self.child.poll() is None else []

    def _is_swept(self) -> bool:
        return self._searches.may_search(self.mark) and self._nothing_is_left()

    def _nothing_is_left(self) -> bool:
        if self.cgroup is not None:
            supervisor.kill_cgroup(self.cgroup)
        is_unsupervised = self._supervisors.end()
        return (
            self._sweep.look() and is_unsupervised and (self.cgroup is None or supervisor.cgroup_is_gone(self.cgroup))
        )


def _object_of(text: str) -> dict[str, Any]:
    """An object in JSON. Raises ValueError, TypeError."""
    try:
        return dict(json.loads(text))
    except RecursionError as error:
        raise ValueError("nested in too many levels") from error


def last_line(path: Path) -> str:
    """The last line of a file that is not empty, for people; "" where there is none."""
    try:
        lines = supervisor.read_plain(path, LAST_WORDS_BYTES, from_end=True).decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:LAST_WORDS_CHARS] for line in reversed(lines) if line.strip()), "")
