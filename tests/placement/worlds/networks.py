"""Small cells with a network, and what a search through all possibilities says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import schedule_queues
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.topology import OUTWARD, Parts, Topology, path_of
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import (
    GPU,
    JobKind,
    JobSpec,
    Level,
    NodeRole,
    NodeSpec,
    NodeStatus,
    Position,
    Resources,
    WorkerPlace,
)
from fallow.shared.events.operations import CellPolicy

POOL = "train"


@dataclass(frozen=True)
class Machine:
    """A node as a test draws it: where it is, what it has, and how many of its devices are in use."""

    leaf: str | None
    spine: str | None = None
    gpus: int = 4
    used: int = 0
    cpu: int = 0
    domain: str | None = None
    has_islands: bool = False
    memory: int = 0
    gpu_type: str = "gpu"
    zone: str | None = None
    taints: tuple[str, ...] = ()
    is_held_alone: bool = False


def node_spec(number: int, machine: Machine, **more: Any) -> NodeSpec:
    half = machine.gpus // 2
    islands = (half, machine.gpus - half) if machine.has_islands else ()
    position = Position(domain=machine.domain, leaf=machine.leaf, spine=machine.spine)
    labels = {} if machine.zone is None else {"zone": machine.zone}
    return NodeSpec(
        id=f"n{number:03}",
        pool=POOL,
        gpus=machine.gpus,
        cpu_milli=machine.cpu,
        memory_mib=machine.memory,
        gpu_type=machine.gpu_type,
        position=position,
        islands=islands,
        taints=machine.taints,
        **{"labels": labels, **more},
    )


def network(machines: Sequence[Machine], policy: str = "e-binpack", order: Sequence[int] | None = None) -> CellState:
    """A cell with these nodes, which joined in this order; what is in use is held by jobs of their own."""
    state = CellState("cell-a")
    apply(state, e.PolicySet(policy=CellPolicy(placement=policy)), 0)
    for number in range(len(machines)) if order is None else order:
        spec = node_spec(number, machines[number])
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    for number, machine in enumerate(machines):
        if machine.used:
            user = gang(f"used-{number}", machine.used, tolerations=TAINTS, exclusive=machine.is_held_alone)
            start(state, user, (place(number, machine.used),))
    return state


def gang(
    job: str,
    gpus: int = 1,
    workers: int = 1,
    *,
    cpu: int = 0,
    memory: int = 0,
    milli: int | None = None,
    **more: Any,
) -> JobSpec:
    wants = Resources(gpu_milli=gpus * GPU if milli is None else milli, cpu_milli=cpu, memory_mib=memory)
    return JobSpec(id=job, tenant="ada", workers=workers, resources=wants, **more)


def place(number: int, gpus: int) -> WorkerPlace:
    return WorkerPlace(rank=0, node=f"n{number:03}", devices=tuple(range(gpus)), gpu_milli=gpus * GPU)


def start(state: CellState, spec: JobSpec, places: tuple[WorkerPlace, ...]) -> None:
    apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32), 0)
    apply(state, e.JobStarted(job=spec.id, attempt=1, workers=places), 0)


def room_on(state: CellState, spec: JobSpec, node_id: str) -> int:
    """How many workers a node holds, by its own numbers and those of the jobs on it. Shares are on free devices."""
    node, wants = state.nodes[node_id], spec.resources
    if not node.is_schedulable or spec.gpu_type not in (None, node.spec.gpu_type) or not may_use(state, spec, node_id):
        return 0
    each = GPU // wants.gpu_milli if wants.gpu_milli < GPU else 0
    rooms = [node.gpus_free * each if each else node.gpus_free * GPU // wants.gpu_milli]
    rooms += [(node.spec.cpu_milli - node.cpu_used) // wants.cpu_milli] if wants.cpu_milli else []
    rooms += [(node.spec.memory_mib - node.memory_used) // wants.memory_mib] if wants.memory_mib else []
    return min(rooms)


def may_use(state: CellState, spec: JobSpec, node_id: str) -> bool:
    """Whether labels, taints and the other jobs on it let a job onto a node, by an arithmetic of its own."""
    node = state.nodes[node_id]
    others = [state.jobs[job].spec for job in node.jobs]
    if any(other.exclusive for other in others) or (spec.exclusive and others):
        return False
    if set(node.spec.taints) - set(spec.tolerations):
        return False
    is_kept = node.spec.role is NodeRole.INFERENCE or node.spec.labels.get("zone") == "inference"
    if spec.kind is JobKind.TRAINING and is_kept and node.lent_to is None:
        return False
    return all(ALLOWED[rule](node.spec.labels.get("zone")) for rule in spec.node_labels)


ALLOWED: dict[str, Callable[[str | None], bool]] = {
    "zone": lambda zone: zone is not None,
    "!zone": lambda zone: zone is None,
    "zone=z1": lambda zone: zone == "z1",
    "zone=z1|z2": lambda zone: zone in ("z1", "z2"),
    "zone!=z1": lambda zone: zone != "z1",
    "zone!=z1|z2": lambda zone: zone not in ("z1", "z2"),
    "rack=r1": lambda _: False,
}
"""What each rule that tests draw says of the one label that their nodes have."""

TAINTS = ("hot", "slow")


def units_of(state: CellState, level: Level) -> dict[tuple[str, ...], list[str]]:
    """The nodes of each named unit of a level."""
    depth = len(OUTWARD) - OUTWARD.index(level)
    found: dict[tuple[str, ...], list[str]] = {}
    for node_id in sorted(state.nodes):
        path = (*path_of(state.nodes[node_id].spec), node_id)[:depth]
        if path[-1]:
            found.setdefault(path, []).append(node_id)
    return found


def holds(state: CellState, spec: JobSpec, nodes: Sequence[str]) -> int:
    """How many workers these nodes hold together."""
    return sum(room_on(state, spec, node_id) for node_id in nodes)


def unit_of(state: CellState, level: Level, node_id: str) -> tuple[str, ...]:
    """The unit of a level around a node; its last name is "" where it is not known."""
    depth = len(OUTWARD) - OUTWARD.index(level)
    return (*path_of(state.nodes[node_id].spec), node_id)[:depth]


def nodes_of(places: object) -> list[str]:
    """The nodes of a gang by rank."""
    assert isinstance(places, tuple), places
    return [place.node for place in places]


NAMES = st.sampled_from(("a", "b", "c", None))
ANY_MACHINE = st.builds(
    Machine,
    leaf=NAMES,
    spine=st.sampled_from(("s", "t", None)),
    gpus=st.sampled_from((2, 4, 8)),
    used=st.integers(0, 2),
    cpu=st.integers(0, 6),
    domain=st.sampled_from(("x", "y", None)),
    has_islands=st.booleans(),
    memory=st.sampled_from((0, 0, 2, 5)),
    gpu_type=st.sampled_from(("gpu", "gpu", "tpu")),
    zone=st.sampled_from((None, "z1", "z2")),
    taints=st.sampled_from(((), (), (), ("hot",), ("hot", "slow"))),
    is_held_alone=st.booleans(),
)
ROOMY = st.builds(
    Machine,
    leaf=st.sampled_from(("a", "a", "b", None)),
    spine=st.sampled_from(("s", "s", "s", "t")),
    gpus=st.sampled_from((4, 8)),
    used=st.integers(0, 2),
    cpu=st.just(6),
    domain=st.sampled_from(("x", "x", "y", None)),
    has_islands=st.booleans(),
    memory=st.just(5),
    zone=st.sampled_from((None, None, "z1")),
)
"""A node that most jobs may use."""

MACHINES = st.lists(ANY_MACHINE, min_size=1, max_size=8) | st.lists(ROOMY, min_size=2, max_size=8)
"""Most gangs do not fit into a cell of the first kind."""

RULES = st.just(()) | st.lists(st.sampled_from(sorted(ALLOWED)), max_size=2).map(tuple)
TOLERATIONS = st.sampled_from(((), (), ("hot",), ("slow",), ("slow", "hot")))
ALONE = st.sampled_from((False, False, True))


def walked(state: CellState) -> list[tuple[str, tuple[WorkerPlace, ...]]]:
    """One walk over all that wait, in one line: who starts where, in the order of the starts."""
    started: list[tuple[str, tuple[WorkerPlace, ...]]] = []

    def begin(job: Job, places: tuple[WorkerPlace, ...], _: str) -> bool:
        apply(state, e.JobStarted(job=job.id, attempt=job.attempt + 1, workers=places), 0)
        started.append((job.id, places))
        return True

    lines = Lines((Queue(name="default"),))
    lines.follow(state, (), 0)
    schedule_queues(state, lines, 0, begin)
    return started


def indices_of(pool: PoolCapacity) -> list[Topology]:
    """All indices over nodes of the pool that are kept now."""
    views = [each for view in pool.views.values() for each in (view if isinstance(view, Parts) else (view,))]
    return [view for view in views if isinstance(view, Topology)]
