"""Backfill without estimates (Kant): jobs may start past one that does not fit, until that one has waited for long.

In a queue that backfills, the first job that does not fit is a head: jobs behind it start past it, and are marked. When
it has been a head for `backfill_wait_ms`, nothing more is started past it that could use what it needs. A head keeps
only those back that accept one of its pools and its GPU type; so there may be several heads in a queue, each the first
of its kind. Where a limit of its tenant keeps it, it is room below that limit that it needs: then it keeps back only
jobs under the same limit. Nobody waits for a job that no node could ever hold, that its own array keeps back, or whose
room is kept for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.placement.policy.deferral import PRECEDENCE, ReasonKind
from shared.cluster.job import Job
from shared.cluster.quota import accounts, over_limit
from shared.cluster.state import CellState
from shared.events.reasons import DeferCode
from shared.events.values import JobSpec

Kind = tuple[tuple[str, ...], str | None, str]
"""Pools, GPU type and tenant: what decides which heads could use what a job takes."""

PASSES: Final = (ReasonKind.QUOTA, ReasonKind.CAPACITY, ReasonKind.TOPOLOGY)
WAITED_FOR: Final = tuple(code for code, kind in PRECEDENCE.items() if kind in PASSES)
"""What passes when others end, so that it helps to keep what becomes free."""


@dataclass(frozen=True, slots=True)
class Head:
    """A job that is the first of its kind not to fit, in its queue. `under` is the tenant whose limit keeps it, None
    where it is room that is missing; `is_due` whether nothing may pass it any more.
    """

    spec: JobSpec
    since_ms: int
    under: str | None
    is_due: bool


class Heads:
    """The heads of one queue that a walk has met so far."""

    __slots__ = ("_found", "_known", "_now_ms", "_state")

    def __init__(self, state: CellState, now_ms: int) -> None:
        self._state, self._now_ms = state, now_ms
        self._found: list[Head] = []
        self._known: dict[Kind, Head | None] = {}

    def over(self, spec: JobSpec) -> Head | None:
        """The head that this job would be started past, because it could use what that one needs; one that is due
        before all others. None where there is none.
        """
        if not self._found:
            return None
        kind = (spec.pools, spec.gpu_type, spec.tenant)
        if kind not in self._known:
            over = [head for head in self._found if competes(self._state, spec, head)]
            self._known[kind] = next((head for head in over if head.is_due), over[0] if over else None)
        return self._known[kind]

    def add(self, job: Job, code: DeferCode) -> bool:
        """This job does not fit. Whether it is a head by that; it is none of those that `over` names for others."""
        if code not in WAITED_FOR:
            return False
        since_ms = self._state.heads.get(job.spec.id, self._now_ms)
        is_due = self._now_ms - since_ms >= self._state.policy.backfill_wait_ms
        under = _limited_at(self._state, job.spec) if code is DeferCode.QUOTA_REACHED else None
        self._found.append(Head(job.spec, since_ms, under, is_due))
        self._known.clear()
        return True


def competes(state: CellState, spec: JobSpec, head: Head) -> bool:
    """Whether the job could use what the head needs."""
    wanted = head.spec
    if spec.gpu_type is not None and wanted.gpu_type is not None and spec.gpu_type != wanted.gpu_type:
        return False
    if spec.pools and wanted.pools and not any(pool in wanted.pools for pool in spec.pools):
        return False
    return head.under is None or _is_below(state, spec, head.under)


def head_before(state: CellState, job: Job, now_ms: int) -> Head | None:
    """The head, due by now, that keeps this waiting job of a queue that backfills, as the log knows heads."""
    if job.spec.id in state.heads:
        return None
    for head_id, since_ms in state.heads.items():
        head = state.jobs[head_id]
        if head.deferred not in WAITED_FOR or head.spec.queue != job.spec.queue:
            continue
        under = _limited_at(state, head.spec) if head.deferred is DeferCode.QUOTA_REACHED else None
        is_due = now_ms - since_ms >= state.policy.backfill_wait_ms
        found = Head(head.spec, since_ms, under, is_due)
        if is_due and competes(state, job.spec, found):
            return found
    return None


def _limited_at(state: CellState, spec: JobSpec) -> str:
    """The tenant whose limit the job would pass: its own, or one above it."""
    for gpu_type in _gpu_types(state, spec):
        account = over_limit(state.tree, spec.tenant, gpu_type, spec.gpus_milli)
        if account is not None:
            return account[0]
    return spec.tenant


def _is_below(state: CellState, spec: JobSpec, tenant: str) -> bool:
    if spec.tenant == tenant:
        return True
    return any((tenant, each) in accounts(state.quotas, spec.tenant, each) for each in _gpu_types(state, spec))


def _gpu_types(state: CellState, spec: JobSpec) -> list[str]:
    """The types that the job could get; those of the pools' first nodes stand for all."""
    if spec.gpu_type is not None:
        return [spec.gpu_type]
    pools = [state.pools[name] for name in spec.pools or sorted(state.pools) if name in state.pools]
    return list(dict.fromkeys(state.nodes[pool.ids[0]].spec.gpu_type for pool in pools))
