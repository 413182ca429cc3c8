"""GFR, the GPU node fragmentation ratio (Kant, section 4): nodes with some but not all of their healthy GPUs in use, of
all usable nodes; at a time and on average over time.
"""

from __future__ import annotations

from fallow.services.metrics.policy.time_weighted import PoolRatios
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision


class Gfr(PoolRatios):
    """GFR of the whole cell and of each of its pools. Usable is a node that is not lost and has a healthy GPU."""

    def begin(self, state: CellState, at_ms: int | None = None) -> None:
        """Take in a state as it is at `at_ms` (None: its own time), at the beginning or later."""
        self._measure(state, state.at_ms if at_ms is None else at_ms)

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        self._measure(state, decision.at_ms)

    def _measure(self, state: CellState, at_ms: int) -> None:
        self.set(at_ms, [(name, pool.nodes_fragmented, pool.nodes_usable) for name, pool in state.pools.items()])
