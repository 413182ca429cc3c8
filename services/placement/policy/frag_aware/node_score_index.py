"""Which node of a pool costs a worker the least, kept by delta: a row for each ask, worked out anew only for the nodes
that have changed since it was looked at last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from fallow.services.placement.policy.frag_aware.demand import Demand, Kind, ResourceRequest, age_of
from fallow.services.placement.policy.frag_aware.fragmentation import Losses
from fallow.services.placement.policy.frag_aware.node_fragmentation import Look, Seats
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState

BOARD = "score board"
"""The name of this view of a pool."""

ROWS_MAX = 512
"""Rows that are kept; the least recently used goes first."""

LOOKS_TO_SCORE = 4
"""To work out what an ask costs on a node takes so long as to look at so many."""

Cost = tuple[int, Look, int]
"""The loss in quanta with the room left, then how the node looks, then its number: the least is the best. So a node's
name only counts among nodes that are alike in everything else.
"""


@dataclass(slots=True)
class Row:
    """The cost of one ask on each node, None where it does not fit. The heap holds each that is true, and some that
    are no more. `at` says how far the row has followed the changes.
    """

    costs: list[Cost | None]
    heap: list[Cost]
    at: int

    def put(self, number: int, cost: Cost | None) -> None:
        """The node costs this now."""
        self.costs[number] = cost
        if cost is not None:
            heappush(self.heap, cost)

    def least(self) -> Cost | None:
        """The least cost of all."""
        heap, costs = self.heap, self.costs
        if len(heap) > 4 * len(costs) + 64:
            heap[:] = [cost for cost in costs if cost is not None]
            heapify(heap)
        while heap:
            cost = heap[0]
            if costs[cost[2]] is cost:
                return cost
            heappop(heap)
        return None

    def least_of(self, usable: int) -> Cost | None:
        """The least cost on these nodes."""
        fitting = (cost for cost in self.costs if cost is not None and usable >> cost[2] & 1)
        return min(fitting, default=None)


@dataclass(slots=True)
class NodeScoreIndex:
    """The index over one pool, as of one age of the cell."""

    pool: PoolCapacity
    demand: Demand
    seats: list[Seats | None]
    losses: dict[Kind, Losses]
    noted: dict[str, Node] = field(default_factory=dict)
    changes: list[int] = field(default_factory=list)
    rows: dict[ResourceRequest, Row] = field(default_factory=dict)
    is_stale: bool = False

    @classmethod
    def of(cls, state: CellState, pool: PoolCapacity, demand: Demand) -> NodeScoreIndex:
        """The index over the pool's nodes."""
        board = cls(pool, demand, [], {})
        board.seats = [board._seats(state.nodes[node_id]) for node_id in pool.ids]
        return board

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        self.noted[node.spec.id] = node

    def least(self, ask: ResourceRequest, usable: int | None) -> Cost | None:
        """What the worker costs on the best node, of these if any are named; None where it fits on none."""
        if self.noted:
            self._follow()
        row = self._row(ask)
        if usable is None:
            return row.least()
        self.pool.effort.looks += len(self.seats)
        return row.least_of(usable)

    def _follow(self) -> None:
        for node_id, node in self.noted.items():
            number = self.pool.number(node_id)
            self.seats[number] = self._seats(node)
            self.changes.append(number)
        self.noted.clear()
        if len(self.changes) > 8 * len(self.seats) + 1024:
            self._trim()

    def _trim(self) -> None:
        """Forget changes that all rows in use have followed; a row that is far behind is made anew when asked for."""
        begin = len(self.changes) - len(self.seats)
        self.rows = {ask: row for ask, row in self.rows.items() if row.at >= begin}
        for row in self.rows.values():
            row.at -= begin
        del self.changes[:begin]

    def _row(self, ask: ResourceRequest) -> Row:
        row = self.rows.pop(ask, None)
        if row is None:
            self.pool.effort.looks += LOOKS_TO_SCORE * len(self.seats)
            costs = [self._cost(number, ask) for number in range(len(self.seats))]
            heap = [cost for cost in costs if cost is not None]
            heapify(heap)
            row = Row(costs, heap, len(self.changes))
            if len(self.rows) >= ROWS_MAX:
                del self.rows[next(iter(self.rows))]
        elif row.at < len(self.changes):
            self.pool.effort.looks += LOOKS_TO_SCORE * min(len(self.changes) - row.at, len(self.seats))
            for number in dict.fromkeys(self.changes[row.at :]):
                row.put(number, self._cost(number, ask))
            row.at = len(self.changes)
        self.rows[ask] = row
        return row

    def _cost(self, number: int, ask: ResourceRequest) -> Cost | None:
        seats = self.seats[number]
        cost = None if seats is None else seats.cost(ask)
        return None if cost is None or seats is None else (cost, seats.look, number)

    def _seats(self, node: Node) -> Seats | None:
        kind = Kind(node.pool, node.spec.gpu_type)
        losses = self.losses.get(kind)
        if losses is None:
            losses = self.losses[kind] = Losses(self.demand, kind)
        return Seats.of(node, losses)


def board_of(state: CellState, pool: PoolCapacity) -> NodeScoreIndex:
    """The index over the pool as it is now. All pools of an age go by one demand."""
    found, age = pool.views.get(BOARD), age_of(state)
    if not isinstance(found, NodeScoreIndex) or found.demand.age != age:
        found = pool.views[BOARD] = NodeScoreIndex.of(state, pool, _demand(state, age))
    return found


def _demand(state: CellState, age: int) -> Demand:
    for pool in state.pools.values():
        board = pool.views.get(BOARD)
        if isinstance(board, NodeScoreIndex) and board.demand.age == age:
            return board.demand
    return Demand.of(state)
