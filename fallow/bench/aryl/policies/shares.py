"""Workers given one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from fallow.bench.aryl.world.scheme import Elastic


def in_turn(asks: Sequence[Elastic], gpus_free: int, cost: Callable[[Elastic, int], float]) -> list[int]:
    """One worker at a time to the job of which the next one costs least; of equal ones to the one that has run longest.

    `cost(ask, more)`: of one more worker for a job that has `more` flexible ones.
    """
    given = [0] * len(asks)
    heap = [(cost(ask, 0), position) for position, ask in enumerate(asks)]
    heapify(heap)
    while heap and gpus_free > 0:
        _, position = heappop(heap)
        ask = asks[position]
        if ask.gpus_each > gpus_free:
            continue
        given[position] += 1
        gpus_free -= ask.gpus_each
        if given[position] < ask.run.job.flexible_max:
            heappush(heap, (cost(ask, given[position]), position))
    return given
