"""Places for a job that a head keeps back: on nodes where the head could not be."""

from __future__ import annotations

from fallow.services.placement.fit.empty_capacity import Reach
from fallow.services.placement.search.elsewhere import place_job
from fallow.services.placement.search.gang import Places, place_gang
from fallow.services.placement.search.partial_start import places_to_enter
from fallow.shared.cluster.capacity.masks import each_bit
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.model.unacknowledged import closed
from fallow.shared.events.fields.value import replace
from fallow.shared.events.reasons import PendingReason

CLOSED_MAX = 200
"""Where the heads could be on more of the job's nodes, only pools are tried on none of whose nodes they could be: to
close a node for a search costs as much as a change of the node.
"""


def place_beside(state: CellState, job: Job, reach: Reach, beside: Reach, now_ms: int) -> Places | PendingReason:
    """Places within `beside`, which is a part of where the job could be (`reach`)."""
    kept = {name: _schedulable(state, name, mask & ~beside.get(name, 0)) for name, mask in reach.items()}
    if sum(mask.bit_count() for mask in kept.values()) <= CLOSED_MAX:
        with closed(state, [node for name, mask in kept.items() for node in _nodes(state, name, mask)]):
            return place_job(state, job) if job.spec.gang else places_to_enter(state, job, now_ms)
    pools = tuple(name for name in reach if beside.get(name) == reach[name])
    if not pools or not job.spec.gang:
        return PendingReason.BEHIND_HEAD
    return place_gang(state, replace(job.spec, pools=pools))


def _schedulable(state: CellState, pool: str, among: int) -> int:
    """Those of these nodes that may get new work."""
    found = 0
    for nodes in state.pools[pool].by_free.values():
        found |= nodes
    return found & among


def _nodes(state: CellState, pool: str, mask: int) -> list[Node]:
    ids = state.pools[pool].ids
    return [state.nodes[ids[number]] for number in each_bit(mask)]
