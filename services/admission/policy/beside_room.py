"""What a job may ask for beside room: a time of its own, the ends of other jobs, and to be an array."""

from __future__ import annotations

from fallow.services.admission.policy.resolve import Rejection
from fallow.shared.cluster.model.arrays import is_named_as_element
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.base import CALENDAR_FROM_MS
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.job_ids import own_id, parted
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.reasons import RejectCode

ARRAY_BYTES_MAX = 800_000
"""All elements of an array become jobs in one record of the log."""

ELEMENT_BYTES = 400
"""What is said of an element in that record, beside what it asks for and its ids."""

JOB_ID_CHARS_MAX = 128
"""Of the id alone: its tenant and a slash stand before it."""


def asks_for_more(spec: JobSpec) -> bool:
    """Whether any test here concerns the job: few do."""
    return (
        spec.not_before_ms is not None
        or bool(spec.after)
        or spec.array is not None
        or spec.array_max_running is not None
        or spec.array_of is not None
        or spec.array_index is not None
    )


def misnamed(spec: JobSpec) -> Rejection | None:
    """Why a job cannot have its id, or wait for what it names: each tenant has ids of its own, and those that elements
    have are given by the cell alone. So no submission takes the id of an element, and whatever has one is one.
    """
    if "/" in spec.id:
        return _not_of(spec.tenant, "id", spec.id)
    if is_named_as_element(spec.id):
        rule = "must not end in a dot and a number: only elements of arrays are named so"
        return Rejection(RejectCode.INVALID_FIELD, "id", spec.id, rule)
    for dependency in spec.after:
        if "/" in dependency.job:
            rule = f"must be a job of tenant {spec.tenant}"
            return Rejection(RejectCode.INVALID_FIELD, "after", dependency.job, rule)
    return None


def names_another_tenants(tenant: str, job: str) -> Rejection | None:
    """Why a tenant's cancel or update cannot be about this job: it names another tenant's."""
    return _not_of(tenant, "job", job) if parted(job)[0] not in ("", tenant) else None


def _not_of(tenant: str, field: str, job: str) -> Rejection:
    rule = f"must be the id alone, or begin with the job's tenant: {tenant}/"
    return Rejection(RejectCode.INVALID_FIELD, field, job, rule)


def rejection(file: CellFile, spec: JobSpec, came_ms: int) -> Rejection | None:
    """Why a job that came at `came_ms` and has its cell and pools cannot have what it asks for; None if it can."""
    return _too_far(file, spec, came_ms) or _of_another_unit(spec, came_ms) or amiss_anywhere(spec)


def amiss_anywhere(spec: JobSpec) -> Rejection | None:
    """Why no cell can give a job, which is named in full, what it asks for, whenever it comes; None if one may."""
    return _names_itself(spec) or _no_array(spec)


def _too_far(file: CellFile, spec: JobSpec, came_ms: int) -> Rejection | None:
    """A mistake in the unit of a time would let a job wait for thousands of years."""
    allowed, not_before_ms = file.limits.not_before_ahead_ms, spec.not_before_ms
    if not_before_ms is None or not_before_ms - came_ms <= allowed:
        return None
    rule = f"must be at most {allowed} ms ahead of the cell time at which it came, {came_ms}"
    ahead_ms = not_before_ms - came_ms
    return Rejection(RejectCode.NOT_BEFORE_TOO_FAR, "not_before_ms", str(not_before_ms), rule, ahead_ms, allowed)


def _of_another_unit(spec: JobSpec, came_ms: int) -> Rejection | None:
    """Where cell time is the calendar's, what lies before 1973 was given in seconds or hours: such a job for tonight
    would start at once. 0 is no time of any clock: it says "at once".
    """
    not_before_ms = spec.not_before_ms
    if not not_before_ms or not_before_ms >= CALENDAR_FROM_MS or came_ms < CALENDAR_FROM_MS:
        return None
    rule = f"must be in milliseconds since 1970, as the cell time at which it came, {came_ms}"
    return Rejection(RejectCode.INVALID_FIELD, "not_before_ms", str(not_before_ms), rule)


def _names_itself(spec: JobSpec) -> Rejection | None:
    named: dict[str, None] = {}
    for dependency in spec.after:
        if dependency.job == spec.id:
            return Rejection(RejectCode.INVALID_FIELD, "after", own_id(dependency.job), "names the job itself")
        if dependency.job in named:
            return Rejection(RejectCode.INVALID_FIELD, "after", own_id(dependency.job), "stands twice")
        named[dependency.job] = None
    return None


def _no_array(spec: JobSpec) -> Rejection | None:
    for field in ("array_of", "array_index"):
        value = getattr(spec, field)
        if value is not None:
            return Rejection(RejectCode.INVALID_FIELD, field, str(value), "is set by the cell")
    if spec.array is None:
        value = spec.array_max_running
        rule = "is for arrays"
        return None if value is None else Rejection(RejectCode.INVALID_FIELD, "array_max_running", str(value), rule)
    longest = JOB_ID_CHARS_MAX - 1 - len(str(spec.array - 1))
    if len(own_id(spec.id)) > longest:
        rule = f"the id of an array this large has at most {longest} characters"
        return Rejection(RejectCode.INVALID_FIELD, "id", own_id(spec.id), rule, len(own_id(spec.id)), longest)
    element = len(encode(spec)) + 3 * len(spec.id) + ELEMENT_BYTES
    most = ARRAY_BYTES_MAX // spec.array
    if element > most:
        rule = f"each of {spec.array} elements may need {most} bytes in the log"
        return Rejection(RejectCode.TOO_LARGE, "array", str(spec.array), rule, element, most)
    return None
