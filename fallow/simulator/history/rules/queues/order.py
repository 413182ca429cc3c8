"""The order of jobs: no decision starts a job past another one that had to come before it, and no job that could start
is left waiting while nothing else happens. By the rules of docs/queues.md, from the checker's own books.

Only what is surely wrong is said. A job that could start is a gang that surely fits, that its tenant's limits surely
allow, and that nothing could keep back: no job of its own or of an earlier queue that must not be passed. Where
anything is guaranteed nothing is sure. Jobs that are no gangs and services are judged as those that pass others, not as
those that are passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobKind, JobSpec
from fallow.simulator.history.books import HOLDS, QUEUED, Books, JobPage
from fallow.simulator.history.evidence import Violation
from fallow.simulator.history.log_form import InForce
from fallow.simulator.history.rules.queues.places_in_queues import stands
from fallow.simulator.history.rules.queues.queue_rules import DEFAULT, UNKNOWN, QueueRule
from fallow.simulator.history.rules.runs import arrays
from fallow.simulator.history.rules.tenants.room import could_use, fits_now, groups, is_of_its_kind, is_open, might_use
from fallow.simulator.history.rules.tenants.shares import comes_first
from fallow.simulator.history.rules.tenants.sure_limits import (
    are_surely_below_limits,
    are_under_one_limit,
    is_owner,
    surely_allowed,
    waits_for_room,
)

REST_MS = 1_500
"""Placement comes by its lines many times in so long."""

NEVER_DUE_MS = 100_000
"""A head that may be passed for so long is due in no world."""

CHANGES_RULES = (e.CellFileSet, e.PolicySet, e.QuotaSet, e.QuotaRemoved, e.MaintenanceSet, e.MaintenanceBegan)
"""A decision with one of these is not judged: the log does not tell under which rule it started a job."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting job at one moment. `place` is what its place in the queue goes by; `head_of` are the nodes that nothing
    behind it may take.
    """

    spec: JobSpec
    rule: QueueRule
    place: tuple[int, ...]
    could_start: bool
    head_of: dict[str, None]


@dataclass(slots=True)
class OrderJudge:
    """Watches a keeper's books. `quiet_from` is the moment from which on a writer lives at all times."""

    books: Books
    quiet_from: int
    found: list[Violation] = field(default_factory=list)
    _entry: InForce | None = None
    _is_judged: bool = False
    _may_be_passed: dict[str, None] = field(default_factory=dict)
    _in_rooms: dict[str, None] = field(default_factory=dict)

    def next(self, entry: InForce) -> None:
        """This decision is the next one that the books will know: what was left waiting until now?"""
        last, self._entry = self._entry, entry
        self._is_judged = not any(isinstance(effect, CHANGES_RULES) for effect in entry.decision.effects)
        self._may_be_passed = _brought_or_started(entry)
        self._in_rooms = {each.job: None for each in entry.decision.effects if isinstance(each, e.RoomReleased)}
        if last is None or last.moment is None or entry.moment is None or last.moment < self.quiet_from:
            return
        for_ms = entry.moment - last.moment
        if for_ms >= REST_MS:
            for job, waiting in waiting_in(self.books).items():
                if waiting.could_start:
                    self._say(last, f"job {job} could start and waits {for_ms} ms in which nothing happens")

    def before_start(self, start: e.JobStarted) -> None:
        """This start comes next: does it pass anything?"""
        if self._entry is None or not self._is_judged or start.job in self._in_rooms:
            return  # what starts in room that was held for it has had its turn when others yielded to it
        waiting = waiting_in(self.books)
        other = waiting.get(start.job)
        if other is None or is_owner(self.books, other.spec):
            return
        for job, passed in waiting.items():
            text = None if job in self._may_be_passed else self._wrong(passed, other, start)
            if text is not None:
                self._say(self._entry, text)
                self._may_be_passed[job] = None

    def _wrong(self, passed: Waiting, other: Waiting, start: e.JobStarted) -> str | None:
        if passed.could_start and self._comes_before(passed, other):
            return f"job {start.job} starts before {passed.spec.id}, which could start and comes before it"
        taken = [place.node for place in start.workers if place.node in passed.head_of]
        if taken and _is_behind(passed, other):
            return f"job {start.job} starts on {taken[0]}, for which {passed.spec.id} waits and must not be passed"
        return None

    def _comes_before(self, first: Waiting, other: Waiting) -> bool:
        if first.rule.name != other.rule.name:
            return first.rule.number < other.rule.number
        if not first.rule.is_fair or first.spec.tenant == other.spec.tenant:
            return first.place < other.place
        return comes_first(self.books, first.spec.tenant, other.spec.tenant)

    def _say(self, entry: InForce, text: str) -> None:
        where = f"{self.books.cell}, version {entry.decision.version}, offset {entry.offset}"
        self.found.append(Violation("ORDER", text, where))


