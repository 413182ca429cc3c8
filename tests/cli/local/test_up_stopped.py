"""Ctrl-C ends `fallow up`, whatever goes on beside the services."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fallow.local.up import _until_stopped
from fallow.local.upkeep import Upkeep
from fallow.shared.runtime.stack.services import Services
from fallow.shared.runtime.tasks import cancels

WAIT_S = 10


class Stubborn:
    """Work that swallows the first cancellations, as a library's lost ones are."""

    def __init__(self, swallowed: int) -> None:
        self.left, self.goes_on, self.is_spent = swallowed, asyncio.Event(), asyncio.Event()

    async def work(self) -> None:
        while True:
            self.goes_on.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.left -= 1
                if self.left < 0:
                    raise
                if not self.left:
                    self.is_spent.set()


@contextlib.asynccontextmanager
async def stops(folder: Path, stubborn: Stubborn) -> AsyncIterator[asyncio.Task[None]]:
    services = Services([], environment={}, run_dir=folder)
    with ThreadPoolExecutor(1) as starter:
        upkeep = Upkeep(services, {}, starter, print)
        task = asyncio.create_task(_until_stopped(upkeep, "", stubborn.work))
        await stubborn.goes_on.wait()
        yield task
        ended, _ = await asyncio.wait({task}, timeout=WAIT_S)
        assert ended, "it hangs"
        task.result()


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def test_one_is_enough_though_what_goes_on_beside_loses_it(tmp_path: Path) -> None:
    async with stops(tmp_path, Stubborn(1)):
        ctrl_c()


async def test_a_second_one_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancels, "AGAIN_S", 60.0)
    stubborn = Stubborn(2)  # before the upkeep has ended, and after it
    async with stops(tmp_path, stubborn) as task:
        ctrl_c()
        async with asyncio.timeout(WAIT_S):
            await stubborn.is_spent.wait()
        assert not task.done()
        ctrl_c()


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
async def test_two_in_one_turn_of_the_loop_stop_it_in_order(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    """As `make` passes both on, and as an impatient person gives them while the loop is busy."""
    async with stops(tmp_path, Stubborn(0)):
        for number in signals:
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGTERM)])
async def test_what_failed_before_they_came_is_told_all_the_same(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    async def fails() -> None:
        for number in signals:
            os.kill(os.getpid(), number)
        raise OSError("no nodes")

    with ThreadPoolExecutor(1) as starter, pytest.raises(OSError, match="no nodes"):
        await _until_stopped(Upkeep(Services([], environment={}, run_dir=tmp_path), {}, starter, print), "", fails)
