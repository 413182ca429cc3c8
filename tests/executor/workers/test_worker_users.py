"""Where workers have users of their own, what one of them tries has no victim but its own job."""

from __future__ import annotations

import asyncio
import errno
import grp
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fallow.services.executor.app.own_machine import as_node
from fallow.services.executor.policy.turn import Start
from fallow.services.executor.policy.worker_environment import Gang, Member
from fallow.services.executor.processes.folders.state_folder import StateFolder
from fallow.services.executor.processes.folders.user_traces import remove_traces
from fallow.services.executor.processes.supervisor import (
    MARK,
    SUPERVISES,
    environments_among,
    monotonic_ms,
    start_ticks,
    user_of,
    users_of_all,
)
from fallow.services.executor.processes.sweep import Sweep
from fallow.services.executor.processes.worker_users import WorkerUsers, WorkerUsersUnusable
from fallow.services.executor.settings import AgentSettings
from fallow.shared.events.fields.values import ProcessRun, RunStatus, WorkerPlace
from tests.contract.eventually import eventually
from tests.executor.worlds.cells import node
from tests.executor.worlds.processes import HOUR_MS, NODE, Machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run workers as other users")

WAITS = "echo up; exec sleep 700"
UIDS = range(3_000_000_000 + os.getpid() % 100_000 * 100, 3_000_000_000 + os.getpid() % 100_000 * 100 + 100)
"""No other test process has these."""


def shown(uids: range) -> str:
    return f"{uids[0]}-{uids[-1]}"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter: those of pytest belong to root alone."""
    place = Path(tempfile.mkdtemp(prefix="fallow-users-", dir="/tmp"))
    place.chmod(0o711)
    yield place
    shutil.rmtree(place)
    for folder in ("/tmp", "/dev/shm"):  # where a defence fails, it leaves something
        for left in Path(folder).glob(f"fallow-left-{os.getpid()}"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.fixture
async def machine(place: Path) -> AsyncIterator[Machine]:
    (place / "state").mkdir()
    machine = Machine(place / "state", uids=UIDS)
    yield machine
    await machine.end()


@pytest.fixture
async def machine_without_groups(place: Path) -> AsyncIterator[Machine]:
    """No control group holds what hides."""
    (place / "state").mkdir()
    machine = Machine(place / "state", uids=UIDS, in_groups=False)
    yield machine
    await machine.end()


def worker(machine: Machine, job: str = "job-1") -> int:
    return int(machine.path("worker", job=job).read_text())


def owner_of(pid: int) -> int:
    """The user of a process."""
    return Path(f"/proc/{pid}").stat().st_uid


def supervisor(machine: Machine, job: str = "job-1") -> int:
    return int(machine.path("supervisor", job=job).read_text().split()[0])


def owner_and_mode(path: Path) -> tuple[int, int] | None:
    """None where nothing stands there."""
    return (path.lstat().st_uid, stat.S_IMODE(path.lstat().st_mode)) if os.path.lexists(path) else None


def begun_as(number: int, *words: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
    """A process of this user that has nothing to do with the machine's runs."""
    return subprocess.Popen(words, user=number, group=number, extra_groups=[], start_new_session=True, stdout=stdout)


def user(machine: Machine, job: str = "job-1", attempt: int = 1) -> int:
    return (machine.folder / "runs" / job / str(attempt) / "work").lstat().st_uid


async def victim(machine: Machine) -> None:
    run = ProcessRun(argv=("sh", "-c", WAITS), env={"TOKEN": "victims-token"})
    machine.start_run(run, job="victim")
    await machine.until("running")


async def tries(machine: Machine, script: str) -> list[str]:
    """What mallory's worker says of its attempts; it is to end well by itself."""
    machine.seen.clear()
    machine.start(script, job="mallory")
    seen = await machine.until("running", "finished")
    assert seen.job == "mallory"
    return machine.out(job="mallory")


