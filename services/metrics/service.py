"""All metrics of one cell: fed with each decision and the state behind it, read on each scrape."""

from __future__ import annotations

from collections import Counter

from fallow.services.metrics.policy.figures import Figures
from fallow.services.metrics.policy.tenant_labels import TenantLabels
from fallow.services.metrics.policy.watch import LogWatch
from fallow.shared.cluster.checks.invariants import Offence
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import Effect

KEPT_WAITS = 2_000
"""Newest waits of each tenant, pool and size class of which a live service tells percentiles."""


TENANTS_NAMED = 200


class MetricsService:
    """One cell, from a state on: the beginning of its log or a snapshot."""

    def __init__(self, state: CellState, tenants_named: int = TENANTS_NAMED) -> None:
        """`tenants_named` tenants have figures of their own, all others share one set of them."""
        self.figures = Figures(state, kept_waits=KEPT_WAITS, named=TenantLabels(tenants_named).label)
        self.watch = LogWatch(state)
        self._kinds: Counter[type[Effect]] = Counter()

    def take(self, state: CellState, decision: Decision) -> Offence | None:
        """The next decision, and a state behind it or behind a later one. The offence that it is, if it is the first
        one ever.
        """
        self.figures.take(state, decision)
        self._kinds.update(map(type, decision.effects))
        return self.watch.take(decision)

    def before(self, state: CellState, at_ms: int) -> None:
        """The state from which the next decision, of `at_ms`, starts."""
        self.figures.before(state, at_ms)

    def look(self, state: CellState) -> None:
        """Take in what follows from the whole state as it is."""
        self.figures.look(state)

    @property
    def decisions(self) -> int:
        """How many decisions were folded."""
        return self.figures.decisions

    @property
    def effects(self) -> dict[str, int]:
        """How many effects there were, by kind."""
        return {kind.__name__: count for kind, count in self._kinds.items()}
