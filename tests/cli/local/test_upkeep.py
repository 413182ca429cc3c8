"""The upkeep of `fallow up` on real processes that die in every way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from fallow.local.upkeep import Upkeep
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.server import Server, Source
from fallow.shared.runtime.stack.services import Services, ServiceSpec
from tests.contract.eventually import eventually

TINY = "tests.runtime.process.tiny_service"


class FlawedServer:
    """A server that dies, and does not start the first times that it is asked to."""

    address, description = "127.0.0.1:1", "a flawed server"

    def __init__(self, *, fails: int = 0, source: Source = Source.JARS, exit_code: int | None = None) -> None:
        self.source, self.is_running, self._fails, self.lines = source, False, fails, "it was killed"
        self.exit_code = exit_code

    def start(self) -> None:
        if self._fails:
            self._fails, self.lines = self._fails - 1, "one\nits data are damaged\n"
            raise StackError("it did not start")
        self.is_running = True

    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def tail(self) -> str:
        return self.lines


class Kept(NamedTuple):
    upkeep: Upkeep
    said: list[str]
    task: asyncio.Task[None]


@asynccontextmanager
async def kept(folder: Path, server: Server | None = None, **environment: str) -> AsyncIterator[Kept]:
    said: list[str] = []
    services = Services([ServiceSpec("tiny", TINY)], environment=environment, run_dir=folder)
    with ThreadPoolExecutor(1) as starter:
        upkeep = Upkeep(services, {} if server is None else {"Kafka": server}, starter, said.append)
        begun = asyncio.create_task(upkeep.begin("everything runs"))
        task = asyncio.create_task(upkeep.run())
        try:
            yield Kept(upkeep, said, task)
            upkeep.stopping.set()
            await task
        finally:
            task.cancel()
            begun.cancel()
            await asyncio.gather(begun, task, return_exceptions=True)
            await services.stop()


def says(said: list[str], words: str) -> Callable[[], bool]:
    return lambda: any(words in line for line in said)


async def test_a_service_that_dies_again_and_again_is_told_with_its_last_line(tmp_path: Path) -> None:
    async with kept(tmp_path, FALLOW_FAIL_AFTER_MS="50") as (_, said, _):
        await eventually(says(said, "2 times in a row"), within_s=30)
    first, second = (line for line in said if line.startswith("tiny "))
    assert first.startswith("tiny ended with code 1; it is started again in 0.5 s. It said: ")
    assert second.startswith("tiny ended with code 1, 2 times in a row; it is started again in 1 s. It said: ")
    assert "tiny broke an invariant" in first


async def test_a_killed_service_runs_again(tmp_path: Path) -> None:
    async with kept(tmp_path) as (upkeep, said, _):
        await eventually(says(said, "everything runs"), within_s=30)
        before = upkeep.services.pid("tiny")
        upkeep.services._services["tiny"].process.kill()  # type: ignore[union-attr]  # as another program would
        await eventually(says(said, "tiny was killed by SIGKILL; it is started again in 0.5 s"), within_s=30)
        await eventually(lambda: upkeep.services.pid("tiny") != before, within_s=30)
        await upkeep.services.wait_ready()
        assert [line for line in said if "is started again" in line] == [
            "tiny was killed by SIGKILL; it is started again in 0.5 s."
        ]


async def test_a_wrong_setting_ends_all_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="tiny ended with code 2"):
        async with kept(tmp_path, FALLOW_CLOCK="sundial") as (_, _, task):
            await asyncio.wait_for(task, 30)


async def test_a_service_that_is_fenced_waits_for_a_person(tmp_path: Path) -> None:
    async with kept(tmp_path, FALLOW_FENCED="yes") as (upkeep, said, _):
        await eventually(says(said, "operator action needed. In another terminal: fallow log repair;"), within_s=30)
        assert any(line.startswith("tiny is fenced and is not restarted") for line in said)
        assert await upkeep.services.not_ready() == {"tiny": "it does not run"}


async def test_a_server_that_does_not_start_is_tried_again_and_told(tmp_path: Path) -> None:
    async with kept(tmp_path, FlawedServer(fails=1)) as (_, said, _):
        await eventually(says(said, "Kafka runs again at 127.0.0.1:1"), within_s=30)
    assert [line for line in said if line.startswith("Kafka")] == [
        "Kafka died; it is started again in 0.5 s. It said: it was killed",
        "Kafka did not start, 2 times in a row; it is started again in 1 s. It said: its data are damaged",
        "Kafka runs again at 127.0.0.1:1",
    ]


@pytest.mark.parametrize(
    ("exit_code", "told"),
    [
        (-9, "Kafka was killed by SIGKILL; it is started again in 0.5 s."),
        (1, "Kafka ended with code 1; it is started again in 0.5 s. It said: the disk is full"),
        (
            143,
            "Kafka ended with code 143, as SIGTERM makes it; it is started again in 0.5 s. It said: the disk is full",
        ),
        (-11, "Kafka was killed by SIGSEGV; it is started again in 0.5 s. It said: the disk is full"),
    ],
)
async def test_a_server_that_is_killed_has_not_told_of_it(exit_code: int, told: str, tmp_path: Path) -> None:
    server = FlawedServer(exit_code=exit_code)
    server.lines = "WARN of the start\nthe disk is full"
    async with kept(tmp_path, server) as (_, said, _):
        await eventually(says(said, "Kafka runs again at 127.0.0.1:1"), within_s=30)
    assert [line for line in said if line.startswith("Kafka")] == [told, "Kafka runs again at 127.0.0.1:1"]


async def test_the_embedded_broker_takes_its_records_along(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="a flawed server died, and with it all that it held"):
        async with kept(tmp_path, FlawedServer(source=Source.EMBEDDED)) as (_, _, task):
            await asyncio.wait_for(task, 30)
