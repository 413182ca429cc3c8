"""The load of the FGD protocol: pods drawn again and again from a trace, in random order.

Pods, those without GPUs too, are drawn with replacement until their GPU requests reach 130 % of the cluster's GPUs,
then shuffled. They come one by one, nothing leaves, and what does not fit when it comes is dropped.

The simulator of the FGD paper, of which the published figures are, takes each pod of the trace once and draws with
replacement only what is missing (or takes pods away at random where the trace alone is more).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

from fallow.bench.openb.files import Pod
from fallow.shared.events.fields.values import GPU

ARRIVED_PCT_MAX = 130


class Draw(StrEnum):
    """How the pods are drawn: all with replacement, or as the simulator of the FGD paper does it."""

    REPLACEMENT = "replacement"
    SIMULATOR = "simulator"


def drawn(pods: Sequence[Pod], capacity_milli: int, seed: int, how: Draw = Draw.REPLACEMENT) -> list[Pod]:
    """The pods in the order in which they come. The same seed gives the same ones."""
    draw = random.Random(seed)  # noqa: S311 - a load, no secret
    found = _again(pods, capacity_milli, draw) if how is Draw.REPLACEMENT else _once(pods, capacity_milli, draw)
    draw.shuffle(found)
    return found


def _again(pods: Sequence[Pod], capacity_milli: int, draw: random.Random) -> list[Pod]:
    found, milli = list[Pod](), 0
    while milli * 100 < capacity_milli * ARRIVED_PCT_MAX:
        found.append(draw.choice(pods))
        milli += found[-1].gpu_milli
    return found


def _once(pods: Sequence[Pod], capacity_milli: int, draw: random.Random) -> list[Pod]:
    found, milli = list(pods), sum(pod.gpu_milli for pod in pods)
    while milli * 100 > capacity_milli * ARRIVED_PCT_MAX:
        milli -= found.pop(draw.randrange(len(found))).gpu_milli
    while True:
        pod = draw.choice(pods)
        if (milli + min(pod.gpu_milli, GPU)) * 100 > capacity_milli * ARRIVED_PCT_MAX:
            return found
        found.append(pod)
        milli += pod.gpu_milli
