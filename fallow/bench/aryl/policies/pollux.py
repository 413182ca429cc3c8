"""Pollux-like: the power mean (p = -1) of the jobs' speedups is as large as steps of single workers make it.

Simplified: no batch sizes or learning rates are tuned, so goodput is throughput; bases are kept and start by SJF; steps
of single workers, each the best at that moment, stand for the genetic search (the mean is concave in each speedup).
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.bench.aryl.policies.shares import in_turn
from fallow.bench.aryl.world.orders import ShortestFirst
from fallow.bench.aryl.world.scheme import Elastic, Information, Scheme


def by_power_mean(asks: Sequence[Elastic], gpus_free: int) -> Sequence[int]:
    """The speedup with k more workers is (w + k) / w; a step takes w / ((w + k)(w + k + 1)) off its inverse."""

    def cost(ask: Elastic, more: int) -> float:
        workers = ask.run.job.workers
        return ask.gpus_each * (workers + more) * (workers + more + 1) / workers

    return in_turn(asks, gpus_free, cost)


POLICY = Scheme("pollux", Information.ORACLE, ShortestFirst, scaling=by_power_mean, scenarios=("scaling",))