async def assert_unharmed(machine: Machine) -> None:
    """The victim's run goes on, and ends in order when it is told to."""
    assert start_ticks(worker(machine, "victim")) is not None
    assert start_ticks(supervisor(machine, "victim")) is not None
    machine.seen.clear()
    machine.stop(0, job="victim")
    await machine.until("stopped")


async def test_a_worker_has_a_user_of_its_own_and_no_other_rights(machine: Machine) -> None:
    machine.start("grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|CapAmb|NoNewPrivs):' /proc/self/status; umask")
    await machine.until("running", "finished")
    said = [line.split() for line in machine.out()]
    number = str(user(machine))
    assert int(number) in UIDS
    assert said == [
        ["Uid:", *[number] * 4],
        ["Gid:", *[number] * 4],
        ["Groups:"],
        ["CapPrm:", "0" * 16],
        ["CapEff:", "0" * 16],
        ["CapAmb:", "0" * 16],
        ["NoNewPrivs:", "1"],
        ["0022"],
    ]


async def test_a_worker_is_at_home_in_its_folder_and_has_its_output(machine: Machine) -> None:
    machine.start(
        'pwd; echo "$HOME" "$USER"; echo mine > file && cat file; echo said >> /dev/stdout; echo why >> /dev/stderr'
    )
    await machine.until("running", "finished")
    work = str(machine.folder / "runs/job-1/1/work")
    assert machine.out() == [work, f"{work} fallow-{user(machine)}", "mine", "said"]
    assert machine.path("stderr").read_text() == "why\n"


async def test_the_workers_of_a_run_share_a_user_and_those_of_two_runs_do_not(machine: Machine) -> None:
    machine.start("id -u", "id -u")
    await machine.until("running", "finished")
    machine.seen.clear()
    machine.start("id -u", attempt=2)
    await machine.until("running", "finished")
    first, same, other = machine.out(0), machine.out(1), machine.out(attempt=2)
    assert first == same == [str(user(machine))]
    assert other == [str(user(machine, attempt=2))]
    assert first != other


FILES = "order.json exit lock supervisor worker stdout stderr supervisor.log"


async def test_nothing_of_another_job_or_of_the_agent_can_be_read(machine: Machine) -> None:
    await victim(machine)
    (machine.folder / "diary").write_text("the agent's own")
    machine.restart_agent()  # it finds what an agent before it wrote
    machine.start(WAITS, job="victim")
    await eventually(lambda: machine.driver.look() != [])
    theirs = machine.folder / "runs" / "victim" / "1"
    pids = [os.getpid(), worker(machine, "victim"), supervisor(machine, "victim")]
    names = [*(f"{theirs}/0/{name}" for name in FILES.split()), f"{theirs}/work/x", f"{machine.folder}/lease"]
    names += [
        f"{machine.folder}/diary",
        *(f"/proc/{pid}/{each}" for pid in pids for each in ("environ", "mem", "fd/1")),
    ]
    (theirs / "work" / "x").write_text("x")
    lists = (
        f"for d in {machine.folder} {theirs.parent.parent} {theirs} {theirs}/work; do ls $d && echo listed $d; done; "
    )
    reads = f"for f in {' '.join(names)}; do head -c 1 $f > /dev/null && echo read $f; done; true"
    assert await tries(machine, f"({lists}{reads}) 2>/dev/null; echo done") == ["done"]
    await assert_unharmed(machine)


async def test_nothing_of_another_job_or_of_the_agent_can_be_written(machine: Machine) -> None:
    await victim(machine)
    theirs = machine.folder / "runs" / "victim" / "1"
    own = machine.folder / "runs" / "mallory" / "1"
    until_ms = monotonic_ms() * 10
    folders = [f"{theirs}/0", f"{own}/0", f"{theirs}/work", str(theirs), str(own), str(own.parent), str(machine.folder)]
    names = [f"{folder}/{name}" for folder in folders for name in ("exit", "stop", "supervisor", "lock", "lease", "x")]
    writes = f"for f in {' '.join(names)}; do echo '{until_ms} {until_ms}' > $f && echo wrote $f; done; "
    moves = (
        f"for d in {theirs} {own} {own}/work {own}/0 {machine.folder}/runs; do mv $d $d-away && echo moved $d; done; "
    )
    before = (machine.folder / "lease").read_text()
    assert await tries(machine, f"({writes}{moves}) 2>/dev/null; echo done") == ["done"]
    assert (machine.folder / "lease").read_text() == before
    await assert_unharmed(machine)


