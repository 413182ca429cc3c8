"""Whether a job may enter, and its home: all tests that depend on the cell file and on what the job asks for alone.

Most jobs ask for what some job before them asked for, so an answer is remembered by what it depends on.
"""

from __future__ import annotations

from typing import Any

from fallow.services.admission.policy import limits
from fallow.services.admission.policy.ceilings import Ceilings, priorities_of
from fallow.services.admission.policy.resolve import Home, Rejection, home_of, tenant_of
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.reasons import RejectCode

REMEMBERED_MAX = 10_000

Wish = tuple[Any, ...]
"""What of a job an answer depends on."""


class Admissible:
    """The answers by one cell file."""

    def __init__(self, file: CellFile) -> None:
        self.file = file
        self._ceilings = Ceilings(file)
        self._priorities = priorities_of(file)
        self._remembered: dict[Wish, Home | Rejection] = {}

    def home(self, spec: JobSpec) -> Home | Rejection:
        """Where the job belongs, with those of its pools that could hold it if they were empty."""
        wish = wish_of(spec)
        found = self._remembered.get(wish)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[wish] = _home(self.file, self._ceilings, spec)
        return found

    def priority_too_high(self, tenant: str, priority: int, field: str) -> Rejection | None:
        """A priority above what the tenant may give its jobs."""
        most = self._priorities.get(tenant)
        if most is None or priority <= most:
            return None
        rule = f"tenant {tenant} may give its jobs {most} at most"
        return Rejection(RejectCode.OVER_TENANT_LIMIT, field, str(priority), rule, priority, most)


def wish_of(spec: JobSpec) -> Wish:
    """Every field that a test here looks at. A job's id, its priority and its times are none of them."""
    return (
        spec.tenant,
        spec.kind,
        spec.queue,
        spec.cell,
        spec.pools,
        spec.gpu_type,
        spec.workers,
        spec.workers_min,
        spec.resources.gpu_milli,
        spec.gang,
        spec.topology,
        spec.spread,
        spec.run.driver,
        spec.retry.budget,
        spec.preemptible,
        bool(spec.scaling),
        spec.fungible,
        spec.heterogeneous,
    )


def _home(file: CellFile, ceilings: Ceilings, spec: JobSpec) -> Home | Rejection:
    tenant = tenant_of(file, spec.tenant)
    if isinstance(tenant, Rejection):
        return tenant
    early = limits.unsupported(spec) or limits.over_job_limits(file, spec)
    if early is not None:
        return early
    home = home_of(file, tenant, spec)
    if isinstance(home, Rejection):
        return home
    home = limits.with_driver(spec, home)
    if isinstance(home, Rejection):
        return home
    pools = limits.never_fits(spec, home)
    if isinstance(pools, Rejection):
        return pools
    late = limits.over_one_record(spec, pools) or ceilings.rejection(spec, home, pools)
    return late or Home(home.cell, home.queue, pools)
