"""Nodes that are taken out of use by themselves, visibly: an operator's uncordon lifts it.

One on which one job after another fails stays out until then. Counted is what different jobs did within a day: a job
that is tried again on the same node counts once, so do all elements of an array. What ends well begins the row anew;
work that has run for an hour clears the failures before its start, for replicas never end well. A run that failed by
its node's own fault (its disk is full) counts against the node, and not against the job: whosever job it was, and each
element of an array by itself, for their being alike is not why they failed. A lost node's runs count for nothing.

One that is silent beyond its lease and back, again and again, is out for a time that doubles with each further loss.
Losses count together that come within an hour of each other, or of the end of its quarantine. Counted are leases that
ran out, also where the node was back before it was declared lost, because many were silent at once: by then it had
stopped its own work. Neither a new boot counts, nor what an operator declares lost.

Jobs fail for reasons of their own, and networks break for many nodes at once. So no more than a tenth of a pool (and at
least one node) is taken out. One tenant's failures take nothing from others: where the cell file has several, at most
three of the five may be of one, besides those that the node names its own fault. In a pool of fewer than ten nodes one
node is more than a tenth: it is taken out for failures only while work runs on another one, on which nothing failed of
late. Lost nodes do not count, neither as those that are out nor as part of the pool. All counts are in the log: a new
writer goes on with them.
"""

from __future__ import annotations

from typing import NamedTuple

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes.known_node import become, end_quarantine, fitted
from fallow.services.placement.lifecycle.runs.retry import RUNS_WELL_MS
from fallow.shared.cluster.model.job import Job, index_of
from fallow.shared.cluster.model.node import Node
from fallow.shared.events.base import later
from fallow.shared.events.effects import NodeChanged, NodeFailures, NodeHeard
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeSpec, NodeStatus, RunStatus

FAILURES = 5
"""So many different jobs must fail on a node in a row."""

TENANT_MAX = 3
"""So many of them that are not the node's own fault may be of one tenant, where there are others."""

RECENT_MS = 86_400_000
"""What failed longer ago does not count."""

FLAPS = 3
"""So many times in a row a node must be lost."""

FLAPS_MAX = 1_000
NEAR_MS = 3_600_000
"""Losses with less than this between them are in a row."""

REST_MS, REST_MS_MAX = 600_000, 86_400_000
"""How long the first quarantine of a node that flaps lasts, and the longest one."""

AGAIN_MS = 60_000
"""After so long a node is looked at again whose quarantine ended while it was in maintenance."""

SMALL_POOL = 10
"""In a pool of fewer nodes one of them is more than the part that may be out."""

POOL_PERCENT_MAX = 10
"""The part of a pool's nodes that may be in quarantine."""


class Failure(NamedTuple):
    """Something failed on a node at this time: a job, or an array. `by_node`: the node names it its own fault."""

    cause: str
    tenant: str
    at_ms: int
    by_node: bool


Row = tuple[Failure, ...]


def judge(decision: DecisionBuilder, *, is_shared: bool) -> None:
    """Put down what this turn has settled, and take out the nodes whose row is full with it. `is_shared`: whether the
    cell has several tenants.
    """
    for node_id, row in _rows(decision, is_shared=is_shared).items():
        node = decision.state.nodes[node_id]
        if row == _known(node):
            continue
        if len(row) >= FAILURES and node.status is NodeStatus.READY and _may_go(decision, node):
            decision.emit(_failing(node, row))
            continue
        decision.emit(_put_down(node_id, row))


def _known(node: Node) -> Row:
    return tuple(map(Failure, node.failed_jobs, node.failed_tenants, node.failed_ms, node.failed_by_node))


def _put_down(node_id: str, row: Row) -> NodeFailures:
    causes, tenants, failed_ms, by_node = zip(*row, strict=True) if row else ((), (), (), ())
    told = by_node if any(by_node) else ()
    return NodeFailures(node=node_id, jobs=causes, tenants=tenants, failed_ms=failed_ms, by_node=told)


