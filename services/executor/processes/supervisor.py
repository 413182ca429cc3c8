"""Looks after one worker: starts it, stops it, leaves nothing of it behind, and writes down how it ended.

    python -I -S supervisor.py WORKER_FOLDER

It is a program of its own, apart from the agent that starts it: an agent may die and come back, and finds in the folder
what became of the worker. It needs nothing but the standard library, so that it is small and up at once.

    order.json  what to run, written by the agent
    supervisor  "PID START_TICKS" of this process, once it is there. An agent that finds it never begins the worker
    again worker      "PID" once the worker runs its program stop        monotonic milliseconds at which the worker is
    killed; once it is there the worker is asked to end exit        how it ended, as JSON. It counts once supervisor and
    worker are gone: workers may write here too, unless
                they have a user of their own

It also kills the worker when the node's lease (a file of the node, monotonic milliseconds) is over: then others may
start the work anew, and there may be no agent left to see to it.

    python -I -S supervisor.py --end-user USER

kills all processes of a user at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import stat
import struct
import sys
import time
from collections.abc import Container, Mapping
from pathlib import Path
from resource import getrlimit
from typing import Any, NoReturn

LOOK_EVERY_MS = 1_000
"""How often lease and stop are looked at without a signal."""

KILL_PAUSE_S = 0.02
CHASES = 200
"""So often in a row children are killed before the whole machine is searched again."""

CPU_WEIGHT_MAX, CPU_MILLI_PER_WEIGHT = 10_000, 10
"""One processor has the kernel's usual weight, 100."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
LANDLOCK_CREATE, LANDLOCK_RESTRICT = 444, 446
LANDLOCK_TELL_VERSION, LANDLOCK_SCOPES_SIGNALS_FROM, LANDLOCK_SIGNALS = 1, 6, 2
"""System calls, a flag, and the version (Linux 6.12) from which Landlock keeps signals within."""

CANNOT_START = 127
LOG = "log"
"""Why a worker must end whose output is too long."""

NOT_MINE = 3
ENVIRONMENT_BYTES_MAX = 131_072
"""So much of a process's environment is looked at: a mark that stands behind it is as good as taken out."""

Owners = Container[int] | None
"""The users whose processes may have a mark, None: all. Any user may give a process of its own any environment."""

END_USER = "--end-user"
WORKERS_UMASK = 0o022
"""That of a worker with a user of its own: its agent's lets no other user read anything."""

MARK, SUPERVISES = "FALLOW_MARK", "FALLOW_SUPERVISES"
"""In the environment of a worker's processes, and in that of its supervisor."""

FILE_BYTES_MAX = 64 * 1024
"""No file that agent and supervisor write for each other is longer."""

ORDER_BYTES_MAX = 16 * 1024 * 1024
"""An order holds the job's arguments and environment, and those that the agent hands on."""

CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How files are opened that a worker may have put there: no link is followed, and no pipe waited for."""

END_AT_ONCE = signal.SIGUSR1
"""What an agent sends where the file `stop` cannot be written, or tells nothing."""

AWAITED = (signal.SIGCHLD, signal.SIGTERM, END_AT_ONCE)
DEAF_TO = (signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Run the worker of the folder to its end. 0 once nothing of the worker is left, whatever became of it: that stands
    in the folder. NOT_MINE where another supervisor began it.
    """
    if sys.argv[1] == END_USER:
        return end_user(int(sys.argv[2]))
    folder = Path(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, [*AWAITED, *DEAF_TO])
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | CAREFUL, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return NOT_MINE  # another one looks after this worker
    if (folder / "supervisor").exists():
        return NOT_MINE  # another one did
    # Orphans of the worker come to this process, wherever they hide: so it can end them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    write_whole(folder / "supervisor", f"{os.getpid()} {start_ticks(os.getpid())}")
    write_whole(folder / "exit", json.dumps(Supervisor(folder).run()))
    return 0


