"""Which running job may yield to which waiting one.

The causes are those of Kant (3.2.2: priority, quota reclaim, backfill), and fair shares between tenants to whom nothing
is guaranteed: there one takes from another as long as it has no more by weight behind that. This is Kueue's rule
(`fairsharing/strategy.go`: share after against share after), by which shares meet and then stand still. The guarantees
are kept as in Kueue's cohorts and KAI's reclaim: an owner takes back what is guaranteed to it, only from those who
borrow, and leaves each of them what is guaranteed to it. Whoever proposes victims asks these rules, and placement asks
them again on the newest state.

No rule goes by a name: what is compared are quotas, use, priorities and times.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from fallow.shared.cluster.capacity.gpu_types import idle_milli
from fallow.shared.cluster.model.config import PreemptRule
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim, apart_of, held_by
from fallow.shared.cluster.quota.min_run import min_run_ms
from fallow.shared.cluster.quota.tree import Account, Branch
from fallow.shared.events.base import later
from fallow.shared.events.operations import PreemptionMode, ReclaimFrom
from fallow.shared.events.reasons import PreemptionCause

YIELDS_MAX = 32
"""A job that has stopped for so many jobs which still live yields to no further one."""

RECLAIM_YIELDS_MAX = 2 * YIELDS_MAX
"""The same where an owner takes back what is guaranteed to it: no job of the borrower's own uses that up."""

_YIELDS_FROM = (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.RESIZING)
_CAUSES_OF: Final = {
    PreemptionMode.OFF: (),
    PreemptionMode.RECLAIM: (PreemptionCause.QUOTA_RECLAIM,),
    PreemptionMode.ALL: tuple(PreemptionCause),
}


class WhyNot(StrEnum):
    """Why a job may not preempt, or another one does not yield to it; the words complete "the job ..."."""

    CAUSE_IS_OFF = "may not preempt for this cause: the policy of the cell says so"
    DOES_NOT_WAIT = "does not wait for room"
    QUEUE_PREEMPTS_NONE = "waits in a queue whose jobs preempt none"
    BEYOND_ITS_SHARE = "asks for more than what is left of its guarantee"
    TAKES_NOTHING_BACK = "is of a tenant that takes nothing back"
    IS_NO_DUE_HEAD = "is no head that has waited for backfill_wait_ms"
    HOLDS_NOTHING = "holds no places, or leaves them already"
    IS_THE_SAME = "is the one that waits"
    NOT_PREEMPTIBLE = "is not preemptible"
    NOT_LOWER = "is not of lower priority"
    NOT_BORROWED = "is not of a tenant that borrows"
    HAS_A_GUARANTEE = "is of a tenant to which something is guaranteed"
    HAS_NO_MORE = "would leave its tenant a smaller share than that of the job that waits"
    NOT_RECLAIMABLE = "is of a tenant from which nothing is taken"
    BELOW_A_GUARANTEE = "would leave its tenant less than what is guaranteed to it"
    NOT_BACKFILLED = "was not started past the job that waits"
    RUNS_TOO_SHORT = "has not run for its minimum yet"
    YIELDED_BEFORE = "has yielded to that job before"
    YIELDED_OFTEN = "has yielded to as many jobs as one may"


class Objection(NamedTuple):
    """A rule against a set of victims, and the victim on which it shows."""

    job: Job
    why: WhyNot


