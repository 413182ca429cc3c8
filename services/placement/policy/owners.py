"""Owners that wait for what is guaranteed to them, and might not get it back from everybody who borrows it: for these
it is kept. Whoever may always take back what he lent needs no such care.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shared.cluster.gpu_types import gpu_types_of
from shared.cluster.job import Job, JobStatus
from shared.cluster.quota import over_limit
from shared.cluster.quota_room import lineage
from shared.cluster.quota_tree import Account, Need
from shared.cluster.state import CellState
from shared.events.operations import ReclaimFrom
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.reasons import DeferCode
from shared.events.values import JobSpec


def has_keepers(state: CellState) -> bool:
    """Whether anybody may not take back from everybody what he lent."""
    return bool(state.quotas) and any(cohort.keepers for cohort in state.tree.cohorts.values())


class Owners:
    """The needs of keepers whose jobs could start now if there was room, as far as they stand in the heads of a walk.

    They stand in the state's tree, where who looks for room finds them; they follow from the heads, not from the log.
    """

    def __init__(self) -> None:
        self._heads: Sequence[QueueHead] | None = None
        self._jobs: dict[str, list[tuple[Account, Need]]] = {}
        self._has_started = False

    def forget(self, state: CellState) -> None:
        """The state is another one."""
        self._heads, self._jobs, state.tree.waiting = None, {}, {}

    def note(self, state: CellState, heads: Sequence[QueueHead], now_ms: int, *, is_all: bool) -> bool:
        """Look who waits now. Whether others do than before: then other jobs may borrow, and are tried again.

        Unless they are all, heads are looked at once: behind those of them that have started since there may be others
        of their kind.
        """
        if heads is self._heads and not is_all:
            return False
        before, has_started = state.tree.waiting, self._has_started
        self._heads, self._jobs, self._has_started = None if is_all else heads, {}, False
        waiting: dict[Account, dict[Need, int]] = {}
        for job in _ready(state, heads, now_ms):
            need = (job.spec.priority, job.spec.gpus_milli)
            for account in _keepers_above(state, job.spec):
                of_account = waiting.setdefault(account, {})
                of_account[need] = of_account.get(need, 0) + 1
                self._jobs.setdefault(job.id, []).append((account, need))
        state.tree.waiting = waiting
        return has_started or waiting != before

    def note_all(self, state: CellState, now_ms: int) -> None:
        """The same for somebody who has no heads and looks at all jobs."""
        if has_keepers(state):
            waiting = [job for job in state.jobs.values() if job.status is JobStatus.QUEUED]
            ready = tuple(job.id for job in waiting if job.deferred is not DeferCode.BEHIND_HEAD)
            head = QueueHead(queue="all", discipline=QueueDiscipline.BEST_EFFORT_FIFO, jobs=ready)
            self.note(state, (head,), now_ms, is_all=True)

    def started(self, state: CellState, job: str) -> None:
        """This one does not wait any more: if all are seen, nothing is kept for it from now on."""
        if self._heads is not None or job not in self._jobs:
            return
        self._has_started = True
        for account, need in self._jobs.pop(job):
            of_account = state.tree.waiting[account]
            of_account[need] -= 1
            if not of_account[need]:
                del of_account[need]


def _ready(state: CellState, heads: Iterable[QueueHead], now_ms: int) -> Iterator[Job]:
    """The jobs that could start now. In a strict line that is the first one only: to keep room for one behind it could
    keep the first from starting, and then both would wait for ever.
    """
    for head in heads if has_keepers(state) else ():
        for job_id in head.jobs:
            job = state.jobs.get(job_id)
            if job is not None and job.status is JobStatus.QUEUED and job.not_before_ms <= now_ms:
                yield job
                if head.discipline is QueueDiscipline.STRICT_FIFO:
                    break


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