def _rows(decision: DecisionBuilder, *, is_shared: bool) -> dict[str, Row]:
    """The rows of the nodes on which something ended in this turn, with these ends."""
    rows: dict[str, Row] = {}
    for end in decision.ended:
        node = decision.state.nodes.get(end.node)
        if node is None or (end.is_good and not rows.get(end.node, node.failed_jobs)):
            continue
        row = rows[end.node] if end.node in rows else _fresh(decision, node)
        failure = Failure(end.cause, end.tenant, decision.now_ms, end.by_node)
        rows[end.node] = () if end.is_good else _with(row, failure, is_shared=is_shared)
    return rows


def _fresh(decision: DecisionBuilder, node: Node) -> Row:
    """What of a node's row counts still."""
    known = _known(node)
    since_ms = _works_since(decision, node) if known else 0
    return tuple(failure for failure in known if failure.at_ms > since_ms)


def _works_since(decision: DecisionBuilder, node: Node) -> int:
    """When the last of the work has begun that runs well here; a day ago, if none has since."""
    recent_ms = decision.now_ms - RECENT_MS
    begun = [_begun_ms(decision.state.jobs[job_id], node.id) for job_id in node.jobs]
    return max([recent_ms, *(ms for ms in begun if ms is not None and decision.now_ms - ms >= RUNS_WELL_MS)])


def _begun_ms(job: Job, node_id: str) -> int | None:
    """When the first worker of a job began that runs on a node; None: none runs there."""
    if job.running_ms is None:
        return None
    if job.spec.gang:
        return job.running_ms if job.runs.get(node_id) is RunStatus.RUNNING else None
    begun = (
        place.since_ms for place in index_of(job).on(node_id) if job.runs.get(str(place.rank)) is RunStatus.RUNNING
    )
    first_ms = next(begun, None)  # they are in the order in which they entered
    return None if first_ms is None else max(job.running_ms, first_ms)


def _with(row: Row, failure: Failure, *, is_shared: bool) -> Row:
    """The row with one failure more, if it tells more: the newest ones, and of one tenant's own only so many if there
    are others. What the node names its own fault counts for more than what the same job did by itself.
    """
    known = next((other for other in row if other.cause == failure.cause), None)
    if known is not None and known.by_node >= failure.by_node:
        return row
    row = tuple(other for other in row if other is not known)
    same = [other for other in row if other.tenant == failure.tenant and not other.by_node]
    if is_shared and not failure.by_node and len(same) >= TENANT_MAX:
        row = tuple(other for other in row if other is not same[0])
    return (*row, failure)[-FAILURES:]


def flaps_after(node: Node, now_ms: int) -> tuple[int, int]:
    """How many times in a row the node is lost with this time, and until when it is not to be used if it comes back."""
    if node.is_out_for_maintenance or not (node.wanted is NodeStatus.READY or node.quarantined):
        return node.flaps, node.rests_until_ms
    flaps = min(node.flaps + 1, FLAPS_MAX) if losses_count(node, now_ms) else 1
    rest_ms = 0 if flaps < FLAPS else min(REST_MS << min(flaps - FLAPS, 40), REST_MS_MAX)
    return flaps, later(now_ms, rest_ms)


def losses_count(node: Node, now_ms: int) -> bool:
    """Whether the losses of the node up to now would count together with one at this time."""
    return node.flaps > 0 and now_ms < later(node.rests_until_ms, NEAR_MS)


def back(decision: DecisionBuilder, node: Node, spec: NodeSpec) -> tuple[NodeStatus, str, bool, int | None]:
    """What a lost node becomes when it comes back as what it says: its status, the reason, and its quarantine."""
    pool = fitted(node, spec)[0].pool
    # Others may have taken its place in the tenth meanwhile.
    if node.quarantined and (rest_is_over(node, decision.now_ms) or not _has_room(decision, node, pool)):
        return NodeStatus.READY, "", False, None
    if _has_to_rest(decision, node, pool):
        return NodeStatus.CORDONED, _flapped(node), True, node.rests_until_ms
    return node.wanted, node.reason, node.quarantined, node.quarantined_until_ms


def ends_elsewhere(decision: DecisionBuilder, node: Node, spec: NodeSpec) -> bool:
    """Whether a node in quarantine comes into another pool by what it says, one that cannot do without it."""
    pool = fitted(node, spec)[0].pool
    return node.quarantined and pool != node.pool and not _has_room(decision, node, pool)