def may_preempt(state: CellState, claim: Claim) -> WhyNot | None:
    """Why the waiting job may take nothing from anybody for this cause, or None if it may."""
    job, cause = claim.preemptor, claim.cause
    if cause not in _CAUSES_OF[state.policy.preemption]:
        return WhyNot.CAUSE_IS_OFF
    if job.status is not JobStatus.QUEUED or job.not_before_ms > claim.now_ms:
        return WhyNot.DOES_NOT_WAIT
    match cause:
        case PreemptionCause.PRIORITY:
            return WhyNot.QUEUE_PREEMPTS_NONE if claim.queue.preempt is PreemptRule.NEVER else None
        case PreemptionCause.QUOTA_RECLAIM:
            return _may_reclaim(state, claim)
        case PreemptionCause.FAIR_SHARE:
            return _may_take_its_share(state, claim)
        case PreemptionCause.BACKFILL:
            since_ms = state.heads.get(job.id)
            is_due = since_ms is not None and later(since_ms, state.policy.backfill_wait_ms) <= claim.now_ms
            return None if is_due else WhyNot.IS_NO_DUE_HEAD


def _may_reclaim(state: CellState, claim: Claim) -> WhyNot | None:
    """Whether all that the job asks for is guaranteed to its tenant, or to one above it, and not in use there."""
    for gpu_type, milli in claim.milli.items():
        owner = _owner(state, (claim.preemptor.spec.tenant, gpu_type), milli)
        if owner is None:
            return WhyNot.BEYOND_ITS_SHARE
        if owner.quota.reclaim is ReclaimFrom.NEVER:
            return WhyNot.TAKES_NOTHING_BACK
    return None


def _may_take_its_share(state: CellState, claim: Claim) -> WhyNot | None:
    """Whether neither the job's tenant nor one above it has a guarantee, which it would take back instead."""
    for gpu_type in claim.milli:
        branch = state.tree.branches.get((claim.preemptor.spec.tenant, gpu_type))
        while branch is not None:
            if branch.guaranteed_milli:
                return WhyNot.HAS_A_GUARANTEE
            branch = branch.parent
    return None


def may_yield(state: CellState, claim: Claim, victim: Job) -> WhyNot | None:
    """Why this job does not yield to the one that waits, or None if it may. Whether several may yield together is
    asked of `objection`.
    """
    preemptor, spec = claim.preemptor, victim.spec
    if victim.id == preemptor.id:
        return WhyNot.IS_THE_SAME
    if victim.status not in _YIELDS_FROM:
        return WhyNot.HOLDS_NOTHING
    if not spec.preemptible:
        return WhyNot.NOT_PREEMPTIBLE
    if preemptor.id in victim.yielded_to:
        return WhyNot.YIELDED_BEFORE
    is_reclaim = claim.cause is PreemptionCause.QUOTA_RECLAIM
    if len(victim.yielded_to) >= (RECLAIM_YIELDS_MAX if is_reclaim else YIELDS_MAX):
        return WhyNot.YIELDED_OFTEN
    why = _by_cause(state, claim, victim) or _by_tenants(state, claim, victim)
    if why is not None:
        return why
    return WhyNot.RUNS_TOO_SHORT if protected_until_ms(state, preemptor, victim) > claim.now_ms else None


def _by_cause(state: CellState, claim: Claim, victim: Job) -> WhyNot | None:
    match claim.cause:
        case PreemptionCause.PRIORITY:
            return None if _is_below(claim, victim) else WhyNot.NOT_LOWER
        case PreemptionCause.QUOTA_RECLAIM:
            return _by_reclaim(state, claim, victim)
        case PreemptionCause.FAIR_SHARE:
            return _by_share(state, claim, victim)
        case PreemptionCause.BACKFILL:
            is_past_it = victim.backfilled and victim.backfilled_over == claim.preemptor.id
            return None if is_past_it else WhyNot.NOT_BACKFILLED


def _is_below(claim: Claim, victim: Job) -> bool:
    """Whether the victim's priority is lower, or as high where the queue lets older jobs go before newer ones."""
    preemptor = claim.preemptor
    if victim.spec.priority != preemptor.spec.priority:
        return victim.spec.priority < preemptor.spec.priority
    is_newer = (victim.submit_ms, victim.number) > (preemptor.submit_ms, preemptor.number)
    return is_newer and claim.queue.preempt is PreemptRule.LOWER_OR_NEWER_EQUAL


