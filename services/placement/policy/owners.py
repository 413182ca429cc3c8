"""Owners that wait for what is guaranteed to them, and might not get it back from everybody who borrows it: for these
it is kept. Whoever may always take back what he lent needs no such care.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.placement.policy.lines.lines import Lines
from shared.cluster.gpu_types import gpu_types_of
from shared.cluster.job import Job, JobStatus
from shared.cluster.quota import over_limit
from shared.cluster.quota_room import lineage
from shared.cluster.quota_tree import Account, Need
from shared.cluster.state import CellState
from shared.events.operations import ReclaimFrom
from shared.events.queue import QueueDiscipline
from shared.events.reasons import DeferCode
from shared.events.values import JobSpec

Wants = tuple[object, ...]
"""What of a job decides for which accounts it waits, and what it needs of them."""


def has_keepers(state: CellState) -> bool:
    """Whether anybody may not take back from everybody what he lent."""
    return bool(state.quotas) and any(cohort.keepers for cohort in state.tree.cohorts.values())


class Owners:
    """The needs of keepers whose jobs could start now if there was room.

    They stand in the state's tree, where who looks for room finds them; they follow from the lines, not from the log.
    """

    def __init__(self) -> None:
        self._needs: dict[Wants, list[tuple[Account, Need]]] = {}
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
        if has_keepers(state):
            for job, number in self._ready(state, lines):
                self._count(state, job.spec, number)
        return has_started or state.tree.waiting != before

    def note_all(self, state: CellState) -> None:
        """The same for somebody who has no lines and looks at all jobs."""
        if has_keepers(state):
            state.tree.waiting = {}
            for job in state.jobs.values():
                if job.status is JobStatus.QUEUED and job.deferred is not DeferCode.BEHIND_HEAD:
                    self._count(state, job.spec, 1)

    def started(self, state: CellState, lines: Lines, job: Job) -> None:
        """This one does not wait any more: nothing is kept for it from now on."""
        if not state.tree.waiting or job.status is not JobStatus.QUEUED:
            return
        is_strict = lines.queue(job.spec.queue).discipline is QueueDiscipline.STRICT_FIFO
        if is_strict and job.spec.id not in self._heads:
            return
        for account, need in self._needs.get(_wants(job.spec), ()):
            self._has_started = True
            of_account = state.tree.waiting[account]
            of_account[need] -= 1
            if not of_account[need]:
                del of_account[need]

    def _count(self, state: CellState, spec: JobSpec, number: int) -> None:
        wants = _wants(spec)
        needs = self._needs.get(wants)
        if needs is None:
            need = (spec.priority, spec.gpus_milli)
            needs = self._needs[wants] = [(account, need) for account in _keepers_above(state, spec)]
        for account, need in needs:
            of_account = state.tree.waiting.setdefault(account, {})
            of_account[need] = of_account.get(need, 0) + number

    def _ready(self, state: CellState, lines: Lines) -> Iterator[tuple[Job, int]]:
        """A job of each class that could start now, and how many are like it. In a strict line that is the first one
        only: to keep room for one behind it could keep the first from starting, and then both would wait for ever.
        """
        for queue in lines.in_order():
            for line in queue:
                firsts = [(row.first, len(row)) for row in line.rows.values() if row.first is not None]
                if line.queue.discipline is QueueDiscipline.STRICT_FIFO:
                    first, _ = min(firsts)
                    firsts = [(first, 1)]
                    self._heads[first[2]] = None
                for first, number in firsts:
                    job = state.jobs[first[2]]
                    if job.status is JobStatus.QUEUED:
                        yield job, number


def _wants(spec: JobSpec) -> Wants:
    return (spec.tenant, spec.gpu_type, spec.pools, spec.priority, spec.gpus_milli)


def _keepers_above(state: CellState, spec: JobSpec) -> list[Account]:
    """The accounts that keep what is theirs for this job: not for one that is at a limit."""
    tree, found = state.tree, list[Account]()
    for gpu_type in _types(state, spec):
        branch = tree.branches.get((spec.tenant, gpu_type))
        if branch is None or over_limit(tree, spec.tenant, gpu_type, spec.gpus_milli) is not None:
            continue
        found += [
            above.account
            for above in lineage(branch)
            if above.quota.reclaim is not ReclaimFrom.ANY and above.guaranteed_milli
        ]
    return found


def _types(state: CellState, spec: JobSpec) -> dict[str, None]:
    if spec.gpu_type is not None:
        return {spec.gpu_type: None}
    pools = state.pools
    here = [pools[name] for name in spec.pools or sorted(pools) if name in pools]
    return {gpu_type: None for pool in here for gpu_type in gpu_types_of(state, pool)}
