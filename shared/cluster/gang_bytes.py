"""How much of a record the places of a gang take. A gang starts in one record or not at all."""

from __future__ import annotations

from bisect import bisect_right

from shared.events.values import GPU, WORKERS_MOST

GANG_BYTES_MOST = 950_000
"""A gang that needs more could never be written: a record takes a megabyte, with all that surrounds the places."""

_WORKER_BYTES = len('{"rank":,"node":"n","devices":[],"gpu_milli":},')


def fewest_bytes(workers: int, gpu_milli: int) -> int:
    """What so many workers take at least: on nodes with names of one letter, on the first devices of each."""
    devices = max(1, gpu_milli // GPU)
    each = _WORKER_BYTES + _digits(devices) + devices - 1 + len(str(gpu_milli))
    return workers * each + _digits(workers)


def most_workers(gpu_milli: int) -> int:
    """How many such workers a gang may have at most."""
    return bisect_right(range(WORKERS_MOST + 1), GANG_BYTES_MOST, key=lambda n: fewest_bytes(n, gpu_milli)) - 1


def _digits(count: int) -> int:
    """How many digits the numbers from 0 up to but without `count` have together."""
    found, below = count, 10
    while below < count:
        found, below = found + count - below, below * 10
    return found
