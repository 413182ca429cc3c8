"""The places where the view's functions run: Lua in this process, and a real server. Each can lose what it holds."""

from __future__ import annotations

from typing import Any, Protocol

from redis.asyncio import Redis

from fallow.shared.view.keys import keys_of
from fallow.shared.view.lupa_view import LuaFunctions, Store
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import Functions


class World(Protocol):
    functions: Functions

    async def keep(self) -> Any: ...
    async def lose_tail(self, kept: Any) -> None: ...
    async def flush(self) -> None: ...
    async def lose_key(self, key: str) -> None: ...
    async def close(self) -> None: ...


class LuaWorld:
    def __init__(self) -> None:
        self.lua = LuaFunctions()
        self.functions: Functions = self.lua

    async def keep(self) -> Store:
        return self.lua.keep()

    async def lose_tail(self, kept: Store) -> None:
        self.lua.lose_tail(kept)

    async def flush(self) -> None:
        self.lua.flush()

    async def lose_key(self, key: str) -> None:
        self.lua.store.call(b"UNLINK", key.encode())

    async def close(self) -> None:
        return None


class RedisWorld:
    """Keeps to the keys of its own namespace, since the server is shared."""

    def __init__(self, url: str, namespace: str, cell: str) -> None:
        self.redis_functions = RedisFunctions(url, loads=True)
        self.functions: Functions = self.redis_functions
        self._keys = keys_of(namespace, cell)
        self._raw: Any = Redis.from_url(url)

    async def keep(self) -> dict[str, bytes | None]:
        return {key: await self._raw.dump(key) for key in self._keys}

    async def lose_tail(self, kept: dict[str, bytes | None]) -> None:
        await self.flush()
        for key, value in kept.items():
            if value is not None:
                await self._raw.restore(key, 0, value)

    async def flush(self) -> None:
        await self._raw.delete(*self._keys)

    async def lose_key(self, key: str) -> None:
        await self._raw.delete(key)

    async def close(self) -> None:
        await self.redis_functions.stop()
        await self._raw.aclose()
