"""Metrics of one cell in the simulated world: it takes in each decision, and watches the invariants as it does live."""

from __future__ import annotations

from services.metrics.service import MetricsService
from services.simulator.follower import Follower
from services.simulator.process import Process, Waker
from shared.cluster.fold import LogRecord
from shared.cluster.invariants import Offence
from shared.cluster.state import CellState
from shared.events.decisions import Decision

CHECK_EVERY = 8
"""Between so many decisions a part of the whole state is counted anew."""


class MetricsPart:
    """One cell in a metrics process: from the newest snapshot on."""

    joins_by_itself = False

    def __init__(self, process: Process, cell: str) -> None:
        self._process, self._world, self._cell = process, process.world, cell
        self._waker = Waker(process, self._step)
        self._follower: Follower | None = None
        self._service: MetricsService
        self._taken = 0

    def begin(self) -> None:
        """Follow from the newest snapshot on."""
        self._follower = Follower(self._process, self._cell, self._waker, self._before_fold)
        self._service = MetricsService(self._follower.state)

    def end(self) -> None:
        """Hear no more."""
        if self._follower is not None:
            self._follower.close()

    def told(self, owned: frozenset[int]) -> None:
        """It follows every cell, whoever owns it."""

    def _before_fold(self, state: CellState, record: LogRecord) -> None:
        if isinstance(record.decision, Decision):
            self._service.before(state, record.decision.at_ms)

    def _step(self) -> None:
        if self._follower is None:
            return
        for decision in self._follower.poll():
            self._tell(self._service.take(self._follower.state, decision))
            self._taken += 1
        if self._taken >= CHECK_EVERY:
            self._taken = 0
            self._tell(self._service.watch.check_next(self._follower.state)[1])

    def _tell(self, offence: Offence | None) -> None:
        if offence is not None:
            self._world.violated(offence.invariant, f"{self._process.name} sees in {self._cell}: {offence.text}")