async def test_nobody_else_can_be_ended_halted_or_traced(machine: Machine) -> None:
    await victim(machine)
    theirs = f"{worker(machine, 'victim')} {supervisor(machine, 'victim')} $PPID"
    kills = f"for p in {theirs}; do for s in KILL STOP USR1 TERM CONT; do kill -$s $p && echo $s $p; done; done"
    kills += f"; kill -0 {os.getpid()} && echo the agent"
    pids = f"{theirs} {os.getpid()}"
    traces = (
        f"for p in {pids} $PPID; do cat /proc/$p/mem && echo traced; echo 0 > /proc/$p/oom_score_adj && echo set; done"
    )
    assert await tries(machine, f"({kills}; {traces}) 2>/dev/null; echo done") == ["done"]
    await assert_unharmed(machine)


async def test_who_kills_all_that_it_may_is_its_own_victim(machine: Machine) -> None:
    await victim(machine)
    machine.seen.clear()
    machine.start("echo up; kill -9 $PPID; sleep 0.2; kill -9 0; kill -9 $$", job="mallory")
    seen = await machine.until("running", "failed")
    assert (seen.job, seen.infrastructure, seen.exit_code) == ("mallory", False, 137)
    await assert_unharmed(machine)


async def test_a_supervisor_that_is_gone_was_not_killed_by_its_worker(machine_without_groups: Machine) -> None:
    machine = machine_without_groups
    machine.start("setsid env -i sleep 701 & " + WAITS)
    await machine.says("up")
    await machine.until("running")
    os.kill(machine.supervisor(), signal.SIGKILL)
    seen = await machine.until("running", "failed")
    assert (seen.infrastructure, user(machine) in users_of_all()) == (True, False)


HIDES = "setsid env -i sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & setsid env -i sleep 702 & echo up; wait"


async def test_what_took_its_mark_away_does_not_outlive_its_run_when_its_supervisor_is_gone(
    machine_without_groups: Machine,
) -> None:
    machine = machine_without_groups
    machine.start(HIDES)
    await machine.says("up")
    machine.restart_agent()
    machine.start(HIDES)
    os.kill(machine.supervisor(), signal.SIGKILL)
    await machine.until("running", "failed")
    assert user(machine) not in users_of_all()


async def test_a_new_boot_begins_when_no_process_of_any_worker_is_left(machine_without_groups: Machine) -> None:
    machine = machine_without_groups
    machine.start(HIDES)
    await machine.says("up")
    number, supervisor = user(machine), machine.supervisor()
    os.kill(supervisor, signal.SIGKILL)
    machine.restart_agent()
    await eventually(machine.driver.stop_everything)
    assert number not in users_of_all()


async def test_a_control_group_cannot_be_left_or_changed(machine: Machine) -> None:
    groups = machine.driver._groups
    if groups is None:
        pytest.skip("no control groups can be made here")
    await victim(machine)
    victims = groups / "victim-1-0"
    kill = f"echo 1 > {victims}/cgroup.kill && echo killed; "
    moves = f"for g in {victims} {groups} {groups.parent}; do echo $$ > $g/cgroup.procs && echo moved to $g; done; "
    makes = f"mkdir {groups}/own {groups}/mallory-1-0/own && echo made; "
    assert await tries(machine, f"({kill}{moves}{makes}) 2>/dev/null; echo done") == ["done"]
    await assert_unharmed(machine)