class Supervisor:
    """One worker's life."""

    def __init__(self, folder: Path) -> None:
        order = json.loads(read_plain(folder / "order.json", ORDER_BYTES_MAX))
        self._folder, self._order = folder, order
        self._mark: str = order["mark"]
        self._owners = None if order["user"] is None else (order["user"], os.geteuid())
        self._lease = Path(order["lease"])
        self._cgroup = Path(order["cgroup"]) if order["cgroup"] else None
        self._lease_until_ms = 0
        self._stops_ms: int | None = None
        self._is_told = False
        self._worker = 0
        self._status: int | None = None

    def run(self) -> dict[str, Any]:
        """From the start to the end; what the file `exit` shall say."""
        if self._stop_ms() is not None:
            return _end(why="stop")
        problem = self._start()
        why = self._look_after() if problem is None else ""
        is_short = self._cgroup is not None and ran_out_of_memory(self._cgroup)
        self._leave_nothing()
        if problem is not None:
            return _end(code=CANNOT_START, text=problem)
        if why == LOG:
            return {**_end_of(signal.SIGKILL, ""), "text": self._cut_streams()}
        text = f"it used more memory than its {self._order['memory_mib']} MiB" if is_short else ""
        return {**_end_of(self._status, why), "text": text}

    def _start(self) -> str | None:
        """Begin the worker; why that cannot be, or None."""
        if self._cgroup is not None:
            self._cgroup.mkdir(parents=True, exist_ok=True)
            limit_group(self._cgroup, self._order)
        told, tell = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        self._worker = os.fork()
        if self._worker == 0:
            self._become_worker(parent, tell)
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            problem = pipe.read().decode(errors="replace")
        if not problem:
            write_whole(self._folder / "worker", str(self._worker))
        return problem or None

    def _become_worker(self, parent: int, tell: int) -> NoReturn:
        order, step, who = self._order, "prepare", ""
        try:
            os.setsid()
            if self._cgroup is not None:
                (self._cgroup / "cgroup.procs").write_text("0", encoding="ascii")
            self._open_streams()
            step = "set its limits"
            limit(order)
            if order["user"] is not None:
                who = f"user {order['user']} "
                become_user(order["user"])
                os.umask(WORKERS_UMASK)
            # Behind the change of user, at which the kernel forgets it.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            # No program with a set-user-ID bit makes the worker another user.
            ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            if order["scoped"]:
                step = "be kept from other processes"
                keep_from_other_processes()
            if os.getppid() != parent:
                os._exit(CANNOT_START)  # it was killed before the kernel could be asked
            if order["makes"] is not None:
                step = f"make {order['makes']}"
                Path(order["makes"]).mkdir(parents=True, exist_ok=True)
            step = f"change to {order['dir']}"
            os.chdir(order["dir"])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [*AWAITED, *DEAF_TO])
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python ignores them, and a program inherits that
            step = f"run {order['argv'][0]}"
            os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - the job's own program
        except (OSError, ValueError) as error:
            os.write(tell, f"{who}cannot {step}: {cause_of(error, step)}".encode())
        finally:
            os._exit(CANNOT_START)  # the parent's code must not run twice

    def _open_streams(self) -> None:
        """The worker's output, which is its user's: programs open it once more, as /dev/stderr."""
        user = self._order["user"]
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for number, name in ((1, self._order["stdout"]), (2, self._order["stderr"])):
            stream = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | CAREFUL, 0o644 if user is None else 0o600)
            if user is not None:
                os.fchown(stream, user, user)
            os.dup2(stream, number)

    def _look_after(self) -> str:
        """Until the worker ends by itself (""), or must end: "stop", "lease" or LOG."""
        while True:
            stop_ms, now_ms = self._stop_ms(), monotonic_ms()
            if stop_ms is not None and not self._is_told:
                self._is_told = True
                with contextlib.suppress(ProcessLookupError):  # it ended just now
                    os.killpg(self._worker, signal.SIGTERM)
            why = must_end(now_ms, stop_ms, self._lease_ends_ms()) or (LOG if self._long_streams() else "")
            if why:
                return why
            wait_ms = LOOK_EVERY_MS if stop_ms is None else min(LOOK_EVERY_MS, stop_ms - now_ms)
            told = signal.sigtimedwait(AWAITED, wait_ms / 1000)
            if told is not None and told.si_signo == END_AT_ONCE:
                self._stops_ms = 0
            self._reap()
            if self._status is not None:
                return "stop" if self._is_told else ""

    def _long_streams(self) -> list[str]:
        """The outputs of the worker that are longer than they may be."""
        bytes_max = self._order["log_mib"] << 20
        streams = (self._order["stdout"], self._order["stderr"]) if bytes_max else ()
        return [name for name in streams if size_bytes(name) > bytes_max]

    def _cut_streams(self) -> str:
        """Cut what is too long behind what is allowed, once no process writes any more; what people read of it."""
        mib = self._order["log_mib"]
        for name in self._long_streams():
            with contextlib.suppress(OSError):  # it is no file of ours
                stream = os.open(name, os.O_WRONLY | CAREFUL)
                os.ftruncate(stream, mib << 20)
                os.close(stream)
        return f"its output is longer than {mib} MiB"

    def _stop_ms(self) -> int | None:
        # One that cannot be read was not written by the agent, which asks by a signal too. Nor was a later one than
        # before: the worker may write there, and would give itself a longer grace.
        with contextlib.suppress(OSError, ValueError):
            told_ms = int(read_whole(self._folder / "stop") or "")
            self._stops_ms = told_ms if self._stops_ms is None else min(told_ms, self._stops_ms)
        return self._stops_ms

    def _lease_ends_ms(self) -> int:
        # A lease that cannot be read is not renewed: what was read last holds until it is over.
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._lease_until_ms = int((read_whole(self._lease) or "").split()[1])
        return self._lease_until_ms

    def _reap(self) -> bool:
        """Take leave of all children that ended, and of orphans that came here. Whether any lives: where none does, no
        descendant does, as each orphan comes here.
        """
        with contextlib.suppress(ChildProcessError):  # there are none at all
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._worker:
                    self._status = status
        return False

    def _leave_nothing(self) -> None:
        """Kill whatever is left, until nothing is."""
        while True:
            if self._cgroup is not None:
                kill_cgroup(self._cgroup)
            left = [*descendants(os.getpid()), *marked(self._mark, of=self._owners)]
            for pid in left:
                kill_with_group(pid)
            lives = self._kill_children()
            if not (left or lives) and (self._cgroup is None or cgroup_is_gone(self._cgroup)):
                return
            signal.sigtimedwait([signal.SIGCHLD], KILL_PAUSE_S)

    def _kill_children(self) -> bool:
        """Kill the children, and the orphans that come here meanwhile. Whether any lives.

        A search of the machine takes so long that a process which forks and exits all the time is gone before its turn.
        """
        before = list[int]()
        for _ in range(CHASES):
            if not self._reap():
                return False
            children = own_children()
            if children == before:
                break  # they are killed, and on their way
            for pid in children:
                kill_with_group(pid)
            before = children
        return True


