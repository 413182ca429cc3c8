"""Whether a start is within what its tenant may use: its limits, its right to borrow, and what others lend.

This comes before any look at nodes. What is free counts here only where others keep a part of it. An exclusive job
counts there with whole nodes, the fewest that hold it; once its places are found, with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fallow.services.placement.fit.empty_capacity import goes_to_several_pools, open_room, reach_of
from fallow.services.placement.fit.usable_types import types_for, types_in, types_of_workers
from fallow.services.placement.owners.kept_of_cell import kept_of_cell_milli
from fallow.services.placement.search.whole_nodes import takes_milli, whole_by_type
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.gpu_types import idle_milli, open_milli
from fallow.shared.cluster.capacity.hardware import CLOSED
from fallow.shared.cluster.capacity.taken_alone import with_whole_nodes
from fallow.shared.cluster.model.independent_workers import in_line
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import over_limit
from fallow.shared.cluster.quota.room import drawn_from_cell, firm_room, has_guarantee, lineage
from fallow.shared.cluster.quota.tree import QuotaTree
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.reasons import PendingReason


def refusal_in_pool(state: CellState, pool: PoolCapacity, spec: JobSpec) -> PendingReason | None:
    """Why the whole job may not start in this pool, whichever of its GPU types it gets; None if it may. What is kept
    for owners of one type comes before a quota of another: the job waits for them, and they must not wait for it.
    """
    found = None
    for gpu_type in types_in(state, pool, spec):
        refused = _refusal_of_whole(state, spec, gpu_type)
        if refused is None:
            return None
        found = found if found is PendingReason.RESERVED_FOR_OTHER else refused
    return found


def is_over_limits(state: CellState, spec: JobSpec) -> bool:
    """Whether a limit keeps the whole job from each GPU type that it could get, however much is free."""
    return limit_reached(state, spec) is not None


def limit_reached(state: CellState, spec: JobSpec) -> str | None:
    """The tenant, its own or one above it, below whose limit such a job waits: of its first GPU type. None where it may
    have one of its types.
    """
    over = [over_limit(state.tree, spec.tenant, each, spec.gpus_milli) for each in types_for(state, spec)]
    return over[0][0] if over and over[0] is not None and all(over) else None


def is_ever_allowed(state: CellState, job: Job) -> bool:
    """Whether any of the GPU types that the job could get may be used so much by its tenant if nothing else was in use
    and no node that a person has closed opened again. One that quotas keep from some of its types must fit on open
    nodes of another; one that may take some of each type, with all that it may have of each together.
    """
    if not state.quotas:
        return True
    spec = in_line(job)
    types, held = types_for(state, spec), _held_for(state, spec)
    milli = {each: spec.gpus_milli + held.get(each, 0) for each in types}
    if all(_is_ever_within(state, spec, each, milli[each], may_be_part=True) for each in types):
        return True
    if goes_to_several_pools(spec) or held:
        return sum(_ever_of_type(state, job, spec, each, held.get(each, 0)) for each in types) >= spec.workers
    allowed = [each for each in types if _is_ever_within(state, spec, each, milli[each])]
    return bool(allowed) if len(types) == 1 else any(reach_of(state, replace(spec, gpu_type=each)) for each in allowed)


def _ever_of_type(state: CellState, job: Job, spec: JobSpec, gpu_type: str, held_milli: int) -> int:
    """How many workers of one type a job may ever have beside those that it has, on open nodes and by its quotas."""
    here = [place.node for place in (*job.workers, *job.joining)]
    nodes = [node for node_id in here if (node := state.nodes[node_id]).spec.gpu_type == gpu_type]
    room = open_room(state, replace(spec, gpu_type=gpu_type)) - sum(node.status not in CLOSED for node in nodes)
    return min(room, _max_ever(state, spec, gpu_type, held_milli))


def _max_ever(state: CellState, spec: JobSpec, gpu_type: str, held_milli: int) -> int:
    """How many of these workers quotas may ever let the job have of one type, beside what it holds of it."""
    fits, fails = 0, spec.workers + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        some = replace(spec, workers=middle, workers_min=middle)
        if _is_ever_within(state, some, gpu_type, some.gpus_milli + held_milli, may_be_part=True):
            fits = middle
        else:
            fails = middle
    return fits


class WaitsBy(NamedTuple):
    """The GPU types that a job could get, by what keeps it there: `room` that is in use; too little of what is lent, or
    guaranteed to no tenant, which is there `to_all`; or what a tenant has, `under` whose limit it stands.
    """

    room: list[str]
    to_all: list[str]
    under: dict[str, list[str]]


def waits_by_types(state: CellState, spec: JobSpec) -> WaitsBy:
    """What keeps a job from each of its GPU types now, but for those of which it could never have so much: of one that
    may take some of each, for those of which it could have none, and from as much of the others as it could have.
    """
    found, held = WaitsBy([], [], {}), _held_for(state, spec)
    for each in types_for(state, spec):
        wanted = _wanted_of(state, spec, each, held.get(each, 0))
        if wanted is None:
            continue
        if _refusal_of_whole(state, wanted, each) in (None, PendingReason.RESERVED_FOR_OTHER):
            found.room.append(each)
            continue
        under = _account_reached(state, wanted, each)
        (found.to_all if under is None else found.under.setdefault(under, [])).append(each)
    return found


def is_kept_by_quotas(state: CellState, spec: JobSpec) -> bool:
    """Whether quotas keep a job now from any of the GPU types that it could get."""
    waits = waits_by_types(state, spec) if state.quotas else None
    return waits is not None and bool(waits.under or waits.to_all)


def _wanted_of(state: CellState, spec: JobSpec, gpu_type: str, held_milli: int) -> JobSpec | None:
    """The job as far as it could ever be of this type; None where it could not."""
    if not goes_to_several_pools(spec) or spec.gpu_type is not None:
        return spec if _is_ever_within(state, spec, gpu_type, spec.gpus_milli + held_milli) else None
    most = _max_ever(state, spec, gpu_type, held_milli)
    return replace(spec, workers=most, workers_min=most) if most else None


def _account_reached(state: CellState, spec: JobSpec, gpu_type: str) -> str | None:
    """The tenant whose limit the job would pass, its own or one above it, or of whose guarantee too little is left for
    one that may not be preempted; None where what others have keeps it: also from one that fits into its guarantee, of
    which others have borrowed what it needs.
    """
    tree, account = state.tree, (spec.tenant, gpu_type)
    over = over_limit(tree, *account, spec.gpus_milli)
    if over is not None:
        return over[0]
    lines = lineage(tree.branches.get(account))
    sure = next((branch.account for branch in lines if branch.guaranteed_milli), None)
    if sure is None or spec.preemptible:
        return None
    with with_whole_nodes(state, gpu_type):
        fits = takes_milli(state, spec, gpu_type) <= firm_room(tree, account, 0)
    return None if fits else sure[0]


def _held_for(state: CellState, spec: JobSpec) -> dict[str, int]:
    """What the workers hold, by GPU type, of a job whose workers come singly, in milli-GPUs."""
    held: dict[str, int] = {}
    job = None if spec.gang else state.jobs.get(spec.id)
    if job is None:
        return held
    for place in (*job.workers, *job.joining):
        gpu_type = state.nodes[place.node].spec.gpu_type
        held[gpu_type] = held.get(gpu_type, 0) + place.gpu_milli
    return held


def _is_ever_within(state: CellState, spec: JobSpec, gpu_type: str, milli: int, *, may_be_part: bool = False) -> bool:
    """Whether the job may ever have this type, by the rules of a start: what others do not lend is never the job's, and
    one that may not be preempted has of the rest only what is guaranteed to it, or to no tenant. `may_be_part`: also
    where there is not so much of it, and the job would get the rest of another type.
    """
    tree, taken_milli = state.tree.at_rest, milli - spec.gpus_milli + takes_milli(state, spec, gpu_type)
    if not taken_milli:
        return True
    if over_limit(tree, spec.tenant, gpu_type, milli) is not None:
        return False
    if gpu_type not in tree.cohorts:
        return True
    free_milli = open_milli(state, gpu_type)
    return _of_others(tree, spec, gpu_type, taken_milli, free_milli, may_be_part=may_be_part) is None


def is_parted(state: CellState, pool: PoolCapacity, spec: JobSpec) -> bool:
    """Whether an untyped job must keep to one of the pool's types, since of another its tenant may not use so much."""
    types = types_of_workers(state, pool, spec) if spec.gpu_type is None else {}
    if len(types) < 2:  # noqa: PLR2004 - nearly every pool has one
        return False
    return any(_refusal_of_whole(state, spec, each, may_be_part=True) is not None for each in types)


