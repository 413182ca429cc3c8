"""The ranks of a gang by its nodes: those of one node follow each other, as its workers and its record want it."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import WorkerPlace


def by_node(places: Sequence[WorkerPlace]) -> tuple[WorkerPlace, ...]:
    """These places with the ranks given node by node. Nodes stay in the order in which they were
    found, and workers of one node in theirs: names decide nothing.
    """
    on: dict[str, list[WorkerPlace]] = {}
    for place in places:
        on.setdefault(place.node, []).append(place)
    ordered = [place for here in on.values() for place in here]
    return tuple([place if place.rank == rank else replace(place, rank=rank) for rank, place in enumerate(ordered)])
