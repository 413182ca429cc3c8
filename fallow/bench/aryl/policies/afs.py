"""AFS: bases first, then one worker at a time where it adds the most throughput a GPU. Bases start by SJF, as in Lyra,
so that only the second phase differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.bench.aryl.policies.shares import in_turn
from fallow.bench.aryl.world.orders import ShortestFirst
from fallow.bench.aryl.world.scheme import Elastic, Information, Scheme


def by_throughput(asks: Sequence[Elastic], gpus_free: int) -> Sequence[int]:
    """One more worker adds 1/workers to the throughput of a job with a linear curve: least GPUs first."""
    return in_turn(asks, gpus_free, lambda ask, _: ask.run.job.workers * ask.gpus_each)


POLICY = Scheme("afs", Information.ORACLE, ShortestFirst, scaling=by_throughput, scenarios=("scaling",))
