"""A job that is tried again goes to other nodes than those of its last failures, wherever it fits on the others and
that costs nothing of what it asked for: its preferred place in the network, its spread, the zone of inference. Nor does
it go to a node with planned maintenance for that.

It is placed as if these nodes took nothing new. Where it does not fit so, or only at such a cost, it is placed as any
other job: it never waits for other nodes. This holds under every placement policy, because no policy is told of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from services.placement.policy.costs import costs_of
from services.placement.policy.gang import Places, place_gang
from shared.cluster.job import Job
from shared.cluster.state import CellState
from shared.cluster.unacknowledged import closed
from shared.events.reasons import DeferCode


def place_job(state: CellState, job: Job) -> Places | DeferCode:
    """Places for the whole gang, on other nodes than it avoids if it fits there."""
    return places_elsewhere_first(state, job, lambda: place_gang(state, job.spec))


def places_elsewhere_first(state: CellState, job: Job, search: Callable[[], Places | DeferCode]) -> Places | DeferCode:
    """What `search` finds while the nodes that the job avoids take nothing new, or else what it finds with them."""
    nodes = [node for each in job.avoid if (node := state.nodes.get(each)) is not None and node.is_schedulable]
    if nodes:
        with closed(state, nodes):
            found = search()
        if not isinstance(found, DeferCode):
            anywhere = search()
            if isinstance(anywhere, DeferCode):
                return found
            costs, least = costs_of(state, job, found), costs_of(state, job, anywhere[: len(found)])
            return anywhere if any(map(operator.gt, costs, least)) else found
    return search()
