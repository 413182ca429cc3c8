"""What places cost a job of what it asked for beside devices: how far it is from its preferred place in the network and
from an even spread over failure domains; how many of its workers are outside of the zone that is kept for them, or on
nodes with planned maintenance. The less the better; only places for the same job compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fallow.shared.cluster.capacity.constraints import is_general
from fallow.shared.cluster.capacity.topology import OUTWARD
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobKind, Level, TopologyRequest, WorkerPlace

Costs = tuple[int, ...]


def costs_of(state: CellState, job: Job, places: Sequence[WorkerPlace]) -> Costs:
    """What these places cost, beside those that the job has."""
    spec, nodes = job.spec, [state.nodes[place.node] for place in places]
    costs = [sum(node.maintenance_ms is not None for node in nodes)]
    if spec.kind is JobKind.INFERENCE:
        costs.append(sum(map(is_general, nodes)))
    if spec.topology is not None:
        costs += _distance(nodes, spec.topology)
    if spec.spread is not None:
        held = [state.nodes[place.node] for place in job.workers if place.rank not in job.leaving]
        costs.append(_crowding([*held, *nodes], spec.spread))
    return tuple(costs)


def _distance(nodes: Sequence[Node], wish: TopologyRequest) -> Costs:
    """How many levels further out than wished a slice goes at most, and over how many units of the level all go."""
    size = wish.slice_workers or len(nodes)
    levels = OUTWARD[OUTWARD.index(wish.level) :]
    slices = [nodes[begin : begin + size] for begin in range(0, len(nodes), size)]
    return max((_level(each, levels) for each in slices), default=0), len(_units(nodes, wish.level))


def _level(nodes: Sequence[Node], levels: Sequence[Level]) -> int:
    return next((at for at, level in enumerate(levels) if len(_units(nodes, level)) == 1), len(levels))


def _crowding(nodes: Iterable[Node], level: Level) -> int:
    """The least where the workers are spread evenly."""
    return sum(count * count for count in Counter(_unit(node, level) for node in nodes).values())


def _units(nodes: Iterable[Node], level: Level) -> set[tuple[str | None, ...]]:
    return {_unit(node, level) for node in nodes}


def _unit(node: Node, level: Level) -> tuple[str | None, ...]:
    """The unit of this level in which a node is."""
    at = node.spec.position
    names = (at.superspine, at.spine, at.leaf, at.domain, node.id)
    return names[: len(names) - OUTWARD.index(level)]
