"""All that follows the decisions of one simulated trace."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from fallow.services.metrics.policy.completion import CompletionTimes
from fallow.services.metrics.policy.kant.jtted import Jtted
from fallow.services.metrics.policy.run_time_errors import ExpectedRuns
from fallow.services.metrics.policy.summary import RunSummary
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.decisions import Decision
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.trace.books import Books
from fallow.simulator.trace.course import Course


class Measures:
    """All that follows the decisions of one run."""

    def __init__(self, carried: Collection[str]) -> None:
        self.books, self.summary, self.completion = Books(), RunSummary(carried), CompletionTimes(carried)
        self.course = Course(self.summary.gar.cell, self.summary.gfr.cell, self.summary.sor)
        self.jtted, self.expected = Jtted(), ExpectedRuns()
        self.until_ms = 0
        """When something was decided last."""
        self.loaded_ms = 0
        self.loaded: tuple[Fraction | None, Fraction | None, Fraction | None] = (None, None, None)
        """GAR, SOR and GFR up to the last submission, which was at `loaded_ms`."""

    def follow(self, state: CellState, decision: Decision) -> None:
        """The next decision, and the state behind it. One that only says how far the inputs were read changes nothing,
        and may come long after all that there is to measure.
        """
        if not decision.effects:
            return
        self.until_ms = decision.at_ms
        self.books.follow(state, decision)
        self.course.before(state, decision)
        self.summary.take(state, decision)
        self.course.behind(state, decision)
        self.completion.take(state, decision)
        self.jtted.take(state, decision)
        self.expected.take(state, decision)

    def submitted(self, command: SubmitJob, answer: Event | Undecodable, *, is_carried: bool) -> None:
        """A job came, and admission gave this answer."""
        self.books.submitted(command, answer, is_carried=is_carried)
        if not isinstance(answer, JobAdmitted):
            self.summary.turn_away(command.key())

    def note_load(self, at_ms: int) -> None:
        """All jobs have come, the last of them at this time."""
        self.loaded_ms, summary = at_ms, self.summary
        self.loaded = (summary.gar.cell.mean(at_ms), summary.sor.value(at_ms), summary.gfr.cell.mean(at_ms))
