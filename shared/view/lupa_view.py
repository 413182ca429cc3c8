"""The view's functions in this process: the same Lua files, on the few Redis commands that they use.

For the simulated world and for tests. It is held to the same contract as a real server, and has one more talent: it
forgets on demand, as a Redis does that lost its tail or was flushed.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lupa.lua51 import LuaError, LuaRuntime

from fallow.shared.view.library import function, library_source
from fallow.shared.view.store import ViewMisused, ViewUnavailable


@dataclass(slots=True)
class SortedNames:
    """A sorted set whose scores are all 0: its members in the order of their bytes."""

    names: list[bytes] = field(default_factory=list)

    def add(self, name: bytes) -> None:
        """Put a member in; once."""
        at = bisect_left(self.names, name)
        if at == len(self.names) or self.names[at] != name:
            self.names.insert(at, name)

    def remove(self, name: bytes) -> None:
        """Take a member out, if it is there."""
        at = bisect_left(self.names, name)
        if at < len(self.names) and self.names[at] == name:
            del self.names[at]

    def between(self, low: bytes, high: bytes) -> tuple[int, int]:
        """The range of ranks between two bounds as ZRANGEBYLEX takes them."""
        return self._bound(low, is_low=True), self._bound(high, is_low=False)

    def _bound(self, bound: bytes, *, is_low: bool) -> int:
        if bound in (b"-", b"+"):
            return 0 if bound == b"-" else len(self.names)
        is_closed = bound[:1] == b"["
        side = bisect_left if is_closed == is_low else bisect_right
        return side(self.names, bound[1:])


class Store:
    """Keys and the commands on them. Values are bytes, as in Redis."""

    def __init__(self) -> None:
        self.hashes: dict[bytes, dict[bytes, bytes]] = {}
        self.names: dict[bytes, SortedNames] = {}
        self._commands: dict[bytes, Callable[..., Any]] = {
            b"HGET": lambda key, name: self.hashes.get(key, {}).get(name),
            b"HMGET": lambda key, *names: list(map(self.hashes.get(key, {}).get, names)),
            b"HGETALL": lambda key: [part for pair in self.hashes.get(key, {}).items() for part in pair],
            b"HVALS": lambda key: list(self.hashes.get(key, {}).values()),
            b"HLEN": lambda key: len(self.hashes.get(key, {})),
            b"HSET": self._hset,
            b"HDEL": self._hdel,
            b"UNLINK": self._unlink,
            b"ZADD": self._zadd,
            b"ZREM": self._zrem,
            b"ZCARD": lambda key: len(self._sorted(key).names),
            b"ZRANK": self._zrank,
            b"ZLEXCOUNT": self._zlexcount,
            b"ZRANGEBYLEX": self._zrangebylex,
        }

    def call(self, command: bytes, *arguments: bytes) -> Any:
        """Run one command. KeyError for one that the functions do not use."""
        return self._commands[command](*arguments)

    def _sorted(self, key: bytes) -> SortedNames:
        return self.names.get(key) or SortedNames()

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        found = self.hashes.setdefault(key, {})
        before = len(found)
        found.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(found) - before

    def _hdel(self, key: bytes, *names: bytes) -> int:
        found = self.hashes.get(key, {})
        return sum(found.pop(name, None) is not None for name in names)

    def _unlink(self, *keys: bytes) -> int:
        for key in keys:
            self.hashes.pop(key, None)
            self.names.pop(key, None)
        return len(keys)

    def _zadd(self, key: bytes, *pairs: bytes) -> int:
        if any(score != b"0" for score in pairs[::2]):
            raise ViewMisused("every score is 0 here")
        found = self.names.setdefault(key, SortedNames())
        for name in pairs[1::2]:
            found.add(name)
        return len(pairs) // 2

    def _zrem(self, key: bytes, *names: bytes) -> int:
        for name in names:
            self._sorted(key).remove(name)
        return len(names)

    def _zrank(self, key: bytes, name: bytes) -> int | None:
        names = self._sorted(key).names
        at = bisect_left(names, name)
        return at if at < len(names) and names[at] == name else None

    def _zlexcount(self, key: bytes, low: bytes, high: bytes) -> int:
        first, last = self._sorted(key).between(low, high)
        return max(0, last - first)

    def _zrangebylex(self, key: bytes, low: bytes, high: bytes, *limit: bytes) -> list[bytes]:
        first, last = self._sorted(key).between(low, high)
        if limit:
            first, last = first + int(limit[1]), min(last, first + int(limit[1]) + int(limit[2]))
        return self._sorted(key).names[first:last]


class LuaFunctions:
    """The functions as the port has them, from this release's library or another text of one. `is_away` makes them
    unavailable; `lose_tail` takes them back in time.
    """

    def __init__(self, source: str | None = None) -> None:
        self.store = Store()
        self.is_away = False
        self._lua = LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._functions: dict[str, Any] = {}
        self._load(library_source() if source is None else source)

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """As the port says."""
        if self.is_away:
            raise ViewUnavailable("the view is away")
        table = self._lua.table_from
        try:
            answer = self._functions[function(name)](
                table([key.encode() for key in keys]), table([word.encode() for word in arguments])
            )
        except LuaError as error:
            raise ViewMisused(str(error)) from error
        return self._from_lua(answer)

    def keep(self) -> Store:
        """What it holds now, to come back to."""
        return deepcopy_of(self.store)

    def lose_tail(self, kept: Store) -> None:
        """Come back with what was kept: everything since is lost."""
        self.store = deepcopy_of(kept)

    def flush(self) -> None:
        """Lose everything but the functions."""
        self.store = Store()

    def _load(self, source: str) -> None:
        # Lua would keep these functions alive for as long as they keep Lua, where no collector of garbage looks.
        functions = weakref.proxy(self)
        redis = self._lua.table_from(
            {
                b"call": lambda *words: functions._call(*words),  # noqa: PLW0108, SLF001 - a method of it would keep it
                b"register_function": lambda *words: functions._register(*words),  # noqa: PLW0108, SLF001
                b"error_reply": lambda text: functions._lua.table_from({b"err": text}),  # noqa: SLF001
            }
        )
        self._lua.globals()[b"redis"] = redis
        self._lua.execute(source.split("\n", 1)[1].encode())

    def _register(self, name: Any, callback: Any = None) -> None:
        if callback is None:
            name, callback = name[b"function_name"], name[b"callback"]
        self._functions[name.decode()] = callback

    def _call(self, command: bytes, *arguments: Any) -> Any:
        return self._to_lua(self.store.call(command, *(as_bytes(argument) for argument in arguments)))

    def _to_lua(self, value: Any) -> Any:
        """As Redis hands values to Lua: nothing is false, a list a table."""
        if value is None:
            return False
        return self._lua.table_from([self._to_lua(part) for part in value]) if isinstance(value, list) else value

    def _from_lua(self, value: Any) -> Any:
        """As Redis hands answers to its clients."""
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, float):
            return int(value)
        if hasattr(value, "keys"):
            if value[b"err"] is not None:
                raise ViewMisused(value[b"err"].decode())
            return [self._from_lua(value[number]) for number in range(1, len(value) + 1)]
        return value


def as_bytes(argument: Any) -> bytes:
    """An argument of redis.call: text as it is, a whole number in digits."""
    return argument if isinstance(argument, bytes) else str(int(argument)).encode()


def deepcopy_of(store: Store) -> Store:
    """A store with the same content and nothing in common."""
    copy = Store()
    copy.hashes = {key: dict(values) for key, values in store.hashes.items()}
    copy.names = {key: SortedNames([*names.names]) for key, names in store.names.items()}
    return copy
