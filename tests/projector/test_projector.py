"""The projector keeps the view equal to the log, whatever happens to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.services.projector.app import machine, steps
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.view.reader import ViewRebuilding
from tests.contract.eventually import eventually
from tests.histories import CELL, History
from tests.log.worlds.snapshot_world import snapshot
from tests.projector.projector_world import ProjectorWorld
from tests.view.view_worlds import LuaWorld, RedisWorld, World


@pytest_asyncio.fixture(params=["lua", "redis"])
async def view(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[World]:
    if request.param == "lua":
        yield LuaWorld()
        return
    world = RedisWorld(request.getfixturevalue("redis_url"), namespace, CELL)
    yield world
    await world.flush()
    await world.close()


@pytest_asyncio.fixture
async def world(view: World, namespace: str) -> AsyncIterator[ProjectorWorld]:
    world = ProjectorWorld(view.functions, namespace)
    yield world
    await world.stop()


@pytest.fixture
def lua() -> LuaWorld:
    return LuaWorld()


@pytest_asyncio.fixture
async def lua_world(lua: LuaWorld, namespace: str) -> AsyncIterator[ProjectorWorld]:
    world = ProjectorWorld(lua.functions, namespace)
    yield world
    lua.lua.is_away = False
    await world.stop()


async def test_the_view_follows_the_log(world: ProjectorWorld) -> None:
    projector = world.start()
    await world.live(30)
    await world.settles()
    await world.live(30)
    await world.settles()
    await eventually(lambda: projector.cursor == 60)
    assert projector.count("rebuilt") == 1
    assert projector.count("applied") >= 1
    assert projector.context.health.is_ready


async def test_a_flush_in_the_middle_is_mended(world: ProjectorWorld, view: World) -> None:
    projector = world.start()
    await world.live(40)
    await world.settles()
    for _ in range(3):
        writing = asyncio.create_task(world.live(40))
        await view.flush()
        await writing
        await world.settles()
    assert projector.count("not_ready") + projector.count("rebuilt") >= 2


async def test_a_flush_is_noticed_in_a_quiet_cell(world: ProjectorWorld, view: World) -> None:
    projector = world.start()
    await world.live(20)
    await world.settles()
    await view.flush()
    with pytest.raises(ViewRebuilding):
        await world.reader.summary(CELL)
    await world.settles()
    assert projector.count("rebuilt") == 2


async def test_a_lost_tail_is_mended(world: ProjectorWorld, view: World) -> None:
    projector = world.start()
    await world.live(40)
    await world.settles()
    kept = await view.keep()
    await world.live(40)
    await world.settles()
    await view.lose_tail(kept)
    await world.live(40)
    await world.settles()
    assert projector.count("rebuilt") == 2


async def test_two_projectors_at_once_never_mix(world: ProjectorWorld) -> None:
    first, second = world.start("projector-1"), world.start("projector-2", poll_records=7)
    for _ in range(10):
        await world.live(20)
        await asyncio.sleep(0.005)
    await world.settles()
    await eventually(lambda: (first.cursor, second.cursor) == (200, 200))
    assert await world.is_equal()
    assert first.count("applied") + second.count("applied") >= 2
    assert first.count("rebuilt") + second.count("rebuilt") >= 1


async def test_two_projectors_mend_a_flushed_view_together(world: ProjectorWorld, view: World) -> None:
    world.start("projector-1")
    world.start("projector-2")
    await world.live(50)
    await world.settles()
    for _ in range(3):
        await view.flush()
        await world.live(10)
        await world.settles()
    assert await world.is_equal()


async def test_a_standby_leaves_the_view_alone_until_it_is_asked(world: ProjectorWorld) -> None:
    first, second = world.start("projector-1"), world.start("projector-2")
    second.tenure.holds = False
    await world.live(30)
    await world.settles()
    assert second.count("applied") + second.count("rebuilt") == 0
    await first.stop()
    second.tenure.holds = True
    await world.live(30)
    await world.settles()
    await eventually(lambda: second.cursor == 60)


async def test_a_restart_needs_no_rebuild(world: ProjectorWorld) -> None:
    first = world.start("projector-1")
    await world.live(50)
    await snapshot(MemoryLog(world.broker), world.layout, world.history.state)
    await world.live(50)
    await world.settles()
    await first.stop()
    await world.live(20)
    second = world.start("projector-2")
    await world.settles()
    assert second.count("rebuilt") == 0
    assert second.count("applied") >= 1


async def test_a_view_that_is_older_than_the_newest_snapshot_is_built_anew(world: ProjectorWorld) -> None:
    first = world.start("projector-1")
    await world.live(20)
    await world.settles()
    await first.stop()
    await world.live(20)
    await snapshot(MemoryLog(world.broker), world.layout, world.history.state)
    second = world.start("projector-2")
    await world.settles()
    assert second.count("rebuilt") == 1


@pytest.mark.parametrize("decisions", [10, 40, 60])
async def test_a_view_of_another_log_is_built_anew(view: World, namespace: str, decisions: int) -> None:
    old = ProjectorWorld(view.functions, namespace)
    old.start()
    await old.live(40)
    await old.settles()
    await old.stop()
    new = ProjectorWorld(view.functions, namespace)
    new.history = History(99)
    await new.live(decisions)
    projector = new.start("projector-2")
    await new.settles()
    await new.stop()
    assert projector.count("rebuilt") == 1


async def test_folding_goes_on_while_redis_is_away(lua_world: ProjectorWorld, lua: LuaWorld) -> None:
    projector = lua_world.start(view_lag_wall_ms=200)
    await lua_world.live(20)
    await lua_world.settles()
    lua.lua.is_away = True
    await lua_world.live(60)
    await eventually(lambda: not projector.context.health.is_ready)
    assert "waiting for Redis" in (projector.context.health.waiting_for or "")
    await eventually(lambda: "records behind" in (projector.context.health.waiting_for or ""))
    assert projector.cell._follower.next_offset == 80
    assert projector.cursor == 20
    lua.lua.is_away = False
    await lua_world.settles()
    await eventually(lambda: projector.context.health.is_ready)
    assert projector.count("rebuilt") == 1
    assert projector.count("away") >= 1


async def test_when_too_much_was_touched_the_view_is_built_anew(
    lua_world: ProjectorWorld, lua: LuaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "TOUCHED_MAX", 30)
    projector = lua_world.start()
    await lua_world.live(3)
    await lua_world.settles()
    lua.lua.is_away = True
    await lua_world.live(200)
    await eventually(lambda: projector.cell._follower.next_offset == 203)
    assert len(projector.cell._projection.touched) <= 30
    lua.lua.is_away = False
    await lua_world.settles()
    assert projector.count("rebuilt") == 2


async def test_rows_that_are_too_long_for_one_step_are_put_in_the_parts_of_a_rebuild(
    lua_world: ProjectorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    projector = lua_world.start()
    await lua_world.live(3)
    await lua_world.settles()
    monkeypatch.setattr(steps, "APPLY_CHARS_MAX", 100)
    await lua_world.live(20)
    await lua_world.settles()
    assert projector.count("rebuilt") >= 2
    monkeypatch.undo()
    await lua_world.live(20)
    await lua_world.settles()
    assert projector.count("applied") >= 1


async def test_redis_away_at_the_start_is_waited_for(lua_world: ProjectorWorld, lua: LuaWorld) -> None:
    lua.lua.is_away = True
    projector = lua_world.start()
    await lua_world.live(20)
    await eventually(lambda: projector.count("away") >= 2)
    lua.lua.is_away = False
    await lua_world.settles()
    assert projector.count("rebuilt") == 1


async def test_a_log_that_is_away_at_the_start_costs_the_view_no_row(lua_world: ProjectorWorld) -> None:
    """There is no view yet, and each try to reach the log looks at Redis first: nothing may be put before there is a
    state.
    """
    world = lua_world
    await world.live(40)
    await snapshot(MemoryLog(world.broker), world.layout, world.history.state)
    world.broker.is_away = True
    projector = world.start()
    await eventually(lambda: not projector.context.health.is_ready)
    await asyncio.sleep(0.5)
    world.broker.is_away = False
    await world.live(1)
    await world.settles()
    assert await world.is_equal()