def size_bytes(name: str) -> int:
    """How long a file is, as far as one stands there."""
    try:
        return os.lstat(name).st_size
    except OSError:
        return 0


def limit(order: Mapping[str, Any]) -> None:
    """Set this process's limits, as far as they are lower than those that it has. Raises OSError, ValueError."""
    limits = [(resource.RLIMIT_NOFILE, order["open_files"])]
    if order["user"] is not None:
        limits.append((resource.RLIMIT_NPROC, order["processes"]))  # the kernel counts those of the user
    for what, most in limits:
        if most:
            soft, hard = (most if each == resource.RLIM_INFINITY else min(each, most) for each in getrlimit(what))
            resource.setrlimit(what, (soft, hard))


def limit_group(group: Path, order: Mapping[str, Any]) -> None:
    """Set the limits of a worker's control group, as far as it can have any. Raises OSError."""
    limits = {
        "memory.max": order["memory_mib"] << 20,
        "memory.oom.group": 1 if order["memory_mib"] else 0,
        "pids.max": order["processes"],
        "cpu.weight": min(CPU_WEIGHT_MAX, order["cpu_milli"] // CPU_MILLI_PER_WEIGHT),
    }
    for name, most in limits.items():
        if most and (group / name).exists():
            (group / name).write_text(str(most), encoding="ascii")


def ran_out_of_memory(group: Path) -> bool:
    """Whether the kernel has ended a process of the group because it had no more memory."""
    try:
        lines = (group / "memory.events").read_text("ascii").splitlines()
    except OSError:
        return False  # its memory has no limit
    return any(line.split()[0] == "oom_kill" and line.split()[1] != "0" for line in lines)


def become_user(user: int) -> None:
    """Give up all rights for those of this user, for good. Raises OSError."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    with contextlib.suppress(PermissionError):
        os.setresuid(0, 0, 0)
        raise OSError(errno.EPERM, "the rights of root are still there")


def can_keep_from_other_processes() -> bool:
    """Whether this kernel can: Landlock is on, in a version that knows signals."""
    version: int = ctypes.CDLL(None).syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_TELL_VERSION)
    return version >= LANDLOCK_SCOPES_SIGNALS_FROM


def keep_from_other_processes() -> None:
    """From now on this process, and all that it begins, can signal, trace and look into each other alone, also where
    others are of the same user. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    rules = struct.pack("QQQ", 0, 0, LANDLOCK_SIGNALS)  # no rules on files, none on the network
    number = libc.syscall(LANDLOCK_CREATE, rules, len(rules), 0)
    if number < 0 or libc.syscall(LANDLOCK_RESTRICT, number, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(number)


def end_user(user: int) -> int:
    """Kill all processes of a user. None gets away by forking: the kernel goes through all of them in one step."""
    become_user(user)
    if user > 0 and os.getresuid() == (user, user, user):  # what follows spares no process that it may end
        with contextlib.suppress(ProcessLookupError, PermissionError):  # there are none, or none of this user
            os.kill(-1, signal.SIGKILL)
    return 0


def must_end(now_ms: int, stop_ms: int | None, lease_until_ms: int) -> str:
    """Why a worker must not live any longer: "stop" or "lease"; "" while it may."""
    if stop_ms is not None and now_ms >= stop_ms:
        return "stop"
    return "lease" if now_ms >= lease_until_ms else ""


def _end(*, code: int | None = None, why: str = "", text: str = "") -> dict[str, Any]:
    return {"code": code, "signal": None, "why": why, "text": text}


def _end_of(status: int | None, why: str) -> dict[str, Any]:
    if status is None:
        return _end(why=why)
    code = os.waitstatus_to_exitcode(status)
    return {**_end(code=code if code >= 0 else 128 - code, why=why), "signal": -code if code < 0 else None}


# What the agent uses too.


def hide_own_memory() -> None:
    """Keep this process's memory and environment from others of its user: workers are of that user, too."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def monotonic_ms() -> int:
    """The clock of leases and stops; all processes of a machine read the same."""
    return time.monotonic_ns() // 1_000_000


def cause_of(error: Exception, told: str = "") -> str:
    """What went wrong, as one tells it to a person: the system's words, with the file if it is not `told` already."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    # Of a program that is looked for on the PATH it is the last place, in bytes.
    is_news = isinstance(error.filename, str) and error.filename not in told
    return f"{error.filename}: {error.strerror}" if is_news else error.strerror


def write_whole(path: Path, text: str, group: int | None = None) -> None:
    """Write a file so that a reader sees all of it or none; only its user and this group may read. Raises OSError."""
    unfinished = path.with_name(f"{path.name}.part")
    _clear(unfinished)  # what a worker has put there is not written into
    if path.is_dir() and not path.is_symlink():
        _clear(path)
    with os.fdopen(
        os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFUL, 0o600), "w", -1, "utf-8"
    ) as file:
        if group is not None:
            os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), 0o640)
        file.write(text)
    unfinished.replace(path)


