from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from fallow.shared.runtime.stack.child import StackError, environment_with
from fallow.shared.runtime.stack.services import Echo, Services, ServiceSpec

TINY = "tests.runtime.process.tiny_service"
TOP = Path(__file__).parents[3]
Run = Callable[..., AbstractAsyncContextManager[Services]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    @asynccontextmanager
    async def running(*names: str, echo: Echo | None = None, **environment: str) -> AsyncIterator[Services]:
        specs = [ServiceSpec(name, TINY) for name in names]
        services = Services(specs, environment=environment, run_dir=tmp_path / "run", echo=echo)
        await services.start()
        yield services
        await services.stop()

    return running


async def test_services_start_and_tell_their_cursors_and_their_memory(run: Run) -> None:
    async with run("tiny-1", "tiny-2") as services:
        await services.wait_ready()
        cursors = await services.cursors()
        assert {name: body["cursors"] for name, body in cursors.items()} == {
            "tiny-1": {"fallow.jobs/0": 7},
            "tiny-2": {"fallow.jobs/0": 7},
        }
        assert min(services.rss_mb().values()) > 10
        assert services.rss_peak_mb()["tiny-1"] >= services.rss_mb()["tiny-1"]


async def test_a_service_that_ends_unasked_is_reported_with_its_last_lines(run: Run) -> None:
    async with run("tiny", FALLOW_FAIL_AFTER_MS="50") as services:
        ended = await asyncio.wait_for(services.ended(), 20)
    assert (ended.name, ended.exit_code) == ("tiny", 1)
    assert "tiny broke an invariant" in ended.last_lines


async def test_a_service_that_ends_before_it_is_ready_is_reported_at_once(run: Run) -> None:
    async with run("tiny", FALLOW_HTTP_HOST="nowhere.invalid") as services:
        with pytest.raises(StackError, match="tiny ended with code 2"):
            await services.wait_ready(wait_s=20)


async def test_wrong_settings_end_a_service_with_their_own_code(run: Run) -> None:
    async with run("tiny", FALLOW_CLOCK="sundial") as services:
        assert (await asyncio.wait_for(services.ended(), 20)).exit_code == 2


async def test_who_is_not_ready_in_time_is_named_with_the_reason(run: Run) -> None:
    async with run("tiny", FALLOW_READY_AFTER_MS="60000") as services:
        with pytest.raises(StackError, match=r"^not ready after 8 s: tiny: starting$"):
            await services.wait_ready(wait_s=8)


async def test_who_is_late_is_told_while_the_others_are_waited_for(run: Run) -> None:
    said: list[str] = []
    async with run("tiny-1", "tiny-2", FALLOW_READY_AFTER_MS="1500") as services:
        await services.wait_ready(say=said.append, told_s=0)
    assert said[0] == ("not ready yet: tiny-1: its process is still starting; tiny-2: its process is still starting")
    assert any("tiny-1: starting" in line for line in said)


async def test_a_service_that_was_ready_and_ends_is_told_though_another_one_is_late(tmp_path: Path) -> None:
    specs = [
        ServiceSpec("brief", TINY, {"FALLOW_FAIL_AFTER_MS": "100"}),
        ServiceSpec("late", TINY, {"FALLOW_READY_AFTER_MS": "60000"}),
    ]
    services = Services(specs, environment={}, run_dir=tmp_path / "run")
    await services.start()
    try:
        with pytest.raises(StackError, match="brief ended with code 1 before all services were ready; "):
            await services.wait_ready(wait_s=40)
    finally:
        await services.stop()


async def test_a_killed_service_comes_back_as_another_process(run: Run) -> None:
    async with run("tiny") as services:
        await services.wait_ready()
        before = services.pid("tiny")
        await services.restart("tiny", signal.SIGKILL)
        await services.wait_ready()
        assert services.pid("tiny") != before


async def test_services_asked_to_stop_end_in_order(run: Run) -> None:
    async with run("tiny") as services:
        await services.wait_ready()
    assert await services.wait_ended("tiny") == 0


async def test_output_is_echoed_line_by_line_under_the_services_name(run: Run) -> None:
    heard: list[tuple[str, str]] = []
    async with run("tiny", echo=lambda name, line: heard.append((name, line))) as services:
        await services.wait_ready()
    assert [name for name, line in heard if "tiny says hello" in line] == ["tiny"]


def test_no_service_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent_code = f"""
import asyncio, sys
from pathlib import Path
from fallow.shared.runtime.stack.services import Services, ServiceSpec
async def main():
    services = Services([ServiceSpec("tiny", "{TINY}")], environment={{}}, run_dir=Path("{tmp_path}"))
    await services.start()
    await services.wait_ready()
    print(services.pid("tiny"), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    command = [sys.executable, "-c", parent_code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment_with(TOP), text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = os.pidfd_open(pid)
        parent.kill()
    assert ends_within(child, wait_s=5)


def ends_within(pidfd: int, *, wait_s: float) -> bool:
    ended = bool(select.select([pidfd], [], [], wait_s)[0])
    os.close(pidfd)
    return ended
