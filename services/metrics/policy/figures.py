"""All figures of one cell, by one code for the live service, the command line and a simulator.

Fed with each decision and the state behind it (or behind a later one), and with looks at the whole state; read on each
scrape.
"""

from __future__ import annotations

from collections.abc import Callable

from fallow.services.metrics.policy.effect_dispatch import together
from fallow.services.metrics.policy.groups import Whose, as_it_is
from fallow.services.metrics.policy.kant.communication import RING, CommunicationModel
from fallow.services.metrics.policy.kant.gar import Gar, TenantGar
from fallow.services.metrics.policy.kant.gfr import Gfr
from fallow.services.metrics.policy.kant.jtted import Jtted
from fallow.services.metrics.policy.kant.sor import Sor
from fallow.services.metrics.policy.kant.waiting import KEPT_MAX, WaitingTimes
from fallow.services.metrics.policy.queue_depth import QueueDepth
from fallow.services.metrics.policy.run_time_errors import ExpectedRuns
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision

LOOK_MS = 1_000
"""Cell time between two looks at the whole state: what a second holds may be told as if it came with its end."""


class Figures:
    """One cell, from a state on. `since_ms` is from when on the figures count; None: from that state's own time."""

    def __init__(
        self,
        state: CellState,
        since_ms: int | None = None,
        kept_waits: int = KEPT_MAX,
        model: CommunicationModel = RING,
        named: Callable[[str], str] = as_it_is,
    ) -> None:
        self.gar, self.tenant_gar, self.gfr = Gar(), TenantGar(named), Gfr()
        whose = Whose(named)
        self.sor, self.queue = Sor(whose), QueueDepth()
        self.waiting, self.jtted = WaitingTimes(kept_max=kept_waits, whose=whose), Jtted(model, whose)
        self.expected = ExpectedRuns()
        self.since_ms = state.at_ms if since_ms is None else since_ms
        self.decisions = 0
        self._looked_ms = self.since_ms
        self._acts = together(self.sor.acts, self.queue.acts, self.waiting.acts, self.jtted.acts, self.expected.acts)
        self.sor.begin(state, self.since_ms)
        self.queue.begin(state)
        self.waiting.begin(state)
        self._look(state, self.since_ms)

    def before(self, state: CellState, at_ms: int) -> None:
        """The state from which the next decision, of `at_ms`, starts: it was so up to then. To count what is free after
        each decision would cost as much as all the rest.
        """
        if at_ms - self._looked_ms >= LOOK_MS:
            self.look(state)

    def take(self, state: CellState, decision: Decision) -> None:
        """The next decision."""
        self.decisions += 1
        acts, at_ms = self._acts, decision.at_ms
        for effect in decision.effects:
            for act in acts.get(type(effect), ()):
                act(state, effect, at_ms)
        self.sor.settle(state, at_ms)

    def look(self, state: CellState) -> None:
        """Take in what follows from the whole state as it is."""
        self._look(state, max(state.at_ms, self.since_ms))

    def _look(self, state: CellState, at_ms: int) -> None:
        self._looked_ms = at_ms
        self.gar.begin(state, at_ms)
        self.tenant_gar.begin(state, at_ms)
        self.gfr.begin(state, at_ms)
