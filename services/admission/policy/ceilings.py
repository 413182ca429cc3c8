"""The most that a tenant may ever have, by the cell file alone: by its quotas, when no other tenant uses anything, and
by the priority that its jobs may have.

What of that is left at the moment is placement's to say, which knows what is in use.
"""

from __future__ import annotations

from fallow.services.admission.policy.resolve import Home, Rejection
from fallow.shared.cluster.model.config import CellFile, Pool, depths_of
from fallow.shared.cluster.quota.room import available, firm_room
from fallow.shared.cluster.quota.tree import QuotaTree
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec
from fallow.shared.events.reasons import RejectCode


class Ceilings:
    """By one cell file. Each is worked out once."""

    def __init__(self, file: CellFile) -> None:
        self._tree = QuotaTree({(quota.tenant, quota.gpu_type): quota for quota in file.quotas()}, {})
        self._gpus = {cell.name: file.gpus_of(cell.name) for cell in file.cells}
        self._known: dict[tuple[str, str, str, bool], int] = {}

    def rejection(self, spec: JobSpec, home: Home, pools: tuple[Pool, ...]) -> Rejection | None:
        """More than the tenant may ever use of every GPU type that the job could have in these pools; of a service, of
        all of these types together, since its replicas go to several pools. A job that may not be preempted must fit
        into what is guaranteed.
        """
        if not self._tree.quotas:
            return None
        workers, each_milli = at_least(spec), spec.resources.gpu_milli
        wanted_milli = workers * each_milli
        allowed = {pool.gpu_type: self._max(spec, home.cell.name, pool.gpu_type) for pool in pools}
        max_milli = max(allowed.values(), default=wanted_milli)
        if each_milli and spec.kind is JobKind.INFERENCE and wanted_milli > max_milli:
            max_milli = sum(_replicas_of(gpu_type, most, pools, each_milli) for gpu_type, most in allowed.items())
            max_milli *= each_milli
        if wanted_milli <= max_milli:
            return None
        gpus, most = -(-wanted_milli // GPU), max_milli // GPU
        rule = f"its tenant may use {most} GPUs by the cell file" + (
            "" if spec.preemptible else " for jobs that cannot be preempted"
        )
        return Rejection(RejectCode.OVER_TENANT_LIMIT, "workers", str(workers), rule, gpus, most)

    def _max(self, spec: JobSpec, cell: str, gpu_type: str) -> int:
        key = (cell, spec.tenant, gpu_type, spec.preemptible)
        most = self._known.get(key)
        if most is None:
            account, there_milli = (spec.tenant, gpu_type), self._gpus[cell].get(gpu_type, 0) * GPU
            most = available(self._tree, account, there_milli)
            if not spec.preemptible:
                most = min(most, firm_room(self._tree, account, there_milli))
            self._known[key] = most
        return most


def _replicas_of(gpu_type: str, max_milli: int, pools: tuple[Pool, ...], each_milli: int) -> int:
    """How many replicas of so many milli-GPUs each a service may ever have of one type: of what its tenant may use, and
    of what its pools have.
    """
    there_milli = sum(pool.gpus for pool in pools if pool.gpu_type == gpu_type) * GPU
    return min(max_milli, there_milli) // each_milli


def priorities_of(file: CellFile) -> dict[str, int]:
    """The highest priority that the jobs of each tenant may have, where it or one above it has a ceiling: the lowest
    of these counts.
    """
    depths, found = depths_of(file.tenants), dict[str, int]()
    for tenant in sorted(file.tenants, key=lambda tenant: depths[tenant.name]):
        above = found.get(tenant.parent) if tenant.parent is not None else None
        ceilings = [most for most in (above, tenant.max_priority) if most is not None]
        if ceilings:
            found[tenant.name] = min(ceilings)
    return found


def at_least(spec: JobSpec) -> int:
    """How many workers must start together."""
    is_whole = spec.gang and spec.kind is not JobKind.INFERENCE
    return spec.workers_min or (spec.workers if is_whole else 1)