async def test_a_file_with_a_set_user_id_bit_makes_nobody_another_user(machine: Machine) -> None:
    shared = Path(f"/tmp/fallow-left-{os.getpid()}")
    machine.start(f"cp /usr/bin/id {shared}; chmod 6755 {shared}; cp {shared} .", job="leaves")
    await machine.until("running", "finished")
    assert owner_and_mode(shared) == (user(machine, "leaves"), 0o6755)
    inside = machine.folder / "runs/leaves/1/work" / shared.name
    said = await tries(machine, f"{shared} -u; {inside} -u 2>/dev/null || echo closed")
    assert said == [str(user(machine, "mallory")), "closed"]
    machine.driver._keep_runs = 0
    machine.driver._prune()
    await eventually(lambda: owner_and_mode(shared) is None)


async def test_a_number_comes_again_when_nothing_of_its_user_is_left(machine: Machine) -> None:
    assert machine.driver._users is not None
    machine.driver._users.uids = UIDS[:2]
    shared = Path(f"/dev/shm/fallow-left-{os.getpid()}")
    first = f"mkdir {shared}; touch {shared}/file; chmod 0 {shared}"
    for attempt, script in ((1, first), (2, "true")):
        machine.seen.clear()
        machine.start(script, attempt=attempt)
        await machine.until("running", "finished")
    machine.seen.clear()
    machine.start("true", attempt=3)
    seen = await machine.until("failed")
    assert seen.text == "cannot start: all 2 worker_uids belong to runs whose folders are still here"
    machine.driver._remove(machine.folder / "runs/job-1/1")
    await eventually(lambda: not (machine.folder / "runs/.gone").exists())
    assert owner_and_mode(shared) is None
    machine.seen.clear()
    machine.start("ls -a /dev/shm", attempt=4)
    await machine.until("running", "finished")
    assert user(machine, attempt=4) == UIDS[0]


async def test_a_number_is_not_given_away_while_its_users_folder_is_being_removed(machine: Machine) -> None:
    users = machine.driver._users
    assert users is not None
    users.uids = UIDS[:1]
    gone = machine.folder / "runs" / ".gone"
    (gone / f"user-{UIDS[0]}-gone-1").mkdir(parents=True)
    machine.start("true")
    assert (await machine.until("failed")).text.startswith("cannot start: all 1 worker_uids")
    shutil.rmtree(gone)
    machine.seen.clear()
    machine.start("true", attempt=2)
    await machine.until("running", "finished")


async def test_a_number_is_not_given_away_while_a_process_has_it(machine: Machine) -> None:
    stranger = begun_as(UIDS[0], "sleep", "703")
    try:
        machine.start("true")
        await machine.until("running", "finished")
        assert user(machine) == UIDS[1]
    finally:
        stranger.kill()
        stranger.wait()


def test_what_the_kernel_keeps_by_number_goes_too() -> None:
    makes = "ipcmk -M 4096 && ipcmk -S 1 && ipcmk -Q"
    subprocess.run(["sh", "-c", makes], user=UIDS[9], group=UIDS[9], extra_groups=[], check=True, capture_output=True)
    kept = [Path(f"/proc/sysvipc/{kind}") for kind in ("shm", "sem", "msg")]
    assert all(str(UIDS[9]) in each.read_text() for each in kept)
    remove_traces(UIDS[9])
    assert not [each for each in kept if str(UIDS[9]) in each.read_text()]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (ProcessRun(argv=("/root/program",)), "cannot run /root/program: Permission denied"),
        (ProcessRun(argv=("true",), dir="/root"), "cannot change to /root: Permission denied"),
        (ProcessRun(argv=("true",), checkpoint_dir="/etc/x/y"), "cannot make /etc/x/y: Permission denied"),
    ],
)
async def test_what_the_workers_user_may_not_reach_is_told_in_one_clear_reason(
    machine: Machine, run: ProcessRun, words: str
) -> None:
    machine.start_run(run)
    seen = await machine.until("failed")
    assert (seen.exit_code, seen.infrastructure) == (127, False)
    assert f"user {user(machine)} {words}" in seen.text
    assert owner_and_mode(Path("/etc/x")) is None


