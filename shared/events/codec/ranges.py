"""Workers as ranges of ranks: how records tell of many workers, so that each node's name stands there once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fallow.shared.events.fields.values import WorkerPlace, WorkerRange

ONE_BY_ONE_MAX: Final = 64
"""So few workers stand in a record one by one: that is read faster, and most jobs have fewer."""


def ranges_of(places: Iterable[WorkerPlace]) -> tuple[WorkerRange, ...]:
    """These workers as ranges, in their order: a new range begins where the node, the next rank or what a worker
    holds is another.
    """
    found: list[WorkerRange] = []
    group: list[WorkerPlace] = []
    node, rank, held = "", -1, (0,) * 6
    for place in places:
        now = (
            place.gpu_milli, place.cpu_milli, place.memory_mib, place.turn, place.since_ms, len(place.devices),
        )  # fmt: skip
        if place.rank != rank or place.node != node or now != held or not place.devices:
            if group:
                found.append(_range_of(group))
            group, node, rank, held = [], place.node, place.rank, now
        group.append(place)
        rank += 1
    if group:
        found.append(_range_of(group))
    return tuple(found)


def _range_of(group: Sequence[WorkerPlace]) -> WorkerRange:
    first = group[0]
    return WorkerRange(
        rank=first.rank,
        node=first.node,
        workers=len(group),
        devices=tuple([device for place in group for device in place.devices]),
        gpu_milli=first.gpu_milli,
        cpu_milli=first.cpu_milli,
        memory_mib=first.memory_mib,
        turn=first.turn,
        since_ms=first.since_ms,
    )


def places_of(ranges: Iterable[WorkerRange]) -> tuple[WorkerPlace, ...]:
    """The workers of these ranges one by one."""
    return tuple([place for each in ranges for place in _places_of(each)])


def _places_of(each: WorkerRange) -> list[WorkerPlace]:
    node, rank, gpu_milli, size = each.node, each.rank, each.gpu_milli, len(each.devices) // each.workers
    parts = [each.devices[at : at + size] for at in range(0, len(each.devices), size)] if size else [()]
    cpu_milli, memory_mib, turn, since_ms = each.cpu_milli, each.memory_mib, each.turn, each.since_ms
    if not (cpu_milli or memory_mib or turn or since_ms):
        return [WorkerPlace(rank=at, node=node, devices=d, gpu_milli=gpu_milli) for at, d in enumerate(parts, rank)]
    return [
        WorkerPlace(
            rank=at,
            node=node,
            devices=held,
            gpu_milli=gpu_milli,
            cpu_milli=cpu_milli,
            memory_mib=memory_mib,
            turn=turn,
            since_ms=since_ms,
        )
        for at, held in enumerate(parts, rank)
    ]
