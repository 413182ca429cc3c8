"""I2 towards submitters: every command is answered, and every answer is kept by the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fallow.shared.events import effects as e
from fallow.shared.events.base import Event, replace
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import StopReason
from fallow.simulator.history.books import CANCELLED, STOPPING, Books
from fallow.simulator.history.evidence import Answer, CellEvidence, Evidence, Violation
from fallow.simulator.history.rules.requests.as_submitted import by_job, passed_on_unasked
from fallow.simulator.history.rules.requests.rejections import rejected_for_nothing
from fallow.simulator.history.rules.tenants.owners import is_own, passed_on_for_a_stranger


class Settlements:
    """What admission passed on is settled by the decision that says it was read: nothing is read and forgotten."""

    def __init__(self, evidence: CellEvidence) -> None:
        self._cell = evidence.cell
        self._ahead: dict[str, list[Answer]] = {}
        self._refilled: list[Answer] = []
        for answer in sorted(evidence.answers, key=lambda answer: (answer.source, -answer.offset)):
            if (answer.source, answer.offset, answer.event.key()) in evidence.dead:
                continue
            if answer.offset >= evidence.cut.get(answer.source, answer.offset + 1):
                self._refilled.append(answer)
            else:
                self._ahead.setdefault(answer.source, []).append(answer)
        self._ever_refused: Counter[tuple[str, str]] = Counter()
        self._ever_updated: Counter[str] = Counter()
        self._enqueued: dict[tuple[str, str], None] = {}
        self._elements: dict[str, dict[str, None]] = {}
        self._numbers: dict[str, tuple[str, int]] = {}
        self._refused: Counter[tuple[str, str]] = Counter()
        self._updated: Counter[str] = Counter()
        self._updates_read: Counter[str] = Counter()
        self._updates_of: Counter[str] = Counter()
        self._is_any_record = False
        self._submits_refused: Counter[str] = Counter()

    def take(self, decision: Decision, books: Books) -> list[Violation]:
        """Take in a decision that is in the books already; what it has read and not settled."""
        self._begin_record()
        self._updates_of = updates_of_arrays(decision.effects, self._numbers)
        for effect in decision.effects:
            if isinstance(effect, e.JobEnqueued):
                self._note_enqueued(effect.spec, effect.digest)
            elif isinstance(effect, e.JobRefused):
                self._refused[effect.job, effect.request] += 1
                self._ever_refused[effect.job, effect.request] += 1
            elif isinstance(effect, e.JobUpdated):
                self._updated[effect.job] += 1
                self._ever_updated[effect.job] += 1
        refused = [each.job for each in decision.effects if isinstance(each, e.JobRefused) and each.request == "submit"]
        here = Counter(refused)
        self._submits_refused += here
        where = f"{self._cell}, version {decision.version}"
        found = [
            Violation("I2", text, where)
            for source, position in decision.inputs.items()
            for answer in self._read_up_to(source, position)
            if (text := self._unsettled(answer.event, books)) is not None
        ]
        if decision.inputs:
            # One event admits several jobs: this record may have answered the first of the next event already.
            self._submits_refused = here
        return found

    def _begin_record(self) -> None:
        """An answer stands in the record that has read the command: what earlier ones say is none."""
        self._refused, self._updated, self._updates_read = Counter(), Counter(), Counter()

    def _note_enqueued(self, spec: JobSpec, digest: str) -> None:
        self._enqueued[spec.array_of or spec.id, digest] = None
        if spec.array_of is not None:
            self._elements.setdefault(spec.array_of, {})[spec.id] = None
            self._numbers[spec.id] = spec.array_of, spec.array_index or 0

    def _read_up_to(self, source: str, position: int) -> Iterable[Answer]:
        ahead = self._ahead.get(source, [])
        while ahead and ahead[-1].offset < position:
            yield ahead.pop()

    def _unsettled(self, event: Event, books: Books) -> str | None:
        match event:
            case JobAdmitted() if event.cell == self._cell:
                return self._unsettled_submit(event)
            case JobCancelRequested() if event.cell == self._cell:
                return self._not_refused("cancel", event) or self._unsettled_cancel(event, books)
            case JobUpdateRequested() if event.cell == self._cell:
                return self._not_refused("update", event) or self._unsettled_update(event)
        return None

    def _not_refused(self, request: str, event: JobCancelRequested | JobUpdateRequested) -> str | None:
        """A stranger's request is refused, whatever became of the job."""
        if is_own(event.tenant, event.job) or self._refused[event.job, request]:
            return None
        return f"the {request} of job {event.job} by {event.tenant} was read and not refused"

    def _unsettled_update(self, event: JobUpdateRequested) -> str | None:
        """An array is refused as a whole, or each of its live elements has an answer: the record that gives it may end
        them, too, and with the last one the array.
        """
        self._updates_read[event.job] += 1
        by_element = max(map(self._update_answers, self._elements.get(event.job, ())), default=0)
        by_element = max(by_element, self._updates_of[event.job])
        if self._update_answers(event.job) + by_element >= self._updates_read[event.job]:
            return None
        return f"the update of job {event.job} was read and neither done nor refused"

    def _update_answers(self, job: str) -> int:
        return self._updated[job] + self._refused[job, "update"]

    def _unsettled_submit(self, event: JobAdmitted) -> str | None:
        is_refused = self._refused[event.spec.id, "submit"] or self._submits_refused[event.spec.id]
        is_settled = (event.spec.id, event.digest) in self._enqueued or is_refused
        return None if is_settled else f"job {event.spec.id} was admitted and read, and neither accepted nor refused"

    def _unsettled_cancel(self, event: JobCancelRequested, books: Books) -> str | None:
        page, over, array = books.jobs.get(event.job), books.over.get(event.job), books.arrays.get(event.job)
        if array is not None and not self._refused[event.job, "cancel"]:
            found = (self._unsettled_cancel(replace(event, job=job), books) for job in array.left)
            return next((text for text in found if text is not None), None)
        is_stopping = page is not None and page.status == STOPPING and page.stop_why is StopReason.CANCELLED
        is_cancelled = over is not None and over.status == CANCELLED
        if is_stopping or is_cancelled or self._refused[event.job, "cancel"]:
            return None
        if page is None and event.job in self._ended_otherwise(books):
            return None
        return f"the cancel of job {event.job} was read, and the job is {page.status if page else 'unknown'}"

    def _ended_otherwise(self, books: Books) -> dict[str, object]:
        """Jobs that came to another end in the same record as the cancel; in any, where it is not known in which."""
        if self._is_any_record:
            return dict(books.over)
        return {job: over for job, over in books.over.items() if over.over_ms == books.at_ms}

    def unread(self, books: Books) -> list[Violation]:
        """What was never read and is not settled either: for a run that is over. What filled up a topic that was cut
        stands where something else was read before: which decision has read it is not known, so any may settle it.
        """
        self._begin_record()
        left = [answer for ahead in self._ahead.values() for answer in reversed(ahead)]
        found = self._unsettled_of(left, books)
        self._refused, self._updated, self._is_any_record = self._ever_refused, self._ever_updated, True
        return [*found, *self._unsettled_of(self._refilled, books)]

    def _unsettled_of(self, answers: Iterable[Answer], books: Books) -> list[Violation]:
        return [
            Violation("I2", f"{text} (at {answer.source} offset {answer.offset}, never read)", self._cell)
            for answer in answers
            if (text := self._unsettled(answer.event, books)) is not None
        ]


