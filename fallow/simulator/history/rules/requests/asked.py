"""What is done to a job, its tenant asked for, in a record of `jobs` that was read by then. And what is accepted is the
job that was admitted. Judged where it is known that all requests are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobUpdateRequested
from fallow.shared.events.reasons import CancelReason, RefuseCode, StopReason
from fallow.simulator.history.books import Books, JobPage
from fallow.simulator.history.evidence import CellEvidence, Violation
from fallow.simulator.history.rules.requests.refusals import TOO_MANY, have_room

Request = JobCancelRequested | JobUpdateRequested

UNKNOWN = -1
"""The place of a record that was lost, or stands where another one was: it may have been read at any time."""

_CHANGED = ("priority", "workers", "workers_min", "max_run_ms")


class Asked:
    """The requests to a cell, and what its decisions do for which there is none."""

    def __init__(self, evidence: CellEvidence, books: Books) -> None:
        self._books, self._cell = books, evidence.cell
        self._read: dict[str, int] = {}
        self._requests: dict[tuple[type[Event], str, str], list[tuple[Request, str, int]]] = {}
        self._admitted: dict[tuple[str, str], list[JobSpec]] = {}
        self.found: list[Violation] = []
        for answer in evidence.answers:
            is_sure = answer.offset < evidence.cut.get(answer.source, answer.offset + 1)
            self._note(answer.event, answer.source, answer.offset if is_sure else UNKNOWN)
        for event in evidence.lost_answers:
            self._note(event, "", UNKNOWN)

    def _note(self, event: Event, source: str, offset: int) -> None:
        if isinstance(event, JobCancelRequested | JobUpdateRequested):
            at = (type(event), event.tenant, event.job)
            self._requests.setdefault(at, []).append((event, source, offset))
        elif isinstance(event, JobAdmitted):
            self._admitted.setdefault((event.spec.id, event.digest), []).append(event.spec)

    def before(self) -> Mapping[type, Callable[[Any], None]]:
        """What to call before an effect of these kinds comes into the books."""
        return {
            e.JobCancelled: self._cancelled,
            e.JobStopping: self._stopping,
            e.JobUpdated: self._updated,
            e.JobEnqueued: self._enqueued,
            e.JobRefused: self._refused,
        }

    def reads(self, inputs: Mapping[str, int]) -> None:
        """The decision that comes next has read so far."""
        self._read.update(inputs)

    def _cancelled(self, effect: e.JobCancelled) -> None:
        if effect.reason is CancelReason.ASKED:
            self._must_be_asked(JobCancelRequested, effect.job, "cancelled")

    def _stopping(self, effect: e.JobStopping) -> None:
        if effect.why is StopReason.CANCELLED:
            self._must_be_asked(JobCancelRequested, effect.job, "stopped for a cancel")

    def _updated(self, effect: e.JobUpdated) -> None:
        """The job becomes what one of the updates makes of it."""
        page = self._books.jobs.get(effect.job)
        if page is not None and not any(_makes(each, page, effect) for each in self._asked(JobUpdateRequested, page)):
            self._say(f"job {effect.job} is updated otherwise than its tenant asked for")

    def _must_be_asked(self, kind: type[Event], job: str, done: str) -> None:
        page = self._books.jobs.get(job)
        if page is not None and not self._asked(kind, page):
            self._say(f"job {job} of {page.spec.tenant} is {done}, and its tenant has not asked for it")

    def _asked(self, kind: type[Event], page: JobPage) -> list[Request]:
        """The requests of a job's tenant for it, or for its array, that were read by now."""
        spec = page.spec
        names = (spec.id,) if spec.array_of is None else (spec.id, spec.array_of)
        asked = [at for name in names for at in self._requests.get((kind, spec.tenant, name), ())]
        return [event for event, source, offset in asked if offset < self._read.get(source, 0)]

    def _enqueued(self, effect: e.JobEnqueued) -> None:
        """Elements of an array differ from it in what makes them elements."""
        got, digest = effect.spec, effect.digest
        name, array = got.array_of or got.id, got.array_of
        admitted = self._admitted.get((name, digest), [])
        if array is not None:
            admitted = [replace(each, id=got.id, array_of=array, array_index=got.array_index) for each in admitted]
        if got not in admitted:
            self._say(f"job {got.id} is accepted as it was not admitted")

    def _refused(self, effect: e.JobRefused) -> None:
        """As too many of those that wait: it may be any of the jobs that were admitted under this name."""
        if effect.request != "submit" or effect.code not in TOO_MANY:
            return
        of_tenant = effect.code is RefuseCode.TENANT_HAS_TOO_MANY_WAITING
        specs = [spec for (job, _), specs in self._admitted.items() if job == effect.job for spec in specs]
        if all(have_room(self._books, spec, self._books.waiting_max, of_tenant=of_tenant) for spec in specs):
            self._say(f"job {effect.job} is refused: {effect.code}, and it may wait")

    def _say(self, text: str) -> None:
        self.found.append(Violation("I2", text, f"{self._cell}, version {self._books.version}"))


def _makes(request: Request, page: JobPage, effect: e.JobUpdated) -> bool:
    if not isinstance(request, JobUpdateRequested):
        return False
    said = {name: getattr(request.changes, name) for name in _CHANGED}
    wanted = {name: getattr(page.spec, name) if value is None else value for name, value in said.items()}
    return all(getattr(effect, name) == value for name, value in wanted.items())
