"""A cell of openb's nodes, and the jobs that its pods are."""

from __future__ import annotations

from collections.abc import Iterable

from fallow.bench.openb.files import Pod, pool_of
from fallow.replay.workload import CELL
from fallow.shared.cluster.fold.apply import APPLY, apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import CellPolicy

TENANT = "openb"
DIGEST = "0" * 32


def cell_of(nodes: Iterable[NodeSpec], placement: str) -> CellState:
    """A cell of these nodes, all idle, that places so."""
    state = CellState(CELL)
    apply(state, e.PolicySet(policy=CellPolicy(placement=placement)), 0)
    for spec in nodes:
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    state.undo_log.trim()
    return state


def capacity_milli(nodes: Iterable[NodeSpec]) -> int:
    """All GPUs of these nodes."""
    return sum(node.gpus for node in nodes) * GPU


class Resourceful:
    """Makes jobs of pods. Pods of one kind share what they ask for, as jobs in a cell do."""

    def __init__(self, nodes: Iterable[NodeSpec]) -> None:
        self._pools = tuple(sorted({node.pool for node in nodes}))
        self._known: dict[Pod, tuple[Resources, tuple[str, ...]]] = {}

    def job(self, name: str, pod: Pod) -> JobSpec:
        """One pod as a job of one worker. It accepts the pools of its GPU types, all where it names none."""
        known = self._known.get(pod)
        if known is None:
            wants = Resources(gpu_milli=pod.gpu_milli, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)
            of_types = {pool_of(kind) for kind in pod.types}
            pools = tuple(pool for pool in self._pools if pool in of_types) if of_types else ()
            known = self._known[pod] = wants, pools
        wants, pools = known
        return JobSpec(id=name, tenant=TENANT, pools=pools, resources=wants)


def arrive(state: CellState, spec: JobSpec) -> None:
    """The pod waits."""
    APPLY[e.JobEnqueued](state, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), 0)


def start(state: CellState, spec: JobSpec, places: tuple[WorkerPlace, ...]) -> None:
    """The pod runs here from now on. Raises IllegalEffect where it has no room."""
    APPLY[e.JobStarted](state, e.JobStarted(job=spec.id, attempt=1, workers=places), 0)
    state.undo_log.trim()


def drop(state: CellState, spec: JobSpec) -> None:
    """The pod does not fit and goes away."""
    APPLY[e.JobCancelled](state, e.JobCancelled(job=spec.id), 0)
    state.undo_log.trim()