def updates_of_arrays(effects: Iterable[e.AnyEffect], numbers: Mapping[str, tuple[str, int]]) -> Counter[str]:
    """How many updates of each array a record carries out: one update changes elements in the order of their numbers,
    with nothing between but refusals. Elements may end between two updates, so that the next one begins with a later
    element. `numbers` holds the array and the number of each element.
    """
    found: Counter[str] = Counter()
    array, index = None, -1
    for effect in effects:
        if isinstance(effect, e.JobUpdated) and effect.job in numbers:
            its_array, number = numbers[effect.job]
            if its_array != array or number <= index:
                found[its_array] += 1
            array, index = its_array, number
        elif not (isinstance(effect, e.JobRefused) and effect.request == "update"):
            array = None
    return found


def wish_violations(evidence: Evidence) -> list[Violation]:
    """Every acknowledged submission has an answer of its own: passed on, rejected, or set aside with a reason."""
    if not all(cell.is_drained for cell in evidence.cells):
        return []
    given = [event for cell in evidence.cells for event in (*cell.lost_answers, *(each.event for each in cell.answers))]
    answered = Counter(about for event in given if (about := _about(event)))
    wished = Counter((wish.job, wish.command) for wish in evidence.wishes if not wish.is_dead)
    return [
        Violation("I2", f"{count} acknowledged commands to {command} job {job} have {answered[job, command]} answers")
        for (job, command), count in wished.items()
        if answered[job, command] < count
    ]


def stranger_violations(evidence: Evidence) -> list[Violation]:
    """A tenant that has a topic of its own is heard by that topic alone."""
    answers = (answer.event for cell in evidence.cells for answer in cell.answers)
    return [Violation("I2", text) for event in answers if (text := passed_on_for_a_stranger(event)) is not None]


def unasked_violations(evidence: Evidence) -> list[Violation]:
    """Each record of `jobs` says what its sender said, or why that cannot be."""
    if evidence.submissions is None:
        return []
    said = by_job(evidence.submissions)
    given = (event for cell in evidence.cells for event in (*(each.event for each in cell.answers), *cell.lost_answers))
    texts = (
        rejected_for_nothing(event, said, evidence.files)
        if isinstance(event, JobRejected)
        else passed_on_unasked(event, said, evidence.files)
        for event in given
    )
    return [Violation("I2", text) for text in texts if text is not None]


def _about(event: Event) -> tuple[str, str] | None:
    match event:
        case JobAdmitted():
            return event.spec.id, "submit"
        case JobCancelRequested():
            return event.job, "cancel"
        case JobUpdateRequested():
            return event.job, "update"
        case JobRejected():
            return event.job, event.command
    return None
