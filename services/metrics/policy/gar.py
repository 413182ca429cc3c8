"""GAR, the GPU allocation ratio (Kant, section 4): allocated GPUs / schedulable GPUs, at a time and on average over
time.

Schedulable are the healthy GPUs of nodes that are not lost. A cordoned node's GPUs count: work still holds them.
"""

from __future__ import annotations

from services.metrics.policy.time_weighted import PoolRatios
from shared.cluster.state import CellState
from shared.events.decisions import Decision


class Gar(PoolRatios):
    """GAR of the whole cell and of each of its pools (a lent node counts in the pool in which it works)."""

    def begin(self, state: CellState) -> None:
        """Take in a state as it is, at the beginning or later."""
        self._measure(state, state.at_ms)

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        self._measure(state, decision.at_ms)

    def _measure(self, state: CellState, at_ms: int) -> None:
        self.set(at_ms, [(name, pool.allocated_milli, pool.gpus_milli) for name, pool in state.pools.items()])
