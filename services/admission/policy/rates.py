"""How many submissions and updates a tenant may send: a token bucket for each tenant that has a limit, and another one,
ten times as large, for its cancels: a tenant over its limit can still end its jobs.

Records for which no tenant answers share one more: those that name no tenant of the cell file, or none that may use
that topic. Of that cancels are passed on, since a tenant that is gone has jobs left: these have a bucket of their own,
a small one, for each topic by which they come.

A bucket holds up to `burst` tokens and gains `per_s` of them a second. Each command takes one, whether it is admitted
or rejected for another reason, and one that finds none is one too many. An array, and an update of one, needs one as
all others do and takes one for each element: for the rest the bucket is in debt.

Time is that of the records, as the broker stamped them: so a batch that is handled twice is judged alike, and what
piled up while admission was away is not taken for a flood. A tenant's records lie in several partitions, and of a
backlog one is read far ahead of another: one that comes behind later ones takes its tokens at its own time, if that
leaves enough for the later ones (`course.py`). Tokens are counted in millionths, so that no fraction is lost.

Several admissions share a tenant's limit by the partitions that each of them owns, since a job's id leads it to any of
them alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from fallow.services.admission.policy.course import Bucket, Course
from fallow.services.admission.policy.resolve import Rejection
from fallow.shared.cluster.model.config import CellFile, SubmissionRate
from fallow.shared.events.reasons import RejectCode

TOKEN = 1_000_000
SECOND_MS = 1_000
CANCELS_PER_SUBMISSION = 10

BURSTS_STEPS = 8
"""In so many steps of time an empty bucket becomes full, if they are no longer than a second: what comes within one
counts as of one time, and the bucket gains little of what it holds meanwhile.
"""

NO_TENANT = ""
"""Instead of a tenant, for whatever is in the name of none."""

OF_NO_TENANT = SubmissionRate(per_s=100, burst=500)
"""A sender whose tenant is not in the file yet is told so; no tenant's limit stops a flood of these."""

GONE = "?"
"""Instead of a tenant, for cancels that are passed on in the name of one that the cell file does not have. Behind it
stands the tenant whose own topic they came by, if not by the common one; all these buckets have the same limit.
"""

OF_GONE = SubmissionRate(per_s=2, burst=50)
"""Placement answers each of them in decisions, which are kept for long, and anyone may make up the name."""

WHOSE = {
    NO_TENANT: "what names no tenant that may send by this topic may",
    GONE: "what names no tenant of the cell file may",
}

BucketName = tuple[str, bool]
"""A tenant, NO_TENANT or GONE, and whether it is the bucket of its cancels."""

Kept = dict[BucketName, Course]
"""The courses as they were, of buckets whose course may have changed since."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a tenant may send a second and at once, and this process's part of its bucket."""

    per_s: int
    at_once: int
    bucket: Bucket


class SubmissionRates:
    """The buckets of one process. What it decides depends on the records and their order alone."""

    def __init__(self, file: CellFile, of_no_tenant: SubmissionRate = OF_NO_TENANT) -> None:
        self._file, self._of_no_tenant, self._owned, self._partitions = file, of_no_tenant, 1, 1
        self._limits = self._limits_now()
        self._courses: dict[BucketName, Course] = {}
        self._kept: Kept = {}

    def reload(self, file: CellFile) -> None:
        """Limits that stay keep their levels."""
        self._file = file
        self._limits = self._limits_now()
        self._courses = {name: course for name, course in self._courses.items() if _limit_of(name) in self._limits}

    def share(self, owned: int, partitions: int) -> None:
        """This process owns so many of so many partitions."""
        owned, partitions = max(1, min(owned, partitions)), max(1, partitions)
        if (owned, partitions) != (self._owned, self._partitions):
            self._owned, self._partitions = owned, partitions
            self._limits = self._limits_now()

    def keep(self) -> Kept:
        """The courses as they are from now on, for a batch that may have to be handled again."""
        self._kept = {}
        return self._kept

    def back(self, kept: Kept) -> None:
        """Come back to what was kept last."""
        self._courses.update(kept)
        self._kept = {}

    def refusal(
        self, tenant: str, at_ms: int, tokens: int = 1, *, taken: int = 0, are_cancels: bool = False
    ) -> Rejection | None:
        """Why a command of this time (milliseconds, as the broker stamped it) is one too many, or None: then it has
        taken its tokens. `taken` are those that the same command took before.
        """
        name = (tenant, are_cancels)
        limited = _limit_of(name)
        limit = self._limits.get(limited)
        if limit is None:
            return None
        course, bucket, elements = self._course(name), limit.bucket, taken + tokens
        if course.take(at_ms, tokens * TOKEN, (1 - elements) * TOKEN, bucket):
            return None
        wait_ms = max(0, -(-(TOKEN - course.level(at_ms, bucket)) // bucket.gain))
        rule = f"{WHOSE.get(limited[0], 'a tenant may')} {_rule(limit, elements, wait_ms, are_cancels=are_cancels)}"
        wanted = limit.at_once + elements
        return Rejection(RejectCode.TOO_MANY_SUBMISSIONS, "tenant", tenant, rule, wanted, limit.at_once)

    def _limits_now(self) -> dict[BucketName, Limit]:
        """The limits of all that have one."""
        limits: dict[BucketName, Limit] = {}
        tenants = [(tenant.name, tenant.submissions) for tenant in self._file.tenants]
        for name, rate in [(NO_TENANT, self._of_no_tenant), *tenants]:
            if rate is not None:
                for are_cancels, times in ((False, 1), (True, CANCELS_PER_SUBMISSION)):
                    limits[name, are_cancels] = self._limit(times * rate.per_s, times * rate.at_once)
        limits[GONE, True] = self._limit(OF_GONE.per_s, OF_GONE.at_once)
        return limits

    def _limit(self, per_s: int, at_once: int) -> Limit:
        return Limit(per_s, at_once, _bucket(per_s, at_once, self._owned, self._partitions))

    def _course(self, name: BucketName) -> Course:
        """The course of this bucket, to be changed."""
        course = self._courses.get(name)
        if course is None:
            course = self._courses[name] = Course([])
        if name not in self._kept:
            self._kept[name] = course.copy()
        return course


def _limit_of(name: BucketName) -> BucketName:
    """By which name the limit of this bucket is found."""
    tenant, are_cancels = name
    return (GONE, are_cancels) if tenant.startswith(GONE) else name


def _rule(limit: Limit, tokens: int, wait_ms: int, *, are_cancels: bool) -> str:
    verb = "cancel" if are_cancels else "submit or update"
    rule = f"{verb} {limit.per_s} a second and {limit.at_once} at once"
    array = f", and an array counts as its {tokens} elements" if tokens > 1 else ""
    return f"{rule}{array}; try again in {wait_ms} ms"


def _bucket(per_s: int, at_once: int, owned: int, partitions: int) -> Bucket:
    most = max(TOKEN, at_once * TOKEN * owned // partitions)
    gain = max(1, per_s * (TOKEN // SECOND_MS) * owned // partitions)
    return Bucket(most, gain, max(1, min(SECOND_MS, at_once * SECOND_MS // (BURSTS_STEPS * per_s))))
