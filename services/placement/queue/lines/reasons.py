"""Which jobs of a line are told why they wait, behind a walk."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from fallow.services.placement.queue.lines.course import Course
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.row import RoomRows, Row
from fallow.services.placement.search.quota_check import is_ever_allowed
from fallow.services.placement.search.reason_precedence import OVER_IN_LINE, STRUCTURAL, is_of_quota
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason

OF_A_CLASS_MAX = 64
"""So many jobs of one class are told at a time: those behind them have others before them."""

TOLD_MAX = 200
"""So many jobs of one line are told at a time that they stand behind a head, or that there is another reason now."""

FRESH_MAX = 2_000
"""So many of the jobs that came are looked at after one walk; those behind them after the next ones."""

Told = dict[str, PendingReason]


Asks = Callable[[Job], bool]


def tell(state: CellState, course: Course, told: Told, is_kept_back: Asks, is_kept_off: Asks) -> bool:
    """Tell the jobs of a line why they wait, as far as the walk has found that out. `is_kept_back`: by a head that is
    due, in a queue that backfills; of these only jobs whose reason is over, that have none, or that alone are
    more than their tenant may ever use are told anything. `is_kept_off`: from places of a planned start, which says
    nothing to one that has no other places either. Whether more are to be told after another walk.
    """
    line, before = course.line, len(told)
    if line.queue.discipline is QueueDiscipline.STRICT_FIFO:
        _tell_behind(state, course, told)
        return False
    passed, line.passed = line.passed, {}
    for rows in passed:
        if rows.need.code is not None and rows.told is not rows.need.code:
            rows.told = rows.need.code
            _tell_room(state, rows, told, is_kept_back)
    moved, line.moved = line.moved, {}
    for row in moved:
        code = _code_of(row)
        if code is None or row.first is None:
            continue
        first = state.jobs[row.first[-1]]
        if first.deferred is not code:
            _tell_row(state, row, code, told, is_kept_back)
    fresh, is_cut = line.fresh, len(line.fresh) > FRESH_MAX
    for job_id in list(islice(fresh, FRESH_MAX)):
        row = fresh.pop(job_id)
        job = state.jobs[job_id]
        code = _code_of(row) or (PendingReason.BEHIND_HEAD if is_kept_back(job) or is_kept_off(job) else None)
        if code is None:
            fresh[job_id] = row
        elif job.status is JobStatus.QUEUED and job_id not in told and _is_in_front(row, job_id):
            _tell_job(state, job, code, told, is_kept_back)
    return is_cut and len(told) > before


def _code_of(row: Row) -> PendingReason | None:
    return row.code or row.rows.need.code


def _is_in_front(row: Row, job_id: str) -> bool:
    return len(row) <= OF_A_CLASS_MAX or job_id in row.front(OF_A_CLASS_MAX)


def _tell_room(state: CellState, rows: RoomRows, told: Told, is_kept_back: Asks) -> None:
    code, most = rows.need.code, len(told) + TOLD_MAX
    assert code is not None, "it was passed for that"
    for row in sorted(rows.rows, key=lambda row: row.first or ()):
        if row.code is None:
            _tell_row(state, row, code, told, is_kept_back)
        if len(told) >= most:
            return


def _tell_row(state: CellState, row: Row, code: PendingReason, told: Told, is_kept_back: Asks) -> None:
    for job_id in row.front(OF_A_CLASS_MAX):
        job = state.jobs[job_id]
        if job.status is JobStatus.QUEUED and job_id not in told:
            _tell_job(state, job, code, told, is_kept_back)


def _tell_job(state: CellState, job: Job, code: PendingReason, told: Told, is_kept_back: Asks) -> None:
    if job.deferred is code:
        return
    if not is_kept_back(job) or (is_of_quota(code) and not is_ever_allowed(state, job)):
        told[job.spec.id] = code
    elif job.deferred in OVER_IN_LINE:
        told[job.spec.id] = PendingReason.BEHIND_HEAD


def _tell_behind(state: CellState, course: Course, told: Told) -> None:
    """The walk of a strict line goes on behind its heads. A job behind them that does not start and has no reason is
    told `behind_head`, once; a job that no node could hold, or that wants more than its tenant may ever use, is told
    that, and that it stands behind a head as soon as that is over.
    """
    line = course.line
    passed, line.passed = line.passed, {}
    for rows in passed:
        if rows.need.code in STRUCTURAL and rows.told is not rows.need.code:
            rows.told = rows.need.code
            _tell_room(state, rows, told, lambda _: False)
            line.for_good.update(dict.fromkeys(rows.rows, rows.need.code))
    fresh, left = line.fresh, TOLD_MAX
    moved, line.moved = line.moved, {}
    for row in moved:
        if not left:
            line.moved[row] = None
        elif is_of_quota(row.code) and row not in line.for_good:
            left = _tell_what_is_for_good(state, line, row, told, left)
    for job_id, row in list(fresh.items()):
        job = state.jobs[job_id]
        code = _code_behind(state, row, job)
        if code in STRUCTURAL or is_of_quota(code):
            line.for_good[row] = code
        is_told_another = job.deferred in STRUCTURAL and code not in STRUCTURAL
        if _may_be_told(job, told) and (job.deferred in OVER_IN_LINE or row.is_shut or is_told_another):
            if not left:
                return
            told[job_id], left = code, left - 1
        del fresh[job_id]
    _tell_what_is_over(state, line, told, left)


def _tell_what_is_for_good(state: CellState, line: Line, row: Row, told: Told, left: int) -> int:
    """Tell the jobs of a class that stand behind a head, and that a quota comes to keep from ever starting: so many
    (`left`) at most. How many more may be told.
    """
    for job_id in row.front(min(left, OF_A_CLASS_MAX)):
        job = state.jobs[job_id]
        code = _code_behind(state, row, job)
        if not is_of_quota(code):
            continue
        line.for_good[row] = code
        if job.deferred is PendingReason.BEHIND_HEAD and _may_be_told(job, told):
            told[job_id], left = code, left - 1
    return left


def _code_behind(state: CellState, row: Row, job: Job) -> PendingReason:
    """What a job is told that does not start behind the heads of a strict line."""
    if row.rows.need.code in STRUCTURAL:
        return row.rows.need.code
    if is_of_quota(row.code) and not is_ever_allowed(state, job):
        return row.code
    return PendingReason.ARRAY_LIMIT if row.is_shut else PendingReason.BEHIND_HEAD


def _tell_what_is_over(state: CellState, line: Line, told: Told, left: int) -> None:
    """Tell jobs why they wait now of which no room would have helped one before, since a node has become another one,
    or a quota: so many of them at most.
    """
    for row, code in list(line.for_good.items()):
        if _code_of(row) is code:
            continue
        row.rows.told = None
        for job_id in row.front(len(row)):
            job = state.jobs[job_id]
            if job.deferred is code and _may_be_told(job, told):
                if not left:
                    return
                told[job_id], left = _code_behind(state, row, job), left - 1
        del line.for_good[row]


def _may_be_told(job: Job, told: Told) -> bool:
    return job.status is JobStatus.QUEUED and job.spec.id not in told
