"""The view's functions in a real Redis or Valkey."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from fallow.shared.runtime.addresses import unusable_file, without_password
from fallow.shared.runtime.tasks.cancels import cancels_heeded
from fallow.shared.view.answers import eviction_told, meaning_of
from fallow.shared.view.library import LIBRARY, function, library_digest, library_source
from fallow.shared.view.store import ViewMisused, ViewNeedsChange, ViewUnavailable

CONNECT_WAIT_S = 1.0
RENEWED_EVERY_S = 10.0
"""How old a connection may be. Behind a failover the address may lead to another server while the old one serves those
who have a connection to it: then no reader sees what is written there, and what is read there stands still.
"""

ANSWER_WAIT_S = 5.0
"""Beyond the longest function: a page of rows takes milliseconds, so a Redis that is silent for so long is away."""

ERRORS = (RedisError, RedisClusterException, hiredis.HiredisError, OSError, EOFError, ValueError)
"""All that a call may raise. ValueError: an answer that is no text, or a redirection without its place."""


class RedisFunctions:
    """Calls the functions over one pool of connections.

    With `loads` it puts the library into Redis, before its first call and wherever it is missing. Readers leave that to
    the writer of the view, and their users need no right to it.

    Each time it is put there, `told` is given what a person should know of how this Redis is set up, or None.

    Nothing is tried again in here: who calls knows what a repeat means and when to back off.
    """

    def __init__(self, url: str, *, loads: bool = False, told: Callable[[str | None], None] | None = None) -> None:
        self._loads, self._is_loaded, self._told, self._url = loads, False, told, url
        self._place = without_password(url)
        self._redis: Any = Redis.from_url(
            url.replace("valkey", "redis", 1) if url.startswith("valkey") else url,
            decode_responses=True,
            socket_connect_timeout=CONNECT_WAIT_S,
            socket_timeout=ANSWER_WAIT_S,
            retry=Retry(NoBackoff(), 0),
        )
        pool = self._redis.connection_pool
        pool.connection_class = type("ViewConnection", (PacksInC, IsRenewed, pool.connection_class), {})

    async def stop(self) -> None:
        """Close all connections."""
        await self._redis.aclose()

    async def load(self) -> None:
        """Put the library into Redis unless it is there as it is here. Raises ViewUnavailable, ViewMisused."""
        if not await self._is_there():
            await self.ask("FUNCTION LOAD", "REPLACE", library_source())
        self._is_loaded = True
        if self._told is not None:
            self._told(eviction_told(await self._eviction_policy()))

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """As the port says. Functions that are not loaded yet count as a view that is away."""
        if self._loads and not self._is_loaded:
            await self.load()
        command = "FCALL_RO" if name.startswith("read_") else "FCALL"
        try:
            answer = await self.ask(command, function(name), len(keys), *keys, *arguments)
        except FunctionMissing as error:
            self._is_loaded = False
            why = f"{function(name)} is not loaded yet: a projector does that as it starts, or `fallow view load`"
            raise ViewUnavailable(f"Redis at {self._place}: {why}") from error
        if not isinstance(answer, list) or not answer:
            raise ViewUnavailable(f"no Redis at {self._place}: something else answers {function(name)} there")
        return answer

    async def _eviction_policy(self) -> str:
        """What Redis does when it is full; "" where it does not tell: a user of the view needs no right to ask."""
        try:
            answer = await self.ask("CONFIG GET", "maxmemory-policy")
        except (ViewUnavailable, ViewMisused):
            return ""
        return str(answer.get("maxmemory-policy", "")) if isinstance(answer, dict) else ""

    async def _is_there(self) -> bool:
        """Whether the library is there as it is here: by its text, or by its word where this user may not see that."""
        with contextlib.suppress(ViewNeedsChange):
            return await self.loaded_source() == library_source()
        try:
            return str(await self.ask("FCALL_RO", function("digest"), 0)) == library_digest()
        except FunctionMissing:
            return False

    async def loaded_source(self) -> str | None:
        """The text of the library that Redis holds, whatever that says of itself; None where there is none. Raises
        ViewUnavailable, ViewMisused.
        """
        told = await self.ask("FUNCTION LIST", "LIBRARYNAME", LIBRARY, "WITHCODE")
        return source_in(told, self._place)

    async def users(self) -> list[str]:
        """A line of ACL for each user. Raises ViewUnavailable, ViewMisused where this user may not see the others."""
        told = await self.ask("ACL LIST")
        if not isinstance(told, list):
            raise ViewMisused(f"no Redis at {self._place}: something else answers ACL LIST there")
        return [str(line) for line in told]

    async def ask(self, command: str, *arguments: Any) -> Any:
        """One command as it is. Raises ViewUnavailable, ViewMisused, FunctionMissing."""
        with cancels_heeded():
            try:
                return await self._redis.execute_command(command, *arguments)
            except ERRORS as error:
                if isinstance(error, ResponseError) and "Function not found" in str(error):
                    raise FunctionMissing(str(error)) from error
                # After a failover the address may lead to another server: only a new connection finds that out.
                with contextlib.suppress(*ERRORS):  # a connection that cannot be closed in order is gone all the same
                    await self._redis.connection_pool.disconnect(inuse_connections=False)
                unusable = unusable_file(self._url) if isinstance(error, NoConnection) else None
                if unusable is not None:
                    raise ViewUnavailable(f"no Redis at {self._place}: {unusable}") from error
                raise meaning_of(error, self._place) from error


def source_in(told: Any, place: str) -> str | None:
    """The text of our library in an answer to FUNCTION LIST, which tells of all whose names differ in capitals alone: a
    list of names and values each, or a map in RESP3. `place` is who answers. Raises ViewMisused.
    """
    try:
        for library in told:
            fields = library if isinstance(library, dict) else dict(zip(library[::2], library[1::2], strict=True))
            if fields["library_name"] == LIBRARY:
                return str(fields["library_code"])
    except (TypeError, ValueError, KeyError) as error:
        raise ViewMisused(f"no Redis at {place}: something else answers FUNCTION LIST there") from error
    return None


class PacksInC:
    """Makes a connection write its commands by hiredis. A batch of rows has thousands of arguments, which redis-py's
    asynchronous connections would write in Python, one by one.
    """

    def pack_command(self, *arguments: Any) -> list[bytes]:
        """The command as bytes. The first argument may be several words."""
        return [hiredis.pack_command((*arguments[0].split(), *arguments[1:]))]


class IsRenewed(AbstractConnection):
    """Makes a connection that is old begin anew when the pool hands it out."""

    _begun_s = 0.0

    async def connect(self) -> None:
        """As the pool asks for before each use."""
        now_s = asyncio.get_running_loop().time()
        if self.is_connected and now_s - self._begun_s >= RENEWED_EVERY_S:
            await self.disconnect(nowait=True)
        if not self.is_connected:
            self._begun_s = now_s
        connect: Any = super().connect
        await connect()


class FunctionMissing(Exception):
    """Redis does not know the function."""
