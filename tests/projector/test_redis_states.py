"""The projector lives through every state of a real Redis, says in one line what it waits for, and goes on by itself.

Readers are given the same clear answer meanwhile, or the view as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.runtime.stack.valkey import Program, Valkey, program_in_wheel, program_on_path
from fallow.shared.view import redis_view
from fallow.shared.view.answers import eviction_told
from fallow.shared.view.keys import keys_of
from fallow.shared.view.reader import ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewUnavailable
from tests.contract.eventually import eventually
from tests.histories import CELL
from tests.projector.projector_world import Projector, ProjectorWorld


@pytest.fixture
def program() -> Program:
    for found in (program_in_wheel(), program_on_path()):
        if isinstance(found, Program):
            return found
    pytest.skip("needs a Valkey or Redis program on this machine")


class Place:
    """A server of this test alone, whose state the test changes."""

    def __init__(self, program: Program, folder: Path, **more: str) -> None:
        self.server = Valkey(program, folder, more=more)
        self.server.start()
        self.admin: Any = Redis.from_url(self.server.address)

    async def do(self, *words: str) -> Any:
        return await self.admin.execute_command(*words)

    async def hang_up(self) -> None:
        await self.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def close(self) -> None:
        await self.admin.aclose()
        self.server.kill()


@pytest_asyncio.fixture
async def place(program: Program, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(program, tmp_path / "redis")
    yield place
    await place.close()


@contextlib.asynccontextmanager
async def world_on(url: str, namespace: str) -> AsyncIterator[ProjectorWorld]:
    functions = RedisFunctions(url, loads=True)
    world = ProjectorWorld(functions, namespace)
    try:
        yield world
    finally:
        await world.stop()
        await functions.stop()


async def waits_for(projector: Projector, words: str) -> None:
    """Until the process is not ready for this reason."""
    await eventually(lambda: words in (projector.context.health.waiting_for or ""), within_s=10)


async def is_whole_again(world: ProjectorWorld, projector: Projector) -> bool:
    """Whether nothing but time must pass until the view is equal to the state and the process is ready."""
    await eventually(world.is_equal, within_s=15)
    await eventually(lambda: projector.context.health.is_ready)
    return projector.context.health.waiting_for is None


Commands = Sequence[tuple[str, ...]]
STATES: dict[str, tuple[Commands, str, Commands]] = {
    "a user without rights": (
        [("ACL", "SETUSER", "default", "-fcall", "-fcall_ro")],
        "lacks rights",
        [("ACL", "SETUSER", "default", "+@all")],
    ),
    "a password that is not known": (
        [("CONFIG", "SET", "requirepass", "secret")],
        "must name a user and a password",
        [("CONFIG", "SET", "requirepass", "")],
    ),
    "a replica": ([("REPLICAOF", LOCAL, "1")], "this Redis is a replica", [("REPLICAOF", "NO", "ONE")]),
    "a full memory": (
        [("CONFIG", "SET", "maxmemory", "1")],
        "the memory of Redis is full",
        [("CONFIG", "SET", "maxmemory", "0")],
    ),
    "too few replicas": (
        [("CONFIG", "SET", "min-replicas-to-write", "1")],
        "too few replicas",
        [("CONFIG", "SET", "min-replicas-to-write", "0")],
    ),
    "a replica without its primary": (
        [("CONFIG", "SET", "replica-serve-stale-data", "no"), ("REPLICAOF", LOCAL, "1")],
        "replica",
        [("REPLICAOF", "NO", "ONE")],
    ),
}


@pytest.mark.parametrize("state", STATES)
async def test_the_projector_waits_through(state: str, place: Place, namespace: str) -> None:
    begin, words, end = STATES[state]
    async with world_on(place.server.address, namespace) as world:
        projector = world.start()
        await world.live(20)
        await world.settles()
        for command in begin:
            await place.do(*command)
        await place.hang_up()
        await world.live(20)
        await waits_for(projector, words)
        for command in end:
            await place.do(*command)
        assert await is_whole_again(world, projector)


@pytest.mark.parametrize("number", range(6))
async def test_a_key_that_goes_from_a_quiet_cell_is_noticed_and_comes_back(
    place: Place, namespace: str, number: int
) -> None:
    async with world_on(place.server.address, namespace) as world:
        world.start()
        await world.live(60)
        await world.settles()
        await place.do("DEL", keys_of(namespace, CELL)[number])
        assert not await world.is_equal()
        await world.settles()


async def test_a_view_of_which_others_push_a_part_out_is_never_shown_without_it(place: Place, namespace: str) -> None:
    async with world_on(place.server.address, namespace) as world:
        projector = world.start()
        await world.live(60)
        await world.settles()
        used = int((await place.admin.info("memory"))["used_memory"])
        await place.do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        await place.do("CONFIG", "SET", "maxmemory", str(used + 600_000))
        told, nodes = set(), len(world.history.state.nodes)
        for number in range(2_000):
            await place.do("SET", f"other-{number}", "x" * 6_000)
            with contextlib.suppress(ViewRebuilding, ViewUnavailable):
                told.add(len((await world.reader.nodes(CELL)).value))
        assert told == {nodes}
        await place.do("CONFIG", "SET", "maxmemory", "0")
        await world.live(5)
        assert await is_whole_again(world, projector)
        assert projector.count("rebuilt") > 1


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_a_policy_that_may_push_the_view_out_is_told_in_one_line(place: Place, policy: str) -> None:
    await place.do("CONFIG", "SET", "maxmemory-policy", policy)
    assert await told_of(place.server.address) == [eviction_told(policy)]


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
async def test_a_policy_that_leaves_keys_without_an_end_alone_is_not_told(place: Place, policy: str) -> None:
    await place.do("CONFIG", "SET", "maxmemory-policy", policy)
    assert await told_of(place.server.address) == [None]


async def test_a_redis_that_tells_nobody_its_policy_is_used_all_the_same(place: Place) -> None:
    await place.do("ACL", "SETUSER", "default", "-config")
    assert await told_of(place.server.address) == [None]


async def told_of(url: str) -> list[str | None]:
    told: list[str | None] = []
    functions = RedisFunctions(url, loads=True, told=told.append)
    await functions.load()
    await functions.stop()
    return told


async def test_a_key_of_another_program_is_named_and_waited_for(place: Place, namespace: str) -> None:
    key = keys_of(namespace, CELL)[0]
    await place.do("SET", key, "something else")
    async with world_on(place.server.address, namespace) as world:
        projector = world.start()
        await world.live(20)
        await waits_for(projector, "holds something that is not Fallow's")
        await place.do("DEL", key)
        assert await is_whole_again(world, projector)


async def test_a_server_that_dies_and_comes_back_is_waited_for(place: Place, namespace: str) -> None:
    async with world_on(place.server.address, namespace) as world:
        projector = world.start()
        await world.live(20)
        await world.settles()
        place.server.kill()
        await world.live(20)
        await waits_for(projector, "waiting for Redis: no Redis at ")
        place.server.start()
        assert await is_whole_again(world, projector)


async def test_a_server_that_loads_its_data_is_waited_for(program: Program, tmp_path: Path, namespace: str) -> None:
    place = Place(program, tmp_path / "redis", appendonly="no")
    await place.admin.mset({f"other-{number}": "x" * 100 for number in range(10_000)})
    await place.do("SAVE")
    await place.close()
    slow = Valkey(
        program,
        tmp_path / "redis",
        more={"appendonly": "no", "key-load-delay": "500", "loading-process-events-interval-bytes": "1024"},
        start_wait_s=4,
    )
    async with world_on(slow.address, namespace) as world:
        starting = asyncio.create_task(asyncio.to_thread(slow.start))
        projector = world.start()
        await world.live(20)
        await waits_for(projector, "Redis loads its data")
        with pytest.raises(ViewUnavailable, match="Redis loads its data"):
            await world.reader.summary(CELL)
        await starting
        assert await is_whole_again(world, projector)
    slow.kill()


async def test_a_cluster_node_without_its_slots_is_waited_for(program: Program, tmp_path: Path, namespace: str) -> None:
    # Without a port of its own the cluster bus takes the server's plus 10,000, which may be none.
    more = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    place = Place(program, tmp_path / "redis", **more)
    async with world_on(place.server.address, namespace) as world:
        projector = world.start()
        await world.live(20)
        await waits_for(projector, "the Redis cluster does not serve these keys now")
        with pytest.raises(ViewUnavailable, match="the Redis cluster does not serve"):
            await world.reader.summary(CELL)
        await place.do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        assert await is_whole_again(world, projector)
    await place.close()


class Address:
    """An address that leads to a server: new connections to another one, once a test says so."""

    def __init__(self, port: int) -> None:
        self.leads_to = port

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry, LOCAL, 0)
        self.url = f"redis://{LOCAL}:{self._server.sockets[0].getsockname()[1]}/0"

    def close(self) -> None:
        self._server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(LOCAL, self.leads_to)
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
        writer.close()


@pytest_asyncio.fixture
async def address(place: Place) -> AsyncIterator[Address]:
    address = Address(place.server.port)
    await address.start()
    yield address
    address.close()


@pytest_asyncio.fixture
async def other(program: Program, tmp_path: Path) -> AsyncIterator[Place]:
    other = Place(program, tmp_path / "other")
    yield other
    await other.close()


async def test_after_a_failover_behind_one_address_the_new_primary_is_found(
    place: Place, other: Place, address: Address, namespace: str
) -> None:
    async with world_on(address.url, namespace) as world:
        projector = world.start()
        await world.live(20)
        await world.settles()
        # The old primary becomes a replica and keeps its connections; only the address leads elsewhere from now on.
        address.leads_to = other.server.port
        await place.do("REPLICAOF", LOCAL, str(other.server.port))
        await world.live(20)
        assert await is_whole_again(world, projector)


async def test_the_new_primary_is_found_though_the_old_one_serves_the_connections_that_it_has(
    place: Place, other: Place, address: Address, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off from those who chose another one, and not from the projector. Also in a cell that is quiet."""
    monkeypatch.setattr(redis_view, "RENEWED_EVERY_S", 0.5)
    async with world_on(address.url, namespace) as world, world_on(other.server.address, namespace) as there:
        projector = world.start()
        await world.live(20)
        await world.settles()
        there.history = world.history
        address.leads_to = other.server.port
        assert await is_whole_again(there, projector)
        await world.live(20)
        assert await is_whole_again(there, projector)
        assert await is_whole_again(world, projector), "who reads over connections of before sees it, too"


async def test_a_projector_that_loses_its_cell_is_ready_though_redis_is_away(place: Place, namespace: str) -> None:
    async with world_on(place.server.address, namespace) as world:
        projector = world.start()
        await world.live(20)
        await world.settles()
        await place.do("CONFIG", "SET", "maxmemory", "1")
        await world.live(20)
        await waits_for(projector, "the memory of Redis is full")
        projector.tenure.holds = False
        await eventually(lambda: projector.context.health.is_ready)
        assert projector.context.health.waiting_for is None
        await place.do("CONFIG", "SET", "maxmemory", "0")
