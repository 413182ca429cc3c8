"""The cell of the hard load: nodes with CPUs and memory, and tenants that use more than is guaranteed to them."""

from __future__ import annotations

from collections.abc import Iterator

from fallow.bench.load.job_mix import GPUS_PER_NODE, Ready
from fallow.bench.load.stages import LAB, POOL
from fallow.bench.real.mix import CPU_MILLI_PER_GPU, MEMORY_MIB_PER_GPU, RealMix, ready, tenant_name
from fallow.replay.workload import CELL, QUEUE, Workload, pools_of, uniform_nodes
from fallow.shared.cluster.model.config import CellFile, CellPart, Queue, Tenant, TenantQuota
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import ENDLESS, GPU, JobSpec, Resources
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.submissions import CancelJob, SubmitJob

GUARANTEED_PART = 0.5
"""Of what a tenant uses when all GPUs are in use, so much is guaranteed to it: the rest is borrowed."""


def real_cell(nodes: int, mix: RealMix, policy: CellPolicy | None = None) -> Workload:
    """So many nodes of 8 in leaf groups of 8, one queue, and the tenants in one cohort that has all there is."""
    specs = [
        replace(node, cpu_milli=CPU_MILLI_PER_GPU * GPUS_PER_NODE, memory_mib=MEMORY_MIB_PER_GPU * GPUS_PER_NODE)
        for node in uniform_nodes(nodes, GPUS_PER_NODE, pool=POOL)
    ]
    gpus = nodes * GPUS_PER_NODE
    lab = Tenant(name=LAB, quotas=(TenantQuota(guaranteed=gpus, limit=gpus),))
    tenants = (
        Tenant(name=name, parent=LAB, quotas=(TenantQuota(guaranteed=int(gpus * share * GUARANTEED_PART)),))
        for name, share in mix.shares().items()
    )
    cell = CellPart(
        name=CELL, ordinal=0, pools=pools_of(specs), queues=(Queue(name=QUEUE),), policy=policy or CellPolicy()
    )
    return Workload(commands=(), nodes=tuple(specs), cell_file=CellFile(cells=(cell,), tenants=(lab, *tenants)))


def fillers(nodes: int, partitions: int, wall_ms: int) -> Iterator[Ready]:
    """Jobs that take all GPUs, one for each node, until each is cancelled: a backlog can stand behind them."""
    for number in range(nodes):
        spec = JobSpec(
            id=_filler(number),
            tenant=tenant_name(0),
            queue=QUEUE,
            cell=CELL,
            resources=Resources(gpu_milli=GPUS_PER_NODE * GPU),
            run=ENDLESS,
        )
        yield ready(SubmitJob(job=spec), f"bench/{spec.id}", partitions, wall_ms)


def ends_of_fillers(nodes: int, partitions: int, wall_ms: int) -> Iterator[Ready]:
    """The cancels of these jobs."""
    for number in range(nodes):
        asked = CancelJob(job=_filler(number), tenant=tenant_name(0), cell=CELL)
        yield ready(asked, f"bench/{asked.job}/cancel", partitions, wall_ms)


def _filler(number: int) -> str:
    return f"fill-{number:08}"
