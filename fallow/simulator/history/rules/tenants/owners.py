"""A job is its tenant's: its name in full, `TENANT/ID`, begins with the tenant, it waits for jobs of the same tenant
alone, and what others submit takes no id from it. What comes in its name by another topic than its own moves nothing.
"""

from __future__ import annotations

from fallow.shared.events.base import Event
from fallow.shared.events.effects import JobRefused
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobCancelRequested
from fallow.shared.events.reasons import RefuseCode
from fallow.simulator.history.books import Books

STRANGERS_WORDS = "in another tenant's name, by the common topic"
"""The reason that a world's stranger gives for the cancel of a job whose tenant has a topic of its own."""


def is_own(tenant: str, job: str) -> bool:
    """Whether a job of this name may be the tenant's: a name without a tenant may be any tenant's."""
    return "/" not in job or job.startswith(f"{tenant}/")


def of_a_stranger(spec: JobSpec) -> str | None:
    """What a job takes of another tenant, or None."""
    if not is_own(spec.tenant, spec.id):
        return f"job {spec.id} is accepted as one of {spec.tenant}"
    after = next((each.job for each in spec.after if not is_own(spec.tenant, each.job)), None)
    return None if after is None else f"job {spec.id} waits for {after}, which is another tenant's"


def refused_for_nothing(books: Books, effect: JobRefused) -> str | None:
    """Why this id was free for its tenant, though it is told that it is not; or None."""
    if effect.code is not RefuseCode.ID_USED_BEFORE or any(
        effect.job in known for known in (books.jobs, books.arrays, books.over)
    ):
        return None
    return f"job {effect.job} is refused as one that was there before, and there was none"


def passed_on_for_a_stranger(event: Event) -> str | None:
    """What admission let pass of what a stranger said in the name of a tenant with a topic of its own; or None."""
    if not isinstance(event, JobCancelRequested) or event.reason != STRANGERS_WORDS:
        return None
    return f"job {event.job} is to be cancelled by a sender that may not speak for {event.tenant}"
