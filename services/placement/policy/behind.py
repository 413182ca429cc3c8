"""Who stands behind the blocked head of a strict queue is told so, once: nobody else would ever look at them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shared.cluster.job import JobStatus
from shared.cluster.state import CellState
from shared.events.reasons import DeferCode

TOLD_MOST = 200
"""So many jobs at most are told in one walk."""


def behind(state: CellState, jobs: Sequence[str], number: int, now_ms: int) -> dict[str, DeferCode]:
    """What the jobs of a line behind number `number` are told, as far as they have no reason yet.

    Those who came since the last walk stand at the end or, with a higher priority, behind the head. So it is enough to
    go on from either side until one has a reason already: a long line costs no more than a short one.
    """
    rest = range(number + 1, len(jobs))
    found = _told(state, jobs, rest, now_ms)
    if len(found) < min(len(rest), TOLD_MOST):
        found.update(_told(state, jobs, reversed(rest), now_ms))
    return found


def _told(state: CellState, jobs: Sequence[str], numbers: Iterable[int], now_ms: int) -> dict[str, DeferCode]:
    found: dict[str, DeferCode] = {}
    for number in numbers:
        job = state.jobs.get(jobs[number])
        if job is None or job.status is not JobStatus.QUEUED or job.not_before_ms > now_ms:
            continue
        if job.deferred is not None or len(found) == TOLD_MOST:
            break
        found[job.spec.id] = DeferCode.BEHIND_HEAD
    return found
