"""A job is stopped, and fails for good, for what its own specification or docs/reliability.md names, and for nothing
else: by the judge's own count.
"""

from __future__ import annotations

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.reasons import FailReason, RequeueReason, StopReason
from fallow.simulator.history.books import STARTING, Books, JobPage

LOSSES_MAX = 50
"""More losses in a row may end a job, where the last one was a fault that its node named."""


def failed_without_cause(page: JobPage, effect: e.JobFailed) -> str | None:
    """Why a job may not fail for good, or None. What a gang's last attempt was counts with its end."""
    job, now = effect.job, 1 if page.spec.gang else 0
    failures, losses, budget = page.failures + now, page.losses + now, page.spec.retry.budget
    if effect.reason is FailReason.RETRIES_EXHAUSTED and failures <= budget:
        return f"job {job} fails for good with {failures} failures, its budget is {budget}"
    if effect.reason is FailReason.NODE_FAULTS and losses <= LOSSES_MAX:
        return f"job {job} fails for good by its nodes after {losses} losses in a row, {LOSSES_MAX} end none"
    if effect.reason is FailReason.RUN_TIME_LIMIT and page.stop_why is not StopReason.RUN_TIME_LIMIT:
        return f"job {job} fails by a limit of its run time and was not stopped for it"
    return None


def stopped_without_cause(books: Books, page: JobPage, effect: e.JobStopping) -> str | None:
    """Why an attempt may not be stopped, or None."""
    job, max_ms = effect.job, page.spec.max_run_ms
    ran_ms = books.at_ms - (page.started_ms or 0)
    if effect.why is StopReason.RUN_TIME_LIMIT and (max_ms is None or ran_ms < max_ms):
        return f"job {job} is stopped after {ran_ms} ms, its limit is {max_ms}"
    if effect.why is StopReason.START_TIMED_OUT and page.status != STARTING:
        return f"job {job} is stopped because it does not start, and it is {page.status}"
    nodes = [books.nodes[place.node] for place in page.places if place.node in books.nodes]
    if effect.why is StopReason.DRAINED and all(node.status is NodeStatus.READY for node in nodes):
        return f"job {job} is stopped for a drain, and no node of it is drained"
    return None


def counted_wrongly(page: JobPage, effect: e.JobRequeued) -> str | None:
    """Why the failures of a job cannot be as many, or None. What ended by no fault of its own counts none."""
    more = 1 if effect.reason is RequeueReason.WORKER_FAILED else 0
    if effect.failures == page.failures + more:
        return None
    return f"job {effect.job} is queued again with {effect.failures} failures, it had {page.failures}"
