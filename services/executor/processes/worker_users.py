"""The users as which workers run: a number for each attempt, from a range that is this agent's alone. No account is
needed for it.

Nothing is written down for this: an attempt's number is the owner of its folder `work`, which stands in a folder where
only root may write. A number is free again when that folder is gone, and with it what its user left elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from fallow.services.executor.processes import supervisor
from fallow.services.executor.processes.folders.state_folder import make_folder
from fallow.services.executor.processes.folders.user_traces import remove_traces

CLAIMS = Path("/run/fallow-worker-uids")
"""A file of the machine in which each agent holds a lock on the bytes that are its range: two ranges never overlap."""

ENTERED, CLOSED = 0o711, 0o700
"""The modes of a folder through which workers go to their own, and of one that is not theirs."""

OF_THE_AGENTS_USER = ("HOME", "LOGNAME", "MAIL", "USER", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "SUDO_USER")
"""Variables that are wrong for any other user."""

GONE_PREFIX = "user-"


class WorkerUsersUnusable(Exception):
    """Workers cannot have users of their own here. One line: field, value and rule."""


class NoUserIsFree(ValueError):
    """All numbers belong to runs of which there are folders."""


class WorkerUsers:
    """The users of one node's workers. Raises WorkerUsersUnusable, StateFolderUnusable."""

    def __init__(self, state_dir: Path, uids: range, claims: Path = CLAIMS) -> None:
        self.uids, self._runs = uids, state_dir / "runs"
        _require_root(uids)
        _require_unknown(uids)
        self._claim = _claimed(uids, claims)
        _let_through(state_dir)
        self._of = {attempt: user for attempt in _attempts_in(self._runs) if (user := self._owner(attempt))}
        self._former = {
            attempt: user
            for attempt in _attempts_in(self._runs)
            if attempt not in self._of and (user := _owner_of(attempt)) not in (None, os.geteuid())
        }
        self._close_those_without()
        self._next = max(self._of.values(), default=uids[-1]) + 1

    def of(self, attempt: Path) -> int | None:
        """The user of the attempt with this folder; None where it was begun without one."""
        return self._of.get(attempt)

    def owner_of(self, attempt: Path) -> int | None:
        """The user as which the attempt's processes run, also where it was begun with a number of another range, before
        `worker_uids` were changed; None: the agent's user.
        """
        return self._of.get(attempt, self._former.get(attempt))

    @property
    def all(self) -> frozenset[int]:
        """All users whose processes may be workers of this node: those of the range, and of ranges before it."""
        return frozenset((*self.uids, *self._former.values()))

    def move_in(self, attempt: Path) -> int:
        """The attempt's user, who owns its folder `work` from now on. Raises NoUserIsFree, OSError."""
        work = attempt / "work"
        for folder in (attempt.parent, attempt):
            folder.mkdir(exist_ok=True)
            folder.chmod(ENTERED)
        work.mkdir(mode=CLOSED, exist_ok=True)
        if attempt not in self._of:
            user = self._free()
            os.chown(work, user, user, follow_symlinks=False)
            self._of[attempt] = user
        return self._of[attempt]

    def close(self, attempt: Path) -> None:
        """Nothing of the attempt runs any more: no user gets through to its files."""
        with contextlib.suppress(OSError):  # its folder is gone
            attempt.chmod(CLOSED)

    def prefix_of(self, attempt: Path) -> str:
        """How the name of an attempt's folder begins while it is being removed: it keeps the user until it is gone."""
        user = self._of.get(attempt)
        return "" if user is None else f"{GONE_PREFIX}{user}-"

    def move_out(self, attempt: Path) -> None:
        """The attempt's folder has the name of one that is being removed."""
        self._of.pop(attempt, None)

    def remove_traces(self, gone: str) -> None:
        """Remove what the user of an attempt, whose folder has this name now, left elsewhere. Raises OSError."""
        user = _user_in(gone)
        if user in self.uids:
            remove_traces(user)

    def environment(self, inherited: Mapping[str, str], attempt: Path, user: int) -> dict[str, str]:
        """What an attempt's workers inherit: the agent's environment, without what concerns the agent's user."""
        name = f"fallow-{user}"  # programs that ask for the user's name find no account
        kept = {key: value for key, value in inherited.items() if key not in OF_THE_AGENTS_USER}
        return {**kept, "HOME": str(attempt / "work"), "USER": name, "LOGNAME": name}

    def end_processes(self, user: int) -> bool:
        """Kill all processes of a user at once. Whether none is left; where the machine has no process left to give for
        it, which may be their doing, it is to be asked for again.
        """
        command = [sys.executable, "-I", "-S", supervisor.__file__, supervisor.END_USER, str(user)]
        try:
            subprocess.run(command, check=True, env={}, cwd="/", stdin=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            return False
        return user not in supervisor.users_of_all()

    def end_all_processes(self) -> bool:
        """Kill all processes of all users of the range. Whether none was left."""
        left = sorted(user for user in supervisor.users_of_all() if user in self.uids)
        return not [user for user in left if not self.end_processes(user)]

    def release(self) -> None:
        """Let another agent have the range."""
        os.close(self._claim)

    def _owner(self, attempt: Path) -> int | None:
        owner = _owner_of(attempt)
        return owner if owner in self.uids else None

    def _close_those_without(self) -> None:
        """Attempts that were begun without users are closed to those that have one."""
        for attempt in _attempts_in(self._runs):
            if attempt not in self._of:
                attempt.chmod(CLOSED)
            else:
                attempt.parent.chmod(ENTERED)

    def _free(self) -> int:
        """A number that no attempt has, in the order of the range: so a number comes again as late as can be."""
        gone = {_user_in(name) for name in _names_in(self._runs / ".gone")}
        taken, alive = {*self._of.values(), *gone}, supervisor.users_of_all()
        first = self._next if self._next in self.uids else self.uids[0]
        for user in chain(range(first, self.uids.stop), range(self.uids.start, first)):
            if user not in taken and user not in alive:
                self._next = user + 1
                return user
        raise NoUserIsFree(f"all {len(self.uids)} worker_uids belong to runs whose folders are still here")


def _owner_of(attempt: Path) -> int | None:
    """Who owns the folder in which an attempt's workers write: it stands where only root may write."""
    try:
        return (attempt / "work").lstat().st_uid
    except OSError:
        return None


def _require_root(uids: range) -> None:
    if os.geteuid() != 0:
        raise WorkerUsersUnusable(f"worker_uids = {_shown(uids)}: only root may run workers as other users")


def _require_unknown(uids: range) -> None:
    accounts = chain(((each.pw_uid, each.pw_name) for each in pwd.getpwall()), _groups())
    for number, name in accounts:
        if number in uids:
            rule = "must be numbers that no user and no group of the machine has"
            raise WorkerUsersUnusable(f"worker_uids = {_shown(uids)}: {rule}; {number} is {name}")


def _groups() -> Iterator[tuple[int, str]]:
    return ((each.gr_gid, each.gr_name) for each in grp.getgrall())


def _claimed(uids: range, claims: Path) -> int:
    """A file that is open for as long as the range is ours."""
    try:
        claim = os.open(claims, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WorkerUsersUnusable(f"worker_uids = {_shown(uids)}: {claims}: {error.strerror}") from error
    try:
        fcntl.lockf(claim, fcntl.LOCK_EX | fcntl.LOCK_NB, len(uids), uids.start)
    except OSError as error:
        os.close(claim)
        rule = "must not overlap with those of another agent of this machine"
        raise WorkerUsersUnusable(f"worker_uids = {_shown(uids)}: {rule}") from error
    return claim


def _let_through(state_dir: Path) -> None:
    """Let workers go through the state folder to their own, and read nothing on the way."""
    for folder in (state_dir, *state_dir.parents):
        status = folder.stat()
        if folder == state_dir:
            if status.st_uid != 0:
                raise WorkerUsersUnusable(f"state_dir = {state_dir}: must belong to root where worker_uids are set")
        elif not status.st_mode & stat.S_IXOTH:
            rule = f"workers with users of their own cannot get there: {folder} is closed to other users"
            raise WorkerUsersUnusable(f"state_dir = {state_dir}: {rule}")
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise WorkerUsersUnusable(f"state_dir = {state_dir}: {folder} must not be writable for all users")
    runs = state_dir / "runs"
    for path in state_dir.iterdir():
        if path != runs and not path.is_symlink():
            path.chmod(CLOSED if path.is_dir() else 0o600)
    make_folder(runs)
    for folder in (state_dir, runs):
        folder.chmod(ENTERED)


def _attempts_in(runs: Path) -> list[Path]:
    return sorted(
        attempt
        for job in _folders(runs)
        if job.name != ".gone"
        for attempt in _folders(job)
        if attempt.name.isascii() and attempt.name.isdecimal()
    )


def _folders(path: Path) -> list[Path]:
    return [path / name for name in _names_in(path) if (path / name).is_dir() and not (path / name).is_symlink()]


def _names_in(path: Path) -> list[str]:
    try:
        return sorted(each.name for each in path.iterdir())
    except OSError:
        return []


def _user_in(gone: str) -> int:
    """The user that the name of a removed folder tells; 0, as which no worker runs, where it tells none."""
    number = gone.removeprefix(GONE_PREFIX).partition("-")[0]
    return int(number) if gone.startswith(GONE_PREFIX) and number.isdecimal() else 0


def _shown(uids: range) -> str:
    return f"{uids[0]}-{uids[-1]}"
