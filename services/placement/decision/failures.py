"""The inputs on which a decision raised an error that nobody foresaw: each of them is set aside, and the cell goes on.

Where many in a row would be, the defect is in all of them, and they are better left where they are: the error ends the
work on the cell, as one does that comes from no input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import TracebackType

from services.placement.decision.inbox import Input
from shared.events.base import Event
from shared.events.jobs import JobAdmitted, JobCancelRequested, JobsAdmitted, JobUpdateRequested
from shared.events.nodes import NodeEvent, NodesReported, RunEvent, RunsReported, RunStatusUpdate

IN_A_ROW_MOST = 3
"""So many words of one source at most are set aside with none of it between them that was taken in."""

TEXT_CHARS_MOST = 500


class Failures:
    """Of one writer. `count` is how many inputs it set aside so far, `newest` the place of the last one, and why."""

    def __init__(self) -> None:
        self.count, self.newest = 0, ""
        self._in_a_row = Counter[str]()

    def begin(self) -> None:
        """This process is to write: inputs are read anew."""
        self._in_a_row.clear()

    def note(self, culprit: Input, text: str) -> bool:
        """Whether this one may be set aside, too."""
        source = culprit.source
        if self._in_a_row[source] >= IN_A_ROW_MOST:
            return False
        self._in_a_row[source] += 1
        self.count += 1
        self.newest = f"{source}@{culprit.next_offset - 1}: {text}"
        return True

    def went_well(self, taken: Iterable[Input]) -> None:
        """A decision that took these in is in force, or nothing came of them."""
        if self._in_a_row:
            for item in taken:
                if item.event is not None:
                    self._in_a_row.pop(item.source, None)


def told_of(error: Exception, culprit: Input) -> str:
    """The error, where it was raised, and on whose account: a record may hold words of many."""
    text, about = f"{type(error).__name__}: {error}"[:TEXT_CHARS_MOST], _about(culprit.event)
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
