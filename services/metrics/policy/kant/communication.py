"""Communication models: how much longer a step of training takes because a job lies farther apart than it had to.

A model is an estimate and says so: no network is measured here. Another one is a class with the same one method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

UNSTRETCHED = 1_000
"""Thousandths: as fast as in the best place that the pool has."""


class Spread(NamedTuple):
    """Where a gang lies: on how many nodes and leaf groups, and on how few of each it could lie in the empty pool."""

    gpus: int
    nodes: int
    leaves: int
    nodes_fewest: int
    leaves_fewest: int


class CommunicationModel(Protocol):
    """Estimates a stretch from where a gang lies."""

    @property
    def name(self) -> str:
        """What the figures made with it are labelled with."""

    def stretch(self, spread: Spread) -> int:
        """The estimated duration in thousandths of that in the best place: 1000 there, and never less."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring all-reduce over the gang's GPUs, ordered so that it leaves each node and each leaf group once.

    All fields are times, in one unit, that a step takes: computing on each GPU, and one hop of the ring within a node;
    a hop that leaves a node takes `node_hop` more, and one that leaves a leaf group `leaf_hop` more still. The
    defaults are round ratios of usual hardware (links in a node some nine times as fast as a node's network, the upper
    network two to one), not measurements.
    """

    compute: int = 10
    hop: int = 1
    node_hop: int = 8
    leaf_hop: int = 8
    name: str = "ring"

    def stretch(self, spread: Spread) -> int:
        """`1000 x step(as it lies) / step(on the fewest nodes and leaf groups)`, rounded down."""
        ideal = self.step(spread.gpus, spread.nodes_fewest, spread.leaves_fewest)
        return max(UNSTRETCHED, UNSTRETCHED * self.step(spread.gpus, spread.nodes, spread.leaves) // ideal)

    def step(self, gpus: int, nodes: int, leaves: int) -> int:
        """The time of all of the ring's hops and computing. A gang on one node (in one group) never leaves it."""
        within = gpus * (self.compute + self.hop)
        return within + (nodes > 1) * nodes * self.node_hop + (leaves > 1) * leaves * self.leaf_hop


RING = Ring()
"""The model that is used where none is named."""
