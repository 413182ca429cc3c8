"""Owners that wait for what is guaranteed to them and idle: for these it is kept. What they may reclaim makes no
difference, since nobody carries a reclaim out yet: who lent it now would wait until the borrower is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from services.placement.policy.arrays import may_start_one_more
from services.placement.policy.ever import could_ever_start, could_hold, waits_for_closed
from services.placement.policy.lines.line import Line
from services.placement.policy.lines.lines import Lines
from services.placement.policy.lines.row import Row
from services.placement.policy.quota_check import is_ever_allowed
from shared.cluster.gpu_types import types_for
from shared.cluster.job import Job, JobStatus
from shared.cluster.quota import over_limit
from shared.cluster.quota_room import lineage
from shared.cluster.quota_tree import Account, Branch
from shared.cluster.state import CellState
from shared.events.queue import QueueDiscipline, QueueOrder
from shared.events.reasons import DeferCode
from shared.events.values import JobSpec

Wants = tuple[object, ...]
"""What of a job decides for which accounts it waits, and what it needs of them."""


class Owners:
    """The needs of owners whose jobs could start now if there was room.

    They stand in the state's tree, where who looks for room finds them; they follow from the lines, not from the log.
    What it costs to note them goes by the tenants that have something idle and wait, and by their classes.
    """

    def __init__(self) -> None:
        self._needs: dict[Wants, list[tuple[Account, int]]] = {}
        self._heads: dict[str, None] = {}
        self._has_started = False

    def forget(self, state: CellState) -> None:
        """The state is another one."""
        self._needs, self._heads, state.tree.waiting = {}, {}, {}

    def note(self, state: CellState, lines: Lines) -> bool:
        """Look who waits now. Whether others do than before: then other jobs may borrow, and are tried again."""
        before, has_started = state.tree.waiting, self._has_started
        self._needs, self._heads, self._has_started = {}, {}, False
        state.tree.waiting = {}
        idle = _with_idle(state, lines.tenants())
        if idle:
            firsts: dict[Line, str] = {}
            for tenant in idle:
                for row, line in lines.rows_of(tenant):
                    self._note_class(state, row, line, firsts)
        return has_started or state.tree.waiting != before

    def note_all(self, state: CellState) -> None:
        """The same for somebody who has no lines and looks at all jobs."""
        waiting = [job for job in state.jobs.values() if job.status is JobStatus.QUEUED]
        idle = _with_idle(state, dict.fromkeys(job.spec.tenant for job in waiting))
        state.tree.waiting = {}
        for job in waiting:
            if job.spec.tenant in idle and job.deferred is not DeferCode.BEHIND_HEAD:
                self._count(state, job, 1)

    def started(self, state: CellState, lines: Lines, job: Job) -> None:
        """This one does not wait any more: nothing is kept for it from now on."""
        if not state.tree.waiting or job.status is not JobStatus.QUEUED:
            return
        is_strict = lines.queue(job.spec.queue).discipline is QueueDiscipline.STRICT_FIFO
        if is_strict and job.spec.id not in self._heads:
            return
        for account, need in self._needs.get(_wants(job.spec), ()):
            of_account = state.tree.waiting.get(account, {})
            if need in of_account:
                self._has_started = True
                of_account[need] -= 1
                if not of_account[need]:
                    del of_account[need]

    def _note_class(self, state: CellState, row: Row, line: Line, firsts: dict[Line, str]) -> None:
        """Those of a class that could start now. In a strict line that is the first one only: to keep room for one
        behind it could keep the first from starting, and then both would wait for ever. By shares the first of a tenant
        may stand behind one of another tenant, whom it passes only with what is guaranteed to it.
        """
        assert row.first is not None, "somebody waits in it"
        job, number = state.jobs[row.first[-1]], len(row)
        if line.queue.discipline is QueueDiscipline.STRICT_FIFO:
            if line not in firsts:
                firsts[line] = _first_of(state, line)
            if firsts[line] != job.spec.id:
                return
            if line.queue.order is QueueOrder.FAIR_SHARE and not _is_all_guaranteed(state, job.spec):
                return
            self._heads[job.spec.id] = None
            number = 1
        if job.status is JobStatus.QUEUED:
            self._count(state, job, number)

    def _count(self, state: CellState, job: Job, number: int) -> None:
        spec = job.spec
        wants = _wants(spec)
        needs = self._needs.get(wants)
        if needs is None:
            needs = self._needs[wants] = [(account, spec.gpus_milli) for account in _owners_above(state, spec)]
        if needs and _waits_for_room(state, job) and not _waits_for_maintenance(state, job):
            for account, need in needs:
                of_account = state.tree.waiting.setdefault(account, {})
                of_account[need] = of_account.get(need, 0) + number


def has_owners(state: CellState) -> bool:
    """Whether anything is guaranteed to anybody."""
    return bool(state.quotas) and any(cohort.has_guarantees for cohort in state.tree.cohorts.values())


def _with_idle(state: CellState, tenants: Iterable[str]) -> dict[str, None]:
    """Those of the tenants to whom, or to one above whom, something is guaranteed that is idle and may be lent."""
    tree, found = state.tree, dict[str, None]()
    if not has_owners(state):
        return found
    types = [gpu_type for gpu_type, cohort in tree.cohorts.items() if cohort.has_guarantees]
    for tenant in tenants:
        branches = [tree.branches.get((tenant, gpu_type)) for gpu_type in types]
        if any(_is_idle(above) for branch in branches for above in lineage(branch)):
            found[tenant] = None
    return found


def _is_idle(branch: Branch) -> bool:
    return branch.idle_milli > branch.home_idle_milli


def _first_of(state: CellState, line: Line) -> str:
    """The first job of a line that room would help; "" where there is none."""
    firsts = [row.first for row in line.rows.values() if row.first is not None]
    heapify(firsts)
    while firsts:
        job_id = heappop(firsts)[-1]
        if _waits_for_room(state, state.jobs[job_id]):
            return job_id
    return ""


def _waits_for_room(state: CellState, job: Job) -> bool:
    """Whether room is what the job lacks: not an element whose array may have no more, nor one that could never be."""
    if job.status is JobStatus.QUEUED and not may_start_one_more(state, job.spec):
        return False
    return could_ever_start(state, job) and is_ever_allowed(state, job) and not waits_for_closed(state, job)


def _waits_for_maintenance(state: CellState, job: Job) -> bool:
    """Whether the job is a gang that no pool would hold before its planned maintenance is over, were all nodes empty:
    until then room is of no use to it. In a strict queue it keeps those behind it waiting all the same.
    """
    spec = job.spec
    pools = [state.pools[name] for name in spec.pools or state.pools if name in state.pools]
    return spec.gang and not any(could_hold(state, pool, spec) for pool in pools)


def _wants(spec: JobSpec) -> Wants:
    return (spec.tenant, spec.gpu_type, spec.pools, spec.gpus_milli)


def _is_all_guaranteed(state: CellState, spec: JobSpec) -> bool:
    """Whether the whole job is guaranteed to its own tenant, of each GPU type of which room would be kept for it."""
    branches = [state.tree.branches.get((spec.tenant, gpu_type)) for gpu_type in types_for(state, spec)]
    keeping = [branch for branch in branches if branch is not None and any(map(_is_idle, lineage(branch)))]
    return all(branch.used_milli + spec.gpus_milli <= branch.guaranteed_milli for branch in keeping)


def _owners_above(state: CellState, spec: JobSpec) -> list[Account]:
    """The accounts that keep what is theirs for this job: not for one that is at a limit."""
    tree, found = state.tree, list[Account]()
    for gpu_type in types_for(state, spec):
        branch = tree.branches.get((spec.tenant, gpu_type))
        if branch is None or over_limit(tree, spec.tenant, gpu_type, spec.gpus_milli) is not None:
            continue
        found += [above.account for above in lineage(branch) if _is_idle(above)]
    return found
