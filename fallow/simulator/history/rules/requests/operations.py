"""What operators wish is carried out, or refused, by the decision that has read it: nothing is read and forgotten.

A decision takes operations in their order, and one that changes nothing is written nowhere. So each is held against the
books as they are at one place among the effects, no sooner than the one before it: what is so there already needs no
effect, whatever a cell file, or a node, changes behind it in the same record.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence

from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events.base import Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import NodeStatus
from fallow.simulator.history.books import HELD, WAITS, Books, JobPage, NodePage
from fallow.simulator.history.evidence import Answer, CellEvidence, Violation
from fallow.simulator.history.log_form import InForce
from fallow.simulator.history.rules.requests.reloads import Reloads
from fallow.simulator.history.rules.requests.rules_in_force import policy_in

_STATUS: dict[type[Event], NodeStatus] = {
    o.Cordon: NodeStatus.CORDONED,
    o.Uncordon: NodeStatus.READY,
    o.Drain: NodeStatus.DRAINING,
}
_REFUSED_AS: dict[type[Event], str] = {
    o.HoldJob: "hold",
    o.ReleaseJob: "release",
    o.SetQuota: "set-quota",
    o.SetPolicy: "set-policy",
    o.RemoveQuota: "remove-quota",
}

DECISIONS_MAX = 4
"""After so many decisions behind the deadline of a drain each job of its node stops, also where records are small.
Those count in which a writer does what is due.
"""


class Operations:
    """The operations of a cell, in the order in which decisions read them. Where its topic was cut, what stands behind
    the cut is not judged: it is not known which decision has read it.
    """

    def __init__(self, evidence: CellEvidence) -> None:
        self._cell = evidence.cell
        self._ahead: dict[str, list[Answer]] = {}
        for each in sorted(evidence.operations, key=lambda each: (each.source, -each.offset)):
            is_cut = each.offset >= evidence.cut.get(each.source, each.offset + 1)
            if not is_cut:
                self._ahead.setdefault(each.source, []).append(each)
        is_cut = any(each.source in evidence.cut for each in evidence.operations)
        self._knows_all = evidence.has_all_requests and not is_cut and not evidence.lost_operations
        self._where, self._open, self._sets_policy = "", deque[Answer](), False
        self._reloads = Reloads(evidence)
        self._read_at: int | None = None
        self._policy = o.CellPolicy()
        self._unasked: tuple[o.CellPolicy, str] | None = None

    def reads(self, decision: Decision, books: Books, moment: int | None = None) -> None:
        """A decision comes that is not in the books yet; the log took it at this moment."""
        self._where, self._policy = f"{self._cell}, version {decision.version}", books.policy
        self._open, self._read_at = deque(self._read_by(decision)), moment
        self._sets_policy = any(isinstance(each.event, o.SetPolicy) for each in self._open)
        self._settle(books)

    def behind(self, effect: e.AnyEffect, books: Books) -> None:
        """The next effect of that decision is in the books."""
        self._reloads.behind(effect)
        settled = self._settle(books, effect) if self._open else ()
        if isinstance(effect, e.PolicySet) and self._sets_policy and effect.policy != self._policy:
            is_asked = any(isinstance(event, o.SetPolicy) for event in settled)
            self._unasked = None if is_asked else (effect.policy, self._where)
            self._policy = effect.policy
        elif isinstance(effect, e.WriterStarted):
            self._unasked = None  # the one before it may have died while it put its file in force
        elif isinstance(effect, e.CellFileSet) and self._unasked is not None:
            named = policy_in(json.loads(effect.content), self._cell)
            if all(getattr(self._unasked[0], name, None) == value for name, value in named.items()):
                self._unasked = None

    def take(self, entry: InForce, books: Books) -> list[Violation]:
        """The decision is wholly in the books; what it has read and passed over, or left to be done."""
        events = [each.event for each in self._open][:1]
        passed = [f"{event.type} was read and neither carried out nor refused: {event}" for event in events]
        left = not_emptied(books) if entry.does_what_is_due else ()
        is_in_force = any(isinstance(effect, e.CellFileSet) for effect in entry.decision.effects)
        found = [Violation("I2", text, self._where) for text in (*passed, *left)]
        return [*found, *(self.unasked() if is_in_force else ())]

    def unasked(self) -> list[Violation]:
        """A policy that took the place of what an operator had asked for, though neither another one nor a file did."""
        unasked, self._unasked = self._unasked, None
        if unasked is None or not self._knows_all:
            return []
        return [Violation("I2", f"no operator and no cell file has asked for the policy {unasked[0]}", unasked[1])]

    def _settle(self, books: Books, effect: e.AnyEffect | None = None) -> Sequence[Event]:
        """What is so by now, one after the other; the effect answers one of them."""
        settled = []
        while self._open:
            event = self._open[0].event
            if not self._is_so(self._open[0], books):
                if effect is None or not _is_answer(event, effect, books):
                    break
                effect = None
            settled.append(self._open.popleft().event)
        return settled

    def _is_so(self, operation: Answer, books: Books) -> bool:
        """Whether nothing is left to be done."""
        if isinstance(operation.event, o.ReloadCell):
            return self._reloads.is_in_force(operation, self._read_at, books)
        return _is_so(operation.event, books)

    def _read_by(self, decision: Decision) -> Iterable[Answer]:
        for source, ahead in self._ahead.items():
            position = decision.inputs.get(source, 0)
            while ahead and ahead[-1].offset < position:
                each = ahead.pop()
                if isinstance(each.event, o.Operation) and each.event.cell == self._cell:
                    yield each


def _is_so(event: Event, books: Books) -> bool:
    """Whether nothing is left to be done. What is not named here is always told."""
    match event:
        case o.HoldJob() | o.ReleaseJob():
            waiting = [page for page in _pages(event.job, books) if page.status in WAITS]
            is_hold = isinstance(event, o.HoldJob)
            return bool(waiting) and all(_is_held(page) if is_hold else page.status != HELD for page in waiting)
        case o.SetQuota():
            quotas = {(quota.tenant, quota.gpu_type): quota for quota in event.quotas}
            return all(_is_quota(quota, event.fields, books) for quota in quotas.values())
        case o.SetPolicy(policy=policy):
            names = event.fields or policy.__struct_fields__
            return all(getattr(policy, name) == getattr(books.policy, name, None) for name in names)
        case o.AdvanceTime():
            return True  # a stepped clock goes on by it, and no effect says so
    return False


def _is_answer(event: Event, effect: e.AnyEffect, books: Books) -> bool:
    """Whether the effect, which is in the books, carries it out or refuses it."""
    match effect:
        case e.JobRefused(job=job, request=request):
            return (job, request) == (getattr(event, "job", None), _REFUSED_AS.get(type(event)))
        case e.ProposalRefused(proposal=proposal):
            return proposal == (_REFUSED_AS.get(type(event)) or _about(event))
    return _is_carried_out(event, effect, books)


def _about(event: Event) -> str:
    """What a refusal names where it does not name the kind of operation."""
    match event:
        case o.OfferLoan(loan=loan) | o.RecallLoan(loan=loan):
            return loan
    return getattr(event, "node", event.type)


def _is_carried_out(event: Event, effect: e.AnyEffect, books: Books) -> bool:
    match event:
        case o.HoldJob(job=job):
            return isinstance(effect, e.JobHeld) and not effect.reason and _is_of(effect.job, job)
        case o.ReleaseJob(job=job):
            return isinstance(effect, e.JobReleased) and _is_of(effect.job, job)
        case o.RemoveQuota(tenant=tenant, gpu_type=kind):
            is_left = any(user == tenant and kind in (None, of) for user, of in books.quotas)
            return isinstance(effect, e.QuotaRemoved) and effect.tenant == tenant and not is_left
        case o.Cordon(node=node) | o.Uncordon(node=node) | o.Drain(node=node):
            status = _STATUS[type(event)]
            return isinstance(effect, e.NodeChanged) and (effect.spec.id, effect.status) == (node, status)
        case o.PlanMaintenance(node=node, begin_ms=begin_ms, end_ms=end_ms):
            planned = (node, begin_ms, end_ms)
            return isinstance(effect, e.MaintenanceSet) and (effect.node, effect.begin_ms, effect.end_ms) == planned
        case o.CancelMaintenance(node=node):
            return isinstance(effect, e.MaintenanceSet) and (effect.node, effect.begin_ms) == (node, None)
        case o.DeclareLost(node=node):
            return isinstance(effect, e.LeaseExpired) and effect.node == node
        case o.RemoveNode(node=node):
            return isinstance(effect, e.NodeRemoved) and effect.node == node
    return False


def _is_quota(quota: o.Quota, fields: Sequence[str], books: Books) -> bool:
    now = books.quotas.get((quota.tenant, quota.gpu_type))
    names = fields or quota.__struct_fields__
    return now is not None and all(getattr(now, name) == getattr(quota, name, None) for name in names)


def _pages(job: str, books: Books) -> Iterable[JobPage]:
    """The job, or the elements of the array, that are not over."""
    array = books.arrays.get(job)
    jobs = array.left if array is not None else (job,)
    return [books.jobs[each] for each in jobs if each in books.jobs]


def _is_held(page: JobPage) -> bool:
    """Whether a person holds it: a hold takes the place of one for another reason."""
    return page.status == HELD and not page.held_why


def _is_of(job: str, wanted: str) -> bool:
    """Whether the job is the wanted one, or an element of it."""
    return job == wanted or job.startswith(f"{wanted}.")


def not_emptied(books: Books) -> Iterable[str]:
    """Gangs that go on where a drain was to have stopped them."""
    for node_id, node in books.nodes.items():
        if node.drain_ms is None:
            continue
        going = [job for job in node.workers if _goes_on(books, job)]
        node.undrained = node.undrained + 1 if going and _is_due(node, books) else 0
        if node.undrained == DECISIONS_MAX:
            yield f"job {going[0]} goes on on node {node_id}, which was to be empty at {node.drain_ms}"


def _goes_on(books: Books, job: str) -> bool:
    page = books.jobs[job]
    return page.spec.gang and page.status != "stopping"


def _is_due(node: NodePage, books: Books) -> bool:
    return node.status is NodeStatus.DRAINING and node.drain_ms is not None and node.drain_ms < books.at_ms
