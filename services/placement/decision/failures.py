"""Unforeseen failures of a decision. An input on which it raised an error is set aside; a waiting job whose
start the state refused is held. The cell goes on.

Where many in a row would be, the defect is in all of them, or in the state, and they are better left where they are:
the error ends the work on the cell, as one does that comes from no input and no job.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple

from fallow.services.placement.decision.inbox import Input
from fallow.shared.cluster.model.job import Job
from fallow.shared.events.base import TEXT_CHARACTERS_MAX, Event
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobsAdmitted, JobUpdateRequested
from fallow.shared.events.nodes import NodeEvent, NodesReported, RunEvent, RunsReported, RunStatusUpdate

IN_A_ROW_MAX = 3
"""Words of one source about so many jobs, or nodes, at most are set aside with none of it between them that was taken
in. Copies of one word are one: admission may have told a job twice.
"""

JOBS_IN_A_ROW = 3
"""So many different jobs that are refused with no start between them are no chance: the state is at fault."""

TEXT_CHARS_MAX = 500

DEFECT = "a defect of placement; please report it: "
"""How the reason begins for which a job is held whose start the state refused."""


class RefusedStart(NamedTuple):
    """The walk over the waiting jobs made an effect of this job that breaks `rule`. `cause` is the job, or its array:
    elements are alike, and are refused for one reason. `starts` is how many workers or jobs the same decision had
    started before.
    """

    job: str
    cause: str
    starts: int
    rule: str

    @property
    def reason(self) -> str:
        """Why the job is held."""
        return f"{DEFECT}{self.rule}"[:TEXT_CHARACTERS_MAX]


def refused_start(job: Job, starts: int, rule: str) -> RefusedStart:
    """The refusal of an effect of this job."""
    return RefusedStart(job.id, job.spec.array_of or job.id, starts, rule)


class Failures:
    """Of one writer. `count` is how many inputs it set aside so far, `newest` the place of the last one, and why.
    `jobs` is how many jobs it held, `newest_job` the last one, and why.
    """

    def __init__(self) -> None:
        self.count, self.newest = 0, ""
        self.jobs, self.newest_job = 0, ""
        self._in_a_row: dict[str, dict[str, None]] = {}
        self._jobs_in_a_row = dict[str, None]()
        self._starts = 0

    def begin(self) -> None:
        """This process is to write: inputs are read anew."""
        self._in_a_row.clear()
        self._jobs_in_a_row.clear()
        self._starts = 0

    def note(self, culprit: Input, text: str) -> bool:
        """Whether this one may be set aside, too."""
        source, about = culprit.source, _about(culprit.event) or f"offset {culprit.next_offset - 1}"
        row = self._in_a_row.setdefault(source, {})
        if about not in row and len(row) >= IN_A_ROW_MAX:
            return False
        row[about] = None
        self.count += 1
        self.newest = f"{source}@{culprit.next_offset - 1}: {text}"
        return True

    def refused(self, refusal: RefusedStart) -> bool:
        """Whether the next decision may do without this job. What started behind the job that was refused before is
        made again with it, so that the two are not in a row.
        """
        if refusal.starts > self._starts:
            self._jobs_in_a_row.clear()
        self._starts = refusal.starts
        self._jobs_in_a_row[refusal.cause] = None
        return len(self._jobs_in_a_row) < JOBS_IN_A_ROW

    def did_without(self, refusal: RefusedStart) -> None:
        """The decision without this job is in force."""
        self.jobs += 1
        self.newest_job = f"{refusal.job}: {refusal.rule}"

    def went_well(self, taken: Iterable[Input], starts: int) -> None:
        """A decision that took these in is in force, with so many starts, or nothing came of them."""
        if starts > self._starts:
            self._jobs_in_a_row.clear()
        self._starts = 0
        if self._in_a_row:
            for item in taken:
                if item.event is not None:
                    self._in_a_row.pop(item.source, None)


def told_of(error: Exception, culprit: Input) -> str:
    """The error, where it was raised, and on whose account: a record may hold words of many."""
    text, about = f"{type(error).__name__}: {error}"[:TEXT_CHARS_MAX], _about(culprit.event)
    return f"{text} (raised in {_place(error.__traceback__)}{about and f', on {about}'})"


def _place(trace: TracebackType | None) -> str:
    place = "an unknown place"
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}", trace.tb_next
    return place


def _about(event: Event | None) -> str:
    match event:
        case JobAdmitted():
            return f"job {event.spec.id}"
        case JobsAdmitted():
            return f"job {event.jobs[0].spec.id}" if event.jobs else ""
        case JobCancelRequested() | JobUpdateRequested():
            return f"job {event.job}"
        case RunsReported():
            return _of_run(event.words[0]) if event.words else ""
        case NodesReported():
            return f"node {event.reports[0].node}" if event.reports else ""
        case RunEvent():
            return _of_run(event)
        case NodeEvent():
            return f"node {event.node}"
    return ""


def _of_run(word: RunStatusUpdate | RunEvent) -> str:
    return f"job {word.job} of node {word.node}"