def _brought_or_started(entry: InForce) -> dict[str, None]:
    """The jobs that a decision brings, changes, or starts itself, be it behind others."""
    effects = entry.decision.effects
    brought = [each.spec.id for each in effects if isinstance(each, e.JobEnqueued)]
    changed = [each.job for each in effects if isinstance(each, e.JobUpdated | e.JobStarted)]
    return dict.fromkeys(brought + changed)


def _is_behind(head: Waiting, other: Waiting) -> bool:
    """Whether a start may not take what the head waits for. By shares a head that is due comes before the turns of all
    other tenants.
    """
    if head.rule.name != other.rule.name:
        return head.rule.number < other.rule.number
    is_of_another_line = head.rule.is_fair and head.spec.tenant != other.spec.tenant
    return is_of_another_line or head.place < other.place


def waiting_in(books: Books) -> dict[str, Waiting]:
    """All jobs that wait for their turn; none is said to while room is held, of which others may have no part."""
    found: dict[str, Waiting] = {}
    if any(page.room is not None for page in books.jobs.values()):
        return found
    numbers = {job: number for number, job in enumerate(books.jobs)}
    lines = _Lines(books, numbers)
    for job, page in books.jobs.items():
        if page.status != QUEUED:
            continue
        rule = lines.rule_of(page)
        is_judged = page.spec.gang and page.spec.kind is JobKind.TRAINING and _is_ready(books, page)
        could_start = is_judged and lines.could_start(page)
        head_of = could_use(books, page) if is_judged and _is_head(books, page, rule) else {}
        if head_of and not (_waits_for_room_alone(books, page) and lines.is_first_head(page)):
            head_of = {}
        head_of = {node: None for node in head_of if not _is_kept_for_another(books, page, node)}
        found[job] = Waiting(page.spec, rule, lines.place_of(page), could_start, head_of)
    return found


def _is_kept_for_another(books: Books, page: JobPage, node: str) -> bool:
    """Whether the node is kept for the planned start of another job: there only what outlasts that is kept off."""
    plans = [other.plan for other in books.jobs.values() if other is not page and other.plan is not None]
    return any(place.node == node for plan in plans for place in plan.workers)


def _is_ready(books: Books, page: JobPage) -> bool:
    return page.not_before_ms <= books.at_ms and arrays.too_many(books, page) is None


def _is_head(books: Books, page: JobPage, rule: QueueRule) -> bool:
    """Whether nothing behind the job may take what it waits for."""
    if rule.is_strict:
        return not rule.is_fair
    if page.plan is not None:
        return False  # it is waited for on the nodes of its planned start alone
    if not rule.is_backfill or page.head_since_ms is None or page.head_version == books.version:
        return False
    return books.at_ms - page.head_since_ms > books.policy.backfill_wait_ms


def _waits_for_room_alone(books: Books, page: JobPage) -> bool:
    """Whether what keeps the job is no limit, guarantee, maintenance, silence or lack of confirmation."""
    nodes = [node for node in books.nodes.values() if is_of_its_kind(page.spec, node)]
    if books.policy.max_unacknowledged_starts_per_node or not all(is_open(node) for node in nodes):
        return False
    types = {node.spec.gpu_type: None for node in nodes}
    return all(waits_for_room(books, page.spec, gpu_type) for gpu_type in types)


