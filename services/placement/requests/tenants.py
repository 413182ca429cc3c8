"""What becomes of the jobs and quotas of tenants that go.

A quota is removed only when no job needs it: none of its tenant lives, and no other tenant stands below it. To lift a
limit under living jobs is to set it, so nothing is freed by mistake.

A tenant that a cell file no longer names keeps what it has running. Its waiting jobs are held, also those that come
back to the queue, until a file names it again or an operator releases or cancels them. A release holds until the job
comes back to the queue, or its tenant goes anew: so a file holds the jobs of those alone that the one before it named.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fallow.services.placement.decision.decision import STEPS_OF_AN_EFFECT, DecisionBuilder
from fallow.services.placement.requests.settings import QUOTAS_BYTES_MAX, STEPS_OF_A_BRANCH, refuse
from fallow.shared.cluster.model.job import WAITING, Job, JobStatus
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.operations import RemoveQuota
from fallow.shared.events.reasons import ProposalCode

REMOVE_QUOTA = "remove-quota"
"""How a refusal names what it is about."""

NOT_IN_THE_FILE = "its tenant is not in the cell file"
"""Why a job is held whose tenant is gone; what is held for it is released when the tenant is back."""

NAMED_MAX = 3


def remove_quota(decision: DecisionBuilder, event: RemoveQuota) -> None:
    """Remove the tenant's quota of one GPU type, or of all; all of them or none."""
    state, tenant = decision.state, event.tenant
    types = sorted(state.tree.index.types_of(tenant))
    accounts = [(tenant, name) for name in types if event.gpu_type in (None, name)]
    if not accounts:
        of = "" if event.gpu_type is None else f" of {event.gpu_type}"
        refuse(decision, REMOVE_QUOTA, ProposalCode.NOT_ALLOWED, f"tenant {tenant} has no quota{of}")
        return
    why = _why_they_stay(decision, tenant, accounts)
    if why is not None:
        refuse(decision, REMOVE_QUOTA, ProposalCode.NOT_ALLOWED, why)
        return
    decision.steps += STEPS_OF_AN_EFFECT * len(accounts)
    effects = [e.QuotaRemoved(tenant=tenant, gpu_type=gpu_type) for _, gpu_type in accounts]
    size_bytes = sum(len(encode(effect)) + 1 for effect in effects)
    if size_bytes > QUOTAS_BYTES_MAX:
        text = (
            f"{len(effects)} removals need {size_bytes} bytes, a decision takes {QUOTAS_BYTES_MAX}: "
            "remove the quotas of one GPU type after the other"
        )
        refuse(decision, REMOVE_QUOTA, ProposalCode.NOT_ALLOWED, text)
        return
    decision.steps += STEPS_OF_A_BRANCH * len(state.quotas)
    for effect in effects:
        decision.emit(effect)


def _why_they_stay(decision: DecisionBuilder, tenant: str, accounts: Sequence[Account]) -> str | None:
    state = decision.state
    decision.steps += len(state.quotas) + len(state.jobs)
    if any(account in state.tree.index.children for account in accounts):
        above = dict.fromkeys(accounts)
        below = {quota.tenant: None for quota in state.quotas.values() if (quota.parent, quota.gpu_type) in above}
        return f"tenant {_named(below)} stands below {tenant}: move it to another parent, or remove its quota first"
    live = [job for job in state.jobs.values() if job.spec.tenant == tenant]
    if live:
        waiting = sum(job.status in WAITING for job in live)
        return (
            f"{waiting} jobs of {tenant} wait and {len(live) - waiting} run: cancel them or let them end first "
            f"(to lift a limit: fallow quota set {tenant} --limit none)"
        )
    return None


def _named(names: Collection[str]) -> str:
    shown = sorted(names)[:NAMED_MAX]
    return ", ".join(shown) + (" and others" if len(names) > NAMED_MAX else "")


def follow_file(decision: DecisionBuilder, tenants: Collection[str], before: Collection[str] | None) -> bool:
    """Hold the waiting jobs of the tenants that go with this cell file, and release those whose tenant is back. The
    file names `tenants`, the one in force until now `before` (None: unknown). A job whose tenant was gone before
    and that waits is one that an operator has let go. Whether the record had room for all.
    """
    jobs, gone = decision.state.jobs.values(), frozenset(before or ()) - frozenset(tenants)
    to_hold = [job.id for job in jobs if _is_to_be_held(job, tenants) and (before is None or job.spec.tenant in gone)]
    to_release = [job.id for job in jobs if job.held_why == NOT_IN_THE_FILE and job.spec.tenant in tenants]
    effects: list[e.AnyEffect] = [e.JobHeld(job=job_id, reason=NOT_IN_THE_FILE) for job_id in sorted(to_hold)]
    effects += [e.JobReleased(job=job_id) for job_id in sorted(to_release)]
    for effect in effects:
        if decision.is_full:
            return False
        decision.emit(effect)
    return True


def hold_requeued(decision: DecisionBuilder, tenants: Collection[str]) -> None:
    """Hold the jobs that have come back to the queue in this turn and whose tenant the cell file does not name."""
    for job_id in decision.requeued:
        job = decision.state.jobs.get(job_id)
        if job is not None and _is_to_be_held(job, tenants):
            decision.emit(e.JobHeld(job=job_id, reason=NOT_IN_THE_FILE))


def _is_to_be_held(job: Job, tenants: Collection[str]) -> bool:
    return job.status in (JobStatus.QUEUED, JobStatus.AWAITING) and bool(tenants) and job.spec.tenant not in tenants
