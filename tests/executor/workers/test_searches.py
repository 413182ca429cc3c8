"""An agent with many workers searches the machine a few times in a look, however many they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fallow.services.executor.processes.searches import SEARCHERS_MAX, Searches
from fallow.services.executor.processes.supervisor import SUPERVISES, processes, supervisors_among
from tests.executor.worlds.processes import Machine

WORKERS = 12
WAITS = "echo up; exec sleep 700"
MAX = 1 + 2 * SEARCHERS_MAX
"""One search for all, and two of each worker whose turn it is."""


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "agent")
    yield machine
    await machine.end()


async def restarted(machine: Machine) -> None:
    """Workers that run, and an agent that knows nothing of them yet."""
    machine.start(*[WAITS] * WORKERS)
    await machine.until("running")
    machine.restart_agent()


def searches_of_a_look(machine: Machine) -> int:
    before = machine.searches
    machine.seen += machine.driver.look()
    return machine.searches - before


async def test_an_agent_that_comes_back_searches_the_machine_once_for_all_of_its_workers(machine: Machine) -> None:
    await restarted(machine)
    machine.start(*[WAITS] * WORKERS)
    assert searches_of_a_look(machine) == 1
    assert searches_of_a_look(machine) == 0


async def test_an_agent_that_comes_back_stops_all_workers_after_one_search(machine: Machine) -> None:
    await restarted(machine)
    before = machine.searches
    machine.stop(grace_ms=5_000)
    assert machine.searches - before == 1
    await machine.until("running", "stopped")


async def test_workers_whose_supervisors_are_gone_are_swept_a_few_at_a_look(machine: Machine) -> None:
    await restarted(machine)
    machine.start(*[WAITS] * WORKERS)
    for rank in range(WORKERS):
        os.kill(machine.supervisor(rank), signal.SIGKILL)
    assert 0 < max(searches_of_a_look(machine) for _ in range(3)) <= MAX
    await machine.until("running", "running", "failed")
    assert machine.alive() == []


FORKS = """
import os, signal
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
signal.pause()
"""


def test_a_worker_that_has_yet_to_run_its_program_is_not_taken_for_its_supervisor() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], env={SUPERVISES: "m/job/1/0"}, stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        worker = int(supervisor.stdout.readline())
        try:
            assert supervisors_among(processes(), "m/job/1/0") == [supervisor.pid]
            assert supervisors_among([worker], "m/job/1/0") == [worker], "its supervisor is not looked at"
            found = Searches("m/").supervisors("m/job/1/0")
            assert [pid for pid, _ in found] == [supervisor.pid]
        finally:
            os.kill(worker, signal.SIGKILL)
            supervisor.kill()


def test_each_worker_has_its_turn_to_search_before_another_has_a_second_one() -> None:
    searches = Searches("m/", listed=list, searchers_max=2)
    turns = []
    for _ in range(5):
        searches.begin_turn()
        turns.append([mark for mark in "abcde" if searches.may_search(mark)])
    assert turns == [["a", "b"], ["c", "d"], ["e"], ["a", "b"], ["c", "d"]]
