"""A cell that is fenced: the readers of its view are told, and are told again when it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fallow.services.metrics.app.wiring import measure
from fallow.services.metrics.settings import MetricsSettings
from fallow.services.projector.app import main
from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.log.port import Reader, TopicPartition
from fallow.shared.runtime.process import make_context
from fallow.shared.view.reader import ViewReader, ViewRebuilding
from fallow.shared.view.store import ViewUnavailable
from tests.contract.eventually import eventually
from tests.histories import CELL
from tests.projector.projector_world import ProjectorWorld
from tests.view.view_worlds import LuaWorld

CELL_FILE = "cells: [{name: cell-a, ordinal: 0, pools: [{name: pool-0, gpus: 8}]}]\ntenants: [{name: acme}]\n"


class Lua:
    """Functions that a process opens and stops."""

    def __init__(self, world: LuaWorld) -> None:
        self._world = world

    async def call(self, name: str, keys: Any, arguments: Any) -> Any:
        return await self._world.functions.call(name, keys, arguments)

    async def stop(self) -> None:
        return None


@asynccontextmanager
async def running(world: ProjectorWorld, lua: LuaWorld, folder: Path) -> AsyncIterator[None]:
    """The projector's process."""
    cell_file = folder / "cell.yaml"
    cell_file.write_text(CELL_FILE, encoding="utf-8")
    settings = ProjectorSettings(namespace=world.namespace, cell_file=cell_file)
    context = make_context("projector", settings)

    async def opened(*_: Any) -> MemoryLog:
        return MemoryLog(world.broker)

    process = asyncio.create_task(main(context, opened, lambda _: Lua(lua)))
    yield
    context.stopping.set()
    await process


def a_world(lua: LuaWorld, namespace: str) -> ProjectorWorld:
    world = ProjectorWorld(lua.functions, namespace)
    world.broker.create_topic(world.layout.topic("cells"), 1)
    return world


class CountedLog(MemoryLog):
    """Knows which of its readers are open: one that is left behind is a connection that is never closed."""

    def __init__(self, world: ProjectorWorld) -> None:
        super().__init__(world.broker)
        self.open = 0

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> Reader:
        reader = super().reader(positions, patient_ms=patient_ms)
        started, stopped = reader.start, reader.stop

        async def start() -> None:
            await started()
            self.open += 1

        async def stop() -> None:
            await stopped()
            self.open -= 1

        reader.start, reader.stop = start, stop  # type: ignore[method-assign]
        return reader


async def projected(context: Any, log: MemoryLog, _: Layout) -> None:
    async def opened(*_: Any) -> MemoryLog:
        return log

    await main(context, opened, lambda _: Lua(LuaWorld()))


@pytest.mark.parametrize("work", [projected, measure])
async def test_who_is_fenced_leaves_no_reader_open(
    work: Callable[[Any, MemoryLog, Layout], Coroutine[Any, Any, None]], namespace: str, tmp_path: Path
) -> None:
    world = a_world(LuaWorld(), namespace)
    await world.live(10)
    await world.write(world.history.decisions(1), "another chain")
    cell_file = tmp_path / "cell.yaml"
    cell_file.write_text(CELL_FILE, encoding="utf-8")
    kind = ProjectorSettings if work is projected else MetricsSettings
    context = make_context("reader", kind(namespace=namespace, cell_file=cell_file))
    log = CountedLog(world)
    process = asyncio.create_task(work(context, log, world.layout))
    await eventually(lambda: CELL in context.health.fences)
    assert log.open == 0
    context.stopping.set()
    await process


async def is_fenced(reader: ViewReader) -> bool:
    try:
        return (await reader.nodes(CELL)).is_fenced
    except (ViewRebuilding, ViewUnavailable):
        return False


async def test_readers_are_told_of_a_damaged_log_and_go_on_reading(namespace: str, tmp_path: Path) -> None:
    lua = LuaWorld()
    world = a_world(lua, namespace)
    async with running(world, lua, tmp_path):
        await world.live(40)
        await world.settles()
        assert await is_open(world.reader)
        await world.write(world.history.decisions(1), "another chain")
        await eventually(lambda: is_fenced(world.reader))
        assert (await world.reader.summary(CELL)).version == 40


async def test_a_redis_that_was_away_hears_of_the_fence_when_it_is_back(namespace: str, tmp_path: Path) -> None:
    lua = LuaWorld()
    world = a_world(lua, namespace)
    async with running(world, lua, tmp_path):
        await world.live(40)
        await world.settles()
        lua.lua.is_away = True
        await world.write(world.history.decisions(1), "another chain")
        await asyncio.sleep(0.2)
        assert not await is_fenced(world.reader)
        lua.lua.is_away = False
        await eventually(lambda: is_fenced(world.reader))
        assert (await world.reader.summary(CELL)).version == 40


async def test_where_the_log_is_mended_the_next_start_lifts_the_fence(namespace: str, tmp_path: Path) -> None:
    lua = LuaWorld()
    world = a_world(lua, namespace)
    async with running(world, lua, tmp_path):
        await world.live(40)
        await world.settles()
        await world.write(world.history.decisions(1), "another chain")
        await eventually(lambda: is_fenced(world.reader))
    world.broker.cut(world.layout.tp("decisions", CELL), 40)
    async with running(world, lua, tmp_path):
        await eventually(lambda: is_open(world.reader))
        assert (await world.reader.summary(CELL)).version == 40


async def test_a_view_ahead_of_a_log_that_lost_its_tail_is_fenced_until_it_is_built_anew(
    namespace: str, tmp_path: Path
) -> None:
    lua = LuaWorld()
    world = a_world(lua, namespace)
    async with running(world, lua, tmp_path):
        await world.live(40)
        await world.settles()
        world.broker.cut(world.layout.tp("decisions", CELL), 30)
        await eventually(lambda: is_fenced(world.reader), within_s=10)
        assert (await world.reader.summary(CELL)).version == 40
    async with running(world, lua, tmp_path):
        await eventually(lambda: is_open(world.reader))
        assert (await world.reader.summary(CELL)).version == 30


async def is_open(reader: ViewReader) -> bool:
    try:
        return not (await reader.nodes(CELL)).is_fenced
    except (ViewRebuilding, ViewUnavailable):
        return False
