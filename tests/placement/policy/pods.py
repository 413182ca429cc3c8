"""Small cells under the policy that minds fragments, and jobs of one worker that come to them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.reasons import PendingReason


def machine(
    name: str, gpus: int, cpu: int = 0, memory: int = 0, pool: str = "train", gpu_type: str = "gpu"
) -> NodeSpec:
    return NodeSpec(id=name, pool=pool, gpu_type=gpu_type, gpus=gpus, cpu_milli=cpu, memory_mib=memory)


def pod(name: str, milli: int, cpu: int = 0, memory: int = 0, pools: tuple[str, ...] = ()) -> JobSpec:
    wants = Resources(gpu_milli=milli, cpu_milli=cpu, memory_mib=memory)
    return JobSpec(id=name, tenant="a", pools=pools, resources=wants)


def cell(nodes: Iterable[NodeSpec]) -> CellState:
    state = CellState("cell-a")
    apply(state, e.PolicySet(policy=CellPolicy(placement="frag-aware")), 0)
    for spec in nodes:
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    return state


def wait(state: CellState, specs: Iterable[JobSpec]) -> None:
    """They wait, so that the cell knows what jobs ask for."""
    for spec in specs:
        apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32), 0)


def start(state: CellState, spec: JobSpec) -> WorkerPlace | None:
    """It comes, and starts where the policy says."""
    wait(state, [spec])
    found = place_gang(state, spec)
    if isinstance(found, PendingReason):
        return None
    apply(state, e.JobStarted(job=spec.id, attempt=1, workers=found), 0)
    return found[0]


def nodes_of(state: CellState, specs: Sequence[JobSpec]) -> list[str]:
    """On which nodes these jobs start, in their order; - where one does not."""
    places = [start(state, spec) for spec in specs]
    return ["-" if place is None else place.node for place in places]