async def test_a_checkpoint_folder_is_made_by_the_workers_user(machine: Machine, place: Path) -> None:
    (place / "checkpoints").mkdir()
    (place / "checkpoints").chmod(0o1777)
    machine.start_run(ProcessRun(argv=("touch", "f"), checkpoint_dir=str(place / "checkpoints/a/b")))
    await machine.until("running", "finished")
    assert (place / "checkpoints/a/b").stat().st_uid == user(machine)


async def test_a_job_that_is_no_gang_reads_who_its_workers_are_and_no_other_does(machine: Machine) -> None:
    places = (WorkerPlace(rank=0, node=NODE, devices=(0,), gpu_milli=1000),)
    gang = Gang(1, (NODE,), "127.0.0.1", 20_000, members=(Member(0, NODE, "127.0.0.1", "running"),))
    run = ProcessRun(argv=("sh", "-c", 'cat "$FALLOW_WORLD_FILE"; echo; sleep 700'))
    machine.told(machine.driver.start(Start(NODE, "single", 1, places, run, 0, 0), gang))
    await machine.until("running")
    world = machine.folder / "runs/single/1/world.json"
    await eventually(lambda: machine.out(job="single") == [gang.as_world()])
    assert await tries(machine, f"cat {world} 2>/dev/null || echo closed") == ["closed"]


async def test_runs_that_began_without_users_go_on_and_new_ones_cannot_reach_them(place: Path) -> None:
    (place / "state").mkdir()
    machine = Machine(place / "state")
    await victim(machine)
    machine.uids = UIDS
    machine.restart_agent()
    try:
        machine.start(WAITS, job="victim")
        await eventually(lambda: machine.driver.look() != [])
        order = machine.folder / "runs/victim/1/0/order.json"
        kills = f"(cat {order} && echo read; kill -9 {worker(machine, 'victim')} && echo killed) 2>/dev/null; echo done"
        assert await tries(machine, kills) == ["done"]
        assert owner_and_mode(Path(f"/proc/{worker(machine, 'victim')}")) == (0, 0o555)
        await assert_unharmed(machine)
    finally:
        await machine.end()


async def test_the_workers_that_a_run_lacked_begin_as_a_user_though_others_of_it_began_without_one(place: Path) -> None:
    (place / "state").mkdir()
    machine = Machine(place / "state", begin_ms=1)
    machine.start(*[WAITS] * 3)
    begun = [rank for rank in range(3) if machine.path("order.json", rank).exists()]
    assert begun == [0]
    machine.uids, machine.begin_ms = UIDS, HOUR_MS
    machine.restart_agent()
    try:
        machine.start(*[WAITS] * 3)
        await machine.until("running")
        workers = [int(machine.path("worker", rank).read_text()) for rank in range(3)]
        owners = [owner_of(pid) for pid in workers]
        assert owners == [0, user(machine), user(machine)]
        assert user(machine) in UIDS
    finally:
        await machine.end()


async def test_runs_with_users_go_on_under_another_agent(machine: Machine) -> None:
    await victim(machine)
    before = user(machine, "victim")
    machine.restart_agent()
    machine.start(WAITS, job="victim")
    machine.seen.clear()
    machine.start("id -u", job="other")
    await machine.until("running", "running", "finished")
    assert (user(machine, "victim"), user(machine, "other")) == (before, before + 1)
    await assert_unharmed(machine)


async def test_an_agent_without_users_ends_what_one_with_them_began(machine: Machine) -> None:
    await victim(machine)
    machine.uids = None
    machine.restart_agent()
    await eventually(machine.driver.stop_everything)
    assert (machine.alive(), user(machine, "victim") in users_of_all()) == ([], False)


