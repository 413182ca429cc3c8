"""How much of a record the places of a gang take. A gang starts in one record or not at all."""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
from operator import attrgetter

import msgspec

from fallow.shared.events.codec.ranges import ONE_BY_ONE_MAX, ranges_of
from fallow.shared.events.fields.values import DEVICES_MAX, GPU, WORKERS_MAX, JobSpec, WorkerPlace

GANG_BYTES_MAX = 950_000
"""A gang that needs more could never be written: a record takes a megabyte, with all that surrounds the places."""

_RANGE_BYTES = len('{"rank":,"node":"n","devices":[],"gpu_milli":},')
_COUNT_BYTES = len('"workers":2,')
_DEVICE_BYTES = len("0,")

_PLACE_BYTES_MAX = 350
"""What a place, or a range of them, takes at most beside its devices: a node's name has at most 128 characters."""

_DEVICE_BYTES_MAX = len(f"{DEVICES_MAX - 1},")
_ALONE_BYTES = 190
_ENCODE = msgspec.json.Encoder().encode


def bytes_of(places: tuple[WorkerPlace, ...]) -> int:
    """What these places take in the record of their start, or a little more."""
    if len(places) == 1:
        return _ALONE_BYTES + len(places[0].node) + _DEVICE_BYTES_MAX * len(places[0].devices)
    return len(_ENCODE(places if len(places) <= ONE_BY_ONE_MAX else ranges_of(places)))


def is_too_large(spec: JobSpec, places: tuple[WorkerPlace, ...]) -> bool:
    """Whether no record can hold these places of a gang. Most gangs are small enough for nodes of any names, or on so
    few nodes that their names need not be looked at.
    """
    devices_bytes = spec.workers * max(1, spec.resources.gpu_milli // GPU) * _DEVICE_BYTES_MAX
    most = (GANG_BYTES_MAX - devices_bytes) // _PLACE_BYTES_MAX
    if spec.workers <= most or (spec.workers > ONE_BY_ONE_MAX and _node_by_node(places) <= most):
        return False
    return bytes_of(places) > GANG_BYTES_MAX


def _node_by_node(places: tuple[WorkerPlace, ...]) -> int:
    """How many ranges the places of a gang make: all of its workers hold the same."""
    return sum(1 for _ in groupby(places, attrgetter("node")))


def fewest_bytes(workers: int, gpu_milli: int, gpus_per_node: int) -> int:
    """What so many workers take at least, on as few nodes as hold them, with names of one letter and devices of one
    digit.
    """
    on_node = workers_per_node(gpu_milli, gpus_per_node)
    nodes, rest = divmod(workers, on_node)
    several = nodes * (on_node > 1) + (rest > 1)
    nodes += rest > 0
    each = _RANGE_BYTES + len(str(gpu_milli)) - 1
    devices = workers * max(1, gpu_milli // GPU)
    return nodes * each + several * _COUNT_BYTES + devices * _DEVICE_BYTES + _digits(nodes)


def workers_per_node(gpu_milli: int, gpus_per_node: int) -> int:
    """How many such workers an empty node of so many GPUs holds."""
    if gpu_milli < GPU:
        return gpus_per_node * (GPU // gpu_milli)
    return gpus_per_node // (gpu_milli // GPU)


def max_workers(gpu_milli: int, gpus_per_node: int) -> int:
    """How many such workers a gang on nodes of so many GPUs may have at most."""
    counts = range(WORKERS_MAX + 1)
    return bisect_right(counts, GANG_BYTES_MAX, key=lambda n: fewest_bytes(n, gpu_milli, gpus_per_node)) - 1


def _digits(count: int) -> int:
    """How many digits the numbers from 0 up to but without `count` have together."""
    found, below = count, 10
    while below < count:
        found, below = found + count - below, below * 10
    return found
