"""Whatever a worker puts into the folders of its node, the agent goes on, and so do the runs of others."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from fallow.services.executor.policy.turn import Observation
from fallow.services.executor.processes.supervisor import read_plain, read_whole, write_whole
from fallow.shared.events.fields.values import RUN_IS_OVER, ProcessRun, RunStatus
from tests.contract.eventually import eventually
from tests.executor.worlds.processes import Machine


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    await machine.end()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # its name may not be longer than 107 bytes
        listener.bind(path.name)


def a_folder(path: Path) -> None:
    (path / "within").mkdir(parents=True)


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_link_out(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_number(path: Path) -> None:
    path.write_text("7")


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" * 100_000)


def much(path: Path) -> None:
    path.write_text("[" * 60_000)


def no_word(path: Path) -> None:
    path.write_text('{"code": 1, "signal": null, "why": "", "text": "\\ud800"}')


def an_odd_end(path: Path) -> None:
    path.write_text('{"code": "0", "signal": [], "why": 3, "text": null}')


KINDS: list[Callable[[Path], None]] = [
    a_pipe, a_socket, a_folder, a_link_to_itself, a_link_out, a_number, no_text, much, an_odd_end, no_word,
]  # fmt: skip
FILES = ["exit", "exit.part", "stop", "stop.part", "supervisor", "supervisor.log", "lock", "stderr", "stdout", "worker"]
STRAYS = [
    "runs/x",
    "runs/job-1/note",
    "runs/job-1/1/.5",
    "runs/job-1/1/5..",
    "runs/job-1/1/\u0661",
    "runs/job-1/007",
    "lease",
    "lease.part",
    "runs/.gone",
]


def put(make: Callable[[Path], None], path: Path) -> None:
    """In place of what stands there."""
    here = Path.cwd()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            return
        path.unlink(missing_ok=True)
        make(path)
    finally:
        os.chdir(here)


async def until_over(machine: Machine, *jobs: str) -> dict[str, Observation]:
    async with asyncio.timeout(20):
        while True:
            machine.seen += machine.driver.look()
            ends = {seen.job: seen for seen in machine.seen if seen.status in RUN_IS_OVER}
            if set(ends) >= set(jobs):
                return ends
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("file", FILES)
async def test_a_run_with_odd_files_ends_and_no_other_run_notices(
    machine: Machine, file: str, make: Callable[[Path], None]
) -> None:
    machine.start("echo up; exec sleep 777", job="job-1")
    await machine.until("running")
    put(make, machine.path(file))
    machine.start("exit 3", job="honest")
    machine.stop(100)
    ends = await until_over(machine, "job-1", "honest")
    assert (ends["honest"].status, ends["honest"].exit_code) == (RunStatus.FAILED, 3)
    assert machine.alive() == []


DEAF = "trap 'echo {word} > ../0/stop' TERM; echo up; while :; do sleep 0.02; done"


@pytest.mark.parametrize("word", ["9" * 15, "9" * 400, "9" * 5_000, "never", ""])
async def test_no_worker_gives_itself_a_longer_grace(machine: Machine, word: str) -> None:
    machine.start(DEAF.format(word=word))
    await machine.says("up")
    machine.stop(300)
    seen = await machine.until("stopped", wait_s=5)
    assert (seen.status, machine.alive()) == (RunStatus.STOPPED, [])


async def test_a_supervisor_outlives_any_number_in_the_place_of_the_time_to_stop(machine: Machine) -> None:
    machine.start("trap '' TERM; echo up; while :; do sleep 0.02; done")
    await machine.until("running")
    machine.path("stop").write_text("9" * 400)
    await asyncio.sleep(1.5)  # it looks there once a second
    assert machine.driver.look() == []
    machine.stop(0)
    await machine.until("running", "stopped", wait_s=5)
    assert machine.path("supervisor.log").read_text() == ""


HOLDS_LOCK = """
import fcntl, os, time
folder = os.path.dirname(os.getcwd()) + "/0/"
supervisor = os.getppid()
if os.fork():
    time.sleep(600)
