"""Whether a proposal that jobs yield holds, by a count of its own: in a cell of one pool and one GPU type, with quotas
that stand side by side. It shares nothing with the rules of production but the things that they are about.
"""

from __future__ import annotations

from dataclasses import dataclass

from fallow.shared.cluster.model.config import PreemptRule
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.operations import PreemptionMode, Quota, ReclaimFrom
from fallow.shared.events.proposals import PreemptionProposed
from fallow.shared.events.reasons import PreemptionCause

Device = tuple[str, int]


@dataclass(frozen=True)
class Verdict:
    """The code of the refusal, or None; and what decided it, for those who count what was reached."""

    code: str | None
    why: str


def verdict(state: CellState, event: PreemptionProposed, preempt: PreemptRule, now_ms: int) -> Verdict:
    """What has to become of the proposal."""
    job = state.jobs.get(event.preemptor)
    if job is None or job.status != "queued":
        return Verdict("beneficiary_gone", "gone")
    wanted = [(place.node, device) for place in event.workers for device in place.devices]
    gpus = job.spec.resources.gpu_milli // 1_000
    sizes = [len(place.devices) for place in event.workers]
    there = [node in state.nodes and device < state.nodes[node].spec.gpus for node, device in wanted]
    if sizes != [gpus] * job.spec.workers or len(set(wanted)) < len(wanted) or not all(there):
        return Verdict("node_changed", "places")
    named = [(victim.job, victim.attempt) for victim in event.victims]
    for number, (name, attempt) in enumerate(named):
        victim = state.jobs.get(name)
        if victim is None or victim.attempt != attempt or not victim.workers:
            return Verdict("attempt_over", "attempt")
        if name in dict(named[:number]):
            return Verdict("too_many_victims", "twice")
    victims = [state.jobs[name] for name, _ in named]
    why = _rule_broken(state, event.cause, job, victims, preempt, now_ms, len(wanted) * 1_000)
    if why:
        return Verdict("not_allowed", why)
    held = {job.id: _devices(job) for job in state.jobs.values()}
    of_victims = {device for victim in victims for device in held[victim.id]}
    of_others = {device for devices in held.values() for device in devices} - of_victims
    if of_others.intersection(wanted):
        return Verdict("does_not_help", "in use")
    if any(not held[victim.id].intersection(wanted) for victim in victims):
        return Verdict("too_many_victims", "needless")
    return Verdict(None, f"accepted for {event.cause.value}")


def _devices(job: Job) -> set[Device]:
    return {(place.node, device) for place in job.workers for device in place.devices}


def _rule_broken(
    state: CellState,
    cause: PreemptionCause,
    job: Job,
    victims: list[Job],
    preempt: PreemptRule,
    now_ms: int,
    milli: int,
) -> str:
    mode, is_reclaim = state.policy.preemption, cause is PreemptionCause.QUOTA_RECLAIM
    if mode is PreemptionMode.OFF or (mode is PreemptionMode.RECLAIM and not is_reclaim):
        return "off"
    if cause is PreemptionCause.BACKFILL:
        return "no head"
    quotas = {tenant: quota for (tenant, _), quota in state.quotas.items()}
    used, staying = dict[str, int](), dict[str, int]()
    for other in state.jobs.values():
        theirs = 1_000 * len(_devices(other))
        used[other.spec.tenant] = used.get(other.spec.tenant, 0) + theirs
        if other.status is not JobStatus.STOPPING:
            staying[other.spec.tenant] = staying.get(other.spec.tenant, 0) + theirs
    own = quotas.get(job.spec.tenant, Quota(tenant="x", gpu_type="gpu"))
    if is_reclaim and (own.reclaim is ReclaimFrom.NEVER or used.get(job.spec.tenant, 0) + milli > own.guaranteed_milli):
        return "no owner"
    if not is_reclaim and preempt is PreemptRule.NEVER:
        return "queue"
    for victim in victims:
        why = _may_not_yield(job, victim, own, quotas, staying, preempt, now_ms, is_reclaim=is_reclaim)
        if why:
            return why
    idle = 1_000 * sum(node.spec.gpus for node in state.nodes.values()) - sum(used.values()) - milli
    return _unfair(job, victims, quotas, staying, idle, is_reclaim=is_reclaim)


def _may_not_yield(
    job: Job,
    victim: Job,
    own: Quota,
    quotas: dict[str, Quota],
    staying: dict[str, int],
    preempt: PreemptRule,
    now_ms: int,
    *,
    is_reclaim: bool,
) -> str:
    tenant, is_lower = victim.spec.tenant, victim.spec.priority < job.spec.priority
    theirs, is_stranger = quotas.get(tenant), tenant != job.spec.tenant
    if not victim.spec.preemptible:
        return "not preemptible"
    if is_reclaim:
        if not is_stranger or staying[tenant] <= (theirs.guaranteed_milli if theirs else 0):
            return "not borrowed"
        if own.reclaim is ReclaimFrom.LOWER_PRIORITY and not is_lower:
            return "not lower"
    elif not is_lower:
        is_equal = victim.spec.priority == job.spec.priority
        is_newer = (victim.submit_ms, victim.number) > (job.submit_ms, job.number)
        if not (is_equal and is_newer and preempt is PreemptRule.LOWER_OR_NEWER_EQUAL):
            return "not lower"
    if is_stranger and theirs and not theirs.reclaimable:
        return "not reclaimable"
    least_ms = (theirs.min_run_ms or 0) if theirs else 0
    least_ms = least_ms if is_stranger else max(least_ms, victim.spec.min_run_ms)
    since_ms = victim.running_ms if victim.running_ms is not None else victim.started_ms
    return "minimum" if now_ms - (since_ms or 0) < least_ms else ""


def _unfair(
    job: Job,
    victims: list[Job],
    quotas: dict[str, Quota],
    staying: dict[str, int],
    idle: int,
    *,
    is_reclaim: bool,
) -> str:
    """What each other tenant is left with; `idle` is what would be idle if the victims gave nothing."""
    idle += 1_000 * sum(len(_devices(victim)) for victim in victims)
    for tenant in {victim.spec.tenant: None for victim in victims if victim.spec.tenant != job.spec.tenant}:
        sizes = [1_000 * len(_devices(victim)) for victim in victims if victim.spec.tenant == tenant]
        left, sure = staying[tenant] - sum(sizes), quotas[tenant].guaranteed_milli if tenant in quotas else 0
        if is_reclaim and left + max(sizes) <= sure:
            return "no borrower any more"
        if left + (idle if is_reclaim else 0) < sure:
            return "below its guarantee"
    return ""
