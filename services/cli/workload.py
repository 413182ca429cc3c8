"""What a demo or a replay feeds to a cell: commands with their times, the nodes that are to carry them, and the cell."""

from __future__ import annotations

from dataclasses import dataclass

from services.cli.names import Namer
from shared.cluster.config import CellFile, CellPart, Limits, Pool, Queue, Tenant
from shared.events.base import Command
from shared.events.queue import QueueDiscipline
from shared.events.values import NodeRole, NodeSpec

CELL = "cell-a"
QUEUE = "default"
PRIORITY_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Timed:
    """A command, and the cell time in milliseconds from the beginning at which it is sent."""

    at_ms: int
    command: Command


@dataclass(frozen=True, slots=True)
class Workload:
    """`commands` in the order in which they are sent. `carried` are ids of jobs that run already at the beginning: they take
    their places first and are left out of the waits.
    """

    commands: tuple[Timed, ...]
    nodes: tuple[NodeSpec, ...]
    cell_file: CellFile
    carried: frozenset[str] = frozenset()

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)


def uniform_nodes(
    count: int, gpus: int, *, pool: str, role: NodeRole = NodeRole.TRAINING, first: int = 0
) -> list[NodeSpec]:
    """So many equal nodes, numbered from `first` with zeros in front, so that the order of ids is the order of numbers."""
    return [
        NodeSpec(id=f"node-{number:05d}", pool=pool, gpus=gpus, role=role, position=leaf_position(number))
        for number in range(first, first + count)
    ]


def cell_file_for(nodes: tuple[NodeSpec, ...], tenants: list[str], discipline: QueueDiscipline) -> CellFile:
    """A cell file for one cell of exactly these nodes, with one queue and without quotas.

    A submit time may be as far from the cell's time as the trace wants: it is the trace that is replayed.
    """
    cell = CellPart(name=CELL, ordinal=0, pools=pools_of(nodes), queues=(Queue(name=QUEUE, discipline=discipline),))
    named = tuple(Tenant(name=tenant) for tenant in tenants)
    return CellFile(cells=(cell,), tenants=named, limits=Limits(submit_skew_ms=None))
