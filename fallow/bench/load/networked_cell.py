"""Cells with a network, in memory and without any service, on which placement alone is measured."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.bench.load.job_mix import TENANT
from fallow.replay.workload import CELL, QUEUE
from fallow.services.placement.queue.lines.lines import Lines
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    GPU,
    JobSpec,
    NodeSpec,
    NodeStatus,
    Position,
    Resources,
    TopologyRequest,
    WorkerPlace,
)
from fallow.shared.events.operations import CellPolicy, Quota

POOL, LAB = "bench", "lab"
ZONES = "abcdefgh"
DIGEST = "0" * 32


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes of so many GPUs, so many to a leaf, leaves to a spine and spines to a superspine. With marks they are in
    zones "a" to "h" by turns, and one of 20 has a taint. Their names have at least `name_characters`.
    """

    nodes: int
    gpus: int = 8
    leaf: int = 32
    spine: int = 32
    superspine: int = 1_000_000
    has_marks: bool = False
    name_characters: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    def node(self, number: int) -> NodeSpec:
        """One of them. Names of leaves tell of themselves alone: "leaf-3" of another spine is another leaf."""
        leaf = number // self.leaf
        position = Position(
            leaf=f"leaf-{leaf % self.spine:04}",
            spine=f"spine-{leaf // self.spine:04}",
            superspine=f"superspine-{leaf // self.spine // self.superspine:02}",
        )
        name = f"node-{number:06}".ljust(self.name_characters, "x")
        spec = NodeSpec(
            id=name,
            pool=POOL,
            gpus=self.gpus,
            position=position,
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
        )
        if not self.has_marks:
            return spec
        return replace(spec, labels={"zone": ZONES[number % len(ZONES)]}, taints=() if number % 20 else ("reserved",))

    def cell(self, *, has_limits: bool = False) -> CellState:
        """A cell of these nodes, all idle, under E-Binpack. With limits, the tenant has one below that of its lab; both
        are as large as the cell.
        """
        state, limit = CellState(CELL), self.nodes * self.gpus * GPU
        apply(state, e.PolicySet(policy=CellPolicy(placement="e-binpack")), 0)
        if has_limits:
            lab = Quota(tenant=LAB, gpu_type="gpu", limit_milli=limit)
            apply(state, e.QuotaSet(quota=lab), 0)
            apply(state, e.QuotaSet(quota=replace(lab, tenant=TENANT, parent=LAB)), 0)
        for number in range(self.nodes):
            apply(state, e.NodeChanged(spec=self.node(number), boot="boot-1", status=NodeStatus.READY), 0)
        return state


def gang(job: str, gpus: int, workers: int = 1, wish: TopologyRequest | None = None) -> JobSpec:
    """A job of so many workers of so many GPUs."""
    resources = Resources(gpu_milli=gpus * GPU)
    return JobSpec(id=job, tenant=TENANT, pools=(POOL,), workers=workers, resources=resources, topology=wish)


def enqueue(state: CellState, specs: list[JobSpec]) -> list[str]:
    """Let these jobs wait, in this order; their ids."""
    for number, spec in enumerate(specs):
        apply(state, e.JobEnqueued(spec=spec, submit_ms=number, digest=DIGEST), 0)
    return [spec.id for spec in specs]


def lines_of(state: CellState) -> Lines:
    """The line of all jobs that wait."""
    lines = Lines((Queue(name=QUEUE),))
    lines.follow(state, (), 0)
    return lines


def occupy(state: CellState, number: int, gpus: int) -> None:
    """Let a job of its own use so many GPUs of a node."""
    spec, node = gang(f"occupant-{number}", gpus), f"node-{number:06}"
    place = WorkerPlace(rank=0, node=node, devices=tuple(range(gpus)), gpu_milli=gpus * GPU)
    apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), 0)
    apply(state, e.JobStarted(job=spec.id, attempt=1, workers=(place,)), 0)
