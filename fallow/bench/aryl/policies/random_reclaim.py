"""Lyra's loans and scaling, but servers go back at random (paper: Random)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fallow.bench.aryl.policies.lyra import by_knapsack
from fallow.bench.aryl.world.orders import ShortestFirst
from fallow.bench.aryl.world.scheme import Information, Scheme
from fallow.services.loaning.policy.reclaim.spread import LentServer, Spread


def at_random(servers: Sequence[LentServer], needed: int, random: Random) -> Sequence[str]:
    """Server by server, in an order of chance, until enough are empty."""
    spread, preempted = Spread(servers, {}), list[str]()
    for position in random.sample(range(len(servers)), len(servers)):
        if len(servers) - len(spread.occupied()) >= needed:
            break
        preempted += spread.preempt_all_on(position)
    return preempted


POLICY = Scheme(
    "random",
    Information.ORACLE,
    ShortestFirst,
    lends=True,
    reclaim=at_random,
    scaling=by_knapsack,
    scenarios=("basic", "loaning"),
)
