"""What a job may wait for besides room: a time of its own, and the ends of other jobs."""

from __future__ import annotations

from services.admission.policy.resolve import Rejection
from shared.cluster.config import CellFile
from shared.events.reasons import RejectCode
from shared.events.values import JobSpec


def asks_to_wait(spec: JobSpec) -> bool:
    """Whether any test here concerns the job: few do."""
    return spec.not_before_ms is not None or bool(spec.after)


def rejection(file: CellFile, spec: JobSpec, now_ms: int) -> Rejection | None:
    """Why the job cannot wait for what it names, at cell time `now_ms`; None if it can."""
    return _too_far(file, spec, now_ms) or _names_itself(spec)


def _too_far(file: CellFile, spec: JobSpec, now_ms: int) -> Rejection | None:
    """A mistake in the unit of a time would let a job wait for thousands of years."""
    allowed, not_before_ms = file.limits.not_before_ahead_ms, spec.not_before_ms
    if not_before_ms is None or not_before_ms - now_ms <= allowed:
        return None
    rule = f"must be at most {allowed} ms ahead of the cell's time, {now_ms}"
    ahead_ms = not_before_ms - now_ms
    return Rejection(RejectCode.NOT_BEFORE_TOO_FAR, "not_before_ms", str(not_before_ms), rule, ahead_ms, allowed)


def _names_itself(spec: JobSpec) -> Rejection | None:
    named: dict[str, None] = {}
    for dependency in spec.after:
        if dependency.job == spec.id:
            return Rejection(RejectCode.INVALID_FIELD, "after", dependency.job, "names the job itself")
        if dependency.job in named:
            return Rejection(RejectCode.INVALID_FIELD, "after", dependency.job, "stands twice")
        named[dependency.job] = None
    return None