def _clear(path: Path) -> None:
    """Let nothing stand there; a folder is moved out of the way."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # Linux says the first of a folder, others the second
        path.rename(path.with_name(f"{path.name}.{time.monotonic_ns()}"))


def read_whole(path: Path) -> str | None:
    """What such a file says; None where there is none, or where a loss of power has left its name alone. Raises OSError
    where something else stands there, and ValueError where it is no text.
    """
    try:
        return read_plain(path).decode().strip("\0") or None
    except FileNotFoundError:
        return None


def read_plain(path: Path, bytes_max: int = FILE_BYTES_MAX, *, from_end: bool = False) -> bytes:
    """What stands in a file, at most so much of it, which workers may have changed for anything else: a pipe would be
    waited for, a device or a link may lead anywhere. Raises OSError.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | CAREFUL), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no plain file", str(path))
        file.seek(max(0, status.st_size - bytes_max) if from_end else 0)
        return file.read(bytes_max)


def stat_of(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (the state) on; None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def start_ticks(pid: int) -> int | None:
    """When a process began, in ticks since the machine did: a number that comes again belongs to another time. None
    for a process that is over.
    """
    fields = stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def processes() -> list[int]:
    """The ids of all processes, mostly the newest first: one that will be gone in a moment has its turn before."""
    return sorted((int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()), reverse=True)


def descendants(root: int) -> list[int]:
    """All processes below this one, without those that ended."""
    return below(root, children_of_each(processes()))


def children_of_each(pids: list[int]) -> dict[int, list[int]]:
    """Of these processes those that a process has begun, by its id; without those that ended."""
    children: dict[int, list[int]] = {}
    for pid in pids:
        fields = stat_of(pid)
        if fields is not None and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(pid)
    return children


def below(root: int, children_of: dict[int, list[int]]) -> list[int]:
    """All processes below this one; it looks at no process itself."""
    found, look_at = list[int](), [root]
    while look_at:
        children = children_of.get(look_at.pop(), [])
        found += children
        look_at += children
    return found


def own_children() -> list[int]:
    """The children of this process; none where the kernel does not tell."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()]
    except OSError:
        return []


def marked(mark: str, name: str = MARK, *, of: Owners = None) -> list[int]:
    """All processes whose environment began with this mark, or with one that it is the beginning of when it ends in a
    slash.
    """
    return search(processes(), mark, name, of=of)[0]


def supervisors_among(pids: list[int], mark: str) -> list[int]:
    """Of these processes those that pose as supervisors with this mark, and are their agent's user's: any user may give
    a process of its own such an environment.
    """
    return without_forks(_search(pids, mark, SUPERVISES, (os.geteuid(),))[0])


def without_forks(pids: list[int]) -> list[int]:
    """Of these processes those that none of them has begun. A worker has its supervisor's environment until it runs its
    program: one that is taken for a supervisor then is told later what is for the supervisor alone.
    """
    parents = {pid: int(fields[1]) for pid in pids if (fields := stat_of(pid)) is not None}
    return [pid for pid in pids if parents.get(pid) not in parents]


def environments_among(pids: list[int], mark: str, name: str) -> list[tuple[int, list[str]]]:
    """Of these processes those of this user whose environment has a mark that begins so: process id, and its marks
    whole.
    """
    wanted, found = f"{name}={mark}".encode(), list[tuple[int, list[str]]]()
    for pid in pids:
        with contextlib.suppress(OSError):  # it is over, or another user's and so none of ours
            words = environment_of(pid).split(b"\0") if user_of(pid) == os.geteuid() else []
            marks = [os.fsdecode(word[len(name) + 1 :]) for word in words if word.startswith(wanted)]
            if marks and pid != os.getpid():
                found.append((pid, marks))
    return found


def search(pids: list[int], mark: str, name: str = MARK, *, of: Owners = None) -> tuple[list[int], set[int]]:
    """The processes with the mark, and those that ended before they could be looked at: each may have left another one
    behind.
    """
    return _search(pids, mark, name, of)


def search_newest(mark: str, *, of: Owners = None) -> list[int]:
    """The processes with the mark among those that began last: at once, before they may have ended."""
    try:
        last = int(Path("/proc/loadavg").read_text("ascii").split()[-1])
    except (OSError, ValueError, IndexError):
        return []
    return _search([last, last - 1, last - 2], mark, MARK, of)[0]


def _search(pids: list[int], mark: str, name: str, of: Owners) -> tuple[list[int], set[int]]:
    wanted = f"\0{name}={mark}".encode() + (b"" if mark.endswith("/") else b"\0")
    found, missed = list[int](), set[int]()
    for pid in pids:
        if of is not None and (user := user_of(pid)) is not None and user not in of:
            continue
        try:
            environment = environment_of(pid)
        except PermissionError:
            continue  # another user's, and so none of ours
        except OSError:
            missed.add(pid)
            continue
        if wanted in b"\0" + environment and pid != os.getpid():
            found.append(pid)
        elif not environment:
            missed.add(pid)  # unless it lives without any, as the kernel's own do
    return found, {pid for pid in missed if start_ticks(pid) is None}


def environment_of(pid: int) -> bytes:
    """The begin of the environment with which a process began. Raises OSError. Thousands may share one of megabytes:
    to read all of it from each would halt everybody.
    """
    with Path(f"/proc/{pid}/environ").open("rb", buffering=0) as file:
        return file.read(ENVIRONMENT_BYTES_MAX) or b""


def user_of(pid: int) -> int | None:
    """The real user of a process, which cannot hide it; None of one that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in status.split(b"\n") if line.startswith(b"Uid:")), None)


