"""The shares of tenants as data: what they are made of, and in which order tenants come by them."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.services.placement.queue.fair_share import Share, Shares, totals_of
from fallow.shared.cluster.model.file_in_force import waiting_limits_in_force
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.waiting_limits import WaitingLimits


@dataclass(frozen=True, slots=True)
class TypeShare:
    """One GPU type: what the tenant holds now with all below it, and what it held of late on the average."""

    gpu_type: str
    weight: int
    held_milli: int
    lately_milli: int
    total_milli: int


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A tenant beside the others of its parent. `share` is in billionths of all GPUs of the type of which it has most,
    by its weight; who `has_no_weight` comes last. `waiting` counts its own jobs, and the milli-GPUs that they want;
    `waiting_max` is how many of them may wait, by the cell file in force (None where that cannot be read here).
    `live_bytes` is what the specifications of those that wait or run take, `live_bytes_max` what they may take.
    """

    tenant: str
    parent: str | None
    share: int
    has_no_weight: bool
    waiting: int
    waiting_milli: int
    waiting_max: int | None
    live_bytes: int
    live_bytes_max: int | None
    types: tuple[TypeShare, ...]


def shares_of(state: CellState, now_ms: int) -> list[TenantShare]:
    """All tenants that hold, wait or have a quota, as they come by their shares: parents before their children."""
    shares = Shares(state, now_ms)
    waiting: dict[str, list[int]] = {}
    for job in state.jobs.values():
        if job.status in WAITING:
            waiting.setdefault(job.spec.tenant, []).append(job.spec.gpus_milli)
    accounts = (*state.quotas, *state.usage, *state.fair.used)
    tenants = {name: shares.line(name) for name in (*(tenant for tenant, _ in accounts), *waiting)}

    def levels(tenant: str) -> list[Share]:
        return [shares.of(name) for name in tenants[tenant]]

    limits = waiting_limits_in_force(state.cell_file)
    return [_told(state, shares, name, waiting.get(name, []), limits) for name in sorted(tenants, key=levels)]


def share_of(state: CellState, tenant: str, now_ms: int) -> TenantShare:
    """The shares of one tenant, without its waiting jobs."""
    return _told(state, Shares(state, now_ms), tenant, [], waiting_limits_in_force(state.cell_file))


def _told(
    state: CellState, shares: Shares, tenant: str, waiting: list[int], limits: WaitingLimits | None
) -> TenantShare:
    share, line = shares.of(tenant), shares.line(tenant)
    return TenantShare(
        tenant=tenant,
        parent=line[-2] if len(line) > 1 else None,
        share=share.share,
        has_no_weight=share.has_no_weight,
        waiting=len(waiting),
        waiting_milli=sum(waiting),
        waiting_max=None if limits is None else limits.of(tenant, state.policy.max_pending_jobs),
        live_bytes=state.live_bytes_of.get(tenant, 0),
        live_bytes_max=None if limits is None else limits.bytes_of(tenant, state.policy.live_bytes_max),
        types=tuple(
            TypeShare(
                gpu_type=gpu_type,
                weight=shares.weight(tenant, gpu_type),
                held_milli=state.usage.get((tenant, gpu_type), 0),
                lately_milli=shares.lately_milli(tenant, gpu_type),
                total_milli=total_milli,
            )
            for gpu_type, total_milli in totals_of(state)
        ),
    )
