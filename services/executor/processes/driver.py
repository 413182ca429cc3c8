"""The driver of runs that are real processes, one for each worker. What it knows stands in files.

Below the state folder:

    runs/JOB/ATTEMPT/work           the working directory, where the job names none; JOB is TENANT~ID
    runs/JOB/ATTEMPT/RANK/stdout    what the worker said; beside it stderr, and what its supervisor writes down
    runs/JOB/ATTEMPT/RANK.TURN/...  the same of a worker that entered later, in place of one of that rank before it
    runs/JOB/ATTEMPT/world.json     who the workers are now, of a job whose workers come and go
    runs/.gone/...                  folders that are being removed; no job is called so

Where workers have users of their own (worker_users.py), `work` is the only one of these in which they may write, and
world.json the only one that they may read.

The agent's child is a supervisor for each worker; it lives on when the agent ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path

from fallow.services.executor.policy.desired import RunKey
from fallow.services.executor.policy.lease import KeptLease
from fallow.services.executor.policy.turn import Observation, Start, Stop
from fallow.services.executor.policy.worker_environment import Gang, worker_environment
from fallow.services.executor.processes.control_groups import controllers_of, own_group
from fallow.services.executor.processes.folders.disk_check import OF_THE_DISK, DiskCheck
from fallow.services.executor.processes.folders.remover import Remover
from fallow.services.executor.processes.folders.state_folder import make_folder
from fallow.services.executor.processes.folders.worker_folder import Rights, WorkerEnd, WorkerFolder
from fallow.services.executor.processes.isolation import NO_ISOLATION, Isolation
from fallow.services.executor.processes.searches import Searches
from fallow.services.executor.processes.supervisor import (
    Owners,
    cause_of,
    cgroup_is_gone,
    kill_cgroup,
    monotonic_ms,
    processes,
    read_whole,
    write_whole,
)
from fallow.services.executor.processes.supervisors import Supervisors
from fallow.services.executor.processes.sweep import Sweep
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.fields.job_ids import as_file_name
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import ProcessRun, RunStatus, WorkerPlace

LOOK_EVERY_S = 0.1
"""How often processes, reports and the lease are looked at."""

BEGIN_MS = 200
"""So long the starts of workers may take between two looks. What is left goes on at the next one: the agent renews its
lease in the same loop, and a job of a thousand small workers would take it from all jobs of the machine.
"""

OTHERS_GRACE_MS = 5_000
"""How long the other workers of a node may take to end when one of them has failed."""

TEXT_CHARS_MAX = 400
PRUNE_EVERY = 50
"""Old folders are looked for once in so many ends."""

GONE_MAX = 1_000
"""At most this many old folders are removed at a time; a backlog arises only where keep_runs was lowered."""

SWEEPS_AT_ONCE = 10
"""How often what an earlier boot or job left is looked for before others have their turn."""

WORLD_FILE = "world.json"

NAME_BYTES_MAX = 255
"""The longest name of a folder."""

NUMBER = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
WORKER = re.compile(r"(?:0|[1-9][0-9]{0,15})(?:\.[1-9][0-9]{0,15})?", re.ASCII)
"""The names of the folders of an attempt and of a worker."""

_ALL_BEGUN = object()

BROKEN = (OSError, ValueError, KeyError, TypeError)
"""What the start or the files of one run may raise, whatever its job or a stranger has put there. ValueError: a NUL in
a path, a file that holds no JSON and no number.
"""


OF_THE_MACHINE = OF_THE_DISK | {errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE}
"""What a start fails for where the machine lacks something: another job may use it up, and this one is not to blame.
Those of the disk tell of the place to which a path leads: of one that the job names they are the job's failure.
"""


@dataclass(slots=True)
class LiveRun:
    """A run that is not over. `is_told`: the log wants it stopped. `problem`: why it could not be begun, or not be
    looked after, which may be `of_machine`; `is_broken`: its files do not tell when it is over. `begun` are the ranks
    whose turn to start has come; `is_cut`: the others never get theirs. `check`: whether the disk is at fault for it,
    where the run itself may have brought that about.
    """

    workers: dict[int, WorkerFolder]
    begun: dict[int, None] = field(default_factory=dict)
    is_cut: bool = False
    is_told: bool = False
    is_running: bool = False
    failed: int | None = None
    problem: str = ""
    of_machine: bool = False
    is_broken: bool = False
    check: DiskCheck | None = None


class ProcessDriver:
    """The runs of one node."""

    def __init__(
        self,
        node: str,
        state_dir: Path,
        *,
        inherited: Mapping[str, str],
        keep_runs: int = 1_000,
        isolation: Isolation = NO_ISOLATION,
        begin_ms: int = BEGIN_MS,
        listed: Callable[[], list[int]] = processes,
    ) -> None:
        """`inherited` is the agent's own environment; of runs that are over the newest `keep_runs` folders stay.
        `begin_ms` is how long workers begin at a time; `listed` gives the ids of all processes of the machine. Raises
        StateFolderUnusable.
        """
        self._users, self._isolation = isolation.users, isolation
        self._node, self._inherited, self._keep_runs, self._begin_ms = node, inherited, keep_runs, begin_ms
        self._state_dir, self._runs, self.lease = state_dir, state_dir / "runs", state_dir / "lease"
        self._check: DiskCheck | None = None
        make_folder(self._runs)
        self._mark = blake2b(f"{node} {state_dir.resolve()}".encode(), digest_size=8).hexdigest()
        self._groups = own_group(f"fallow-{self._mark}")
        # Of all workers: they are looked for hundreds of times in a row, and a range may be of many thousands.
        all_owners = None if self._users is None else frozenset((*self._users.all, os.geteuid()))
        self._sweep = Sweep(f"{self._mark}/", owners=lambda: all_owners)
        self._supervisors = Supervisors(f"{self._mark}/")
        self._searches = Searches(f"{self._mark}/", listed)
        self._live: dict[RunKey, LiveRun] = {}
        self._beginning: deque[tuple[LiveRun, Iterator[None]]] = deque()
        self._began_for_ms = 0
        self._over = 0
        self._lease_text = ""
        self._ending: list[subprocess.Popen[bytes]] = []
        self._remover = Remover(self._runs / ".gone", None if self._users is None else self._users.remove_traces)
        self._remover.remove_rest()

    @property
    def controllers(self) -> frozenset[str] | None:
        """What is limited in the control groups of workers; None: they have none."""
        return None if self._groups is None else controllers_of(self._groups)

    def keep_lease(self, renewed_ms: int, until_ms: int) -> None:
        """Let the workers live until `until_ms`; both times are monotonic. Raises OSError."""
        text = f"{renewed_ms} {until_ms}"
        if text != self._lease_text:
            write_whole(self.lease, text)
            self._lease_text = text

    def kept_lease(self) -> KeptLease | None:
        """The lease that an agent before this one has kept, if there was one."""
        try:
            text = read_whole(self.lease)
            kept = None if text is None else KeptLease(*map(int, text.split()[:2]))
        except (*BROKEN, TypeError):
            return None  # it was not written by an agent
        # Nor was one of a time to come: workers may write there, and this lease would never be over.
        return None if kept is None or kept.renewed_ms > monotonic_ms() else kept

    def start(self, order: Start, gang: Gang | None) -> Observation | None:
        """Begin the workers of a run, or go on with them; what is wrong with it, or None. Starts nothing twice. Of many
        workers some begin at the next looks.
        """
        key = order.key
        if key in self._live:
            return None
        if not isinstance(order.run, ProcessRun):
            text = f"this node runs processes only, not {order.run.driver}"
            return self._seen(key, RunStatus.FAILED, text=text)
        if gang is None:
            return self._seen(key, RunStatus.STOPPED)
        if not _has_folder_name(order.job):
            return self._seen(key, RunStatus.FAILED, text=f"cannot start: no folder can be named {shorten(order.job)}")
        run = LiveRun({place.rank: self._worker(key, place.rank) for place in order.places})
        self._live[key] = run
        self._beginning.append((run, self._begin(order, order.run, gang, run)))
        self._begin_some()
        return None

    def _begin_some(self) -> None:
        """Begin workers, run by run in the order of their orders, until the time between two looks is used up."""
        while self._beginning and self._began_for_ms < self._begin_ms:
            (run, workers), since_ms = self._beginning[0], monotonic_ms()
            try:
                is_done = run.is_cut or next(workers, _ALL_BEGUN) is _ALL_BEGUN
            except BROKEN as error:
                self._blame_for_start(run, error)
                run.problem, is_done = f"cannot start: {cause_of(error)}", True
                self._end_all(run, 0)
            if is_done:
                self._beginning.popleft()
            self._began_for_ms += max(1, monotonic_ms() - since_ms)  # a clock of whole ms may not have moved

    def _blame_for_start(self, run: LiveRun, error: Exception) -> None:
        """Note whether the machine is at fault for a start that failed. Else it is the job's failure: one that costs
        nothing would be tried on this node again and again.
        """
        code = error.errno if isinstance(error, OSError) else None
        run.of_machine = code in OF_THE_MACHINE
        if code in OF_THE_DISK and self._users is None:
            run.check = self._check_disk()  # a worker may have put a link to another disk there

    def _begin(self, order: Start, process: ProcessRun, gang: Gang, run: LiveRun) -> Iterator[None]:
        """Each step begins one worker."""
        self._remove_earlier(order, run)
        attempt = self._folder(order.key)
        work, user = attempt / "work", self._user_of(attempt, run)
        work.mkdir(parents=True, exist_ok=True)
        process = replace(
            process,
            dir=str(Path(process.dir).absolute()) if process.dir is not None else str(work),
            checkpoint_dir=None if process.checkpoint_dir is None else str(Path(process.checkpoint_dir).absolute()),
        )
        if user is None and process.checkpoint_dir is not None:
            _make_for_job(process.checkpoint_dir)
        if gang.members:
            self.show_world(order.job, order.attempt, gang)
        inherited = self._inherited
        if self._users is not None and user is not None:
            inherited = self._users.environment(inherited, attempt, user)
        for place in order.places:
            run.begun[place.rank] = None
            env = worker_environment(order, process, gang, place, inherited, str(attempt / WORLD_FILE))
            rights = self._rights(place, user, process.checkpoint_dir)
            run.workers[place.rank].begin(
                process.argv, env, process.dir or str(work), self.lease, ordered_ms=order.started_ms, rights=rights
            )
            yield

    def _rights(self, place: WorkerPlace, user: int | None, checkpoint_dir: str | None) -> Rights:
        limits = self._isolation.limits
        return Rights(
            user=user,
            makes=None if user is None else checkpoint_dir,  # root makes no folder where a job wishes
            scoped=self._isolation.scoped,
            open_files=limits.open_files,
            processes=limits.processes,
            log_mib=limits.log_mib,
            memory_mib=place.memory_mib,
            cpu_milli=place.cpu_milli,
        )

    def _user_of(self, attempt: Path, run: LiveRun) -> int | None:
        """The user of an attempt's workers. Those that an agent without users has begun go on as what they are."""
        if self._users is None:
            return None
        is_begun = all(worker.was_begun() for worker in run.workers.values())
        return self._users.of(attempt) if is_begun else self._users.move_in(attempt)

    def _begin_no_more(self, run: LiveRun) -> None:
        """Whose turn to start has not come never starts. What an agent before this one has begun stays to be ended."""
        waiting = [rank for rank in run.workers if rank not in run.begun]
        for rank in waiting:
            run.is_cut = True
            if not run.workers[rank].path.exists():
                del run.workers[rank]

    def _remove_earlier(self, order: Start, run: LiveRun) -> None:
        """The id may have been that of an earlier job, which the log has forgotten and whose folders stand here: a
        worker of this one would be taken for one that is over. Raises what is in BROKEN.
        """
        earlier = [worker for worker in run.workers.values() if worker.is_of_another(order.started_ms)]
        if any(all(not worker.is_over() for _ in range(SWEEPS_AT_ONCE)) for worker in earlier):
            raise ValueError("an earlier job of this id has not ended here")
        is_whole = not any(key[:2] == order.key[:2] and key != order.key for key in self._live)
        gone = [self._folder(order.key)] if earlier and is_whole else [worker.path for worker in earlier]
        for folder in gone:
            self._remove(folder)
        run.workers = {rank: self._worker(order.key, rank) for rank in run.workers}

    def show_world(self, job: str, attempt: int, gang: Gang | None) -> None:
        """Let the attempt's workers here see who the others are now. A file that cannot be written stays as it was."""
        folder = self._attempt(job, attempt)
        if gang is not None and _has_folder_name(job) and folder.exists():
            user = None if self._users is None else self._users.of(folder)
            with contextlib.suppress(OSError):
                write_whole(folder / WORLD_FILE, gang.as_world(), user)

    def stop(self, order: Stop) -> Observation | None:
        """Ask a run to end within its grace. STOPPED at once where nothing of it is here."""
        key = order.key
        run = self._live.get(key) or self._found(key)
        if run is None:
            return self._seen(key, RunStatus.STOPPED)
        self._live[key] = run
        run.is_told = True
        self._end_all(run, order.grace_wall_ms)
        return None

    def _end_all(self, run: LiveRun, grace_ms: int) -> None:
        self._begin_no_more(run)
        for worker in run.workers.values():
            try:
                worker.stop(monotonic_ms() + grace_ms)
            except BROKEN as error:
                run.is_broken, run.problem = True, run.problem or _unfit(error)

    def look(self) -> list[Observation]:
        """What has become of the runs since the last look."""
        self._ending = [child for child in self._ending if child.poll() is None]
        self._began_for_ms = 0
        self._searches.begin_turn()
        self._begin_some()
        found = []
        for key, run in list(self._live.items()):
            seen = self._look_at(key, run) if not run.is_broken else self._destroy(key, run)
            is_over = seen is not None and seen.status is not RunStatus.RUNNING
            if seen is None or (is_over and not self._user_is_gone(key, run)):
                continue
            found.append(seen)
            if is_over:
                del self._live[key]
                self._let_go(key, run)
        return found

    def _user_is_gone(self, key: RunKey, run: LiveRun) -> bool:
        """Whether no process of a run's user is left. A supervisor that ended in order has left none of its worker."""
        attempt = self._folder(key)
        user = None if self._users is None else self._users.of(attempt)
        if self._users is None or user is None or self._has_others(key):
            return True
        return all(worker.ended_in_order() for worker in run.workers.values()) or self._users.end_processes(user)

    def _has_others(self, key: RunKey) -> bool:
        """Whether another run of the same attempt lives here: they have one user."""
        return any(other[:2] == key[:2] and other != key for other in self._live)

    async def next_look(self) -> None:
        """Wait until the runs are to be looked at again: they tell of nothing by themselves."""
        await asyncio.sleep(LOOK_EVERY_S)

    def _let_go(self, key: RunKey, run: LiveRun) -> None:
        if self._users is not None and not self._has_others(key):
            self._users.close(self._folder(key))
        # Supervisors end in a moment; one that is not waited for stays in the table of processes.
        self._ending += [worker.child for worker in run.workers.values() if worker.child is not None]
        self._over += 1
        if self._over % PRUNE_EVERY == 0:
            self._prune()

    def _destroy(self, key: RunKey, run: LiveRun) -> Observation | None:
        """A run that cannot be looked after has failed once nothing of it is left; one run's files are no concern of
        the others, nor of the agent.
        """
        self._begin_no_more(run)
        left = [worker for worker in run.workers.values() if not worker.destroy()]
        is_over = not left and (run.check is None or run.check.is_over())
        return self._failed(key, run) if is_over else None

    def _look_at(self, key: RunKey, run: LiveRun) -> Observation | None:
        try:
            return self._progress(key, run)
        except BROKEN as error:
            run.is_broken, run.problem = True, run.problem or _unfit(error)
            return None

    def _progress(self, key: RunKey, run: LiveRun) -> Observation | None:
        # Of a worker that has yet to begin nothing is left, and it would count as over.
        known = run.workers if run.is_cut else [*run.begun]
        ends = {rank: end for rank in known if (end := run.workers[rank].look()) is not None}
        if run.failed is None:
            run.failed = next((rank for rank, end in ends.items() if end.is_failure or end.why == "vanished"), None)
            if run.failed is not None:
                run.check = run.check or self._check_for(key, ends[run.failed])
                self._end_all(run, OTHERS_GRACE_MS)
        is_awaited = not run.is_running and not run.is_told and not run.is_cut
        if is_awaited and all(worker.has_begun for worker in run.workers.values()):
            run.is_running = True
            return self._seen(key, RunStatus.RUNNING)
        is_over = len(ends) == len(run.workers) and (run.check is None or run.check.is_over())
        return self._outcome(key, run, ends) if is_over else None

    def _check_for(self, key: RunKey, end: WorkerEnd) -> DiskCheck | None:
        """What is to tell whose fault it is that a supervisor ended with an error, where its worker can have made it
        do so. None where that is known.
        """
        return self._check_disk() if end.has_crashed and not self._is_guarded(key) else None

    def _check_disk(self) -> DiskCheck:
        """A check of the disk from now on. One that goes on is shared: a disk that is silent holds one thread only."""
        if self._check is None or not self._check.is_at_work():
            self._check = DiskCheck(self._state_dir)
        return self._check

    def _outcome(self, key: RunKey, run: LiveRun, ends: dict[int, WorkerEnd]) -> Observation:
        if run.problem:
            return self._failed(key, run)
        if run.failed is not None:
            end = ends[run.failed]
            text = f"worker {run.failed} {_words(end)}"[:TEXT_CHARS_MAX]
            has_fault = run.check is not None and run.check.has_found_fault()
            is_infrastructure = end.why == "vanished" and (has_fault or self._is_guarded(key))
            return self._seen(key, RunStatus.FAILED, end.code, infrastructure=is_infrastructure, text=text)
        if all(end.is_good for end in ends.values()) and not run.is_cut:
            return self._seen(key, RunStatus.FINISHED, 0)
        return self._seen(key, RunStatus.STOPPED)

    def _failed(self, key: RunKey, run: LiveRun) -> Observation:
        text = run.problem[:TEXT_CHARS_MAX]
        is_infrastructure = run.of_machine and (run.check is None or run.check.has_found_fault())
        return self._seen(key, RunStatus.FAILED, infrastructure=is_infrastructure, text=text)

    def _is_guarded(self, key: RunKey) -> bool:
        """Whether no worker of the run can have killed or broken its supervisor: it is of another user."""
        return self._users is not None and self._users.of(self._folder(key)) is not None

    def stop_everything(self) -> bool:
        """End whatever an earlier boot left here, at once. Whether nothing is left; else ask again."""
        for run in self._live.values():
            self._begin_no_more(run)
        is_unsupervised = self._supervisors.end()
        # What a group holds whose supervisor lives is its own to end: it finds more than stands in the group.
        are_empty = is_unsupervised and self._groups_are_empty()
        self.look()
        is_swept = any(self._sweep.look() for _ in range(SWEEPS_AT_ONCE))
        are_gone = self._users is None or self._users.end_all_processes()
        return is_unsupervised and are_empty and is_swept and are_gone and not self._live

    def _groups_are_empty(self) -> bool:
        """Whether no control group of a worker is left; what is in them is killed."""
        try:
            groups = [] if self._groups is None else [path for path in self._groups.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return True
        for group in groups:
            kill_cgroup(group)
        return not [group for group in groups if not cgroup_is_gone(group)]

    def close(self) -> None:
        """Let go of the node; its workers go on."""
        self._remover.close()
        if self._groups is not None:
            with contextlib.suppress(OSError):  # workers are in it
                self._groups.rmdir()

    def _found(self, key: RunKey) -> LiveRun | None:
        """A run of which there are folders."""
        if not _has_folder_name(key[0]):
            return None
        _, _, only, turn = key
        ranks = [rank for rank, its in _workers_in(self._folder(key)) if its == turn and only in (None, rank)]
        return LiveRun({rank: self._worker(key, rank) for rank in ranks}, dict.fromkeys(ranks)) if ranks else None

    def _folder(self, key: RunKey) -> Path:
        return self._attempt(key[0], key[1])

    def _attempt(self, job: str, number: int) -> Path:
        return self._runs / as_file_name(job) / str(number)

    def _worker(self, key: RunKey, rank: int) -> WorkerFolder:
        job, attempt, _, turn = as_file_name(key[0]), *key[1:]
        name = _name(rank, turn)
        group = None if self._groups is None else self._groups / f"{job}-{attempt}-{name}"
        owners, mark = partial(self._owners_of, self._folder(key)), f"{self._mark}/{job}/{attempt}/{name}"
        return WorkerFolder(self._folder(key) / name, mark, group, self._searches, owners)

    def _owners_of(self, attempt: Path) -> Owners:
        """The users of the processes of an attempt; None: any, where workers have none of their own."""
        if self._users is None:
            return None
        user = self._users.owner_of(attempt)
        return (os.geteuid(),) if user is None else (os.geteuid(), user)

    def _seen(
        self,
        key: RunKey,
        status: RunStatus,
        exit_code: int | None = None,
        *,
        infrastructure: bool = False,
        text: str = "",
    ) -> Observation:
        return Observation(self._node, key[0], key[1], status, exit_code, infrastructure, text, key[2], key[3])

    def _prune(self) -> None:
        """Remove the oldest folders of runs that are over; of attempts that go on, those of workers that are over."""
        live = {(as_file_name(key[0]), key[1]): None for key in self._live}
        workers = {
            (as_file_name(key[0]), key[1], rank, key[3]): None
            for key, run in self._live.items()
            for rank in run.workers
        }
        over: list[Path] = []
        for job, number, attempt in self._attempts():
            if (job, number) not in live:
                over.append(attempt)
                continue
            ended = [each for each in _workers_in(attempt) if (job, number, *each) not in workers]
            over += [attempt / _name(*each) for each in ended]
        self._remover.remove_rest()
        if len(over) <= self._keep_runs:
            return
        oldest = sorted(over, key=lambda path: (_changed_ns(path), str(path)))[: len(over) - self._keep_runs]
        for folder in oldest[:GONE_MAX]:
            with contextlib.suppress(OSError):  # it cannot be moved; or its job or attempt has others
                self._remove(folder)
                folder.parent.rmdir()

    def _remove(self, folder: Path) -> None:
        """Remove the folder of an attempt or of a worker, beside other work. Raises OSError."""
        self._remover.remove(folder, "" if self._users is None else self._users.prefix_of(folder))
        if self._users is not None:
            self._users.move_out(folder)

    def _attempts(self) -> Iterator[tuple[str, int, Path]]:
        """The attempts of which there are folders: the job's file name, number and folder. Workers may put anything
        beside them.
        """
        for job in _folders_in(self._runs):
            for attempt in _folders_in(self._runs / job):
                if NUMBER.fullmatch(attempt):
                    yield job, int(attempt), self._runs / job / attempt


def _make_for_job(checkpoint_dir: str) -> None:
    """Make a folder where a job wishes. Raises OSError; ValueError where the place that the job names is no good."""
    try:
        Path(checkpoint_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in OF_THE_DISK:
            raise
        raise ValueError(f"checkpoint_dir: {cause_of(error)}") from error


def _name(rank: int, turn: int) -> str:
    """The name of a worker's folder."""
    return f"{rank}.{turn}" if turn else str(rank)


def _workers_in(attempt: Path) -> list[tuple[int, int]]:
    """The workers (rank, turn) of which there are folders."""
    names = [name.split(".") for name in _folders_in(attempt) if WORKER.fullmatch(name)]
    return sorted((int(name[0]), int(name[1]) if len(name) > 1 else 0) for name in names)


def _folders_in(path: Path) -> list[str]:
    """The names of the folders in a folder, without links to others; none where it is none itself."""
    try:
        with os.scandir(path) as entries:
            return sorted(
                entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and _is_text(entry.name)
            )
    except OSError:
        return []


def _is_text(name: str) -> bool:
    """Whether a name is text: any bytes may be one."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _changed_ns(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0  # it is gone


def _has_folder_name(job: str) -> bool:
    """Whether the folder of this job stands right below the one that it is made in, and is no other job's."""
    return "~" not in job and _is_folder_name(as_file_name(job))


def _is_folder_name(name: str) -> bool:
    fits = len(name.encode(errors="surrogatepass")) <= NAME_BYTES_MAX
    return fits and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _unfit(error: Exception) -> str:
    return f"cannot be looked after: {shorten(cause_of(error))}"


def _words(end: WorkerEnd) -> str:
    if end.why == "vanished":
        return end.text
    ended = f"was killed by {_signal_name(end.signal)}" if end.signal else f"ended with exit code {end.code}"
    return f"{ended}: {end.text}" if end.text else ended


def _signal_name(number: int) -> str:
    """Its name, where it has one: most real-time signals have none."""
    known = [each.name for each in signal.Signals if each == number]
    return known[0] if known else f"signal {number}"