def users_of_all() -> set[int]:
    """The users that have a process, as whichever of its users. A process may hide its owner, and its status never."""
    found = set[int]()
    for pid in processes():
        with contextlib.suppress(OSError):  # it is over
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").split("\n")
            fields = {key: value for key, _, value in (line.partition(":") for line in lines)}
            if fields["State"].split()[0] not in "ZX":
                found.update(map(int, fields["Uid"].split()))
    return found


def kill(pid: int) -> None:
    """Kill a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # over, or not ours to end
        os.kill(pid, signal.SIGKILL)


def kill_with_group(pid: int) -> None:
    """Kill a process and all of its group: what it forks just now belongs to that, too, and does not get away.

    Groups are of one session, and a worker begins its own: there are only processes of the worker in it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group > 1 and group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
    kill(pid)


def kill_cgroup(path: Path) -> None:
    """Kill everything in a control group."""
    with contextlib.suppress(OSError):  # it is gone, or its kernel is older than 5.14: the sweep does it
        (path / "cgroup.kill").write_text("1", encoding="ascii")


def cgroup_is_gone(path: Path) -> bool:
    """Whether the control group is empty; it is removed then, with those that the worker has made below it."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # something is in it
            Path(folder).rmdir()
    return not path.exists()


if __name__ == "__main__":
    sys.exit(main())
