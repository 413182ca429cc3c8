"""`fallow bench workers`: how soon a worker is a process on this machine, with a user of its own and without.

Workers are begun by the driver of an agent, without Kafka and Redis.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, time_ns

from pydantic import SecretStr
from rich.console import Console

from fallow.bench.compared import order_of
from fallow.bench.figure import Figure
from fallow.bench.load.load import percentile
from fallow.bench.load.processor_time import Used, machine_seconds
from fallow.replay.run_session import folder_for
from fallow.services.executor.app.own_machine import Driver, OwnMachine, as_node
from fallow.services.executor.policy.turn import Start
from fallow.services.executor.policy.worker_environment import Gang
from fallow.services.executor.processes.folders.state_folder import StateFolder
from fallow.services.executor.processes.worker_users import WorkerUsersUnusable
from fallow.services.executor.settings import AgentSettings
from fallow.shared.events.fields.values import NodeSpec, ProcessRun, RunStatus, WorkerPlace
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.runtime.stack.child import StackError

NODE = CELL = "bench"
PROGRAM = ("date", "+%s%N")
"""The worker: it says when it ran, in nanoseconds of wall time."""

LEASE_MS, END_WAIT_S = 3_600_000, 300.0
UIDS_FROM, UIDS_BY_PROCESS = 4_000_000_000, 2_000
"""Numbers that accounts do not have; those of two benchmarks at once differ."""

PERCENTS = (50, 99)


@dataclass(frozen=True, slots=True)
class Began:
    """What workers of one machine took from their orders: `waits_ms` until each ran, ordered one after the other, and
    how many began and ended in a second, ordered all at once. `not_held` are the guarantees that did not hold.
    """

    waits_ms: list[float]
    per_s: float
    not_held: tuple[str, ...]


def workers(console: Console, *, count: int, rounds: int) -> Figure:
    """Run it. Raises StackError where a worker fails."""
    found: dict[bool, list[Began]] = {False: [], True: []}
    why_not, watch = "", Watch()
    for isolated in order_of(rounds):
        if isolated and why_not:
            continue
        console.print(f"{count} workers, {'isolated' if isolated else 'with the user of their agent'}", highlight=False)
        try:
            found[isolated].append(_round(console, count, isolated=isolated))
        except WorkerUsersUnusable as error:
            why_not = str(error)
    return figure_of(found[False], found[True], why_not, _bare(count), watch.used(), count)


def figure_of(
    shared: Sequence[Began],
    isolated: Sequence[Began],
    why_not: str,
    bare: dict[str, float | None],
    used: Used,
    count: int,
) -> Figure:
    """The figure for people and for programs. `bare`: the same program begun without an agent."""
    told = {"shared": _told(shared), "isolated": _told(isolated) if isolated else None}
    lines = [_line(name, one) for name, one in told.items() if one is not None]
    lines += [f"not isolated: {why_not}"] if why_not else []
    lines.append(f"without an agent: p50 {bare['p50_ms']} ms, p99 {bare['p99_ms']} ms")
    body: dict[str, object] = {"why_not_isolated": why_not or None, "baseline": bare}
    return Figure("workers", lines, {**told, **body, "workers": count, "rounds": len(shared)}, used)


def _told(rounds: Sequence[Began]) -> dict[str, object]:
    waits = sorted(wait for began in rounds for wait in began.waits_ms)
    per_s = round(median(began.per_s for began in rounds), 1)
    return {**_percentiles(waits), "workers_per_s": per_s, "not_held": list(rounds[-1].not_held)}


def _line(name: str, told: dict[str, object]) -> str:
    waits = f"from order to program p50 {told['p50_ms']} ms, p99 {told['p99_ms']} ms"
    held = told["not_held"]
    assert isinstance(held, list)
    return f"{name}: {waits}; {told['workers_per_s']} workers/s at once; not held: {'; '.join(held) or 'nothing'}"


def _round(console: Console, count: int, *, isolated: bool) -> Began:
    """On a machine whose agent is new. Raises WorkerUsersUnusable, StackError."""
    before = os.umask(0o022)
    try:
        with folder_for("fallow-bench-", keep=False, console=console) as path:
            path.chmod(0o711)  # workers go through to their own folders, and read nothing on the way
            machine = _machine(path / "state", isolated=isolated)
            try:
                return asyncio.run(_began(machine, path / "state" / "runs", count))
            finally:
                machine.driver.close()
                machine.state.close()
    finally:
        os.umask(before)


def _machine(state_dir: Path, *, isolated: bool) -> OwnMachine:
    first = UIDS_FROM + os.getpid() % 100_000 * UIDS_BY_PROCESS
    settings = AgentSettings(
        kafka="127.0.0.1:9092",
        redis=SecretStr("redis://127.0.0.1:6379/0"),
        node=NODE,
        node_gpus=0,
        node_pool=NODE,
        state_dir=state_dir,
        worker_uids=f"{first}-{first + UIDS_BY_PROCESS - 1}" if isolated else "",
    )
    return as_node(settings, CELL, NodeSpec(id=NODE, pool=NODE, gpus=0), StateFolder(state_dir, NODE))


async def _began(machine: OwnMachine, runs: Path, count: int) -> Began:
    machine.driver.keep_lease(monotonic_ms(), monotonic_ms() + LEASE_MS)
    waits = []
    for number in range(count):
        ordered_ns = time_ns()
        _order(machine, f"one-{number}")
        await _ended(machine.driver, 1)
        waits.append((_ran_ns(runs / f"one-{number}") - ordered_ns) / 1e6)
    begin_s = monotonic()
    for number in range(count):
        _order(machine, f"all-{number}")
    await _ended(machine.driver, count)
    per_s = count / (monotonic() - begin_s)
    while not machine.driver.stop_everything():
        await machine.driver.next_look()
    return Began(sorted(waits), per_s, machine.not_held)


def _order(machine: OwnMachine, job: str) -> None:
    place = WorkerPlace(rank=0, node=NODE, devices=(), gpu_milli=0)
    order = Start(NODE, job, 1, (place,), ProcessRun(argv=PROGRAM), 0)
    refused = machine.driver.start(order, Gang(1, (NODE,), "127.0.0.1", 20_000))
    if refused is not None:
        raise StackError(f"a worker did not begin: {refused.text}")


async def _ended(driver: Driver, count: int) -> None:
    """Look as often as an agent does, until so many have ended well. Starts go on with a look, too."""
    end_s = monotonic() + END_WAIT_S
    while count:
        if monotonic() > end_s:
            raise StackError(f"{count} workers have not ended within {END_WAIT_S:g} s")
        for seen in driver.look():
            if seen.status is RunStatus.FAILED:
                raise StackError(f"a worker failed: {seen.text}")
            count -= seen.status is RunStatus.FINISHED
        await driver.next_look()


def _ran_ns(folder: Path) -> int:
    told = (folder / "1" / "0" / "stdout").read_text(encoding="ascii").strip()
    if not told.isdecimal():
        raise StackError(f"{' '.join(PROGRAM)} says {told!r}, and no time in nanoseconds")
    return int(told)


def _bare(count: int) -> dict[str, float | None]:
    waits = []
    for _ in range(count):
        ordered_ns = time_ns()
        done = subprocess.run(PROGRAM, capture_output=True, text=True, check=True)
        waits.append((int(done.stdout) - ordered_ns) / 1e6)
    return _percentiles(sorted(waits))


def _percentiles(waits: list[float]) -> dict[str, float | None]:
    return {f"p{percent}_ms": percentile(waits, percent) for percent in PERCENTS}


class Watch:
    """A stop watch of processor time, which counts the processes that this one began as its own."""

    def __init__(self) -> None:
        self._begin_s, self._machine_s, self._own_s = monotonic(), machine_seconds(), _own_seconds()

    def used(self) -> Used:
        """What was used since the beginning."""
        wall_s, own_s = monotonic() - self._begin_s, _own_seconds() - self._own_s
        others_s = machine_seconds() - self._machine_s - own_s
        return Used(wall_s, {NODE: own_s}, round(max(0.0, others_s) / wall_s, 2))


def _own_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
