"""Where the kernel has Landlock, a worker ends, halts and traces no process but its own, also of its own user."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fallow.services.executor.processes.supervisor import can_keep_from_other_processes, start_ticks
from fallow.shared.events.fields.values import ProcessRun
from tests.executor.worlds.processes import Machine

WAITS = "echo up; exec sleep 704"
needs_landlock = pytest.mark.skipif(
    not can_keep_from_other_processes(), reason="this kernel has no Landlock that keeps signals within (Linux 6.12)"
)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path, scoped=True)
    yield machine
    await machine.end()


async def victims(machine: Machine) -> list[int]:
    """Another job's worker, its supervisor, and the agent."""
    machine.start_run(ProcessRun(argv=("sh", "-c", WAITS), env={"TOKEN": "theirs"}), job="victim")
    await machine.until("running")
    machine.seen.clear()
    names = ("worker", "supervisor")
    return [*(int(machine.path(name, job="victim").read_text().split()[0]) for name in names), os.getpid()]


@needs_landlock
async def test_no_other_process_can_be_signalled_or_looked_into(machine: Machine) -> None:
    pids = " ".join(map(str, await victims(machine)))
    kills = f"for p in {pids} $PPID; do for s in 0 CONT; do kill -$s $p && echo $s $p; done; done"
    # Root may read an environment all the same, by a right of its own; memory and links need that of a tracer.
    reads = f"for p in {pids} $PPID; do : < /proc/$p/mem && echo read $p; ls /proc/$p/cwd/ && echo found $p; done"
    machine.start(f"({kills}; {reads}) 2>/dev/null; echo done", job="mallory")
    await machine.until("running", "finished")
    assert machine.out(job="mallory") == ["done"]
    assert all(start_ticks(int(pid)) is not None for pid in pids.split())


@needs_landlock
async def test_a_worker_ends_and_traces_what_it_has_begun_itself(machine: Machine) -> None:
    machine.start("sleep 705 & cat /proc/$!/environ > /dev/null && kill $! && wait $!; echo $?")
    await machine.until("running", "finished")
    assert machine.out() == ["143"]


@needs_landlock
async def test_the_agent_ends_it_all_the_same(machine: Machine) -> None:
    machine.start("trap '' TERM; setsid env -i sleep 706 & echo up; while :; do sleep 0.05; done")
    await machine.says("up")
    machine.stop(100)
    await machine.until("stopped")
    assert machine.alive() == []
