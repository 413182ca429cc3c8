"""Lyra's loans and scaling, but the server with the fewest jobs goes back first (paper: SCF, smallest count first)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fallow.bench.aryl.policies.lyra import by_knapsack
from fallow.bench.aryl.world.orders import ShortestFirst
from fallow.bench.aryl.world.scheme import Information, Scheme
from fallow.services.loaning.policy.reclaim.spread import LentServer, Spread


def by_job_count(servers: Sequence[LentServer], needed: int, random: Random) -> Sequence[str]:
    """Servers with fewer jobs first, then the first one, until enough are empty. That a job has other servers is not
    seen, but those that become empty count.
    """
    spread, preempted = Spread(servers, {}), list[str]()
    while len(servers) - len(spread.occupied()) < needed:
        preempted += spread.preempt_all_on(min(spread.occupied(), key=lambda position: len(spread.held[position])))
    return preempted


POLICY = Scheme(
    "scf",
    Information.ORACLE,
    ShortestFirst,
    lends=True,
    reclaim=by_job_count,
    scaling=by_knapsack,
    scenarios=("basic", "loaning"),
)
