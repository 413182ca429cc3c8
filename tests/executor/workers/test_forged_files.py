"""A worker may write into its folder, and into those of others, what its supervisor would write. No run is over
for that, and none that is told to stop lives on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from fallow.services.executor.processes.folders.disk_check import DiskCheck
from fallow.services.executor.processes.supervisor import SUPERVISES, marked, processes, start_ticks
from fallow.services.executor.processes.supervisors import Supervisors
from tests.contract.eventually import eventually
from tests.executor.workers.test_mischief import a_folder, a_number, a_pipe, much, put
from tests.executor.worlds.processes import Machine

AN_END = '{"code":0,"signal":null,"why":"WHY","text":""}'
FORGES = f"printf '{AN_END}' > FOLDER/exit; "
LIVES_ON = "echo up; exec sleep 777"
POSES = "trap '' USR1 TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture(params=["control groups", "sweeps"])
async def machine(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path, in_groups=request.param == "control groups")
    yield machine
    await machine.end()


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with the machine's runs."""
    with subprocess.Popen(["sleep", "775"]) as other:
        yield other
        other.kill()


@pytest.fixture
def poses(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that has the mark of a supervisor, and is deaf to what a supervisor is told."""
    said, mark = subprocess.PIPE, f"{tmp_path}/job-1/1/0"
    with subprocess.Popen(["sh", "-c", POSES], env={SUPERVISES: mark}, stdout=said, start_new_session=True) as poses:
        assert poses.stdout is not None
        poses.stdout.readline()
        yield poses
        poses.kill()


def with_hidden(machine: Machine) -> str:
    """The words of a worker with a process in a session and an environment of its own."""
    return f"setsid env -i HIDDEN={machine.folder} sleep 776 & echo up; wait"


def hidden(machine: Machine) -> list[int]:
    return marked(str(machine.folder), "HIDDEN")


async def begin_to_hide(machine: Machine) -> None:
    machine.start(with_hidden(machine))
    await eventually(lambda: hidden(machine) != [])


async def seen_meanwhile(machine: Machine) -> list[tuple[str, str]]:
    """What is seen in a time in which an agent that believes a file has read it."""
    for _ in range(25):
        machine.seen += machine.driver.look()
        await asyncio.sleep(0.02)
    return [(seen.job, seen.status.value) for seen in machine.seen]


@pytest.mark.parametrize("why", ["", "stop"])
async def test_no_worker_is_over_because_it_has_written_its_end(machine: Machine, why: str) -> None:
    machine.start(FORGES.replace("FOLDER", "../0").replace("WHY", why) + LIVES_ON)
    await machine.says("up")
    assert await seen_meanwhile(machine) == [("job-1", "running")]
    assert machine.alive() != []
    machine.stop(0)
    await machine.until("running", "stopped", wait_s=5)
    assert machine.alive() == []


async def test_no_worker_is_over_because_another_job_has_written_its_end(machine: Machine) -> None:
    machine.start(LIVES_ON, job="victim")
    await machine.until("running")
    machine.start(FORGES.replace("FOLDER", "../../../victim/1/0").replace("WHY", "") + LIVES_ON, job="mallory")
    await machine.until("running", "running")
    assert await seen_meanwhile(machine) == [("victim", "running"), ("mallory", "running")]
    machine.stop(0, job="victim")
    await machine.until("running", "running", "stopped", wait_s=5)


async def test_an_agent_that_comes_back_believes_no_end_while_the_worker_lives(machine: Machine) -> None:
    machine.start(FORGES.replace("FOLDER", "../0").replace("WHY", "") + LIVES_ON)
    await machine.says("up")
    machine.restart_agent()
    machine.start(LIVES_ON)
    assert await seen_meanwhile(machine) == [("job-1", "running")]
    machine.stop(0)
    await machine.until("running", "stopped", wait_s=5)
    assert machine.alive() == []


async def test_who_ends_its_supervisor_has_failed_by_itself_whatever_it_has_written(machine: Machine) -> None:
    machine.start("sleep 0.3; " + FORGES.replace("FOLDER", "../0").replace("WHY", "") + "kill -9 $PPID; sleep 777")
    seen = await machine.until("running", "failed")
    assert (seen.infrastructure, seen.exit_code, machine.alive()) == (False, None, [])


async def test_who_ends_its_supervisor_while_no_agent_is_there_has_failed_by_itself_too(machine: Machine) -> None:
    lost = FORGES.replace("FOLDER", "../0").replace("WHY", "vanished")
    machine.start(f"echo up; sleep 0.3; {lost} kill -9 $PPID; exec sleep 777")
    await machine.says("up")
    machine.restart_agent()
    await eventually(lambda: machine.alive() == [])
    machine.start(LIVES_ON)
    async with asyncio.timeout(15):
        while not machine.seen or machine.seen[-1].status.value == "running":
            await asyncio.sleep(0.02)
            machine.seen += machine.driver.look()
    assert (machine.seen[-1].status.value, machine.seen[-1].infrastructure) == ("failed", False)


BREAKS = "sleep 0.3; rm -rf ../0; exit 1"


def refuse(monkeypatch: pytest.MonkeyPatch, code: int) -> list[int]:
    """Let the disk refuse what is synchronized; the numbers of the files of which it did."""
    asked = list[int]()

    def fails(number: int) -> None:
        asked.append(number)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    return asked


async def test_who_breaks_its_supervisor_has_failed_by_itself_where_the_disk_is_well(machine: Machine) -> None:
    machine.start(BREAKS)
    seen = await machine.until("running", "failed")
    assert (seen.infrastructure, seen.text[:32]) == (False, "worker 0 its supervisor is gone:")
    assert sorted(path.name for path in machine.folder.iterdir()) == ["lease", "runs"]


async def test_a_job_that_lets_no_supervisor_begin_has_failed_by_itself(machine: Machine) -> None:
    put(a_folder, machine.path("lock"))
    machine.start(LIVES_ON)
    seen = await machine.until("failed")
    assert (seen.infrastructure, "Is a directory" in seen.text) == (False, True)


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_supervisor_that_breaks_where_the_disk_refuses_a_file_is_the_nodes_fault(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked = refuse(monkeypatch, code)
    put(a_folder, machine.path("lock"))
    machine.start(LIVES_ON)
    seen = await machine.until("failed")
    assert (seen.infrastructure, "Is a directory" in seen.text, len(asked)) == (True, True, 1)


async def test_a_folder_that_a_job_has_closed_is_no_fault_of_the_disk(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EACCES)
    machine.start(BREAKS)
    seen = await machine.until("running", "failed")
    assert not seen.infrastructure


async def test_a_disk_that_is_silent_keeps_no_other_run_waiting(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), list[int]()

    def waits(number: int) -> None:
        asked.append(number)
        answers.wait(10)

    monkeypatch.setattr(os, "fsync", waits)
    put(a_folder, machine.path("lock"))
    machine.start(LIVES_ON)
    await eventually(lambda: machine.driver.look() == [] and asked != [])
    machine.start("exit 0", job="other")
    await machine.until("running", "finished", wait_s=3)
    answers.set()
    seen = await machine.until("running", "finished", "failed", wait_s=3)
    assert (seen.infrastructure, len(asked)) == (False, 1)


async def test_nobody_waits_for_a_disk_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: answers.wait(10))
    check = DiskCheck(tmp_path, patience_ms=100)
    assert not check.is_over()
    await eventually(check.is_over)
    assert (check.is_at_work(), check.has_found_fault()) == (True, False)
    answers.set()
    await eventually(lambda: not check.is_at_work())


@pytest.mark.parametrize("make", [a_pipe, a_folder, a_number, much])
@pytest.mark.parametrize("file", ["exit", "stop", "supervisor"])
async def test_what_hides_does_not_outlive_its_run_for_an_odd_file(
    machine: Machine, file: str, make: Callable[[Path], None]
) -> None:
    await begin_to_hide(machine)
    put(make, machine.path(file))
    machine.restart_agent()
    machine.start(with_hidden(machine))
    machine.stop(0)
    async with asyncio.timeout(15):
        while not machine.seen or machine.seen[-1].status.value == "running":
            await asyncio.sleep(0.02)
            machine.seen += machine.driver.look()
    assert hidden(machine) == []


async def test_no_other_process_is_taken_for_the_supervisor_because_its_number_stands_there(
    machine: Machine, other: subprocess.Popen[bytes]
) -> None:
    await begin_to_hide(machine)
    machine.path("supervisor").write_text(f"{other.pid} {start_ticks(other.pid)}")
    machine.restart_agent()
    machine.start(with_hidden(machine))
    machine.stop(0)
    await machine.until("stopped", wait_s=5)
    assert (hidden(machine), other.poll()) == ([], None)


async def test_no_worker_is_begun_twice_whatever_of_its_files_is_gone(machine: Machine) -> None:
    machine.start(LIVES_ON)
    await machine.says("up")
    for name in ("supervisor", "lock", "worker"):
        await eventually(machine.path(name).exists)  # the worker may speak before its supervisor has noted it
        machine.path(name).unlink()
    machine.restart_agent()
    machine.start(LIVES_ON)
    await asyncio.sleep(0.5)
    assert (len(machine.alive()), machine.out()) == (1, ["up"])


async def test_a_supervisor_that_was_halted_ends_its_worker_when_told(machine: Machine) -> None:
    machine.start(LIVES_ON)
    await machine.says("up")
    os.kill(machine.supervisor(), signal.SIGSTOP)
    machine.stop(0)
    await machine.until("stopped", wait_s=5)
    assert machine.alive() == []


async def test_a_run_ends_where_nothing_can_be_written(machine: Machine) -> None:
    await begin_to_hide(machine)
    folder = machine.path("stop").parent
    folder.rename(folder.with_name("elsewhere"))
    machine.stop(60_000)
    await machine.until("failed", wait_s=5)
    assert hidden(machine) == []


async def test_who_only_poses_as_a_supervisor_is_ended_when_it_does_not_end(
    tmp_path: Path, poses: subprocess.Popen[bytes]
) -> None:
    supervisors = Supervisors(f"{tmp_path}/", patience_ms=500)
    assert poses.pid in supervisors.live()
    assert (supervisors.end(), poses.poll()) == (False, None)
    await eventually(supervisors.end)
    assert poses.wait() == -signal.SIGKILL


def pose(tmp_path: Path, *words: str, count: int = 1) -> list[subprocess.Popen[bytes]]:
    """So many that have the mark of the same supervisor."""
    environment = {SUPERVISES: f"{tmp_path}/job-1/1/0", "PATH": os.environ["PATH"]}
    return [subprocess.Popen(words, env=environment, start_new_session=True) for _ in range(count)]


async def test_the_machine_is_searched_as_often_for_many_that_pose_as_for_one(tmp_path: Path) -> None:
    searches = list[int]()

    def listed() -> list[int]:
        searches.append(1)
        return processes()

    crowd = pose(tmp_path, "sleep", "30", count=30)
    supervisors = Supervisors(f"{tmp_path}/", patience_ms=-1, listed=listed)
    await eventually(lambda: len(marked(f"{tmp_path}/", SUPERVISES)) == len(crowd))
    try:
        supervisors.end()
        assert len(searches) == 2
        assert {each.wait(5) for each in crowd} == {-signal.SIGKILL}
    finally:
        for each in crowd:
            each.kill()
            each.wait()


BEGINS_ALL_THE_TIME = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while not os.path.exists(sys.argv[1]):
    subprocess.Popen(["sleep", "0.06"], env={"PATH": os.environ["PATH"]}, start_new_session=True)
    time.sleep(0.005)
"""


async def test_one_that_poses_and_begins_a_process_all_the_time_is_ended(tmp_path: Path) -> None:
    (poser,) = pose(tmp_path, sys.executable, "-c", BEGINS_ALL_THE_TIME, str(tmp_path / "over"))
    try:
        await asyncio.sleep(0.3)
        supervisors = Supervisors(f"{tmp_path}/", patience_ms=-1)
        looks = 0
        while not supervisors.end():
            looks += 1
            assert looks < 20
            await asyncio.sleep(0.01)
        assert poser.wait(5) == -signal.SIGKILL
    finally:
        (tmp_path / "over").touch()
        poser.kill()
        poser.wait()
