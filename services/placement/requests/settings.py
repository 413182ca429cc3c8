"""What placement does with quotas, policies and what is not built in: proposals and loans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.requests.contradictions import contradictions
from fallow.services.placement.requests.dropped_quotas import dropped, guarantee_nothing, remove_unused
from fallow.services.placement.requests.requests import too_old
from fallow.shared.cluster.model.arrays import elements_of
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import CELL_FILE
from fallow.shared.cluster.model.job import WAITING, Job, JobStatus
from fallow.shared.cluster.model.lease import wrong_lease
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quotas_one_by_one import QuotasOneByOne
from fallow.shared.cluster.quota.rules import (
    QUOTAS_MAX,
    Fault,
    fault_among,
    fault_in_pools,
    guaranteed_by_type,
    top_down,
)
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import CellPolicy, HoldJob, Quota, ReleaseJob, SetPolicy, SetQuota
from fallow.shared.events.reasons import ProposalCode, RefuseCode

SET_QUOTA, SET_POLICY = "set-quota", "set-policy"
"""How refusals name what they are about; CELL_FILE, where it is a part of that."""

QUOTAS_BYTES_MAX = 400_000
"""Quotas that are set together are one decision, and its record must have room for them."""

_STEPS_OF_A_QUOTA = 20
"""What a quota costs, whether it changes or not, when the rules over all of its GPU type are looked at."""

CONTRADICTIONS_TOLD_MAX = 20
"""So many quotas of a cell file that contradict others are told of one by one."""

STEPS_OF_A_BRANCH = 5
"""What each quota of the cell costs once more when one has changed: who asks next makes the whole tree anew."""


def configure(
    decision: DecisionBuilder, file: CellFile, known: tuple[str, ...], in_force: CellFile | None = None, *, anew: bool
) -> bool:
    """Bring the state to the cell file, as far as the record has room. What was changed at run time stays, unless the
    file is put in force `anew`: also that a quota was removed which the file `in_force` until now names already. What
    only that file has goes first, so that it is in no other quota's way. Whether all of it is in force now, but for
    what contradicts others.
    """
    if anew or decision.state.version == 0:
        _put_policy(decision, file.cell(decision.state.cell).policy, known, CELL_FILE)
    decision.steps += len(file.quotas())
    old = dropped(decision.state, file, in_force, anew=anew)
    changed = _new_in(decision.state, file, in_force, anew=anew)
    if not (remove_unused(decision, old) and guarantee_nothing(decision, old)):
        return False
    changed += [none for at, none in old.items() if at in decision.state.quotas and not _is_set(decision.state, none)]
    # Those that stood below others may stand elsewhere then.
    return _put_in_order(decision, changed, file) and remove_unused(decision, old)


def tell_contradictions(decision: DecisionBuilder, file: CellFile, in_force: CellFile | None, *, anew: bool) -> None:
    """Refuse the quotas of the cell file that are not in force as it says, as all of it is put in force (`anew` or
    beside what was set at run time). There is room for that in any record.
    """
    decision.steps += _STEPS_OF_A_QUOTA * len(decision.state.quotas)
    before = {} if anew or in_force is None else _by_account(in_force)
    gpus = file.gpus_of(decision.state.cell)
    found = contradictions(decision.state, _by_account(file), before, _tenants(file), gpus)
    for text in found[:CONTRADICTIONS_TOLD_MAX]:
        refuse(decision, CELL_FILE, ProposalCode.NOT_ALLOWED, text)
    if len(found) > CONTRADICTIONS_TOLD_MAX:
        more = f"{len(found) - CONTRADICTIONS_TOLD_MAX} more quotas contradict others"
        refuse(decision, CELL_FILE, ProposalCode.NOT_ALLOWED, more)


def _new_in(state: CellState, file: CellFile, in_force: CellFile | None, *, anew: bool) -> list[Quota]:
    """The quotas of a file that are to be set: all that are not as it says, or all but those that were changed at run
    time. One that is not there was removed at run time if the file in force has it.
    """
    there = frozenset(() if in_force is None else _by_account(in_force))
    changed = []
    for quota in file.quotas():
        account = (quota.tenant, quota.gpu_type)
        is_ours = state.quotas_of_file.get(account, account not in state.quotas and account not in there)
        if (anew or is_ours) and not _is_set(state, quota):
            changed.append(quota)
    return changed


def _is_set(state: CellState, quota: Quota) -> bool:
    """Whether a file has set this very quota, and it has not been changed since."""
    account = (quota.tenant, quota.gpu_type)
    return state.quotas.get(account) == quota and state.quotas_of_file.get(account, False)


def _too_many(state: CellState, more: int) -> str:
    return f"the cell would have {len(state.quotas) + more} quotas, it takes at most {QUOTAS_MAX}"


def _put_in_order(decision: DecisionBuilder, changed: Sequence[Quota], file: CellFile) -> bool:
    """Set these quotas of the cell file. Whether the record had room for all. They are never too many: a file is
    bounded where it is asked for, one that the log holds has its quotas in the state, and those of tenants that go are
    removed before them, or behind them what stood above others.
    """
    if not changed:
        return True
    merged, fault = _merged(decision, changed, _tenants(file))
    gpus, types = file.gpus_of(decision.state.cell), {quota.gpu_type: None for quota in changed}
    fault = fault or fault_in_pools(guaranteed_by_type(merged), [each for each in types if each in gpus], gpus)
    in_order = top_down(merged, changed)
    return _put_first(decision, in_order if fault is None else _without_contradictions(decision, in_order, file))


def _without_contradictions(decision: DecisionBuilder, changed: Sequence[Quota], file: CellFile) -> list[Quota]:
    """These quotas, where some contradict what was set at run time. Those are without their guarantees: their limits
    count, and which tenant stands below which. None contradicts what the file itself is about to change.
    """
    quotas = QuotasOneByOne(decision.state.quotas, _tenants(file), file.gpus_of(decision.state.cell))
    decision.steps += _STEPS_OF_A_QUOTA * len(decision.state.quotas)
    placed = [quotas.place(quota) for quota in changed]
    found = [
        least if unplaced or quotas.put(quota) else quota
        for quota, (least, unplaced) in zip(changed, placed, strict=True)
    ]
    return [each for each in found if not _is_set(decision.state, each)]


def _by_account(file: CellFile) -> dict[Account, Quota]:
    return {(quota.tenant, quota.gpu_type): quota for quota in file.quotas()}


def _put_first(decision: DecisionBuilder, quotas: Sequence[Quota]) -> bool:
    """Set these quotas in their order. Whether the record had room for all of them."""
    for quota in quotas:
        if decision.is_full:
            return False
        decision.emit(e.QuotaSet(quota=quota, of_file=True))
    return True


def set_quota(decision: DecisionBuilder, event: SetQuota, file: CellFile) -> None:
    """Set all of these quotas, or none if one contradicts the others."""
    unknown = [name for name in event.fields if name not in Quota.__struct_fields__]
    if unknown:
        refuse(decision, SET_QUOTA, ProposalCode.NOT_ALLOWED, f"unknown quota field {unknown[0]!r}")
        return
    if _is_named_twice(decision, SET_QUOTA, event.fields):
        return
    accounts = Counter((quota.tenant, quota.gpu_type) for quota in event.quotas)
    twice = [f"{tenant}/{gpu_type}" for (tenant, gpu_type), count in accounts.items() if count > 1]
    if twice:
        refuse(decision, SET_QUOTA, ProposalCode.NOT_ALLOWED, f"the quota of {twice[0]} is named more than once")
        return
    quotas = event.quotas
    if event.fields:
        parents = {tenant.name: tenant.parent for tenant in file.tenants}
        quotas = tuple(_changed(decision.state, quota, event.fields, parents) for quota in quotas)
    size_bytes = sum(len(encode(e.QuotaSet(quota=quota))) + 1 for quota in quotas)
    if size_bytes > QUOTAS_BYTES_MAX:
        text = f"{len(quotas)} quotas need {size_bytes} bytes, a decision takes {QUOTAS_BYTES_MAX}: set fewer at once"
        refuse(decision, SET_QUOTA, ProposalCode.NOT_ALLOWED, text)
        return
    new = len(accounts.keys() - decision.state.quotas.keys())
    if new and len(decision.state.quotas) + new > QUOTAS_MAX:
        refuse(decision, SET_QUOTA, ProposalCode.NOT_ALLOWED, _too_many(decision.state, new))
        return
    fault = _put_quotas(decision, quotas, _tenants(file), file.gpus_of(decision.state.cell))
    if fault is not None:
        refuse(decision, SET_QUOTA, ProposalCode.NOT_ALLOWED, str(fault))


def _is_named_twice(decision: DecisionBuilder, what: str, fields: Sequence[str]) -> bool:
    """Whether a field is named more than once, and the operation is refused for it."""
    for number, name in enumerate(fields):
        if name in fields[:number]:
            refuse(decision, what, ProposalCode.NOT_ALLOWED, f"{name!r} is named more than once")
            return True
    return False


def _changed(state: CellState, quota: Quota, fields: Sequence[str], parents: Mapping[str, str | None]) -> Quota:
    """The quota in force with these fields of the other; a new one stands where the cell file puts its tenant."""
    before = state.quotas.get((quota.tenant, quota.gpu_type))
    if before is None:
        before = Quota(tenant=quota.tenant, gpu_type=quota.gpu_type, parent=parents.get(quota.tenant))
    return replace(before, **{name: getattr(quota, name) for name in fields})


def _tenants(file: CellFile) -> frozenset[str]:
    return frozenset(tenant.name for tenant in file.tenants)


def _put_quotas(
    decision: DecisionBuilder, quotas: Sequence[Quota], tenants: frozenset[str], gpus: Mapping[str, int] | None = None
) -> Fault | None:
    """Put all of these quotas in force; or none, with the rule that they break. Pools of which the cell file speaks are
    held against `gpus`, if there are any.
    """
    merged, fault = _merged(decision, quotas, tenants)
    changed = {(quota.tenant, quota.gpu_type): quota for quota in quotas}
    if fault is None and gpus is not None:
        before, after = guaranteed_by_type(decision.state.quotas), guaranteed_by_type(merged)
        types = dict.fromkeys(quota.gpu_type for quota in changed.values())
        fault = fault_in_pools(after, [each for each in types if after[each] > before[each]], gpus)
    if fault is None:
        for quota in top_down(merged, changed.values()):
            decision.emit(e.QuotaSet(quota=quota))
    return fault


def _merged(
    decision: DecisionBuilder, quotas: Sequence[Quota], tenants: frozenset[str]
) -> tuple[dict[Account, Quota], Fault | None]:
    """All quotas of the same GPU types as they would be with these, and the rule that they would break together, if
    any: quotas of other types have nothing to do with them.
    """
    changed, before = {(quota.tenant, quota.gpu_type): quota for quota in quotas}, decision.state.quotas
    types = {quota.gpu_type for quota in quotas}
    merged = {account: quota for account, quota in before.items() if account[1] in types} | changed
    decision.steps += _STEPS_OF_A_QUOTA * len(merged) + STEPS_OF_A_BRANCH * len(before)
    return merged, fault_among(merged, tuple(changed.values()), tenants)


def set_policy(decision: DecisionBuilder, event: SetPolicy, known: tuple[str, ...]) -> None:
    """Set the cell's numbers, if all of them are known, and the placement policy that they name."""
    policy = event.policy
    if event.fields:
        unknown = [name for name in event.fields if name not in CellPolicy.__struct_fields__]
        if unknown:
            refuse(decision, SET_POLICY, ProposalCode.NOT_ALLOWED, f"{unknown[0]!r} is no setting of a policy")
            return
        if _is_named_twice(decision, SET_POLICY, event.fields):
            return
        policy = replace(decision.state.policy, **{name: getattr(policy, name) for name in event.fields})
    _put_policy(decision, policy, known, SET_POLICY)


