"""Room for workers: a pool of GPUs without fragments, or servers on which each worker has its place."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Protocol

from fallow.bench.aryl.world.run import Run

GPUS = 8
"""Of every server."""

LENT_PER_TRAINING = 3
"""So many workers on inference GPUs do what one does on training GPUs of the same number."""


class Side(Protocol):
    """Training servers."""

    gpus: int
    gpus_free: int
    """Held by no base worker."""

    def fits(self, workers: int, gpus_each: int) -> bool:
        """Whether so many workers find room."""

    def place(self, run: Run, workers: int) -> None:
        """Put base workers there; they fit."""

    def release(self, run: Run) -> None:
        """Take its base workers away."""

    def held_together(self, wanted: list[tuple[Run, int]]) -> list[int]:
        """How many of these flexible workers find room, in this order, besides all base workers."""


class Pool:
    """GPUs without servers: no fragments."""

    def __init__(self, gpus: int) -> None:
        self.gpus = self.gpus_free = gpus
        self._held: dict[Run, int] = {}

    def fits(self, workers: int, gpus_each: int) -> bool:
        """Whether so many workers find room."""
        return workers * gpus_each <= self.gpus_free

    def place(self, run: Run, workers: int) -> None:
        """Put base workers there; they fit."""
        self._held[run] = workers * run.job.gpus_each
        self.gpus_free -= self._held[run]

    def release(self, run: Run) -> None:
        """Take its base workers away."""
        self.gpus_free += self._held.pop(run)

    def held_together(self, wanted: list[tuple[Run, int]]) -> list[int]:
        """All of them: the knapsack has counted the GPUs."""
        return [flexible for _, flexible in wanted]


class Servers:
    """Servers of 8 GPUs, each worker on one of them by best fit: the least sufficient room, then the first server."""

    def __init__(self, count: int, copies: int = 1) -> None:
        self.copies = copies
        """So many workers stand for one of the job."""
        self._free: list[int | None] = []
        """Of each server; None where it is not there."""
        self.held: list[dict[Run, int]] = []
        self.by_free = [0] * (GPUS + 1)
        """How many servers have so many free GPUs."""
        self._heaps: list[list[int]] = [[] for _ in range(GPUS + 1)]
        self._gone: list[int] = []
        self._places: dict[Run, dict[int, int]] = {}
        """The GPUs of base workers of each job by server."""
        self.gpus = self.gpus_free = 0
        self.add(count)

    def add(self, count: int) -> None:
        """So many more servers."""
        for _ in range(count):
            if self._gone:
                server = heappop(self._gone)
            else:
                server = len(self._free)
                self._free.append(None)
                self.held.append({})
            self._set(server, GPUS)
        self.gpus += GPUS * count
        self.gpus_free += GPUS * count

    def remove(self, server: int) -> None:
        """It has no base workers."""
        assert not self.held[server], f"server {server} is not empty"
        self._set(server, None)
        heappush(self._gone, server)
        self.gpus -= GPUS
        self.gpus_free -= GPUS

    def empty(self) -> Iterator[int]:
        """Servers without base workers, the last first: the first are filled first."""
        return (server for server in range(len(self._free) - 1, -1, -1) if self._free[server] == GPUS)

    def occupied(self) -> list[int]:
        """Servers with base workers."""
        return [server for server, held in enumerate(self.held) if held]

    @property
    def count(self) -> int:
        """Of servers that are there."""
        return self.gpus // GPUS

    def fits(self, workers: int, gpus_each: int) -> bool:
        """Whether so many workers of a job find room."""
        left = workers * self.copies
        for free in range(GPUS, gpus_each - 1, -1):
            left -= self.by_free[free] * (free // gpus_each)
            if left <= 0:
                return True
        return False

    def workers_that_fit(self, gpus_each: int) -> int:
        """How many workers of a job find room."""
        room = sum(self.by_free[free] * (free // gpus_each) for free in range(gpus_each, GPUS + 1))
        return room // self.copies

    def place(self, run: Run, workers: int) -> None:
        """Put base workers there; they fit."""
        each, places = run.job.gpus_each, dict[int, int]()
        for _ in range(workers * self.copies):
            server = self._best(each)
            free = self._free[server]
            assert free is not None
            places[server] = places.get(server, 0) + each
            self._set(server, free - each)
        for server, gpus in places.items():
            self.held[server][run] = gpus
        self._places[run] = places
        self.gpus_free -= workers * self.copies * each

    def release(self, run: Run) -> None:
        """Take its base workers away."""
        for server, gpus in self._places.pop(run).items():
            free = self._free[server]
            assert free is not None
            self._set(server, free + gpus)
            del self.held[server][run]
            self.gpus_free += gpus

    def held_together(self, wanted: list[tuple[Run, int]]) -> list[int]:
        """How many of these flexible workers find room on single servers, in this order; the largest are put first."""
        by_free, got = list(self.by_free), [0] * len(wanted)
        for position in sorted(range(len(wanted)), key=lambda p: -wanted[p][0].job.gpus_each):
            run, flexible = wanted[position]
            each = run.job.gpus_each
            for _ in range(flexible):
                free = next((f for f in range(each, GPUS + 1) if by_free[f]), None)
                if free is None:
                    break
                by_free[free] -= 1
                by_free[free - each] += 1
                got[position] += 1
        return got

    def _best(self, gpus_each: int) -> int:
        for free in range(gpus_each, GPUS + 1):
            heap = self._heaps[free]
            while heap and self._free[heap[0]] != free:
                heappop(heap)
            if heap:
                return heap[0]
        raise AssertionError("no server has room, and it was said that there is")

    def _set(self, server: int, free: int | None) -> None:
        before = self._free[server]
        if before is not None:
            self.by_free[before] -= 1
        self._free[server] = free
        if free is not None:
            self.by_free[free] += 1
            heappush(self._heaps[free], server)
