"""What a worker uses has an end: files, processes, its output, and what its job asked for."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fallow.services.executor.processes.control_groups import CONTROLLERS, controllers_of, hand_down
from fallow.services.executor.processes.isolation import Isolation, Limits, not_held
from fallow.services.executor.processes.supervisor import limit_group, ran_out_of_memory
from fallow.services.executor.processes.worker_users import WorkerUsers
from fallow.services.executor.settings import AgentSettings, uids_of
from tests.executor.workers.test_worker_users import UIDS
from tests.executor.worlds.processes import Machine

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run workers as other users")


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path, limits=Limits(open_files=64, processes=40, log_mib=1))
    yield machine
    await machine.end()


@pytest.fixture
def place() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="fallow-limits-", dir="/tmp"))
    place.chmod(0o711)
    (place / "state").mkdir()
    yield place
    shutil.rmtree(place)


async def test_a_worker_has_no_more_open_files_than_it_may(machine: Machine) -> None:
    machine.start("ulimit -n; ulimit -Hn; ulimit -n 65 2>/dev/null || echo no; exit 0")
    await machine.until("running", "finished")
    limits = machine.out()
    assert limits[:2] == ["64", "64"]


async def test_a_limit_that_the_agent_has_is_not_raised(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    machine = Machine(tmp_path, limits=Limits(open_files=hard + 1 if hard != resource.RLIM_INFINITY else 2**30))
    try:
        machine.start("ulimit -n")
        await machine.until("running", "finished")
        assert machine.out() == [str(soft)]
    finally:
        await machine.end()


FORKS = "i=0; while [ $i -lt 200 ]; do sleep 707 & i=$((i+1)); done; echo all"


@needs_root
async def test_a_fork_bomb_meets_the_limit_of_its_own_run_and_no_other_run_does(place: Path) -> None:
    machine = Machine(place / "state", uids=UIDS, limits=Limits(processes=40))
    try:
        machine.start(FORKS, job="bomb")
        await machine.until("running", "failed")
        assert machine.out(job="bomb") == []
        machine.seen.clear()
        machine.start("sleep 0.1 & sleep 0.1 & wait; echo fine", job="other")
        await machine.until("running", "finished")
        assert machine.out(job="other") == ["fine"]
    finally:
        await machine.end()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_worker_that_fills_its_output_fails_by_itself_and_the_output_is_cut(
    machine: Machine, stream: str
) -> None:
    to = "" if stream == "stdout" else ">&2"
    machine.start(f"head -c 3000000 /dev/zero {to}; exec sleep 708")
    seen = await machine.until("running", "failed")
    assert (seen.infrastructure, seen.exit_code) == (False, 137)
    assert seen.text == "worker 0 was killed by SIGKILL: its output is longer than 1 MiB"
    assert machine.path(stream).lstat().st_size == 1 << 20
    assert machine.alive() == []


async def test_an_output_as_long_as_it_may_be_is_fine(machine: Machine) -> None:
    machine.start("head -c 1048576 /dev/zero; sleep 1.5")
    await machine.until("running", "finished")


def order(**changed: int) -> Mapping[str, Any]:
    return {"memory_mib": 0, "processes": 0, "cpu_milli": 0, **changed}


def group_in(folder: Path, *names: str) -> Path:
    """A control group as files: what is written there can be read."""
    for name in names:
        (folder / name).write_text("")
    return folder


def written(group: Path) -> dict[str, str]:
    return {path.name: text for path in sorted(group.iterdir()) if (text := path.read_text())}


def test_a_control_group_has_the_limits_that_the_job_asked_for(tmp_path: Path) -> None:
    group = group_in(tmp_path, "memory.max", "memory.oom.group", "pids.max", "cpu.weight")
    limit_group(group, order(memory_mib=512, processes=40, cpu_milli=2_500))
    assert written(group) == {
        "cpu.weight": "250",
        "memory.max": "536870912",
        "memory.oom.group": "1",
        "pids.max": "40",
    }


def test_what_a_job_did_not_ask_for_and_what_the_kernel_does_not_limit_is_not_written(tmp_path: Path) -> None:
    group = group_in(tmp_path, "memory.max", "memory.oom.group", "cpu.weight")
    limit_group(group, order(processes=40))
    limit_group(group, order(cpu_milli=5))
    assert (written(group), (group / "pids.max").exists()) == ({}, False)


def test_the_share_of_many_processors_is_no_more_than_the_kernel_knows(tmp_path: Path) -> None:
    group = group_in(tmp_path, "cpu.weight")
    limit_group(group, order(cpu_milli=10**9))
    assert written(group) == {"cpu.weight": "10000"}


@pytest.mark.parametrize(("events", "is_short"), [("oom 3\noom_kill 0\n", False), ("oom 3\noom_kill 1\n", True)])
def test_a_worker_ran_out_of_memory_where_the_kernel_killed_for_it(
    tmp_path: Path, events: str, *, is_short: bool
) -> None:
    assert not ran_out_of_memory(tmp_path)
    (tmp_path / "memory.events").write_text(events)
    assert ran_out_of_memory(tmp_path) == is_short


def test_a_group_hands_down_what_it_was_given(tmp_path: Path) -> None:
    group = group_in(tmp_path, "cgroup.subtree_control")
    (group / "cgroup.controllers").write_text("cpuset memory io")
    hand_down(group, is_top=True)
    assert (group / "cgroup.subtree_control").read_text() == "+memory"
    (group / "cgroup.subtree_control").write_text("memory io")
    assert controllers_of(group) == {"memory"}


ALL = frozenset(CONTROLLERS)
FILES = "a worker may read and write the files of other jobs and of the agent"
SIGNALS = "a worker may end, halt and trace other jobs, supervisors and the agent"
ROOT = "workers are root and may do anything on this machine"
SEARCHED = "without control groups, what a worker leaves is found by a search"
USES = "a worker may use more memory and cpu than its job asked for"
FORK = "a worker may begin any number of processes"


@pytest.mark.parametrize(
    ("is_root", "scoped", "controllers", "told"),
    [
        (True, True, ALL, (ROOT, FILES)),
        (False, True, ALL, (FILES,)),
        (False, False, ALL, (FILES, SIGNALS)),
        (False, True, frozenset(), (FILES, USES, FORK)),
        (False, False, None, (FILES, SIGNALS, SEARCHED, USES, FORK)),
    ],
)
def test_each_guarantee_that_does_not_hold_is_named(
    *, is_root: bool, scoped: bool, controllers: frozenset[str] | None, told: tuple[str, ...]
) -> None:
    assert not_held(Isolation(scoped=scoped), is_root=is_root, controllers=controllers) == told


@needs_root
def test_with_users_and_control_groups_every_guarantee_holds(place: Path) -> None:
    users = WorkerUsers(place / "state", UIDS, place / "claims")
    isolation = Isolation(users, scoped=False)
    assert not_held(isolation, is_root=True, controllers=ALL) == ()
    assert not_held(isolation, is_root=True, controllers=None) == (SEARCHED, USES)
    users.release()


SETTINGS: dict[str, Any] = {"node": "n", "node_gpus": 0, "node_pool": "p", "state_dir": Path("x")}


def test_a_range_of_users_is_read() -> None:
    assert uids_of(AgentSettings(**SETTINGS, worker_uids="200000-265535").worker_uids) == range(200_000, 265_536)
    assert AgentSettings(**SETTINGS).worker_uids == ""


@pytest.mark.parametrize(
    "text", ["1", "200000", "x-y", "-", "999-5000", "3000-2000", "1000-4294967295", "1-2-3", "²-5000"]
)
def test_what_is_no_range_of_users_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be FIRST-LAST, two numbers from 1000 to 4294967294"):
        AgentSettings(**SETTINGS, worker_uids=text)


def test_a_range_of_users_has_room_for_the_folders_that_stay() -> None:
    with pytest.raises(ValidationError, match=r"must be more numbers than keep_runs \(50\)"):
        AgentSettings(**SETTINGS, keep_runs=50, worker_uids="2000-2049")
    assert AgentSettings(**SETTINGS, keep_runs=50, worker_uids="2000-2050").worker_uids
