"""What goes wrong: a seeded stream of mishaps that hit real processes and servers, one after the other."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fallow.shared.runtime.stack.server import Server
from fallow.shared.runtime.stack.services import Services

REST_S = (0.2, 1.6)
"""How long the cell is left alone between two mishaps, at least and at most."""

DOWN_S = (0.0, 2.0)
PAUSE_S = (0.3, 5.0)
SERVER_DOWN_S = (0.5, 4.0)
TIGHT_BYTES = 1


@dataclass
class Mishaps:
    """Hits what it was given until told to stop. `kills` counts by process, `others` all else by kind."""

    services: Services
    kafka: Server
    redis: Server
    seed: int
    is_over: Callable[[int], bool]
    kills: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.kinds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (70, self._kill),
            (14, self._pause),
            (5, self._kill_redis),
            (4, self._flush_redis),
            (3, self._fill_redis),
            (4, self._stop_kafka),
        ]

    async def run(self) -> None:
        """One mishap after the other until so many kills are enough; every process runs when this returns."""
        while not self.is_over(self.kills.total()):
            await asyncio.sleep(self._between(REST_S))
            (chosen,) = self._random.choices(
                [act for _, act in self.kinds], weights=[weight for weight, _ in self.kinds]
            )
            await chosen()

    def _between(self, bounds: tuple[float, float]) -> float:
        return self._random.uniform(*bounds)

    def _victim(self) -> str:
        return self._random.choice(self.services.names)

    async def _kill(self) -> None:
        """SIGKILL, and a while later the process is there again, as a supervisor would have it."""
        name = self._victim()
        self.kills[name] += 1
        self.services.kill(name, signal.SIGKILL)
        await asyncio.sleep(self._between(DOWN_S))
        await self.services.restart(name, signal.SIGKILL)

    async def _pause(self) -> None:
        """The process stands still and goes on as if nothing had been: a standby may have taken its place."""
        name = self._victim()
        self.others["pauses"] += 1
        self.services.kill(name, signal.SIGSTOP)
        await asyncio.sleep(self._between(PAUSE_S))
        self.services.kill(name, signal.SIGCONT)

    async def _kill_redis(self) -> None:
        """What was not yet on the disk is gone: up to a second of it."""
        self.others["redis kills"] += 1
        await asyncio.to_thread(self.redis.kill)
        await asyncio.sleep(self._between(SERVER_DOWN_S))
        await asyncio.to_thread(self.redis.start)

    async def _flush_redis(self) -> None:
        self.others["redis flushes"] += 1
        await self._ask_redis("FLUSHALL")

    async def _fill_redis(self) -> None:
        """Every write is refused for a while, as when its memory is full."""
        self.others["redis full"] += 1
        await self._ask_redis("CONFIG", "SET", "maxmemory", str(TIGHT_BYTES))
        await asyncio.sleep(self._between(SERVER_DOWN_S))
        await self._ask_redis("CONFIG", "SET", "maxmemory", "0")

    async def _stop_kafka(self) -> None:
        self.others["kafka stops"] += 1
        end = self._random.choice((self.kafka.stop, self.kafka.kill))
        await asyncio.to_thread(end)
        await asyncio.sleep(self._between(SERVER_DOWN_S))
        await asyncio.to_thread(self.kafka.start)

    async def _ask_redis(self, *words: str) -> None:
        connection = Redis.from_url(self.redis.address)
        try:
            await connection.execute_command(*words)  # type: ignore[no-untyped-call]
        except RedisError as error:
            raise AssertionError(f"Redis does not take {' '.join(words)}: {error}") from error
        finally:
            await connection.aclose()
