"""Folders of ended runs go beside the agent's own work, and none is forgotten."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fallow.services.executor.processes.remove_tree import remove_tree
from fallow.services.executor.processes.remover import Remover
from fallow.shared.events.values import ProcessRun
from tests.contract.eventually import eventually
from tests.executor.processes import Machine

FILES = 4_000


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    await machine.end()


def filled(folder: Path, files: int = FILES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        os.close(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY))
    return folder


def own_s(do: Callable[[], object]) -> float:
    """How long this thread works at it, whatever else the machine does."""
    began_s = time.thread_time()
    do()
    return time.thread_time() - began_s


async def ended(machine: Machine, job: str, started_ms: int = 1) -> None:
    machine.seen.clear()
    machine.start_run(ProcessRun(argv=("true",)), job=job, started_ms=started_ms)
    await machine.until("running", "finished")


async def test_an_agent_does_not_stand_still_while_the_folders_of_ended_runs_go(machine: Machine) -> None:
    like_it = filled(machine.folder / "like-it")
    at_once_s = own_s(lambda: remove_tree(like_it))
    await ended(machine, "job-1")
    filled(machine.folder / "runs" / "job-1" / "1" / "work")
    machine.driver._keep_runs = 0
    assert own_s(machine.driver._prune) < at_once_s / 4
    assert not (machine.folder / "runs" / "job-1").exists()
    await eventually(lambda: not [*(machine.folder / "runs").iterdir()])


async def test_nor_while_those_of_an_earlier_job_of_the_same_id_go(machine: Machine) -> None:
    like_it = filled(machine.folder / "like-it", 4 * FILES)
    at_once_s = own_s(lambda: remove_tree(like_it))
    await ended(machine, "job-1")
    work = filled(machine.folder / "runs" / "job-1" / "1" / "work", 4 * FILES)
    machine.seen.clear()
    machine.restart_agent()
    run = ProcessRun(argv=("true",))
    assert own_s(lambda: machine.start_run(run, started_ms=2)) < at_once_s / 4
    await machine.until("running", "finished")
    assert [*work.iterdir()] == []
    await eventually(lambda: [path.name for path in (machine.folder / "runs").iterdir()] == ["job-1"])


async def test_what_an_agent_left_that_ended_meanwhile_goes_at_the_next_start(machine: Machine) -> None:
    await ended(machine, "job-1")
    machine.driver.close()  # from now on it begins with no folder
    machine.driver._keep_runs = 0
    machine.driver._prune()
    aside = machine.folder / "runs" / ".gone"
    assert len([*aside.iterdir()]) == 1
    machine.restart_agent()
    await eventually(lambda: not aside.exists())


async def test_none_is_forgotten_and_what_has_a_name_again_stays(tmp_path: Path) -> None:
    remover, folder = Remover(tmp_path / "aside"), tmp_path / "folder"
    for _ in range(100):
        remover.remove(filled(folder, 20))
        remover.remove_rest()
    filled(folder, 3)
    await eventually(lambda: not (tmp_path / "aside").exists())
    assert len([*folder.iterdir()]) == 3


async def test_a_link_in_the_place_of_a_folder_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    kept = filled(tmp_path / "kept", 3)
    (tmp_path / "link").symlink_to(kept)
    Remover(tmp_path / "aside").remove(tmp_path / "link")
    (tmp_path / "other").symlink_to(kept)
    Remover(tmp_path / "other").remove_rest()
    await eventually(lambda: not (tmp_path / "aside").exists())
    assert len([*kept.iterdir()]) == 3
