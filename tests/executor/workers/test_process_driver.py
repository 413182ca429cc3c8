"""Runs that are real processes on this machine: they start, end, are stopped, and nothing of them stays."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest

from fallow.services.executor.policy.turn import Observation
from fallow.services.executor.policy.worker_environment import Gang
from fallow.services.executor.processes.supervisor import monotonic_ms
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.fields.values import RUN_IS_OVER, ProcessRun, RunStatus, VirtualRun
from tests.contract.eventually import eventually
from tests.executor.worlds.processes import NODE, Machine

WAITS = "echo up; exec sleep 600"
POLITE = "trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"
HIDES = "setsid env -i sh -c 'sleep {nap} & setsid sleep {nap} & wait' & echo up; wait"


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "agent")
    yield machine
    await machine.end()


@pytest.fixture(params=["control groups", "sweeps"])
async def either_machine(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "agent", in_groups=request.param == "control groups")
    yield machine
    await machine.end()


async def test_a_run_is_running_when_all_its_workers_are_and_finished_when_all_ended_well(machine: Machine) -> None:
    machine.start("echo $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES; sleep 0.3", "true", "true")
    assert (await machine.until("running", "finished")).exit_code == 0
    assert machine.out(0) == ["0 of 3 on 0"]


async def test_a_worker_sees_its_own_environment_and_none_of_the_agents_secrets(machine: Machine) -> None:
    run = ProcessRun(
        argv=("sh", "-c", "env; pwd"), env={"MODE": "fast", "RANK": "7"}, checkpoint_dir=str(machine.folder / "c")
    )
    machine.start_run(run)
    await machine.until("running", "finished")
    said = machine.out()
    assert {"MODE=fast", "RANK=0", "FALLOW_JOB=job-1", f"FALLOW_CHECKPOINT_DIR={machine.folder}/c"} <= set(said)
    assert str(machine.folder / "runs" / "job-1" / "1" / "work") in said
    assert "secret" not in "".join(said)
    assert (machine.folder / "c").is_dir()


async def test_no_program_gives_a_worker_more_rights_than_its_user_has(machine: Machine) -> None:
    machine.start("grep NoNewPrivs /proc/self/status")
    await machine.until("running", "finished")
    assert machine.out() == ["NoNewPrivs:\t1"]


async def test_a_failure_is_told_with_its_exit_code_and_its_last_words_and_ends_the_others(machine: Machine) -> None:
    machine.start("sleep 0.2; echo 'out of luck' >&2; exit 42", WAITS)
    seen = await machine.until("running", "failed")
    assert (seen.exit_code, seen.infrastructure) == (42, False)
    assert seen.text == "worker 0 ended with exit code 42: out of luck"
    assert machine.alive() == []


async def test_a_worker_that_is_killed_by_others_has_failed_by_that_signal(machine: Machine) -> None:
    machine.start("kill -9 $$")
    seen = await machine.until("running", "failed")
    assert (seen.exit_code, seen.text) == (137, "worker 0 was killed by SIGKILL")


@pytest.mark.parametrize(("number", "name"), [(34, "SIGRTMIN"), (35, "signal 35"), (63, "signal 63")])
async def test_a_signal_without_a_name_is_told_by_its_number(machine: Machine, number: int, name: str) -> None:
    machine.start(f"kill -{number} $$")
    seen = await machine.until("running", "failed")
    assert (seen.exit_code, seen.text) == (128 + number, f"worker 0 was killed by {name}")


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        (ProcessRun(argv=("true", "a\0b")), 127, "cannot run true: embedded null byte"),
        (ProcessRun(argv=("true",), env={"A": "\0"}), 127, "cannot run true: embedded null byte"),
        (ProcessRun(argv=("true",), dir="/tmp/a\0b"), 127, "embedded null byte"),
        (ProcessRun(argv=("true",), checkpoint_dir="/tmp/a\0b"), None, "cannot start: embedded null byte"),
        (ProcessRun(argv=("true",), checkpoint_dir="/tmp/" + "a" * 5_000), None, "cannot start"),
        (ProcessRun(argv=("no-such-program",)), 127, "cannot run no-such-program: No such file or directory"),
        (
            ProcessRun(argv=("true",), dir="/no/such/folder"),
            127,
            "cannot change to /no/such/folder: No such file or directory",
        ),
        (ProcessRun(argv=("true",), checkpoint_dir="/proc/no"), None, "cannot start: /proc/no: "),
        (VirtualRun(), None, "this node runs processes only"),
    ],
)
async def test_what_cannot_be_started_fails_and_says_why(
    machine: Machine, run: ProcessRun | VirtualRun, code: int | None, words: str
) -> None:
    machine.start_run(run)
    async with asyncio.timeout(10):
        while not machine.seen or machine.seen[-1].status != "failed":
            await asyncio.sleep(0.02)
            machine.seen += machine.driver.look()
    assert machine.seen[-1].exit_code == code
    assert words in machine.seen[-1].text
    assert "Errno" not in machine.seen[-1].text


async def test_a_run_that_is_told_to_stop_gets_a_notice_and_its_grace(machine: Machine) -> None:
    machine.start(POLITE, POLITE)
    await machine.says("up", 0)
    await machine.says("up", 1)
    machine.stop(grace_ms=60_000)
    await machine.until("stopped")
    assert (machine.out(0), machine.out(1)) == (["up", "told"], ["up", "told"])


async def test_a_worker_that_ends_well_at_the_notice_has_stopped_and_not_finished(machine: Machine) -> None:
    machine.start("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")
    await machine.says("up")
    machine.stop(grace_ms=60_000)
    await machine.until("stopped")
    assert machine.alive() == []


async def test_a_stubborn_worker_is_killed_when_its_grace_is_over(machine: Machine) -> None:
    machine.start(STUBBORN)
    await machine.says("up")
    begin_ms = monotonic_ms()
    machine.stop(grace_ms=700)
    await machine.until("stopped")
    assert monotonic_ms() - begin_ms >= 700
    assert machine.alive() == []


async def test_a_grace_can_be_cut_short(machine: Machine) -> None:
    machine.start(STUBBORN)
    await machine.says("up")
    machine.stop(grace_ms=600_000)
    machine.stop(grace_ms=0)
    await machine.until("stopped", wait_s=5)
    assert machine.alive() == []


async def test_a_grandchild_in_a_session_of_its_own_with_another_environment_dies_too(
    either_machine: Machine, nap: str
) -> None:
    either_machine.start(HIDES.format(nap=nap))
    await either_machine.says("up")
    await eventually(lambda: sleeping(nap) == 2)
    either_machine.stop(grace_ms=0)
    await either_machine.until("stopped")
    assert sleeping(nap) == 0


async def test_what_a_worker_leaves_behind_at_its_end_dies_too(either_machine: Machine, nap: str) -> None:
    either_machine.start(f"(setsid sleep {nap} &) ; until [ -e end ]; do sleep 0.05; done")
    await eventually(lambda: sleeping(nap) == 1)
    (either_machine.folder / "runs" / "job-1" / "1" / "work" / "end").touch()
    await either_machine.until("running", "finished")
    assert sleeping(nap) == 0


DIVIDES = """
group=$(sed -n 's/^[^ ]* \\([^ ]*\\) cgroup2 .*/\\1/p' /proc/self/mounts)$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir -p "$group/below/it" && echo made
"""


async def test_a_worker_that_makes_control_groups_of_its_own_is_over_with_them(machine: Machine) -> None:
    if machine.driver._groups is None:
        pytest.skip("no control groups can be made here")
    machine.start(DIVIDES)
    await machine.until("running", "finished", wait_s=5)
    assert machine.out() == ["made"]
    assert [*machine.driver._groups.glob("*/*/")] == []


async def test_a_run_that_never_began_stops_at_once_and_never_starts(machine: Machine) -> None:
    machine.stop(grace_ms=60_000)
    assert (await machine.until("stopped")).job == "job-1"


async def test_an_agent_that_comes_back_goes_on_with_its_workers(machine: Machine) -> None:
    machine.start("echo up; while [ ! -e $FALLOW_JOB ]; do sleep 0.05; done; exit 5")
    await machine.until("running")
    machine.restart_agent()
    machine.start("echo up; while [ ! -e $FALLOW_JOB ]; do sleep 0.05; done; exit 5")
    await machine.until("running", "running")
    (machine.folder / "runs" / "job-1" / "1" / "work" / "job-1").touch()
    assert (await machine.until("running", "running", "failed")).exit_code == 5
    assert machine.out() == ["up"]


async def test_an_end_while_no_agent_was_there_is_told_by_the_next(machine: Machine) -> None:
    machine.start("sleep 0.2; exit 6")
    await eventually(machine.path("exit").exists)
    machine.restart_agent()
    machine.start("sleep 0.2; exit 6")
    assert (await machine.until("running", "failed")).exit_code == 6


async def test_an_agent_that_comes_back_can_stop_what_it_did_not_start(machine: Machine) -> None:
    machine.start(WAITS)
    await machine.says("up")
    machine.restart_agent()
    machine.stop(grace_ms=1_000)
    await machine.until("stopped")
    assert machine.alive() == []


async def test_a_worker_dies_with_its_supervisor_and_is_not_begun_again(either_machine: Machine) -> None:
    machine = either_machine
    machine.start("setsid sleep 604 & " + WAITS)
    await machine.until("running")
    await machine.says("up")
    os.kill(machine.supervisor(), signal.SIGKILL)
    seen = await machine.until("running", "failed")
    assert (seen.infrastructure, seen.exit_code) == (False, None)  # it may have killed it: they are of one user
    assert machine.alive() == []
    machine.restart_agent()
    machine.start(WAITS)
    await machine.until("running", "failed", "running", "failed")
    assert machine.out() == ["up"]


CHAIN = """
import os, time
if os.fork():
    time.sleep(600)
