"""Folders of ended runs go beside the agent's own work, and none is forgotten."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fallow.services.executor.processes.folders.remover import Remover
from fallow.shared.events.fields.values import ProcessRun
from tests.contract.eventually import eventually
from tests.executor.worlds.processes import Machine

FILES = 40


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


@contextmanager
def removed_by_thread() -> Iterator[dict[int, int]]:
    """How many files each thread of this process removes meanwhile, told by the interpreter's own audit."""
    counts, is_on = dict[int, int](), True

    def note(event: str, args: object) -> None:
        if is_on and event == "os.remove":
            counts[threading.get_ident()] = counts.get(threading.get_ident(), 0) + 1

    sys.addaudithook(note)  # none can be taken away again, so it is switched off
    try:
        yield counts
    finally:
        is_on = False


async def ended(machine: Machine, job: str, started_ms: int = 1) -> None:
    machine.seen.clear()
    machine.start_run(ProcessRun(argv=("true",)), job=job, started_ms=started_ms)
    await machine.until("running", "finished")


async def test_an_agent_does_not_stand_still_while_the_folders_of_ended_runs_go(machine: Machine) -> None:
    await ended(machine, "job-1")
    filled(machine.folder / "runs" / "job-1" / "1" / "work")
    machine.driver._keep_runs = 0
    with removed_by_thread() as removed:
        machine.driver._prune()
        assert not (machine.folder / "runs" / "job-1").exists()
        await eventually(lambda: not [*(machine.folder / "runs").iterdir()])
    assert removed.pop(threading.get_ident(), 0) < FILES
    assert sum(removed.values()) >= FILES


async def test_nor_while_those_of_an_earlier_job_of_the_same_id_go(machine: Machine) -> None:
    await ended(machine, "job-1")
    work = filled(machine.folder / "runs" / "job-1" / "1" / "work")
    machine.seen.clear()
    machine.restart_agent()
    with removed_by_thread() as removed:
        machine.start_run(ProcessRun(argv=("true",)), started_ms=2)
        await machine.until("running", "finished")
        assert [*work.iterdir()] == []
        await eventually(lambda: [path.name for path in (machine.folder / "runs").iterdir()] == ["job-1"])
    assert removed.pop(threading.get_ident(), 0) < FILES
    assert sum(removed.values()) >= FILES


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
