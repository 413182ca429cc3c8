"""Claims: the waiting jobs for which places are kept, of which GPU type, and how much of it for which owners.

The largest come first: one of each kind of an owner's, and no more of them than its idle guarantee holds. Jobs that are
not guaranteed whole come behind all that are. Where the places are found plays no part in this. A job that is no gang
counts with the fewest workers that may start: with the next one where it runs and lacks some, and then only if that one
is guaranteed whole, for it keeps others off no more than what is guaranteed to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fallow.services.placement.fit.empty_capacity import (
    Reach,
    could_ever_start,
    could_hold,
    could_hold_one_more,
    full_of_own,
    reach_of,
    without,
)
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.owners.lending import is_taken_back_for
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.quota_check import is_ever_allowed
from fallow.shared.cluster.model.independent_workers import in_line
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import over_limit
from fallow.shared.cluster.quota.room import firm_room, lineage
from fallow.shared.cluster.quota.tree import Account, Branch
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec

KINDS_MAX = 8
"""For the largest jobs of so many kinds places are kept for one owner. Jobs of one kind may use the same nodes."""

Where = tuple[object, ...]
"""What of a job decides which nodes it may use."""


class Form(NamedTuple):
    """What of a job decides which owners may keep places for it, and as a job of which kind."""

    tenant: str
    types: tuple[str, ...]
    where: Where


Place = tuple[int, int, int]
"""Of the waiting jobs the largest comes first, then the one that came first."""


class Wanted:
    """What jobs of one class of one tenant want: all that decides what is kept for one of them but for how large it is.
    What is worked out here holds while the nodes are what they are and no quota changes.
    """

    __slots__ = ("_could_start", "_could_use", "_of_type", "form", "spec")

    def __init__(self, state: CellState, job: Job) -> None:
        self.spec = in_line(job)
        self.form = Form(job.spec.tenant, tuple(types_for(state, self.spec)), _where(job.spec))
        self._could_use: bool | None = None
        self._could_start: dict[str, bool] = {}
        self._of_type: dict[str, tuple[JobSpec, Reach]] = {}

    def waits_for_room(self, state: CellState, waiter: Waiter, gpu_type: str) -> bool:
        """Whether room on open nodes of this type is what one of these jobs lacks, and would be of use to it now."""
        job = waiter.job
        if waiter.grows:  # it goes by the workers that it has, and its array has it already
            left = without(self.of_type(state, gpu_type)[1], dict(waiter.full))
            return bool(left) and could_use_room(state, job)
        if not may_start_one_more(state, job.spec):
            return False
        known = self._could_start.get(gpu_type)
        if known is None:
            spec, reach = self.of_type(state, gpu_type)
            known = bool(reach) and not _waits_for_maintenance(state, spec) and self._could_use_room(state, job)
            self._could_start[gpu_type] = known
        return known

    def _could_use_room(self, state: CellState, job: Job) -> bool:
        if self._could_use is None:
            self._could_use = could_use_room(state, job)
        return self._could_use

    def of_type(self, state: CellState, gpu_type: str) -> tuple[JobSpec, Reach]:
        """The job as it stands in line, of this GPU type, and where it could be."""
        found = self._of_type.get(gpu_type)
        if found is None:
            spec = replace(self.spec, gpu_type=gpu_type)
            found = self._of_type[gpu_type] = (spec, reach_of(state, spec))
        return found


class Waiter(NamedTuple):
    """A waiting job for which places may be kept. `is_sure` says that they are only if all of it is guaranteed to its
    own tenant; `grows` that it runs, and lacks workers. Then its own workers leave room for no other one on the `full`
    nodes, by pools as masks over their numbers.
    """

    place: Place
    job: Job
    wanted: Wanted
    is_sure: bool
    grows: bool
    full: tuple[tuple[str, int], ...]


class Claim(NamedTuple):
    """Places are kept for a job, of this type. Jobs that are guaranteed whole (`rank` 0) come first. None are kept on
    nodes that are `full` of its own workers. With `is_taken_back` they are for that job where they were lent.
    """

    rank: int
    place: Place
    wanted: Wanted
    gpu_type: str
    owners: tuple[tuple[Account, int], ...]
    full: tuple[tuple[str, int], ...]
    is_taken_back: bool

    @property
    def is_whole(self) -> bool:
        """Whether the whole job is guaranteed."""
        return not self.rank

    @property
    def milli(self) -> int:
        """How many milli-GPUs are kept for it at the most."""
        return max(milli for _, milli in self.owners)


def waiter(state: CellState, job: Job, wanted: Wanted, *, is_sure: bool = False) -> Waiter:
    """A job in its place among those that wait."""
    place = (-wanted.spec.gpus_milli, job.submit_ms, job.number)
    grows = job.status is not JobStatus.QUEUED
    return Waiter(place, job, wanted, is_sure, grows, tuple(sorted(full_of_own(state, job).items())) if grows else ())


def claims_of(state: CellState, waiters: Sequence[Waiter], forms: Iterable[Form]) -> list[Claim]:
    """What is claimed for these jobs, which stand in the order of their places and are of these forms."""
    choice = _Choice(state, forms)
    left = [each for each in choice.open_among(waiters) if choice.look_at(each, rank=0)]
    for each in choice.open_among(left):
        choice.look_at(each, rank=1)
    return choice.claims


class _Owner:
    """An account while claims are chosen: what is left of its idle guarantee, and for which kinds places are kept."""

    __slots__ = ("account", "kinds", "left")

    def __init__(self, branch: Branch) -> None:
        self.account, self.left = branch.account, branch.idle_milli
        self.kinds: dict[Where, None] = {}


class _Choice:
    """The claims while they are chosen."""

    def __init__(self, state: CellState, forms: Iterable[Form]) -> None:
        self._state = state
        self._owners: dict[Account, _Owner] = {}
        self._lines: dict[Account, list[_Owner]] = {}
        wheres = dict[Where, None]()
        for form in forms:
            wheres[form.where] = None
            for gpu_type in form.types:
                self._begin_line((form.tenant, gpu_type))
        self._kinds_max = min(KINDS_MAX, len(wheres))
        self._open = sum(owner.left > 0 for owner in self._owners.values())
        """How many owners may keep more for another job. Behind the last one nothing needs a look."""
        self.claims: list[Claim] = []

    def _begin_line(self, account: Account) -> None:
        if account in self._lines:
            return
        line = self._lines[account] = list[_Owner]()
        for above in lineage(self._state.tree.branches.get(account)):
            owner = self._owners.get(above.account)
            if owner is None:
                owner = self._owners[above.account] = _Owner(above)
            line.append(owner)

    def open_among(self, waiters: Iterable[Waiter]) -> Iterable[Waiter]:
        """These jobs, as long as any owner keeps anything more."""
        for each in waiters:
            if not self._open:
                return
            yield each

    def look_at(self, waiter: Waiter, *, rank: int) -> bool:
        """Claim places for this job, of the first type of which its owners have something idle for it, and nodes that
        could hold it. Whether they may keep any for it that is not guaranteed whole.
        """
        wanted, need, may_more = waiter.wanted, -waiter.place[0], False
        if not need or (waiter.is_sure and not _is_all_guaranteed(self._state, waiter)):
            return False
        (tenant, types, where), most = wanted.form, self._kinds_max
        for gpu_type in types:
            found = []
            for owner in self._lines[tenant, gpu_type]:
                if owner.left > 0 and len(owner.kinds) < most and where not in owner.kinds:
                    may_more = not waiter.grows
                    if rank or need <= owner.left:
                        found.append(owner)
            if found and self._may_claim(waiter, gpu_type, need):
                self._claim(waiter, gpu_type, found, rank)
                return may_more
        return may_more

    def _may_claim(self, waiter: Waiter, gpu_type: str, need: int) -> bool:
        """Whether its tenant may use so much of this type, and room of it is what it lacks."""
        tree, tenant = self._state.tree, waiter.wanted.spec.tenant
        if over_limit(tree, tenant, gpu_type, need) is not None:
            return False
        if not waiter.wanted.spec.preemptible and need > firm_room(tree, (tenant, gpu_type), 0):
            return False  # it may use none of what is idle there
        return waiter.wanted.waits_for_room(self._state, waiter, gpu_type)

    def _claim(self, waiter: Waiter, gpu_type: str, owners: list[_Owner], rank: int) -> None:
        need, found = -waiter.place[0], list[tuple[Account, int]]()
        for owner in owners:
            milli = min(need, owner.left)
            found.append((owner.account, milli))
            owner.left -= milli
            owner.kinds[waiter.wanted.form.where] = None
            self._open -= not owner.left or len(owner.kinds) == self._kinds_max
        is_taken_back = is_taken_back_for(self._state, waiter.job, waiter.wanted.spec, gpu_type)
        self.claims.append(Claim(rank, waiter.place, waiter.wanted, gpu_type, tuple(found), waiter.full, is_taken_back))


def could_use_room(state: CellState, job: Job) -> bool:
    """Whether room on open nodes is what the job lacks: not one that could never be, nor one that runs and whose own
    workers are all that its open nodes hold. Its array is not looked at.
    """
    if not (could_ever_start(state, job) and is_ever_allowed(state, job)):
        return False
    if job.status is not JobStatus.QUEUED:
        return could_hold_one_more(state, job)
    return bool(reach_of(state, in_line(job)))


def _where(spec: JobSpec) -> Where:
    return (spec.pools, spec.gpu_type, spec.kind, spec.node_labels, spec.tolerations, spec.topology, spec.exclusive)


def _waits_for_maintenance(state: CellState, spec: JobSpec) -> bool:
    """Whether the job is a gang that no pool would hold before its planned maintenance is over, were all nodes empty:
    until then room is of no use to it. In a strict queue it keeps those behind it waiting all the same.
    """
    pools = [state.pools[name] for name in spec.pools or state.pools if name in state.pools]
    return spec.gang and not any(could_hold(state, pool, spec) for pool in pools)


def _is_all_guaranteed(state: CellState, waiter: Waiter) -> bool:
    """Whether the whole job is guaranteed to its own tenant, of each GPU type of which room would be kept for it."""
    tenant, need, wanted = waiter.wanted.spec.tenant, -waiter.place[0], waiter.wanted
    types = [gpu_type for gpu_type in wanted.form.types if wanted.waits_for_room(state, waiter, gpu_type)]
    branches = [state.tree.branches.get((tenant, gpu_type)) for gpu_type in types]
    keeping = [
        branch for branch in branches if branch is not None and any(above.idle_milli for above in lineage(branch))
    ]
    return all(branch.used_milli + need <= branch.guaranteed_milli for branch in keeping)