until = time.monotonic() + 20
while time.monotonic() < until:
    os.write(1, b".")
    if os.fork():
        os._exit(0)
    SESSION
"""
"""One process after the other, each of which ends as soon as it has begun the next one."""


@pytest.fixture(params=["pass", "os.setsid()"], ids=["in one group", "in ever new sessions"])
def chain(request: pytest.FixtureRequest) -> ProcessRun:
    return ProcessRun(argv=(sys.executable, "-S", "-E", "-c", CHAIN.replace("SESSION", request.param)))


async def with_chain(machine: Machine, chain: ProcessRun) -> Machine:
    """The machine, once the processes of this run follow one another."""
    machine.start_run(chain)
    await machine.until("running")
    await eventually(lambda: machine.path("stdout").stat().st_size > 5)
    return machine


async def says_nothing_more(machine: Machine) -> bool:
    size_bytes = machine.path("stdout").stat().st_size
    await asyncio.sleep(0.2)
    return machine.path("stdout").stat().st_size == size_bytes


async def test_a_process_that_forks_and_exits_all_the_time_ends_with_its_run(
    either_machine: Machine, chain: ProcessRun
) -> None:
    machine = await with_chain(either_machine, chain)
    machine.stop(grace_ms=0)
    await machine.until("running", "stopped")
    assert await says_nothing_more(machine)


async def test_a_process_that_forks_and_exits_all_the_time_ends_where_its_supervisor_is_gone(
    either_machine: Machine, chain: ProcessRun
) -> None:
    machine = await with_chain(either_machine, chain)
    os.kill(machine.supervisor(), signal.SIGKILL)
    await machine.until("running", "failed")
    assert await says_nothing_more(machine)


async def test_workers_end_when_the_lease_is_over_though_no_agent_is_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path, lease_ms=1_000)
    machine.start(STUBBORN, WAITS)
    await machine.says("up", 1)
    await eventually(lambda: not machine.alive())
    machine.restart_agent()
    machine.start(STUBBORN, WAITS)
    await machine.until("running", "stopped")
    assert machine.alive() == []
    await machine.end()


async def test_a_new_boot_begins_with_nothing_of_the_old_one(machine: Machine) -> None:
    machine.start(STUBBORN, WAITS)
    await machine.says("up", 1)
    machine.restart_agent()
    await machine.end()
    assert machine.alive() == []


async def test_only_the_newest_folders_stay(machine: Machine) -> None:
    machine.driver._keep_runs = 2
    for number in range(4):
        machine.seen.clear()
        machine.start("true", job=f"job-{number}")
        await machine.until("running", "finished")
    machine.driver._prune()
    await eventually(lambda: sorted(path.name for path in (machine.folder / "runs").iterdir()) == ["job-2", "job-3"])


def says(file: Path, text: str) -> bool:
    return file.read_text() == text


async def test_jobs_of_one_id_of_two_tenants_run_beside_each_other(either_machine: Machine) -> None:
    machine = either_machine
    for tenant in ("search", "vision"):
        machine.start("echo $FALLOW_TENANT $FALLOW_JOB; pwd; exec sleep 600", job=f"{tenant}/hello")
    await machine.until("running", "running")
    for tenant in ("search", "vision"):
        folder = machine.folder / "runs" / f"{tenant}~hello" / "1"
        await eventually(partial(says, folder / "0" / "stdout", f"{tenant} hello\n{folder / 'work'}\n"))
    machine.stop(0, job="search/hello")
    assert (await machine.until("running", "running", "stopped")).job == "search/hello"
    assert len(machine.alive()) >= 1
    machine.stop(0, job="vision/hello")
    assert (await machine.until("running", "running", "stopped", "stopped")).job == "vision/hello"
    assert machine.alive() == []


async def test_the_folders_of_what_runs_stay_whoever_else_has_that_id(machine: Machine) -> None:
    machine.driver._keep_runs = 0
    machine.start("exec sleep 600", job="vision/hello")
    await machine.until("running")
    machine.start("true", job="search/hello")
    await machine.until("running", "running", "finished")
    machine.driver._prune()
    await eventually(lambda: [path.name for path in (machine.folder / "runs").iterdir()] == ["vision~hello"])
    machine.stop(0, job="vision/hello")
    await machine.until("running", "running", "finished", "stopped")


async def test_a_job_of_the_longest_names_runs_in_its_last_attempt(either_machine: Machine) -> None:
    machine, job = either_machine, f"{'t' * 63}/{'x' * 128}"
    machine.start("exec sleep 600", job=job, attempt=LARGEST_INTEGER)
    await machine.until("running")
    machine.restart_agent()
    machine.stop(0, job=job, attempt=LARGEST_INTEGER)
    assert (await machine.until("running", "stopped")).job == job


def sleeping(nap: str) -> int:
    """How many sleeps of this length live, on the whole machine."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += path.read_bytes() == f"sleep\0{nap}\0".encode()
    return found


