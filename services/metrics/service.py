"""All metrics of one cell: fed with each decision and the state behind it, read whenever somebody asks."""

from __future__ import annotations

from collections import Counter

from services.metrics.policy.gar import Gar
from services.metrics.policy.gfr import Gfr
from services.metrics.policy.queue_depth import QueueDepth
from services.metrics.policy.sor import Sor
from services.metrics.policy.waiting import WaitingTimes
from services.metrics.policy.watch import LogWatch
from shared.cluster.invariants import Offence
from shared.cluster.state import CellState
from shared.events.decisions import Decision
from shared.events.effects import Effect

KEPT_WAITS = 20_000
"""Newest waits of each size class of which a live service tells percentiles."""


LOOK_MS = 1_000
"""Cell time between two looks at the whole state: what a second holds may be told as if it came with its end."""


class MetricsService:
    """One cell, from a state on: the beginning of its log or a snapshot."""

    def __init__(self, state: CellState) -> None:
        self.gar, self.gfr, self.sor, self.queue = Gar(), Gfr(), Sor(), QueueDepth()
        self.waiting = WaitingTimes(kept_most=KEPT_WAITS)
        self._kinds: Counter[type[Effect]] = Counter()
        self.decisions = 0
        self.watch = LogWatch(state)
        self._looked_ms = state.at_ms
        for accumulator in (self.gar, self.gfr, self.sor, self.queue, self.waiting):
            accumulator.begin(state)

    def take(self, state: CellState, decision: Decision) -> Offence | None:
        """The next decision, and a state behind it or behind a later one. The offence that it is, if it is the first
        one ever.
        """
        for accumulator in (self.sor, self.queue, self.waiting):
            accumulator.take(state, decision)
        self.decisions += 1
        self._kinds.update(map(type, decision.effects))
        return self.watch.take(decision)

    def before(self, state: CellState, at_ms: int) -> None:
        """The state from which the next decision, of `at_ms`, starts: it was so up to then. To count what is free after
        each decision would cost as much as all the rest.
        """
        if at_ms - self._looked_ms >= LOOK_MS:
            self.look(state)

    def look(self, state: CellState) -> None:
        """Take in what follows from the whole state as it is."""
        self._looked_ms = state.at_ms
        self.gar.begin(state)
        self.gfr.begin(state)

    @property
    def effects(self) -> dict[str, int]:
        """How many effects there were, by kind."""
        return {kind.__name__: count for kind, count in self._kinds.items()}