os.setsid()
os.kill(supervisor, 9)
while True:
    try:
        fcntl.flock(os.open(folder + "lock", os.O_RDWR), fcntl.LOCK_EX)
        break
    except OSError:
        pass
if FORGES:
    open(folder + "supervisor", "w").write("%d %s" % (os.getpid(), open("/proc/self/stat").read().split()[21]))
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("forges", [False, True])
async def test_no_worker_is_taken_for_its_supervisor(machine: Machine, *, forges: bool) -> None:
    code = HOLDS_LOCK.replace("FORGES", str(forges))
    machine.start_run(ProcessRun(argv=(sys.executable, "-S", "-E", "-c", "import time; time.sleep(0.5)\n" + code)))
    await machine.until("running")
    await machine.until("running", "failed")
    assert machine.alive() == []


@pytest.mark.parametrize("seed", range(12))
async def test_an_agent_that_comes_back_to_any_mess_ends_what_was_left_and_begins_anew(
    machine: Machine, seed: int
) -> None:
    random = Random(seed)
    machine.start("echo up; exec sleep 777", job="job-1")
    await machine.until("running")
    for stray in STRAYS:
        put(random.choice(KINDS), machine.folder / stray)
    for file in random.sample(FILES, 3):
        put(random.choice(KINDS), machine.path(file))
    machine.restart_agent()
    machine.driver.kept_lease()
    await eventually(machine.driver.stop_everything)
    assert machine.alive() == []
    machine.driver._keep_runs = 0
    machine.driver._prune()
    machine.driver.look()
    assert not (machine.folder / "runs" / "job-1" / "1").exists()


DIG = "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"


async def test_folders_in_any_number_of_levels_go_when_an_id_is_used_again_and_when_old_folders_go(
    machine: Machine,
) -> None:
    for started_ms, argv in ((1, (sys.executable, "-c", DIG)), (2, ("true",)), (3, (sys.executable, "-c", DIG))):
        machine.seen.clear()
        machine.start_run(ProcessRun(argv=argv), started_ms=started_ms)
        await machine.until("running", "finished")
    work = machine.folder / "runs" / "job-1" / "1" / "work"
    assert [path.name for path in work.iterdir()] == ["d"]
    machine.driver._keep_runs = 0
    machine.driver._prune()
    await eventually(lambda: not [*(machine.folder / "runs").iterdir()])


@pytest.mark.parametrize("make", [a_pipe, a_socket, a_folder, a_link_to_itself, a_link_out])
def test_nothing_but_a_plain_file_is_read_or_written_into(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "file"
    put(make, path)
    with pytest.raises(OSError, match=r".+"):
        read_whole(path)
    part = tmp_path / "other.part"
    put(make, part)
    if make is not a_folder:
        write_whole(tmp_path / "other", "text")
        assert read_whole(tmp_path / "other") == "text"


def test_no_more_of_a_file_is_read_than_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("0123456789")
    assert (read_plain(path, 4), read_plain(path, 4, from_end=True), read_plain(path)) == (
        b"0123",
        b"6789",
        b"0123456789",
    )


@pytest.mark.parametrize("name", ["lease", "lease.part"])
async def test_the_lease_is_written_whatever_stands_in_its_way(machine: Machine, name: str) -> None:
    put(a_folder, machine.folder / name)
    machine.driver.keep_lease(1, 10**12)
    assert machine.driver.kept_lease() == (1, 10**12)


async def test_no_lease_was_renewed_at_a_time_to_come(machine: Machine) -> None:
    (machine.folder / "lease").write_text(f"{'9' * 400} {'9' * 400}")
    assert machine.driver.kept_lease() is None


async def test_a_folder_whose_name_is_no_text_is_passed_over(machine: Machine) -> None:
    a_folder(Path(os.fsdecode(os.fsencode(machine.folder / "runs") + b"/\xff/1/0")))
    machine.restart_agent()
    await eventually(machine.driver.stop_everything)
    assert machine.driver.look() == []