@pytest.fixture
def nap(tmp_path: Path) -> str:
    """For how long the processes of this test sleep: no other test, of this run or of another one, has it."""
    return f"600.{crc32(bytes(tmp_path))}{os.getpid()}"


async def test_files_of_which_a_loss_of_power_left_only_the_names_tell_nothing(machine: Machine) -> None:
    machine.start("exit 0")
    await machine.until("running", "finished")
    for path in machine.folder.rglob("*"):
        if path.is_file() and path.name in ("lease", "exit", "supervisor", "stop"):
            path.write_bytes(b"")
    machine.restart_agent()
    assert machine.driver.kept_lease() is None
    await eventually(machine.driver.stop_everything)


@pytest.mark.parametrize("job", ["../../outside", "..", "a/b/c", "a~b", "x\0y", "", "/tmp/outside", "a" * 300])
async def test_a_job_whose_folder_would_not_stand_below_the_runs_has_failed(machine: Machine, job: str) -> None:
    before = sorted(machine.folder.parent.rglob("*"))
    machine.start("true", job=job)
    await machine.until("failed")
    machine.driver.show_world(job, 1, Gang(1, (NODE,), "127.0.0.1", 20_000))
    machine.stop(0, job=job)
    await machine.until("failed", "stopped")
    assert sorted(machine.folder.parent.rglob("*")) == before


