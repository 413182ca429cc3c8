"""Places for a job that a head keeps back: on nodes where the head could not be."""

from __future__ import annotations

from services.placement.policy.elsewhere import place_job
from services.placement.policy.entering import places_to_enter
from services.placement.policy.ever import Reach
from services.placement.policy.gang import Places, place_gang
from shared.cluster.job import Job
from shared.cluster.masks import each_bit
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.cluster.unacknowledged import closed
from shared.events.reasons import DeferCode
from shared.events.value import replace

CLOSED_MOST = 200
"""Where the heads could be on more of the job's nodes, only pools are tried on none of whose nodes they could be: to
close a node for a search costs as much as a change of the node.
"""


def place_beside(state: CellState, job: Job, reach: Reach, beside: Reach, now_ms: int) -> Places | DeferCode:
    """Places within `beside`, which is a part of where the job could be (`reach`)."""
    kept = [node for name, mask in reach.items() for node in _nodes(state, name, mask & ~beside.get(name, 0))]
    if len(kept) <= CLOSED_MOST:
        with closed(state, kept):
            return place_job(state, job) if job.spec.gang else places_to_enter(state, job, now_ms)
    pools = tuple(name for name in reach if beside.get(name) == reach[name])
    if not pools or not job.spec.gang:
        return DeferCode.BEHIND_HEAD
    return place_gang(state, replace(job.spec, pools=pools))


def _nodes(state: CellState, pool: str, mask: int) -> list[Node]:
    """Those of these nodes that may get new work."""
    ids = state.pools[pool].ids
    return [node for number in each_bit(mask) if (node := state.nodes[ids[number]]).is_schedulable]
