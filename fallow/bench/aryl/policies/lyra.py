"""Lyra as in the paper: SJF for bases, the knapsack for flexible workers, the server preemption cost for reclaims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

from fallow.bench.aryl.world.orders import ShortestFirst
from fallow.bench.aryl.world.scheme import Elastic, Information, Scheme
from fallow.services.loaning.policy.reclaim.reclaim import reclaim
from fallow.services.loaning.policy.reclaim.spread import LentServer
from fallow.services.loaning.policy.scaling.curve import linear
from fallow.services.loaning.policy.scaling.elastic_job import ElasticJob, group_of
from fallow.services.loaning.policy.scaling.knapsack import solve

_linear = lru_cache(maxsize=None)(linear)


def by_knapsack(asks: Sequence[Elastic], gpus_free: int) -> Sequence[int]:
    """Phase 2 (section 5.2)."""
    choices = [0] * len(asks)
    fitting = [position for position, ask in enumerate(asks) if ask.gpus_each <= gpus_free]
    groups = []
    for position in fitting:
        ask, workers = asks[position], asks[position].run.job.workers
        curve = _linear(workers, workers + min(ask.run.job.flexible_max, gpus_free // ask.gpus_each))
        groups.append(group_of(ElasticJob(ask.gpus_each, ask.base_ms_left, curve)))
    for position, choice in zip(fitting, solve(groups, gpus_free).choices, strict=True):
        choices[position] = choice
    return choices


def by_preemption_cost(servers: Sequence[LentServer], needed: int, random: Random) -> Sequence[str]:
    """The greedy with coupled updates (section 5.3)."""
    return reclaim(servers, needed).preempted


POLICY = Scheme("lyra", Information.ORACLE, ShortestFirst, lends=True, reclaim=by_preemption_cost, scaling=by_knapsack)