async def ends_of(machine: Machine, *jobs: str) -> dict[str, Observation]:
    """Look until all of these are over; what each ended with."""
    async with asyncio.timeout(15):
        while True:
            machine.seen += machine.driver.look()
            ends = {seen.job: seen for seen in machine.seen if seen.status in RUN_IS_OVER}
            if set(ends) == set(jobs):
                return ends
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("text", ["{", "[]"])
async def test_a_run_whose_end_cannot_be_understood_has_failed_once_nothing_of_it_is_left(
    machine: Machine, text: str
) -> None:
    machine.start("exit 0", job="job-1")
    await machine.until("running", "finished")
    machine.seen.clear()
    machine.restart_agent()
    machine.path("exit").write_text(text)
    machine.start("exit 0")
    machine.start("sleep 1", job="job-2")
    ends = await ends_of(machine, "job-1", "job-2")
    assert (ends["job-1"].status, ends["job-2"].status) == (RunStatus.FAILED, RunStatus.FINISHED)
    assert "cannot" in ends["job-1"].text


@pytest.mark.parametrize(("file", "text"), [("exit", "{"), ("exit", "[]"), ("supervisor", "x y"), ("supervisor", "1")])
async def test_files_that_cannot_be_understood_do_not_end_a_run_that_is_looked_after(
    machine: Machine, file: str, text: str
) -> None:
    machine.start("echo up; while [ ! -e $FALLOW_JOB ]; do sleep 0.05; done; exit 5")
    await machine.until("running")
    machine.restart_agent()
    machine.path(file).write_text(text)
    machine.start("echo up; while [ ! -e $FALLOW_JOB ]; do sleep 0.05; done; exit 5")
    await machine.until("running", "running")
    (machine.folder / "runs" / "job-1" / "1" / "work" / "job-1").touch()
    assert (await machine.until("running", "running", "failed")).exit_code == 5
    assert machine.out() == ["up"]