class _Lines:
    """The queues at one moment."""

    def __init__(self, books: Books, numbers: dict[str, int]) -> None:
        self._books, self._numbers = books, numbers
        self._might_use: dict[str, dict[str, None]] = {}

    def rule_of(self, page: JobPage) -> QueueRule:
        return self._books.rules.get(page.spec.queue or "", UNKNOWN)

    def place_of(self, page: JobPage) -> tuple[int, ...]:
        ages = self._books.ages.get(page.spec.queue or "", DEFAULT)
        return (*stands(page, ages), self._numbers[page.spec.id])

    def could_start(self, page: JobPage) -> bool:
        """Whether a gang could surely start now."""
        types = {gpu_type: None for _, gpu_type in groups(self._books, page.spec)}
        allowed = all(surely_allowed(self._books, page.spec, gpu_type) for gpu_type in types)
        return allowed and fits_now(self._books, page) and not self._is_kept(page)

    def _is_kept(self, page: JobPage) -> bool:
        """Whether any other job could be one that this job must not pass."""
        own = self.rule_of(page)
        mine = might_use(self._books, page)
        for job, other in self._books.jobs.items():
            if other is page or not (other.status == QUEUED or (other.status in HOLDS and not other.spec.gang)):
                continue
            if other.plan is not None and any(place.node in mine for place in other.plan.workers):
                return True  # these are kept for its planned start
            rule = self.rule_of(other)
            is_ahead = rule.number < own.number
            if rule.name == own.name:
                is_ahead = rule.is_fair or self.place_of(other) < self.place_of(page)
            if is_ahead and (other.plan is not None or self._may_be_head(rule)) and self._meets(job, other, page, mine):
                return True
        return False

    def is_first_head(self, page: JobPage) -> bool:
        """Whether surely no other head keeps this one back, by its room or by a limit: it would be none then."""
        return not self._is_behind_longer_waiting(page) and not self._is_behind_another_at_its_limit(page)

    def _is_behind_another_at_its_limit(self, page: JobPage) -> bool:
        """Whether a job that comes before it in its queue may wait at a limit that counts for both: what it waits for
        there keeps this one back, which is below the limit for itself.
        """
        rule, place = self.rule_of(page), self.place_of(page)
        for other in self._books.jobs.values():
            if other is page or other.status not in (QUEUED, *HOLDS) or self.rule_of(other).name != rule.name:
                continue
            is_before = rule.is_fair or self.place_of(other) < place
            if is_before and not are_surely_below_limits(self._books, other.spec, page.spec):
                return True
        return False

    def _is_behind_longer_waiting(self, page: JobPage) -> bool:
        """Whether a head in a queue by shares may stand behind one that waits as long, any job that comes before it in
        the line of its tenant, or one of an earlier queue.
        """
        own = self.rule_of(page)
        if not own.is_fair:
            return False
        mine = might_use(self._books, page)
        for job, other in self._books.jobs.items():
            rule, since_ms = self.rule_of(other), other.head_since_ms
            if other is page or other.status not in (QUEUED, *HOLDS):
                continue
            waits = other.status == QUEUED or not other.spec.gang
            is_before = waits and other.spec.tenant == page.spec.tenant and self.place_of(other) < self.place_of(page)
            is_longer = is_before or (since_ms is not None and since_ms <= (page.head_since_ms or 0))
            is_longer = is_longer and rule.name == own.name
            is_ahead = other.plan is not None or (rule.number < own.number and self._may_be_head(rule))
            if (is_longer or is_ahead) and self._meets(job, other, page, mine):
                return True
        return False

    def _may_be_head(self, rule: QueueRule) -> bool:
        if not rule.is_backfill or self._books.policy.backfill_wait_ms < NEVER_DUE_MS:
            return rule.is_strict or rule.is_backfill
        return False

    def _meets(self, job: str, other: JobPage, page: JobPage, mine: dict[str, None]) -> bool:
        """Whether this other job could be on any of these nodes, or waits for room below a limit of the page's job."""
        if job not in self._might_use:
            self._might_use[job] = might_use(self._books, other)
        theirs = self._might_use[job]
        return any(node in mine for node in theirs) or (
            bool(theirs) and are_under_one_limit(self._books, other.spec, page.spec)
        )
