"""Gandiva: FIFO, and jobs grow only while GPUs are free and nothing waits, a worker each in turn."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.bench.aryl.policies.shares import in_turn
from fallow.bench.aryl.world.orders import StrictFifo
from fallow.bench.aryl.world.scheme import Elastic, Information, Scheme


def evenly(asks: Sequence[Elastic], gpus_free: int) -> Sequence[int]:
    """A worker each in turn."""
    return in_turn(asks, gpus_free, lambda _, more: more)


POLICY = Scheme(
    "gandiva", Information.NONE, StrictFifo, scaling=evenly, grows_while_others_wait=False, scenarios=("scaling",)
)
