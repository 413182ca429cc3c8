"""What placement does with quotas, policies and what is not built in: proposals and loans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.placement.policy.turn import Turn
from shared.cluster.config import CellFile
from shared.cluster.job import WAITING, JobStatus
from shared.cluster.quota_rules import Fault, fault_among, fault_in_pools, top_down
from shared.events import effects as e
from shared.events.operations import CellPolicy, HoldJob, Quota, ReleaseJob, SetPolicy, SetQuota
from shared.events.reasons import ProposalCode, RefuseCode


def configure(turn: Turn, file: CellFile, known: tuple[str, ...], *, anew: bool) -> None:
    """Bring the state to the cell file. What was changed at run time stays, unless the file is put in force `anew`."""
    if anew or turn.state.version == 0:
        _put_policy(turn, file.cell(turn.state.cell).policy, known, "cell-file")
    changed = []
    for quota in file.quotas():
        before = turn.state.quotas.get((quota.tenant, quota.gpu_type))
        if before is None or (anew and before != quota):
            changed.append(quota)
    tenants = _tenants(file)
    if _put_quotas(turn, changed, tenants) is None:
        return
    # Some contradict what was set at run time: the rest of the file still counts.
    for quota in changed:
        fault = _put_quotas(turn, [quota], tenants)
        if fault is not None:
            refuse(turn, "cell-file", ProposalCode.NOT_ALLOWED, str(fault))


def set_quota(turn: Turn, event: SetQuota, file: CellFile) -> None:
    """Set all of these quotas, or none if one contradicts the others."""
    fault = _put_quotas(turn, event.quotas, _tenants(file), file.gpus_of(turn.state.cell))
    if fault is not None:
        refuse(turn, "set-quota", ProposalCode.NOT_ALLOWED, str(fault))


def _tenants(file: CellFile) -> frozenset[str]:
    return frozenset(tenant.name for tenant in file.tenants)


def _put_quotas(
    turn: Turn, quotas: Sequence[Quota], tenants: frozenset[str], gpus: Mapping[str, int] | None = None
) -> Fault | None:
    """Put all of these quotas in force; or none, with the rule that they break. Pools of which the cell file speaks are
    held against `gpus`, if there are any.
    """
    changed = {(quota.tenant, quota.gpu_type): quota for quota in quotas}
    merged = {**turn.state.quotas, **changed}
    fault = fault_among(merged, tuple(changed.values()), tenants)
    if fault is None and gpus is not None:
        fault = fault_in_pools(merged, (quota.gpu_type for quota in changed.values()), gpus)
    if fault is None:
        for quota in top_down(merged, changed.values()):
            turn.do(e.QuotaSet(quota=quota))
    return fault


def set_policy(turn: Turn, event: SetPolicy, known: tuple[str, ...]) -> None:
    """Set the cell's numbers, if the placement policy that they name is known."""
    _put_policy(turn, event.policy, known, "set-policy")


def _put_policy(turn: Turn, policy: CellPolicy, known: tuple[str, ...], whose: str) -> None:
    if policy.placement not in known:
        text = f"placement {policy.placement!r} is not one of {', '.join(known)}"
        refuse(turn, whose, ProposalCode.NOT_ALLOWED, text)
    elif policy != turn.state.policy:
        turn.do(e.PolicySet(policy=policy))


def refuse(turn: Turn, what: str, code: ProposalCode, text: str) -> None:
    """Write down that something was not carried out."""
    turn.do(e.ProposalRefused(proposal=what, code=code, text=text[:500]))


def hold_or_release(turn: Turn, event: HoldJob | ReleaseJob) -> None:
    """Keep a waiting job from starting, or let it go. To be in the wanted state already is no error."""
    job, request = turn.state.jobs.get(event.job), "hold" if isinstance(event, HoldJob) else "release"
    wanted_from = (JobStatus.QUEUED, JobStatus.AWAITING) if request == "hold" else (JobStatus.HELD,)
    if job is None:
        turn.do(e.JobRefused(job=event.job, request=request, code=RefuseCode.UNKNOWN_JOB))
    elif job.status in wanted_from:
        turn.do(e.JobHeld(job=job.id) if request == "hold" else e.JobReleased(job=job.id))
    elif job.status not in WAITING:
        text = f"it is {job.status}"
        turn.do(e.JobRefused(job=job.id, request=request, code=RefuseCode.WRONG_STATE, text=text))
