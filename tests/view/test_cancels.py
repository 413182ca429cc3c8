"""Who is told to stop while Redis answers stops: no cancellation is lost below the view, wherever it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest

from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewMisused, ViewUnavailable

STEPS = 80
"""More turns of the loop than a first call takes, with the handshake of its connection."""


@contextlib.asynccontextmanager
async def redis_that_says(answer: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while words := await reader.read(65_536):
                for command in words.split(b"*")[1:]:
                    writer.write(b"%0\r\n" if b"HELLO" in command else answer if b"FCALL" in command else b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()


async def looks_for_ever(functions: RedisFunctions) -> None:
    """As everybody does who goes on while Redis is away."""
    while True:
        with contextlib.suppress(ViewUnavailable, ViewMisused):
            await functions.call("read_cursor", (), ())
        await asyncio.sleep(60)


async def with_a_bound(functions: RedisFunctions) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            await looks_for_ever(functions)


@pytest.mark.parametrize("answer", [b"*1\r\n$2\r\nOK\r\n", b"-ERR some text\r\n", b"-LOADING some text\r\n"])
@pytest.mark.parametrize("work", [looks_for_ever, with_a_bound])
async def test_one_cancellation_is_enough_at_every_step_of_a_call(
    answer: bytes, work: Callable[[RedisFunctions], Coroutine[None, None, None]]
) -> None:
    async with redis_that_says(answer) as url:
        for steps in range(STEPS):
            functions = RedisFunctions(url)
            task = asyncio.create_task(work(functions))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            ended, _ = await asyncio.wait({task}, timeout=1)
            await functions.stop()
            assert ended, f"cancelled after {steps} turns of the loop, it goes on"
            assert task.cancelled()
