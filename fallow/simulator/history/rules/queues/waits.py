"""Nothing starts before its time, nor before what it waits for is over: judged from the checker's own books."""

from __future__ import annotations

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import AfterWhen, Dependency
from fallow.shared.events.reasons import CancelReason
from fallow.simulator.history.books import AWAITING, FINISHED, QUEUED, Books, JobPage


def status_without_hold(books: Books, page: JobPage) -> str:
    """Whether a job waits for others or for its turn."""
    return QUEUED if all(_lets_go(books, each) for each in page.spec.after) else AWAITING


def _lets_go(books: Books, dependency: Dependency) -> bool:
    over = books.over.get(dependency.job)
    if over is None or dependency.job in books.jobs or dependency.job in books.arrays:
        return False
    return dependency.when is AfterWhen.ANY or over.status == FINISHED


def too_early(books: Books, page: JobPage) -> str | None:
    """Why a job may not start now, or None."""
    spec = page.spec
    if spec.not_before_ms is not None and books.at_ms < spec.not_before_ms:
        return f"job {spec.id} starts at {books.at_ms}, its own time is {spec.not_before_ms}"
    waits = [each.job for each in spec.after if not _lets_go(books, each)]
    return f"job {spec.id} starts before {', '.join(waits)} came to the end that it waits for" if waits else None


def told_too_early(books: Books, page: JobPage, effect: e.WaitShortened) -> str | None:
    """Why a job may not be told that these are over as it waits for them to be, or None."""
    over = {each.job for each in page.spec.after if _lets_go(books, each)}
    early = [job_id for job_id in effect.over if job_id not in over]
    return f"job {effect.job} is told that {', '.join(early)} came to the end that it waits for" if early else None


def cancelled_without_cause(books: Books, page: JobPage, effect: e.JobCancelled) -> str | None:
    """Why a job may not be ended for the sake of another, or None."""
    if effect.reason is CancelReason.ASKED:
        return None
    named = [each for each in page.spec.after if each.job == effect.because_of]
    if not named:
        return f"job {effect.job} is cancelled because of {effect.because_of}, for which it does not wait"
    over, live = books.over.get(named[0].job), books.jobs.get(named[0].job) or books.arrays.get(named[0].job)
    if effect.reason is CancelReason.DEPENDENCY_FAILED:
        is_bad = live is None and over is not None and over.status != FINISHED and named[0].when is AfterWhen.OK
        return None if is_bad else f"job {effect.job} is cancelled because of {effect.because_of}, which did not fail"
    owner = live.spec.tenant if live is not None else over.tenant if over is not None else None
    is_strange = owner is None or owner != page.spec.tenant
    return None if is_strange else f"job {effect.job} is cancelled because of {effect.because_of}, which is known"