def _by_reclaim(state: CellState, claim: Claim, victim: Job) -> WhyNot | None:
    """Whether the victim holds something that the owner lent: what it holds, its tenant borrows from beside the owner,
    and the owner takes it back from such a job.
    """
    owner_tenant, tenant = claim.preemptor.spec.tenant, victim.spec.tenant
    is_any = False
    for gpu_type in held_by(state, victim):
        wanted_milli = claim.milli.get(gpu_type, 0)
        if not wanted_milli:
            continue
        apart = apart_of(state.quotas, owner_tenant, tenant, gpu_type)
        owner = _owner(state, (owner_tenant, gpu_type), wanted_milli, apart)
        if owner is None:
            return WhyNot.NOT_BORROWED
        if owner.quota.reclaim is ReclaimFrom.LOWER_PRIORITY and victim.spec.priority >= claim.preemptor.spec.priority:
            return WhyNot.NOT_LOWER
        others = apart_of(state.quotas, tenant, owner_tenant, gpu_type)
        if not others or any(_guaranteed(state, each) >= claim.used_milli(state, each) for each in others):
            return WhyNot.NOT_BORROWED
        is_any = True
    return None if is_any else WhyNot.NOT_BORROWED


def _by_share(state: CellState, claim: Claim, victim: Job) -> WhyNot | None:
    """Whether the victim's tenant has a larger share beside the preemptor's, also without this job."""
    is_any = False
    for gpu_type, milli in held_by(state, victim).items():
        theirs = apart_of(state.quotas, victim.spec.tenant, claim.preemptor.spec.tenant, gpu_type)
        if not claim.milli.get(gpu_type) or not theirs:
            continue
        if any(_guaranteed(state, account) for account in theirs):
            return WhyNot.HAS_A_GUARANTEE
        if claim.used_milli(state, theirs[-1]) - milli < fair_milli(state, claim, theirs[-1]):
            return WhyNot.HAS_NO_MORE
        is_any = True
    return None if is_any else WhyNot.HAS_NO_MORE


