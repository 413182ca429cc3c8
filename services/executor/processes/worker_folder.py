"""One worker's folder as the agent sees it: what its supervisor was told, whether it lives, how the worker ended.

Everything that the agent knows of a worker stands in files, so an agent that comes back knows as much as before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from services.executor.processes import supervisor
from services.executor.processes.sweep import Sweep

SUPERVISOR = Path(supervisor.__file__)
LAST_WORDS_BYTES, LAST_WORDS_CHARS = 4_096, 200
CODE_MOST = 255


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended. `why`: "" by itself, "stop" because it was told to, "lease" because the node's lease was
    over, "vanished" with its supervisor.
    """

    code: int | None
    signal: int | None
    why: str
    text: str = ""

    @property
    def is_good(self) -> bool:
        """Whether its work is done."""
        return self.why == "" and self.code == 0

    @property
    def is_failure(self) -> bool:
        """Whether it ended badly by itself."""
        return self.why == "" and self.code != 0


class WorkerFolder:
    """The folder of one worker of one attempt."""

    def __init__(self, path: Path, mark: str, cgroup: Path | None) -> None:
        """`mark` is in the environment of all of the worker's processes; `cgroup` holds them, where there is one."""
        self.path, self.mark, self.cgroup = path, mark, cgroup
        self.child: subprocess.Popen[bytes] | None = None
        self._end: WorkerEnd | None = None
        self._sweep = Sweep(mark)
        self._known_supervisor: tuple[int, int] | None = None

    def is_of_another(self, ordered_ms: int) -> bool:
        """Whether the folder is of a worker that was ordered at another time: one of an earlier job of the same id.
        Raises OSError, ValueError, TypeError.
        """
        try:
            order = supervisor.read_plain(self.path / "order.json", supervisor.ORDER_BYTES_MOST)
        except FileNotFoundError:
            return False
        return bool(order) and _object_of(order.decode()).get("ordered_ms", ordered_ms) != ordered_ms

    def begin(self, argv: tuple[str, ...], env: dict[str, str], folder: str, lease: Path, *, ordered_ms: int) -> None:
        """Start a supervisor for the worker; harmless when there is or was one. Raises OSError."""
        if self._supervisor() is not None or self.end() is not None:
            return
        self.path.mkdir(parents=True, exist_ok=True)
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
        if self.end() is not None:
            return
        word = signal.SIGTERM
        try:
            told = supervisor.read_whole(self.path / "stop")
            at_ms = at_ms if told is None else min(at_ms, int(told))
            supervisor.write_whole(self.path / "stop", str(at_ms))
        except OSError:
            # A disk that is full must not keep a worker alive. Its supervisor takes it along, `look` ends the rest.
            word = signal.SIGKILL
        pid = self._live_supervisor()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(pid, word)

    @property
    def has_begun(self) -> bool:
        """Whether the worker has begun to run its program; it may be over."""
        return (self.path / "worker").exists()

    def end(self) -> WorkerEnd | None:
        """How the worker ended, once nothing of it is left."""
        if self._end is None:
            self._end = self._written_end()
        return self._end

    def look(self) -> WorkerEnd | None:
        """The same, and where the supervisor is gone without a word, whatever is left is ended here."""
        if self.child is not None:
            self.child.poll()
        if self.end() is None and not self._is_supervised() and self.end() is None and self._nothing_is_left():
            self._end = self._vanished()
            with contextlib.suppress(OSError):  # it is only for whoever looks next
                supervisor.write_whole(self.path / "exit", json.dumps(asdict(self._end)))
        return self._end

    def destroy(self) -> bool:
        """Kill all of the worker, whatever its files say. Whether nothing of it is left."""
        left = supervisor.marked(self.mark, supervisor.SUPERVISES)
        for pid in left:
            supervisor.kill(pid)
        if self.child is not None:
            self.child.poll()
        return self._nothing_is_left() and not left

    def _written_end(self) -> WorkerEnd | None:
        written = supervisor.read_whole(self.path / "exit")
        if written is None:
            return None
        said = _object_of(written)
        code, number, why, text = said["code"], said["signal"], said["why"], said["text"]
        are_numbers = all(each is None or (type(each) is int and 0 <= each <= CODE_MOST) for each in (code, number))
        if not (are_numbers and type(why) is str and type(text) is str):
            raise ValueError("its end cannot be understood")
        text.encode()  # raises ValueError where no record could tell of it
        text = text[:LAST_WORDS_CHARS] or ("" if code == 0 else last_line(self.path / "stderr"))
        return WorkerEnd(code, number, why, text)

    def _vanished(self) -> WorkerEnd:
        if (self.path / "stop").exists():
            return WorkerEnd(None, None, "stop")
        return WorkerEnd(None, None, "vanished", f"its supervisor is gone: {last_line(self.path / 'supervisor.log')}")

    def _is_supervised(self) -> bool:
        is_there = self._live_supervisor() is not None
        if is_there or (self.child is not None and self.child.returncode is None):
            return True
        return self._known_supervisor is None and self._is_locked()

    def _is_locked(self) -> bool:
        """Whether a supervisor is just coming up. Later on anything may hold this: the worker, too."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | supervisor.CAREFUL)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _supervisor(self) -> tuple[int, int] | None:
        """Its process id and the tick of its start. What was read once holds: workers may write there as well."""
        if self._known_supervisor is None and (text := supervisor.read_whole(self.path / "supervisor")) is not None:
            pid, ticks = text.split()
            self._known_supervisor = int(pid), int(ticks)
        return self._known_supervisor

    def _live_supervisor(self) -> int | None:
        known = self._supervisor()
        return known[0] if known is not None and supervisor.start_ticks(known[0]) == known[1] else None

    def _nothing_is_left(self) -> bool:
        if self.cgroup is not None:
            supervisor.kill_cgroup(self.cgroup)
        return self._sweep.look() and (self.cgroup is None or supervisor.cgroup_is_gone(self.cgroup))


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
