"""A job that is tried again goes to other nodes than those of its last failures, wherever it fits on the others and
that costs nothing of what it asked for: its preferred place in the network, its spread, the zone of inference. Nor does
it go to a node with planned maintenance for that.

It is placed as if these nodes took nothing new. Where it does not fit so, those of its earliest failures are taken
again before those of its last ones; where it fits only at such a cost, it is placed as any other job: it never waits
for other nodes. This holds under every placement policy, because no policy is told of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from fallow.services.placement.policy.frag_aware.costs import costs_of
from fallow.services.placement.search.gang import Places, place_gang
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.model.unacknowledged import closed
from fallow.shared.events.reasons import PendingReason


def place_job(state: CellState, job: Job) -> Places | PendingReason:
    """Places for the whole gang, on other nodes than it avoids if it fits there."""
    return places_elsewhere_first(state, job, lambda: place_gang(state, job.spec))


def places_elsewhere_first(
    state: CellState, job: Job, search: Callable[[], Places | PendingReason]
) -> Places | PendingReason:
    """What `search` finds while the nodes that the job avoids take nothing new, or as many of them as it can do
    without, those of its last failures before those of earlier ones; or else what it finds with them.
    """
    nodes = [node for each in job.avoid if (node := state.nodes.get(each)) is not None and node.is_schedulable]
    if not nodes:
        return search()
    found = _without(state, nodes, search)
    anywhere = search()
    if isinstance(found, PendingReason) and not isinstance(anywhere, PendingReason):
        found = _without_last(state, nodes, search)
    if isinstance(found, PendingReason) or isinstance(anywhere, PendingReason):
        return anywhere if isinstance(found, PendingReason) else found
    costs, least = costs_of(state, job, found), costs_of(state, job, anywhere[: len(found)])
    return anywhere if any(map(operator.gt, costs, least)) else found


def _without(
    state: CellState, nodes: Sequence[Node], search: Callable[[], Places | PendingReason]
) -> Places | PendingReason:
    with closed(state, nodes):
        return search()


def _without_last(
    state: CellState, nodes: Sequence[Node], search: Callable[[], Places | PendingReason]
) -> Places | PendingReason:
    """What is found without as many of the last of these nodes as the job can do without; without all of them it finds
    nothing.
    """
    for most in range(len(nodes) - 1, 0, -1):
        found = _without(state, nodes[-most:], search)
        if not isinstance(found, PendingReason):
            return found
    return PendingReason.FRAGMENTED
