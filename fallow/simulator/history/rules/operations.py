"""What operators wish is carried out, or refused, by the decision that has read it: nothing is read and forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events.decisions import Decision
from fallow.shared.events.values import NodeStatus
from fallow.simulator.history.books import HELD, WAITS, Books, NodePage
from fallow.simulator.history.evidence import Answer, CellEvidence, Violation

_STATUS: dict[type[o.Operation], NodeStatus] = {
    o.Cordon: NodeStatus.CORDONED,
    o.Uncordon: NodeStatus.READY,
    o.Drain: NodeStatus.DRAINING,
}
_OF_NODES: dict[type[o.Operation], type[e.NodeEffect]] = {
    o.PlanMaintenance: e.MaintenanceSet,
    o.CancelMaintenance: e.MaintenanceSet,
    o.DeclareLost: e.LeaseExpired,
    o.RemoveNode: e.NodeRemoved,
}

DECISIONS_MOST = 4
"""After so many decisions behind the deadline of a drain each job of its node stops, also where records are small."""


class Operations:
    """The operations of a cell, in the order in which decisions read them. Where its topic was cut, what stands behind
    the cut is not judged: it is not known which decision has read it.
    """

    def __init__(self, evidence: CellEvidence) -> None:
        self._cell = evidence.cell
        self._ahead: dict[str, list[Answer]] = {}
        for each in sorted(evidence.operations, key=lambda each: (each.source, -each.offset)):
            is_cut = each.offset >= evidence.cut.get(each.source, each.offset + 1)
            if not is_cut and (each.source, each.offset) not in evidence.dead:
                self._ahead.setdefault(each.source, []).append(each)

    def take(self, decision: Decision, books: Books) -> list[Violation]:
        """Take in a decision that is in the books already; what it has read and passed over."""
        where = f"{self._cell}, version {decision.version}"
        found = [text for event in self._read_by(decision) if (text := _passed_over(event, decision.effects, books))]
        return [Violation("I2", text, where) for text in (*found, *not_emptied(books))]

    def _read_by(self, decision: Decision) -> Iterable[o.Operation]:
        for source, ahead in self._ahead.items():
            position = decision.inputs.get(source, 0)
            while ahead and ahead[-1].offset < position:
                event = ahead.pop().event
                if isinstance(event, o.Operation) and event.cell == self._cell:
                    yield event


def _passed_over(event: o.Operation, effects: Sequence[e.AnyEffect], books: Books) -> str | None:
    is_done = True
    match event:
        case o.HoldJob() | o.ReleaseJob():
            is_done = _is_held_or_let_go(event, effects, books)
        case o.SetQuota():
            is_done = _is_refused(effects, "set-quota") or all(
                _is_quota(quota, event.fields, effects, books) for quota in event.quotas
            )
        case o.RemoveQuota(tenant=tenant):
            gone = any(isinstance(each, e.QuotaRemoved) and each.tenant == tenant for each in effects)
            is_done = gone or _is_refused(effects, "remove-quota")
        case o.SetPolicy(policy=policy):
            names = event.fields or policy.__struct_fields__
            # A cell file that is put in force by the same record comes behind.
            policies = [books.policy, *(each.policy for each in effects if isinstance(each, e.PolicySet))]
            is_so = any(all(getattr(policy, n) == getattr(now, n, None) for n in names) for now in policies)
            is_done = is_so or _is_refused(effects, "set-policy")
        case o.Cordon(node=node) | o.Uncordon(node=node) | o.Drain(node=node):
            changed = [each for each in effects if isinstance(each, e.NodeChanged) and each.spec.id == node]
            is_done = any(each.status is _STATUS[type(event)] for each in changed) or _is_refused(effects, node)
        case (
            o.PlanMaintenance(node=node)
            | o.CancelMaintenance(node=node)
            | o.DeclareLost(node=node)
            | o.RemoveNode(node=node)
        ):
            kind = _OF_NODES[type(event)]
            is_done = any(isinstance(each, kind) and each.node == node for each in effects)
            is_done = is_done or _is_refused(effects, node)
    return None if is_done else f"{event.type} was read and neither carried out nor refused: {event}"


def _is_refused(effects: Sequence[e.AnyEffect], what: str) -> bool:
    return any(isinstance(each, e.ProposalRefused) and each.proposal == what for each in effects)


def _is_quota(quota: o.Quota, fields: Sequence[str], effects: Sequence[e.AnyEffect], books: Books) -> bool:
    known = books.quotas.get((quota.tenant, quota.gpu_type))
    quotas = [each.quota for each in effects if isinstance(each, e.QuotaSet)]
    quotas += [] if known is None else [known]
    names = ("tenant", "gpu_type", *fields) if fields else quota.__struct_fields__
    return any(all(getattr(now, name) == getattr(quota, name, None) for name in names) for now in quotas)


def _is_held_or_let_go(event: o.HoldJob | o.ReleaseJob, effects: Sequence[e.AnyEffect], books: Books) -> bool:
    """A wish for a job, or for elements of an array, is fulfilled or refused; of two wishes in one record either."""
    array = books.arrays.get(event.job)
    for each in effects:
        if isinstance(each, e.JobHeld | e.JobReleased) and (each.job == event.job or _is_element(each.job, event.job)):
            return True
        if isinstance(each, e.JobRefused) and each.job == event.job and each.request in ("hold", "release"):
            return True
    pages = [books.jobs[job] for job in (array.left if array is not None else (event.job,)) if job in books.jobs]
    wants_hold = isinstance(event, o.HoldJob)
    return not any((page.status == HELD) is not wants_hold for page in pages if page.status in WAITS)


def _is_element(job: str, array: str) -> bool:
    return job.startswith(f"{array}.")


def not_emptied(books: Books) -> Iterable[str]:
    """Gangs that go on where a drain was to have stopped them."""
    for node_id, node in books.nodes.items():
        if node.drain_ms is None:
            continue
        going = [job for job in node.workers if _goes_on(books, job)]
        node.undrained = node.undrained + 1 if going and _is_due(node, books) else 0
        if node.undrained == DECISIONS_MOST:
            yield f"job {going[0]} goes on on node {node_id}, which was to be empty at {node.drain_ms}"


def _goes_on(books: Books, job: str) -> bool:
    page = books.jobs[job]
    return page.spec.gang and page.status != "stopping"


def _is_due(node: NodePage, books: Books) -> bool:
    return node.status is NodeStatus.DRAINING and node.drain_ms is not None and node.drain_ms < books.at_ms
