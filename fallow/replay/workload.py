"""What a demo or a replay feeds to a cell: commands with their times, the nodes that shall carry them, and the cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from fallow.shared.cluster.model.config import CellFile, CellPart, Limits, Pool, Queue, Tenant
from fallow.shared.events.base import Command
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.fields.values import NodeRole, NodeSpec, Position
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.events.validation.rules_told import rule_broken

CELL = "cell-a"
QUEUE = "default"
PRIORITY_MAX = 1_000_000
NODES_PER_LEAF = 8


class WorkloadError(ValueError):
    """What was asked for cannot be fed; the message names the file or option, the value and the rule."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A command, and the cell time in milliseconds from the beginning at which it is sent."""

    at_ms: int
    command: Command


@dataclass(frozen=True, slots=True)
class Workload:
    """`commands` in the order in which they are sent. `carried` are jobs, in full, that run already at the beginning:
    they take their places first and are left out of the waits. `endless` are jobs, in full, that run until they are
    cancelled.
    """

    commands: tuple[Timed, ...]
    nodes: tuple[NodeSpec, ...]
    cell_file: CellFile
    carried: frozenset[str] = frozenset()
    endless: frozenset[str] = frozenset()

    @property
    def jobs(self) -> int:
        """How many jobs are submitted."""
        return sum(isinstance(timed.command, SubmitJob) for timed in self.commands)

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)


def uniform_nodes(
    count: int, gpus: int, *, pool: str, role: NodeRole = NodeRole.TRAINING, first: int = 1
) -> list[NodeSpec]:
    """So many equal nodes, numbered from `first` with zeros in front, so that the order of ids is that of the
    numbers.
    """
    return [
        NodeSpec(id=f"node-{number:05d}", pool=pool, gpus=gpus, role=role, position=leaf_position(number - 1))
        for number in range(first, first + count)
    ]


def leaf_position(index: int) -> Position:
    """Eight consecutive nodes hang on one leaf switch."""
    return Position(leaf=f"leaf-{index // NODES_PER_LEAF + 1:04d}", spine="spine-1")


def cell_file_for(
    nodes: Sequence[NodeSpec], tenants: Sequence[str], discipline: QueueDiscipline, policy: CellPolicy | None = None
) -> CellFile:
    """A cell file for one cell of exactly these nodes, with one queue and without quotas.

    A submit time may be as far from the cell's time as the trace has it: it is the trace that is replayed. Raises
    WorkloadError where there are more pools or tenants than a cell file names.
    """
    queues = (Queue(name=QUEUE, discipline=discipline),)
    try:
        cell = CellPart(name=CELL, ordinal=0, pools=pools_of(nodes), queues=queues, policy=policy or CellPolicy())
        named = tuple(Tenant(name=tenant) for tenant in tenants)
        return CellFile(cells=(cell,), tenants=named, limits=Limits(submit_skew_ms=None))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = shorten(".".join(str(part) for part in first["loc"])) or "tenants"
        raise WorkloadError(f"the cell file that it needs: {where}: {rule_broken(first)}") from error


def pools_of(nodes: Sequence[NodeSpec]) -> tuple[Pool, ...]:
    """The pools that these nodes make, in the order in which they first come."""
    members: dict[str, list[NodeSpec]] = {}
    for node in nodes:
        members.setdefault(node.pool, []).append(node)
    return tuple(
        Pool(
            name=pool,
            gpu_type=of_pool[0].gpu_type,
            role=of_pool[0].role,
            gpus=sum(node.gpus for node in of_pool),
            gpus_per_node=max(node.gpus for node in of_pool),
        )
        for pool, of_pool in members.items()
    )