async def test_a_run_whose_time_to_stop_cannot_be_read_ends_nevertheless(machine: Machine) -> None:
    machine.start(WAITS)
    await machine.until("running")
    machine.path("stop").write_text("soon")
    machine.stop(60_000)
    await machine.until("running", "stopped")
    assert machine.alive() == []


async def test_a_job_with_the_id_of_one_that_is_long_over_runs_and_finds_nothing_of_it(machine: Machine) -> None:
    machine.start_run(ProcessRun(argv=("sh", "-c", "echo first; touch kept")))
    await machine.until("running", "finished")
    machine.seen.clear()
    machine.restart_agent()
    machine.start_run(ProcessRun(argv=("sh", "-c", "echo second; ls; exit 3")), started_ms=5_000)
    seen = await machine.until("running", "failed")
    assert seen.exit_code == 3
    assert machine.out() == ["second"]


@pytest.fixture
async def slow_machine(tmp_path: Path) -> AsyncIterator[Machine]:
    """Between two looks there is time for the start of one worker."""
    machine = Machine(tmp_path / "agent", begin_ms=1)
    yield machine
    await machine.end()


def begun(machine: Machine) -> int:
    return sum(machine.path("order.json", rank).exists() for rank in range(1_000))


async def test_a_job_of_many_workers_keeps_the_agent_from_its_lease_no_longer_than_a_few_starts_take(
    machine: Machine,
) -> None:
    machine.start_run(ProcessRun(argv=("sleep", "600")), 1_000)
    assert 1 <= begun(machine) < 1_000
    machine.stop(grace_ms=0)
    await machine.until("stopped")
    assert not machine.alive()