async def test_folders_of_other_users_are_removed_and_nothing_that_they_link_to(machine: Machine, place: Path) -> None:
    (place / "kept").mkdir(mode=0o755)
    (place / "kept" / "file").write_text("kept")
    links = f"ln -s {place}/kept a; ln -s {place}/kept/file b; mkdir -p c/d; ln -s {place}/kept c/d/e"
    machine.start(f"{links}; chmod 0 c/d c; mkfifo p")
    await machine.until("running", "finished")
    machine.driver._keep_runs = 0
    machine.driver._prune()
    await eventually(lambda: not [*(machine.folder / "runs").iterdir()])
    assert (place / "kept" / "file").read_text() == "kept"
    assert owner_and_mode(place / "kept") == (0, 0o755)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda place: place.chmod(0o700), "is closed to other users"),
        (lambda place: place.chmod(0o777), "must not be writable for all users"),
        (lambda place: os.chown(place / "state", 7, 7), "must belong to root"),
    ],
)
def test_a_state_folder_that_does_not_do_is_refused(place: Path, make: Callable[[Path], None], rule: str) -> None:
    (place / "state").mkdir()
    make(place)
    with pytest.raises(WorkerUsersUnusable, match=rule):
        WorkerUsers(place / "state", UIDS, place / "claims")


def test_numbers_that_somebody_has_are_refused(place: Path) -> None:
    (place / "state").mkdir()
    with pytest.raises(
        WorkerUsersUnusable, match=r"^worker_uids = 65000-66000: .*no user and no group.*; 65534 is nobody"
    ):
        WorkerUsers(place / "state", range(65_000, 66_001), place / "claims")


@pytest.fixture
def own_umask() -> Iterator[None]:
    """That of this process, whatever an agent does to it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


async def test_what_an_agent_with_users_writes_is_closed_to_them(own_umask: None, place: Path) -> None:
    settings = AgentSettings(
        node="node-1", node_gpus=8, node_pool="pool-a", state_dir=place / "state", keep_runs=50, worker_uids=shown(UIDS)
    )
    folder = StateFolder(settings.state_dir, "node-1")
    machine = as_node(settings, "cell-a", node(1), folder, place / "claims")
    machine.files.close(machine.files.open("diaries/cell-a.jsonl", to_append=True))
    machine.driver.keep_lease(1, 2)
    folder.new_boot()
    made = {path.relative_to(folder.path).as_posix(): owner_and_mode(path) for path in folder.path.rglob("*")}
    assert made == {
        "agent.lock": (0, 0o600),
        "boot.json": (0, 0o600),
        "diaries": (0, 0o700),
        "diaries/cell-a.jsonl": (0, 0o600),
        "format": (0, 0o600),
        "lease": (0, 0o600),
        "runs": (0, 0o711),
    }
    assert not [line for line in machine.not_held if "files of other jobs" in line]
    machine.driver.close()
    folder.close()


CLAIM = """
import os, sys
from pathlib import Path
from fallow.services.executor.processes.worker_users import WorkerUsers, WorkerUsersUnusable
place, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if sys.argv[4:]:
    os.setresuid(first, first, first)
try:
    WorkerUsers(place / "other", range(first, first + count), place / "claims")
    print("claimed")
except WorkerUsersUnusable as error:
    print(error)
