"""With the rights that are written down, each user can do its work and nothing else. On a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from fallow.services.projector.app.apply import all_rows, stand_of, totals_of
from fallow.shared.view.access.rights import loader_rights, reader_rights, writer_rights
from fallow.shared.view.compare import compare_view
from fallow.shared.view.keys import keys_of
from fallow.shared.view.reader import ViewReader
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.row_batch import Rows
from fallow.shared.view.store import Applied, CellView, ViewNeedsChange
from tests.histories import CELL, History


@pytest_asyncio.fixture
async def admin(redis_url: str, namespace: str) -> AsyncIterator[Any]:
    if "@" in redis_url:
        pytest.skip("users are made only on a server that asks for no password")
    redis: Any = Redis.from_url(redis_url)
    for user, rights in (
        ("writer", writer_rights(namespace)),
        ("loader", loader_rights()),
        ("reader", reader_rights(namespace)),
    ):
        await redis.execute_command("ACL", "SETUSER", f"{user}-{namespace}", "reset", "on", ">secret", *rights.split())
    functions = RedisFunctions(redis_url, loads=True)
    await functions.load()
    await functions.stop()
    yield redis
    await redis.delete(*keys_of(namespace, CELL))
    for user in ("writer", "loader", "reader"):
        await redis.execute_command("ACL", "DELUSER", f"{user}-{namespace}")
    await redis.aclose()


def url_of(redis_url: str, user: str) -> str:
    return redis_url.replace("redis://", f"redis://{user}:secret@")


async def test_the_writer_writes_and_the_reader_reads(admin: Any, redis_url: str, namespace: str) -> None:
    writer = RedisFunctions(url_of(redis_url, f"writer-{namespace}"), loads=True)
    reader = RedisFunctions(url_of(redis_url, f"reader-{namespace}"))
    history = History(1)
    history.decisions(50)
    view = CellView(writer, keys_of(namespace, CELL))
    assert await view.begin_rebuild("w/1", None, 0) == Applied()
    for rows in all_rows(history.state, 100):
        assert await view.load_rows("w/1", rows, 0)
    assert await view.finish_rebuild("w/1", stand_of(history.state), totals_of(history.state))
    assert await compare_view(ViewReader(reader, namespace), history.state) == []
    with pytest.raises(ViewNeedsChange, match=r"permission|can't"):
        await CellView(reader, keys_of(namespace, CELL)).apply(50, stand_of(history.state), Rows())
    with pytest.raises(ViewNeedsChange):
        await CellView(writer, keys_of("elsewhere", CELL)).stands()
    await writer.stop()
    await reader.stop()


async def test_the_one_who_loads_functions_needs_one_right_more(admin: Any, redis_url: str, namespace: str) -> None:
    loader = RedisFunctions(url_of(redis_url, f"loader-{namespace}"), loads=True)
    await loader.ask(
        "FUNCTION LOAD", "REPLACE", "#!lua name=fallow_test\nredis.register_function('ft', function() end)"
    )
    await loader.load()
    await loader.stop()
    await admin.execute_command("FUNCTION", "DELETE", "fallow_test")
    writer: Any = Redis.from_url(url_of(redis_url, f"writer-{namespace}"))
    with pytest.raises(NoPermissionError):
        await writer.execute_command("FUNCTION LOAD", "#!lua name=x\n")
    with pytest.raises(NoPermissionError):
        await writer.execute_command("EVAL", "return 1", 0)
    with pytest.raises(NoPermissionError):
        await writer.execute_command("FLUSHALL")
    await writer.aclose()