async def test_workers_that_begin_one_after_the_other_run_once_all_of_them_have_begun(slow_machine: Machine) -> None:
    slow_machine.start("echo $RANK; sleep 0.3", "true", "true", "echo $RANK")
    assert begun(slow_machine) == 1
    assert (await slow_machine.until("running", "finished")).exit_code == 0
    assert (slow_machine.out(0), slow_machine.out(3)) == (["0"], ["3"])


@pytest.mark.parametrize("first", ["true", WAITS, "exit 7"])
async def test_a_run_that_is_stopped_before_all_of_its_workers_have_begun_has_not_finished(
    slow_machine: Machine, first: str
) -> None:
    slow_machine.start(first, *["echo never"] * 3)
    if first != WAITS:
        await eventually(lambda: slow_machine.path("exit").exists())
    slow_machine.stop(grace_ms=0)
    seen = await slow_machine.until("failed" if first == "exit 7" else "stopped")
    assert seen.exit_code == (7 if first == "exit 7" else None)
    assert begun(slow_machine) == 1
    assert not slow_machine.alive()


async def test_a_worker_that_fails_keeps_those_from_beginning_whose_turn_has_not_come(slow_machine: Machine) -> None:
    slow_machine.start("exit 7", *[WAITS] * 30)
    assert (await slow_machine.until("failed")).exit_code == 7
    assert begun(slow_machine) < 31
    assert not slow_machine.alive()


async def test_a_run_that_cannot_begin_fails_with_none_of_its_workers(slow_machine: Machine) -> None:
    slow_machine.start_run(ProcessRun(argv=("true",), checkpoint_dir="/proc/none/here"), 1_000)
    assert "cannot start" in (await slow_machine.until("failed")).text
    assert begun(slow_machine) == 0


async def test_what_an_earlier_agent_has_begun_is_ended_though_its_turn_has_not_come_again(
    slow_machine: Machine,
) -> None:
    slow_machine.start(*[WAITS] * 6)
    while begun(slow_machine) < 3:
        slow_machine.seen += slow_machine.driver.look()
    slow_machine.restart_agent()
    slow_machine.start(*[WAITS] * 6)
    slow_machine.stop(grace_ms=0)
    await slow_machine.until("stopped")
    assert not slow_machine.alive()


async def test_an_agent_that_comes_back_goes_on_with_the_workers_that_have_yet_to_begin(slow_machine: Machine) -> None:
    slow_machine.start(*["echo $RANK; exec sleep 600"] * 4)
    slow_machine.restart_agent()
    slow_machine.start(*["echo $RANK; exec sleep 600"] * 4)
    await slow_machine.until("running")
    for rank in range(4):
        await slow_machine.says(str(rank), rank)
        assert slow_machine.out(rank) == [str(rank)]


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize(
    ("folder", "is_disk_well", "is_of_machine"),
    [("checkpoints", False, False), ("runs", False, True), ("runs", True, False)],
    ids=["the job's folder", "the agent's folder", "a link in its place"],
)
async def test_whose_path_it_is_tells_who_is_to_blame_for_a_start_that_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, code: int, folder: str, is_disk_well: bool, is_of_machine: bool
) -> None:
    broken, make = str(machine.folder / folder), Path.mkdir

    def fails(path: Path, mode: int = 0o777, **how: bool) -> None:
        if str(path).startswith(broken):
            raise OSError(code, os.strerror(code), str(path))
        make(path, mode, **how)

    def refuses(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", fails)
    if not is_disk_well:
        monkeypatch.setattr(os, "fsync", refuses)
    machine.start_run(ProcessRun(argv=("true",), checkpoint_dir=str(machine.folder / "checkpoints" / "job")))
    seen = await machine.until("failed")
    assert seen.infrastructure is is_of_machine
    assert os.strerror(code) in seen.text
    assert broken in seen.text
