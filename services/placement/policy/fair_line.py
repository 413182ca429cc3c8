"""The line of a queue in fair-share order: the lines of its tenants, merged by their shares as they are served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from services.placement.policy.behind import behind
from services.placement.policy.fair_share import Shares
from services.placement.policy.tournament import Tournament
from shared.cluster.job import Job
from shared.cluster.state import CellState
from shared.events.queue import QueueHead
from shared.events.reasons import DeferCode


class TenantLine:
    """One tenant's jobs in their order, in all the pieces in which a window shows them; and where the walk is in it."""

    __slots__ = ("at", "cuts", "is_over", "jobs")

    def __init__(self, pieces: Sequence[QueueHead]) -> None:
        self.jobs = pieces[0].jobs if len(pieces) == 1 else tuple(job for piece in pieces for job in piece.jobs)
        self.cuts: frozenset[int] = frozenset()
        self.at = 0
        self.is_over = False
        """Whether the walk must not go on here: behind it stand jobs that the window does not show."""
        begin, cuts = 0, []
        for piece in pieces:
            cuts += [begin + cut for cut in piece.cuts]
            begin += len(piece.jobs)
        if cuts:
            self.cuts = frozenset(cuts)


class FairLine:
    """The jobs of one queue in the order of this moment: each next one is of the tenant that comes first by shares.

    A job that starts moves its tenant back; one that does not leaves the turn with it. `is_cut` tells afterwards
    whether the walk has come to where the window shows no more: a tenant whose turn it is has jobs there. There are no
    `cuts` at which it has to end at once.
    """

    def __init__(self, state: CellState, heads: Sequence[QueueHead], waits: Callable[[Job], bool], now_ms: int) -> None:
        """`heads` are those of one queue, in any order. `waits` says whether a job may be tried."""
        self.queue, self.discipline = heads[0].queue, heads[0].discipline
        self.cuts: tuple[int, ...] = ()
        self.is_cut = False
        self._is_served = False
        self._state, self._waits, self._now_ms = state, waits, now_ms
        pieces: dict[str, list[QueueHead]] = {}
        for head in heads:
            pieces.setdefault(head.tenant or "", []).append(head)
        self._lines = {tenant: TenantLine(pieces[tenant]) for tenant in pieces}
        self._turns = Tournament(Shares(state, now_ms), list(self._lines))

    @property
    def jobs(self) -> Iterator[str]:
        """Each job once, also such as wait no longer; its turn ends when the next one is asked for."""
        turns = self._turns
        while (tenant := turns.first()) is not None:
            line, self._is_served = self._lines[tenant], False
            while not self._is_served:
                if line.is_over:
                    self.is_cut = True
                    return
                if line.at == len(line.jobs):
                    turns.leave()
                    break
                job_id = line.jobs[line.at]
                line.is_over = line.at in line.cuts and not self._may_be_tried(job_id)
                line.at += 1
                yield job_id

    def _may_be_tried(self, job_id: str) -> bool:
        job = self._state.jobs.get(job_id)
        return job is not None and self._waits(job)

    def served(self, *, stays: bool = False) -> None:
        """The job whose turn it is has got places. One that `stays` lacks some, and is its tenant's next one again."""
        line = self._lines[self._turns.first() or ""]
        if stays:
            line.at -= 1
        line.is_over = line.at - 1 in line.cuts and not stays
        self._is_served = True
        self._turns.served()

    def ends_at(self, code: DeferCode, deferred: dict[str, DeferCode]) -> bool:
        """A strict queue: the job whose turn it was does not fit. Whether nothing in the queue may start past it.

        If it is room that is missing, it waits for room, and so do all behind it. If it is a limit of its tenant's, no
        room would help, and the others have a right to theirs: then only its tenant's line ends. `deferred` is added
        to: those who are behind are told so, once.
        """
        tenant = self._turns.first() or ""
        ends_all = code is not DeferCode.QUOTA_REACHED
        for line in self._lines.values() if ends_all else [self._lines[tenant]]:
            deferred.update(behind(self._state, line.jobs, line.at - 1, self._now_ms))
            line.at, line.cuts = len(line.jobs), frozenset()
        return ends_all


def merged(
    state: CellState, heads: Iterable[QueueHead], waits: Callable[[Job], bool], now_ms: int
) -> Iterator[QueueHead | FairLine]:
    """The lines of the queues in their order: the heads of one queue's tenants as one line."""
    together: list[QueueHead] = []
    for head in heads:
        if together and head.queue != together[0].queue:
            yield FairLine(state, together, waits, now_ms)
            together = []
        if head.tenant is None:
            yield head
        else:
            together.append(head)
    if together:
        yield FairLine(state, together, waits, now_ms)