def fair_milli(state: CellState, claim: Claim, theirs: Account) -> int:
    """What the branch of this account keeps at least where the preemptor's beside it takes its fair share: so much that
    it has, by weight, no less than that one behind it.
    """
    gpu_type = theirs[1]
    ours = apart_of(state.quotas, claim.preemptor.spec.tenant, theirs[0], gpu_type)
    if not ours:
        return 0
    used_milli = claim.used_milli(state, ours[-1]) + claim.milli.get(gpu_type, 0)
    weight = _weight(state, ours[-1])
    return -(-used_milli * _weight(state, theirs) // weight) if weight else used_milli + claim.used_milli(state, theirs)


def _weight(state: CellState, account: Account) -> int:
    quota = state.quotas.get(account)
    return 1 if quota is None else quota.weight


def _by_tenants(state: CellState, claim: Claim, victim: Job) -> WhyNot | None:
    """Whether the victim's tenant lets go of anything for another one."""
    for gpu_type in held_by(state, victim):
        for account in apart_of(state.quotas, victim.spec.tenant, claim.preemptor.spec.tenant, gpu_type):
            quota = state.quotas.get(account)
            if quota is not None and not quota.reclaimable:
                return WhyNot.NOT_RECLAIMABLE
    return None


def objection(state: CellState, claim: Claim, victims: Sequence[Job]) -> Objection | None:
    """The first rule against it that all of these yield together, or None. It goes by no order of theirs, but for the
    victim that it names.

    An owner takes a job as a whole, also where only a part of it is borrowed: then its tenant must borrow as long as
    any victim of it is left, and of what is guaranteed to it so much stays idle as it does not hold. For any other
    cause no tenant is left below its guarantee, nor below its fair share where that is the cause.
    """
    for victim in victims:
        why = may_yield(state, claim, victim)
        if why is not None:
            return Objection(victim, why)
    is_reclaim, taken = claim.cause is PreemptionCause.QUOTA_RECLAIM, _taken(state, claim, victims)
    idle = {account[1]: 0 for account in taken}
    if is_reclaim:
        idle = {gpu_type: idle_behind_milli(state, claim, victims, gpu_type) for gpu_type in idle}
    for account, parts in taken.items():
        left_milli = claim.used_milli(state, account) - sum(parts.values())
        guaranteed_milli = _guaranteed(state, account)
        last, last_milli = max(parts.items(), key=lambda part: part[1])
        is_top = account == apart_of(state.quotas, account[0], claim.preemptor.spec.tenant, account[1])[-1]
        if claim.cause is PreemptionCause.FAIR_SHARE and is_top and left_milli < fair_milli(state, claim, account):
            return Objection(state.jobs[last], WhyNot.HAS_NO_MORE)
        if is_reclaim and left_milli + last_milli <= guaranteed_milli:
            return Objection(state.jobs[last], WhyNot.NOT_BORROWED)
        if left_milli + idle[account[1]] < guaranteed_milli:
            return Objection(state.jobs[last], WhyNot.BELOW_A_GUARANTEE)
    return None


def _taken(state: CellState, claim: Claim, victims: Sequence[Job]) -> dict[Account, dict[str, int]]:
    """What each account that does not stand above the preemptor's tenant loses, victim by victim."""
    found: dict[Account, dict[str, int]] = {}
    for victim in victims:
        for gpu_type, milli in held_by(state, victim).items():
            for account in apart_of(state.quotas, victim.spec.tenant, claim.preemptor.spec.tenant, gpu_type):
                found.setdefault(account, {})[victim.id] = milli
    return found


def idle_behind_milli(state: CellState, claim: Claim, victims: Sequence[Job], gpu_type: str) -> int:
    """What is idle of the GPU type, on nodes that take new work, when the victims are gone and the preemptor runs."""
    freed = sum(held_by(state, victim).get(gpu_type, 0) for victim in victims)
    return idle_milli(state, gpu_type) + freed - claim.milli.get(gpu_type, 0)


def protected_until_ms(state: CellState, preemptor: Job, victim: Job) -> int:
    """Until when (cell time) the victim's minimum run time keeps it from yielding to the preemptor.

    Between two tenants it is what the quotas say where their lines part (KAI's rule of the lowest common ancestor), and
    the longest of all GPU types that the victim holds; within one tenant also what the job itself asked for.
    """
    ours, theirs = preemptor.spec.tenant, victim.spec.tenant
    run_ms = max((min_run_ms(state.quotas, ours, theirs, each) for each in held_by(state, victim)), default=0)
    if ours == theirs:
        run_ms = max(run_ms, victim.spec.min_run_ms)
    since_ms = victim.running_ms if victim.running_ms is not None else victim.started_ms
    return later(since_ms or 0, run_ms)


def owned_milli(state: CellState, tenant: str, gpu_type: str) -> int:
    """What a tenant still has of its own share: the most that one more job of it could hold of this GPU type within its
    guarantee, or within that of a tenant above it.
    """
    branch, found = state.tree.branches.get((tenant, gpu_type)), 0
    while branch is not None:
        found = max(found, branch.guaranteed_milli - branch.used_milli)
        branch = branch.parent
    return found


def _owner(state: CellState, account: Account, milli: int, among: Sequence[Account] | None = None) -> Branch | None:
    """The lowest account of the tenant's line (of those `among`, if given) into whose guarantee so much more fits."""
    branch = state.tree.branches.get(account)
    while branch is not None:
        fits = bool(branch.guaranteed_milli) and branch.used_milli + milli <= branch.guaranteed_milli
        if fits and (among is None or branch.account in among):
            return branch
        branch = branch.parent
    return None


def _guaranteed(state: CellState, account: Account) -> int:
    branch = state.tree.branches.get(account)
    return 0 if branch is None else branch.guaranteed_milli