def heard(decision: DecisionBuilder, node: Node, *, has_lapsed: bool) -> None:
    """A node that was silent speaks. `has_lapsed`: its lease had run out, so it had stopped its own work, though it was
    not declared lost meanwhile.
    """
    if not has_lapsed:
        decision.emit(NodeHeard(node=node.id))
        return
    flaps, rests_until_ms = flaps_after(node, decision.now_ms)
    decision.emit(NodeHeard(node=node.id, flaps=flaps, rests_until_ms=rests_until_ms))
    back_now = decision.state.nodes[node.id]
    if _has_to_rest(decision, back_now, _pool_of(back_now)):
        rests = become(back_now, NodeStatus.CORDONED)
        decision.emit(
            replace(rests, reason=_flapped(back_now), quarantined=True, quarantined_until_ms=back_now.rests_until_ms)
        )


def _has_to_rest(decision: DecisionBuilder, node: Node, pool: str) -> bool:
    """Whether a node that is back has flapped too often to be used at once, and this pool can do without it."""
    is_free = node.wanted is NodeStatus.READY or (node.quarantined and node.quarantined_until_ms is not None)
    is_free &= not node.is_out_for_maintenance
    return is_free and node.rests_until_ms > decision.now_ms and (node.quarantined or _has_room(decision, node, pool))


def _flapped(node: Node) -> str:
    often = f"it was lost {node.flaps} times in a row, or silent beyond its lease"
    return f"quarantined: {often}, with less than an hour between"


def rest_is_over(node: Node, now_ms: int) -> bool:
    """Whether the time of a lost node's quarantine is over, so that it may be used when it comes back."""
    until_ms = node.quarantined_until_ms
    return until_ms is not None and until_ms <= now_ms and node.rests_until_ms <= now_ms


def lift(decision: DecisionBuilder, node: Node | None) -> int | None:
    """The time of a node's quarantine may be over. When to look again, or None."""
    until_ms = None if node is None else node.quarantined_until_ms
    if node is None or until_ms is None or node.status is NodeStatus.LOST:
        return None  # a lost node is looked at when it comes back
    if decision.now_ms < until_ms:
        return until_ms
    if node.status is not NodeStatus.CORDONED:
        return decision.now_ms + AGAIN_MS
    end_quarantine(decision, node, node.offered or node.spec, node.seq)
    return None


def _has_room(decision: DecisionBuilder, node: Node, pool: str) -> bool:
    """Whether the node may be in quarantine beside those of this pool that are."""
    living, out = decision.pool_use.others(node, pool)
    return out < max(1, (living + 1) * POOL_PERCENT_MAX // 100)


def _pool_of(node: Node) -> str:
    """The pool in which a node is once it is taken out: that is what it offers to be, if nothing is held there now."""
    is_then = fitted(node, node.offered or node.spec)[0].pool
    return node.pool if is_then == node.spec.pool else is_then


def _may_go(decision: DecisionBuilder, node: Node) -> bool:
    """Whether the pool in which it is then can do without the node; a small one only if work runs elsewhere there."""
    pool = _pool_of(node)
    if not _has_room(decision, node, pool):
        return False
    living, _ = decision.pool_use.others(node, pool)
    if living + 1 >= SMALL_POOL:
        return True
    others = (other for other in decision.state.nodes.values() if other.pool == pool and other.id != node.id)
    return any(_works(decision, other) for other in others)


def _works(decision: DecisionBuilder, node: Node) -> bool:
    """Whether work runs on a node, and nothing failed there of late."""
    if not node.is_in_service or node.silent_wall_ms or any(_fresh(decision, node)):
        return False
    return any(_begun_ms(decision.state.jobs[job_id], node.id) is not None for job_id in node.jobs)


def _failing(node: Node, row: Row) -> NodeChanged:
    named = ", ".join(failure.cause for failure in row)
    if len(named) > 300:  # noqa: PLR2004 - a reason has at most 500 characters
        named = f"{named[:300]}..."
    by_node = sum(failure.by_node for failure in row)
    fault = f", {by_node} by the node's own fault" if by_node else ""
    reason = f"quarantined: {len(row)} different jobs in a row failed here{fault}: {named}"
    return replace(become(node, NodeStatus.CORDONED), reason=reason, quarantined=True)
