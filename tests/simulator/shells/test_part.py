"""A process of production in the world: what ends the work on one of its cells is told, whatever it does after that."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fallow.services.executor.app.agent import NodeTakenOver
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.opening import OpenLog
from fallow.shared.log.port import LogTruncated
from fallow.shared.log.sharing.cell_work import work_apart
from fallow.shared.runtime.process import Context
from fallow.simulator.process import Process
from fallow.simulator.shells.part import Shell, ShellPart
from fallow.simulator.shells.services import EXECUTOR
from fallow.simulator.world import World


def ran_into(error: Exception, *, ends: tuple[type[Exception], ...] = ()) -> tuple[World, Process]:
    """A world in which the work on a cell of a process ends with this error."""

    async def work() -> None:
        raise error

    async def main(context: Context[Any], _opening: OpenLog) -> None:
        await work_apart(context, Layout("sim", {"cell-0": 0}), "cell-0", work)

    def shell(_world: World, _process: Process) -> Shell:
        return Shell("executor", EXECUTOR, main, ends=ends)

    world = World(1, random.Random(1))
    process = Process(world, "one", "executor", lambda process: [ShellPart(process, shell)])
    process.start()
    world.engine.run_to(100)
    return world, process


def test_an_error_after_which_the_work_begins_anew_is_a_violation() -> None:
    world, _ = ran_into(RuntimeError("a defect"))
    assert [broken.invariant for broken in world.history.violations] == ["crash"]


@pytest.mark.parametrize("error", [DamagedLog("no chain"), LogTruncated(("sim.decisions", 0), asked=7, begin=0, end=5)])
def test_a_fence_without_a_harmed_log_is_a_violation_and_the_process_lives_on(error: Exception) -> None:
    world, process = ran_into(error)
    assert [broken.invariant for broken in world.history.violations] == ["fenced"]
    assert process.is_up
    assert process.is_fenced


def test_records_that_were_cleaned_away_are_no_violation() -> None:
    world, _ = ran_into(LogTruncated(("sim.decisions", 0), asked=1, begin=4, end=5))
    assert world.history.violations == []


def test_a_process_begins_again_after_an_end_that_is_meant() -> None:
    world, process = ran_into(NodeTakenOver("elsewhere"), ends=(NodeTakenOver,))
    assert world.history.violations == []
    assert not process.is_up
    world.engine.run_to(5_000)
    assert process.incarnation >= 2
