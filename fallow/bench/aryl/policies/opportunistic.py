"""Opportunistic: fungible jobs wait in a line of their own for idle inference servers and are stopped when these are
wanted back; all others wait for training servers. The inference side knows nothing of jobs: it takes any server.

A job that was stopped waits for training servers from then on: without checkpoints a long one would never end.
"""

from __future__ import annotations

from fallow.bench.aryl.policies.random_reclaim import at_random
from fallow.bench.aryl.world.orders import FifoOfEachSide, is_for_lent
from fallow.bench.aryl.world.run import Run, Where
from fallow.bench.aryl.world.scheme import Information, Scheme


def one_side(run: Run) -> tuple[Where, ...]:
    """Fungible jobs on lent servers only, until they were stopped there."""
    return (Where.LENT,) if is_for_lent(run) else (Where.TRAINING,)


POLICY = Scheme(
    "opportunistic",
    Information.NONE,
    FifoOfEachSide,
    lends=True,
    reclaim=at_random,
    sides=one_side,
    scenarios=("loaning",),
)
