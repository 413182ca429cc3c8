"""The running gangs that may yield to a waiting job, with what each gives free and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim, apart_of, held_by
from fallow.shared.cluster.preemption.cost import work_lost_ms
from fallow.shared.cluster.preemption.rules import may_yield
from fallow.shared.cluster.quota.quota import over_limit
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.fields.values import GPU

Part = tuple[Account, int]
"""An account that loses by it, and how much, in milli-GPUs."""


class Candidate(NamedTuple):
    """A job that may yield. `gives` are the whole devices that become free by it on each node that the waiting job
    could use, `milli` what it holds in all. `parts` are the accounts beside the waiting job's tenant that lose by it,
    `leaf` its own tenant's.
    """

    job: Job
    gives: dict[str, int]
    milli: int
    leaf: Account
    parts: tuple[Part, ...]
    lost_ms: int
    started_ms: int

    @property
    def id(self) -> str:
        """Of the job."""
        return self.job.spec.id

    @property
    def came(self) -> tuple[int, int, str]:
        """When it came into the cell: no two came at once."""
        return (self.job.submit_ms, self.job.number, self.job.spec.id)


def candidates_for(
    state: CellState, claim: Claim, reach: dict[str, None], gone: Mapping[str, object]
) -> list[Candidate]:
    """All gangs that may yield by this claim and hold anything on one of these nodes; wherever they run, if the waiting
    job's tenant is at a limit, which others may have used up. Those that have `gone` hold nothing any more.
    """
    apart: dict[Account, list[Account]] = {}
    found = [
        _candidate(state, claim, job, reach, apart)
        for job in state.jobs.values()
        if job.workers and job.spec.gang and job.spec.id not in gone and may_yield(state, claim, job) is None
    ]
    spec = claim.preemptor.spec
    if any(over_limit(state.tree, spec.tenant, gpu_type, milli) for gpu_type, milli in claim.milli.items()):
        return found
    return [each for each in found if each.gives]


def _candidate(
    state: CellState, claim: Claim, job: Job, reach: dict[str, None], apart: dict[Account, list[Account]]
) -> Candidate:
    held, tenant = held_by(state, job), job.spec.tenant
    parts: list[Part] = []
    for gpu_type, milli in held.items():
        account = (tenant, gpu_type)
        if account not in apart:
            apart[account] = apart_of(state.quotas, tenant, claim.preemptor.spec.tenant, gpu_type)
        parts += [(each, milli) for each in apart[account]]
    first = next(iter(held), "")
    started_ms = -1 if job.started_ms is None else job.started_ms
    return Candidate(
        job=job,
        gives=gives(state, job, reach),
        milli=sum(held.values()),
        leaf=(tenant, first),
        parts=tuple(parts),
        lost_ms=work_lost_ms(job, claim.now_ms),
        started_ms=started_ms,
    )


def gives(state: CellState, job: Job, reach: dict[str, None]) -> dict[str, int]:
    """The whole devices that become free when the job leaves, by node. What it has on broken ones comes back to nobody,
    and a share of a device is no whole one. A job that leaves a node that it held alone opens all that is idle there.
    """
    found: dict[str, int] = {}
    for place in job.workers:
        name = place.node
        if name not in reach:
            continue
        node = state.nodes[name]
        count = 0
        if place.gpu_milli >= GPU:
            count = len(place.devices)
            if node.failed:
                count = sum(1 for device in place.devices if not node.failed >> device & 1)
        if name not in found and node.alone == job.spec.id:
            count += node.gpus_free
        found[name] = found.get(name, 0) + count
    return found


def is_silent(state: CellState, job: Job) -> bool:
    """Whether a node of the job may not hear that it is to stop: then others yield, if they would do."""
    return bool(state.silent) and any(place.node in state.silent for place in job.workers)