def refusal_of_places(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace]) -> PendingReason | None:
    """Why a job may not have these places, or None."""
    by_type: dict[str, int] = {}
    for place in places:
        gpu_type = state.nodes[place.node].spec.gpu_type
        by_type[gpu_type] = by_type.get(gpu_type, 0) + place.gpu_milli
    taken = whole_by_type(state, places) if spec.exclusive else by_type
    for gpu_type, milli in by_type.items():
        found = refusal(state, spec, gpu_type, milli, taken_milli=taken[gpu_type])
        if found is not None:
            return found
    return None


def _refusal_of_whole(
    state: CellState, spec: JobSpec, gpu_type: str, *, may_be_part: bool = False
) -> PendingReason | None:
    """Why the whole job may not be of this type, wherever it would be."""
    taken_milli = takes_milli(state, spec, gpu_type)
    return refusal(state, spec, gpu_type, spec.gpus_milli, taken_milli=taken_milli, may_be_part=may_be_part)


def refusal(
    state: CellState, spec: JobSpec, gpu_type: str, milli: int, *, taken_milli: int, may_be_part: bool = False
) -> PendingReason | None:
    """Why so much of a GPU type may not be used more by the job's tenant, while others cannot have `taken_milli` of it
    then. `may_be_part`: the job may get less of it, and the rest of another type. What is idle, and would be too little
    then for owners that wait for what they have lent, is `reserved_for_other`.
    """
    if not taken_milli:
        return None
    if over_limit(state.tree, spec.tenant, gpu_type, milli) is not None:
        return PendingReason.QUOTA_REACHED
    cohort = state.tree.cohorts.get(gpu_type)
    if cohort is None or (spec.preemptible and not cohort.home_idle_milli):
        return None
    free_milli = idle_milli(state, gpu_type)
    if taken_milli > free_milli and not may_be_part and not _is_ever_within(state, spec, gpu_type, milli):
        return PendingReason.QUOTA_REACHED  # to wait for room helps no job that quotas keep from it for good
    kept = state.tree.kept.of_types.get(gpu_type)
    max_milli = free_milli - cohort.home_idle_milli - (0 if kept is None else kept.milli)
    if spec.preemptible and taken_milli <= max_milli and not (kept and kept.has_alone):
        return None  # nearly always: there is enough beside all that is kept
    with with_whole_nodes(state, gpu_type):
        found = _of_others(state.tree, spec, gpu_type, taken_milli, free_milli, may_be_part=may_be_part)
        is_idle = kept is not None and taken_milli <= free_milli
        if found is None and is_idle and _is_kept(state, spec, gpu_type, taken_milli, free_milli):
            return PendingReason.RESERVED_FOR_OTHER
        return found


