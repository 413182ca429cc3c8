"""Owners: tenants of whom a job waits though GPUs of their guarantee are idle. Places are kept for such jobs, whatever
the quota says of `reclaim`: nothing is taken back yet, so what an owner lends now is away until the borrower is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from heapq import heapify, heappop

from services.placement.policy.arrays import may_start_one_more
from services.placement.policy.ever import could_ever_start, could_hold, reach_of
from services.placement.policy.holdback import pick
from services.placement.policy.lines.line import Line
from services.placement.policy.lines.lines import Lines
from services.placement.policy.lines.row import Row
from services.placement.policy.quota_check import is_ever_allowed
from shared.cluster.gpu_types import types_for
from shared.cluster.job import Job, JobStatus
from shared.cluster.kept_places import NOTHING_KEPT, Kept, KeptPlaces, taken
from shared.cluster.quota import over_limit
from shared.cluster.quota_room import firm_room, lineage
from shared.cluster.quota_tree import Account, Branch
from shared.cluster.singly import in_line
from shared.cluster.state import CellState
from shared.events.queue import QueueDiscipline, QueueOrder
from shared.events.reasons import DeferCode
from shared.events.value import replace
from shared.events.values import JobSpec

KINDS_MOST = 8
"""For the largest jobs of so many kinds places are kept for one owner. Jobs of one kind may use the same nodes."""

Where = tuple[object, ...]
"""What of a job decides which nodes it may use."""


class Owners:
    """The owners of one cell whose jobs could start now if there was room.

    What is kept for them stands in the state's tree, where who looks for room finds it; it follows from the lines, not
    from the log. What it costs to note it goes by the tenants that have something idle and wait, and by their classes.
    """

    def forget(self, state: CellState) -> None:
        """The state is another one."""
        state.tree.kept = NOTHING_KEPT

    def note(self, state: CellState, lines: Lines) -> bool:
        """Look who waits now. Whether other places are kept than before: then others may borrow, and are tried
        again.
        """
        before, state.tree.kept = state.tree.kept, NOTHING_KEPT
        firsts, jobs = dict[Line, str](), list[Job]()
        for tenant in _with_idle(state, lines.tenants()):
            for row, line in lines.rows_of(tenant):
                job = state.jobs[_first_in(row)]
                if job.status is JobStatus.QUEUED and _has_turn(state, row, line, job, firsts):
                    jobs.append(job)
        state.tree.kept = kept_for(state, jobs)
        return state.tree.kept != before

    def note_all(self, state: CellState) -> None:
        """The same for somebody who has no lines and looks at all jobs."""
        waiting = [job for job in state.jobs.values() if job.status is JobStatus.QUEUED]
        idle = _with_idle(state, dict.fromkeys(job.spec.tenant for job in waiting))
        state.tree.kept = NOTHING_KEPT
        jobs = [job for job in waiting if job.spec.tenant in idle and job.deferred is not DeferCode.BEHIND_HEAD]
        state.tree.kept = kept_for(state, jobs)


def kept_for(state: CellState, jobs: Sequence[Job]) -> KeptPlaces:
    """The places that are kept for these jobs, the largest first: for one of each kind of an owner's, and for no more
    of them than its idle guarantee holds. Jobs that are not guaranteed whole come behind those that are.
    """
    book = _Book(state)
    if jobs:
        in_order = sorted(jobs, key=lambda job: (-job.spec.gpus_milli, job.submit_ms, job.number))
        for is_whole in (True, False):
            for job in in_order:
                book.keep_for(job, is_whole=is_whole)
    return KeptPlaces.of(book.close())


class _Book:
    """What is kept while it is chosen. What was chosen first counts as in use for what comes behind it."""

    def __init__(self, state: CellState) -> None:
        self._state, self._kept = state, list[Kept]()
        self._left: dict[Account, int] = {}
        self._kinds: dict[tuple[Account, Where], None] = {}
        self._number_of: dict[Account, int] = {}
        self._in_use = ExitStack()
        self._is_able: dict[str, bool] = {}
        self._types: dict[tuple[str | None, tuple[str, ...]], tuple[str, ...]] = {}

    def close(self) -> list[Kept]:
        """All that was chosen; the state is as it was."""
        self._in_use.close()
        return self._kept

    def keep_for(self, job: Job, *, is_whole: bool) -> None:
        """Keep places for this job, of the first GPU type of which its owners have something idle for it."""
        for gpu_type in self._types_for(job.spec):
            owners = self._owners(job.spec, gpu_type, is_whole=is_whole)
            if owners and self._waits_for_room(job):
                self._keep(job, gpu_type, owners, is_whole=is_whole)
                return

    def _types_for(self, spec: JobSpec) -> tuple[str, ...]:
        found = self._types.get((spec.gpu_type, spec.pools))
        if found is None:
            found = self._types[spec.gpu_type, spec.pools] = tuple(types_for(self._state, spec))
        return found

    def _owners(self, spec: JobSpec, gpu_type: str, *, is_whole: bool) -> list[tuple[Account, int]]:
        """Who keeps how much for it."""
        tree, found, need = self._state.tree, list[tuple[Account, int]](), spec.gpus_milli
        branch, where = tree.branches.get((spec.tenant, gpu_type)), _where(spec)
        if branch is None or not need:
            return found
        for above in lineage(branch):
            account = above.account
            left = self._left.get(account)
            if left is None:
                left = self._left[account] = above.idle_milli
            fits = need <= left if is_whole else left > 0
            if fits and (account, where) not in self._kinds and self._number_of.get(account, 0) < KINDS_MOST:
                found.append((account, min(need, left)))
        if found and over_limit(tree, spec.tenant, gpu_type, need) is not None:
            return []
        if found and not spec.preemptible and need > firm_room(tree, branch.account, 0):
            return []  # it may use none of what is idle there
        return found

    def _keep(self, job: Job, gpu_type: str, owners: list[tuple[Account, int]], *, is_whole: bool) -> None:
        for account, milli in owners:
            self._left[account] -= milli
            self._kinds[account, _where(job.spec)] = None
            self._number_of[account] = self._number_of.get(account, 0) + 1
        kept = pick(self._state, replace(in_line(job), gpu_type=gpu_type), owners, is_whole=is_whole)
        self._kept.append(kept)
        self._in_use.enter_context(taken(self._state, kept.places))

    def _waits_for_room(self, job: Job) -> bool:
        known = self._is_able.get(job.spec.id)
        if known is None:
            known = _waits_for_room(self._state, job) and not _waits_for_maintenance(self._state, job)
            self._is_able[job.spec.id] = known
        return known


def _where(spec: JobSpec) -> Where:
    return (spec.pools, spec.gpu_type, spec.kind, spec.node_labels, spec.tolerations, spec.topology, spec.exclusive)


def _first_in(row: Row) -> str:
    assert row.first is not None, "somebody waits in it"
    return row.first[-1]


def _has_turn(state: CellState, row: Row, line: Line, job: Job, firsts: dict[Line, str]) -> bool:
    """Whether the job could start now, the first of its class. In a strict line that is the first one only: to keep
    room for one behind it could keep the first from starting, and then both would wait for ever. By shares the first of
    a tenant may stand behind one of another tenant, whom it passes only with what is guaranteed to it.
    """
    if line.queue.discipline is not QueueDiscipline.STRICT_FIFO:
        return True
    if line not in firsts:
        firsts[line] = _first_of(state, line)
    is_fair = line.queue.order is QueueOrder.FAIR_SHARE
    return firsts[line] == job.spec.id and (not is_fair or _is_all_guaranteed(state, job.spec))


def has_owners(state: CellState) -> bool:
    """Whether anything is guaranteed to anybody."""
    return bool(state.quotas) and any(cohort.has_guarantees for cohort in state.tree.cohorts.values())


def _with_idle(state: CellState, tenants: Iterable[str]) -> dict[str, None]:
    """Those of the tenants to whom, or to one above whom, something is guaranteed that is idle."""
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
    return branch.idle_milli > 0


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
    """Whether room on open nodes is what the job lacks: not an element whose array may have no more, nor one that could
    never be.
    """
    if job.status is JobStatus.QUEUED and not may_start_one_more(state, job.spec):
        return False
    return could_ever_start(state, job) and is_ever_allowed(state, job) and bool(reach_of(state, in_line(job)))


def _waits_for_maintenance(state: CellState, job: Job) -> bool:
    """Whether the job is a gang that no pool would hold before its planned maintenance is over, were all nodes empty:
    until then room is of no use to it. In a strict queue it keeps those behind it waiting all the same.
    """
    spec = job.spec
    pools = [state.pools[name] for name in spec.pools or state.pools if name in state.pools]
    return spec.gang and not any(could_hold(state, pool, spec) for pool in pools)


def _is_all_guaranteed(state: CellState, spec: JobSpec) -> bool:
    """Whether the whole job is guaranteed to its own tenant, of each GPU type of which room would be kept for it."""
    branches = [state.tree.branches.get((spec.tenant, gpu_type)) for gpu_type in types_for(state, spec)]
    keeping = [branch for branch in branches if branch is not None and any(map(_is_idle, lineage(branch)))]
    return all(branch.used_milli + spec.gpus_milli <= branch.guaranteed_milli for branch in keeping)