"""


@pytest.mark.parametrize(("offset", "words"), [(50, "must not overlap"), (-50, "must not overlap"), (100, "claimed")])
def test_two_agents_of_a_machine_do_not_share_a_number(place: Path, offset: int, words: str) -> None:
    for name in ("state", "other"):
        (place / name).mkdir()
    users = WorkerUsers(place / "state", UIDS, place / "claims")
    command = [sys.executable, "-c", CLAIM, str(place), str(UIDS[0] + offset), "100"]
    assert words in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    users.release()


def test_no_number_of_a_worker_is_that_of_a_group(place: Path) -> None:
    """A worker has its number as its group, too. This is one of a group that is no user's number."""
    users = {each.pw_uid for each in pwd.getpwall()}
    number, name = next((each.gr_gid, each.gr_name) for each in grp.getgrall() if each.gr_gid not in users)
    command = [sys.executable, "-c", CLAIM, str(place), str(number), "1"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rule = "must be numbers that no user and no group of the machine has"
    assert said == f"worker_uids = {shown(range(number, number + 1))}: {rule}; {number} is {name}\n"


BECOMES = """
import os, sys
from fallow.services.executor.processes.supervisor import become_user
os.setgroups([0, 4, 6])
become_user(int(sys.argv[1]))
print(os.getgroups(), os.getresuid(), os.getresgid())
"""


def test_a_worker_has_no_group_of_its_agent() -> None:
    command = [sys.executable, "-c", BECOMES, str(UIDS[0])]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ids = (UIDS[0],) * 3
    assert said == f"[] {ids} {ids}\n"


def test_only_root_gives_workers_users(place: Path) -> None:
    command = [sys.executable, "-c", CLAIM, str(place), str(UIDS[0]), "100", "as another user"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == f"worker_uids = {shown(UIDS)}: only root may run workers as other users\n"


FORKS = "f() { sleep 0.01 & sleep 0.02 & (:) & }; f; echo up; while :; do f; wait; done"
"""Some processes that are never the same ones, until they are ended."""


async def test_a_crowd_that_forks_all_the_time_ends_at_once(machine: Machine) -> None:
    users = machine.driver._users
    assert users is not None
    crowd = begun_as(UIDS[5], "sh", "-c", FORKS, stdout=subprocess.PIPE)
    with crowd:
        assert crowd.stdout is not None
        assert await asyncio.to_thread(crowd.stdout.readline) == b"up\n"
        await eventually(lambda: users.end_processes(UIDS[5]))
    assert crowd.returncode == -signal.SIGKILL


async def test_only_its_own_status_matters_for_what_a_run_is(machine: Machine) -> None:
    machine.start('echo \'{"code":0,"signal":null,"why":"","text":""}\' > ../0/exit; exit 3')
    seen = await machine.until("running", "failed")
    assert (seen.status, seen.exit_code) == (RunStatus.FAILED, 3)


def is_sleeping(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/usr/bin/sleep")


@pytest.fixture
def poses(machine: Machine) -> Iterator[Callable[[int, str], subprocess.Popen[bytes]]]:
    """Begins a process of another user whose environment has the mark of the victim's worker, under this name."""
    begun = list[subprocess.Popen[bytes]]()

    def pose(number: int, name: str) -> subprocess.Popen[bytes]:
        mark = f"{machine.driver._mark}/victim/1/0"
        begun.append(begun_as(number, "env", "-i", f"{name}={mark}", "/usr/bin/sleep", "700"))
        return begun[-1]

    yield pose
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [65534, UIDS[-1]], ids=["a stranger", "a neighbour"])
async def test_a_process_of_another_user_that_has_a_runs_mark_does_not_keep_the_run_from_being_over(
    machine: Machine, poses: Callable[[int, str], subprocess.Popen[bytes]], number: int
) -> None:
    await victim(machine)
    posing = poses(number, "FALLOW_MARK")
    await eventually(lambda: is_sleeping(posing.pid))
    machine.seen.clear()
    machine.stop(200, job="victim")
    await machine.until("stopped", wait_s=10)
    assert posing.poll() is None


@pytest.mark.parametrize("number", [65534, UIDS[-1]], ids=["a stranger", "a neighbour"])
async def test_a_process_of_another_user_that_has_a_runs_mark_outlives_the_sweep_of_a_run_without_supervisor(
    machine_without_groups: Machine, number: int
) -> None:
    machine = machine_without_groups
    await victim(machine)
    mark = f"{machine.driver._mark}/victim/1/0"
    posing = begun_as(number, "env", "-i", f"{MARK}={mark}", "/usr/bin/sleep", "700")
    try:
        await eventually(lambda: is_sleeping(posing.pid))
        machine.seen.clear()
        os.kill(supervisor(machine, "victim"), signal.SIGKILL)
        await machine.until("failed", wait_s=10)
        assert posing.poll() is None
    finally:
        posing.kill()
        posing.wait()


def test_a_chase_of_the_newest_processes_spares_those_of_another_user() -> None:
    """A look that misses a process, which was over before its turn, is followed by a chase."""
    over = subprocess.Popen(["true"])
    over.wait()
    posing = begun_as(65534, "env", "-i", f"{MARK}=chased/1", "/usr/bin/sleep", "700")
    try:
        Sweep("chased/", lambda: [over.pid], lambda: (os.geteuid(),)).look()
        assert posing.poll() is None
    finally:
        posing.kill()
        posing.wait()


async def test_a_process_of_another_user_is_not_taken_for_the_supervisor_of_a_run() -> None:
    posing = begun_as(65534, "env", "-i", f"{SUPERVISES}=m/job/1/0", "/usr/bin/sleep", "700")
    own = begun_as(os.geteuid(), "env", "-i", f"{SUPERVISES}=m/job/1/0", "/usr/bin/sleep", "700")
    try:
        await eventually(lambda: is_sleeping(posing.pid) and is_sleeping(own.pid))
        assert environments_among([posing.pid, own.pid], "m/", SUPERVISES) == [(own.pid, ["m/job/1/0"])]
    finally:
        for each in (posing, own):
            each.kill()
            each.wait()


def test_the_user_of_a_process_is_who_began_it_whoever_it_acts_as() -> None:
    """A program with a set-user-id bit acts as its owner."""
    script = "import os; os.setresuid(65534, 0, 0); print(flush=True); input()"
    acting = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert acting.stdout is not None
    acting.stdout.readline()
    assert user_of(acting.pid) == 65534
    acting.communicate(b"\n")


async def test_a_process_of_another_user_that_poses_as_a_supervisor_does_not_keep_an_agent_from_beginning(
    machine: Machine, poses: Callable[[int, str], subprocess.Popen[bytes]]
) -> None:
    posing = [poses(65534, name) for name in ("FALLOW_SUPERVISES", "FALLOW_MARK")]
    await eventually(lambda: all(is_sleeping(each.pid) for each in posing))
    await eventually(machine.driver.stop_everything, within_s=10)
    assert [each.poll() for each in posing] == [None, None]


@pytest.mark.parametrize("python", ["/nowhere/python", shutil.which("false")], ids=["is not begun", "fails"])
def test_where_the_machine_gives_no_process_to_end_those_of_a_worker_they_are_asked_for_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """A worker may have begun as many as there can be: the agent must outlive that."""
    (place / "state").mkdir()
    users = WorkerUsers(place / "state", UIDS, place / "claims")
    monkeypatch.setattr(sys, "executable", python)
    assert not users.end_processes(UIDS[0])
    monkeypatch.undo()
    assert users.end_processes(UIDS[0])
    users.release()


class Exhausted(dict[str, str]):
    """An environment that cannot be read: the machine has no memory left."""

    def items(self) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


async def test_a_start_that_fails_for_what_the_machine_lacks_is_no_failure_of_the_job(machine: Machine) -> None:
    machine.driver._inherited = Exhausted()
    machine.start("exit 0")
    seen = await machine.until("failed")
    assert (seen.infrastructure, seen.text) == (True, "cannot start: Resource temporarily unavailable")


async def test_what_was_begun_before_worker_uids_were_changed_ends_with_everything_else(place: Path) -> None:
    (place / "state").mkdir()
    machine = Machine(place / "state", uids=UIDS[:50], in_groups=False)
    machine.start(f"setsid sh -c '{WAITS}' & {WAITS}")
    await machine.until("running")
    await eventually(lambda: len(machine.out()) == 2)
    begun, its_supervisor = machine.alive(), supervisor(machine)
    os.kill(its_supervisor, signal.SIGKILL)
    assert machine.driver._users is not None
    machine.driver._users.release()
    machine.uids = UIDS[50:]
    machine.restart_agent()
    await eventually(machine.driver.stop_everything)
    assert [pid for pid in begun if start_ticks(pid) is not None] == []
    await machine.end()