def _is_kept(state: CellState, spec: JobSpec, gpu_type: str, milli: int, free_milli: int) -> bool:
    """Whether too little of what is free would be left for owners that wait, beside all that is not lent."""
    tree = state.tree
    drawn_milli = drawn_from_cell(tree.branches.get((spec.tenant, gpu_type)), milli)
    left_milli = free_milli - tree.cohorts[gpu_type].home_idle_milli - drawn_milli
    return drawn_milli > 0 and left_milli < kept_of_cell_milli(state, spec, gpu_type)


def _of_others(
    tree: QuotaTree, spec: JobSpec, gpu_type: str, milli: int, free_milli: int, *, may_be_part: bool = False
) -> PendingReason | None:
    """Why the job waits by what others have: of `free_milli` that are free the job takes `milli`."""
    account, cohort = (spec.tenant, gpu_type), tree.cohorts[gpu_type]
    waits_for_room = milli > free_milli and not may_be_part
    is_firm = spec.preemptible or milli <= firm_room(tree, account, free_milli)
    # What is guaranteed to no tenant, and in use, comes back as any other room does.
    if not is_firm and (not waits_for_room or has_guarantee(tree, account)):
        return PendingReason.QUOTA_REACHED
    drawn_milli = drawn_from_cell(tree.branches.get(account), milli)
    left_milli = free_milli - cohort.home_idle_milli - drawn_milli
    if not drawn_milli or waits_for_room:
        return None  # of what is not free no quota speaks
    return PendingReason.QUOTA_REACHED if left_milli < 0 else None
