"""A request is refused for what holds by the judge's own books. Codes that go by when something was sent are not judged
here.
"""

from __future__ import annotations

from collections.abc import Mapping

from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.effects import JobRefused
from fallow.shared.events.fields.values import JobKind, JobSpec
from fallow.shared.events.reasons import RefuseCode
from fallow.simulator.history.books import WAITS, Books

TOO_MANY = (RefuseCode.TOO_MANY_WAITING, RefuseCode.TENANT_HAS_TOO_MANY_WAITING)
TEXT_BYTES, CHARACTER_BYTES = 128, 4
"""More than a text counts for beside its characters, and a character of it."""


def wrongly_refused(books: Books, effect: JobRefused) -> str | None:
    """Why the code of a refusal does not hold, or None."""
    job, page, array = effect.job, books.jobs.get(effect.job), books.arrays.get(effect.job)
    spec = page.spec if page is not None else None if array is None else array.spec
    is_wrong = False
    match effect.code:
        case RefuseCode.UNKNOWN_JOB:
            is_wrong = spec is not None
        case RefuseCode.ALREADY_OVER:
            is_wrong = spec is not None or job not in books.over
        case RefuseCode.NOT_THE_TENANTS_JOB:
            over = books.over.get(job)
            owner = spec.tenant if spec is not None else None if over is None else over.tenant
            is_wrong = owner == effect.tenant
        case RefuseCode.UNSUPPORTED if effect.request == "update" and spec is not None:
            is_wrong = spec.kind is JobKind.INFERENCE and not spec.gang
    return f"the {effect.request} of job {job} is refused: {effect.code}, which does not hold" if is_wrong else None


def have_room(books: Books, spec: JobSpec, tenant_max: Mapping[str, int], *, of_tenant: bool) -> bool:
    """Whether it is sure that this job, or array, may still wait in the cell, or of its tenant. `tenant_max`: how many
    of a tenant the cell file lets wait; of one that it does not name half of what the cell takes.
    """
    pages = [page for page in books.jobs.values() if not of_tenant or page.spec.tenant == spec.tenant]
    most, bytes_max = books.policy.max_pending_jobs, books.policy.live_bytes_max
    if of_tenant:
        most, bytes_max = min(most, tenant_max.get(spec.tenant, max(1, most // 2))), bytes_max // 2
    jobs = spec.array or 1
    if sum(page.status in WAITS for page in pages) + jobs > most:
        return False
    return sum(_bytes_max(page.spec) for page in pages) + jobs * _bytes_max(spec) <= bytes_max


def _bytes_max(spec: JobSpec) -> int:
    written = encode(spec)
    return CHARACTER_BYTES * len(written) + TEXT_BYTES * written.count(b'"')