def _put_policy(decision: DecisionBuilder, policy: CellPolicy, known: tuple[str, ...], whose: str) -> None:
    if policy.placement not in known:
        text = f"placement {policy.placement!r} is not one of {', '.join(known)}"
        refuse(decision, whose, ProposalCode.NOT_ALLOWED, text)
    elif (wrong := wrong_lease(policy)) is not None and _has_another_lease(policy, decision.state.policy):
        refuse(decision, whose, ProposalCode.NOT_ALLOWED, str(wrong))
    elif policy != decision.state.policy:
        decision.emit(e.PolicySet(policy=policy))


def _has_another_lease(policy: CellPolicy, before: CellPolicy) -> bool:
    """Whether nodes would go by another lease: one that an earlier release took is in the way of no other setting."""
    leases = [(each.node_lease_wall_ms, each.lease_margin_wall_ms) for each in (policy, before)]
    return leases[0] != leases[1]


def refuse(decision: DecisionBuilder, what: str, code: ProposalCode, text: str) -> None:
    """Write down that something was not carried out."""
    decision.emit(e.ProposalRefused(proposal=what, code=code, text=text[:500]))


def hold_or_release(
    decision: DecisionBuilder,
    event: HoldJob | ReleaseJob,
    following: Iterable[Event | None] = (),
    sent_ms: int | None = None,
) -> None:
    """Keep a waiting job, or all waiting elements of an array, from starting, or let them go. To be in the wanted state
    already is no error. What was sent before the job was meant an earlier one of its id. A hold is told of one element
    only where another hold, or a release, is among those `following`: that one decides on all of them.
    """
    request = "hold" if isinstance(event, HoldJob) else "release"
    array, job = decision.state.arrays.get(event.job), decision.state.jobs.get(event.job)
    why = too_old(sent_ms, array or job)
    if why:
        decision.emit(e.JobRefused(job=event.job, request=request, code=RefuseCode.REQUEST_TOO_OLD, text=why))
        return
    decision.steps += 0 if array is None else array.elements
    jobs = list(elements_of(decision.state, array)) if array is not None else [] if job is None else [job]
    if not jobs:
        over = decision.state.finished.get(event.job)
        code, text = (RefuseCode.UNKNOWN_JOB, "") if over is None else (RefuseCode.ALREADY_OVER, f"it is {over.status}")
        decision.emit(e.JobRefused(job=event.job, request=request, code=code, text=text))
    elif not any(job.status in WAITING for job in jobs):
        text = f"it is {jobs[0].status}" if array is None else "none of its elements waits"
        decision.emit(e.JobRefused(job=event.job, request=request, code=RefuseCode.WRONG_STATE, text=text))
    changes = _may_be_held if request == "hold" else _is_held
    changed = [each for each in jobs if changes(each)]
    if request == "hold" and len(changed) > 1 and any(_decides_too(later, event) for later in following):
        del changed[1:]
    for each in changed:
        decision.emit(e.JobHeld(job=each.id) if request == "hold" else e.JobReleased(job=each.id))


def _may_be_held(job: Job) -> bool:
    """Whether a hold changes the job: it waits, or it is held for another reason than a wish of a person."""
    return job.status in (JobStatus.QUEUED, JobStatus.AWAITING) or bool(job.held_why)


def _is_held(job: Job) -> bool:
    return job.status is JobStatus.HELD


def _decides_too(later: Event | None, event: HoldJob | ReleaseJob) -> bool:
    return isinstance(later, HoldJob | ReleaseJob) and (later.cell, later.job) == (event.cell, event.job)
