"""Planned starts as the log tells them: nothing that stands behind one in its queue takes its nodes beyond it."""

from __future__ import annotations

from collections.abc import Iterable

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobKind, JobSpec
from fallow.simulator.history.books import QUEUED, Books, JobPage
from fallow.simulator.history.rules.queues.places_in_queues import stands
from fallow.simulator.history.rules.queues.queue_rules import DEFAULT, UNKNOWN

STALE_MAX = 4
"""For fewer decisions in which a writer does what is due, a plan may be in force that is over."""


def planned(books: Books, effect: e.ReservationSet) -> str | None:
    """A planned start, with places or without. What is wrong with it, or None."""
    page = books.jobs.get(effect.job)
    if page is None or page.status != QUEUED:
        return f"job {effect.job} gets a planned start and does not wait"
    for place in effect.workers:
        node = books.nodes.get(place.node)
        if node is None:
            return f"node {place.node} is kept for job {effect.job} and does not exist"
        if any(node.spec.gpus <= device for device in place.devices):
            return f"device {place.devices} of node {place.node} is kept for job {effect.job} and does not exist"
    if effect.workers and len(effect.workers) != page.spec.workers:
        return f"{len(effect.workers)} places are kept for job {effect.job}, which has {page.spec.workers} workers"
    page.plan, page.stale_plan = effect, 0
    return None


def unplanned(books: Books, effect: e.ReservationCleared) -> str | None:
    """No planned start any more. What is wrong with that, or None."""
    page = books.jobs.get(effect.job)
    if page is None or page.plan is None:
        return f"job {effect.job} loses its planned start and has none"
    page.plan = None
    return None


def forgotten(books: Books) -> Iterable[str]:
    """Plans that should have been over some decisions ago: a few may have no room for that."""
    for job_id, page in books.jobs.items():
        if page.plan is None:
            continue
        until_ms = page.plan.until_ms
        has_lapsed = until_ms is not None and until_ms < books.at_ms
        page.stale_plan = page.stale_plan + 1 if page.status != QUEUED or has_lapsed else 0
        if page.stale_plan == STALE_MAX:
            yield f"job {job_id} is {page.status} at {books.at_ms}, and its planned start lasts until {until_ms}"


def delayed_by(books: Books, page: JobPage, effect: e.JobStarted) -> str | None:
    """The planned start that this one delays, or None: of a job before it in its queue, which goes by the order in
    which jobs came. Nothing is said where anything is guaranteed: owners go before what is planned for others, and what
    waits for owners alone keeps nothing.
    """
    has_guarantees = any(quota.guaranteed_milli for quota in books.quotas.values())
    if page.plan is not None or has_guarantees or books.rules.get(page.spec.queue or "", UNKNOWN).is_fair:
        return None
    nodes = {place.node for place in effect.workers}
    run_ms, place, came_before = _estimate(books, page.spec), _place(books, page), True
    for other_id, other in books.jobs.items():
        plan, its_place = other.plan, _place(books, other)
        came_before = came_before and other is not page
        is_before = its_place < place or (its_place == place and came_before)
        if plan is None or other.spec.queue != page.spec.queue or not is_before:
            continue
        if not any(kept.node in nodes for kept in plan.workers) or _is_late(books, plan):
            continue
        if run_ms is None or books.at_ms + run_ms > plan.start_ms:
            return f"job {effect.job} starts on nodes that are kept for job {other_id} from {plan.start_ms} on"
    return None


def _is_late(books: Books, plan: e.ReservationSet) -> bool:
    """Whether the first planned start of the job is over: then nothing may be kept any more, if a limit keeps it."""
    return bool(books.quotas) and plan.first_ms is not None and plan.first_ms <= books.at_ms


def _place(books: Books, page: JobPage) -> tuple[int, int]:
    return stands(page, books.ages.get(page.spec.queue or "", DEFAULT))


def _estimate(books: Books, spec: JobSpec) -> int | None:
    """How long the job runs by its own word: its guess, its limit, or what the cell assumes."""
    if spec.kind is JobKind.INFERENCE:
        return None
    told = [ms for ms in (spec.estimate_run_ms, spec.max_run_ms) if ms is not None]
    return min(told) if told else books.policy.default_run_estimate_ms or None
