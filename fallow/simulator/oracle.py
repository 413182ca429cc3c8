"""A reader of one cell's log that misses nothing: it folds each record in the moment in which it lands, and watches the
invariants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.shared.cluster.checks.audit import Ledger
from fallow.shared.cluster.checks.invariants import Offence, check_state
from fallow.shared.cluster.fold.fold import DamagedLog, LogRecord, fold
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import InputResumed
from fallow.shared.events.reasons import DeadLetterReason
from fallow.simulator.history.record import Logged

if TYPE_CHECKING:
    from fallow.simulator.world import World

RECOUNT_EVERY = 16
"""Every so many versions the whole state is counted from nothing; the ledger looks at each."""

NO_DECISION = Undecodable(DeadLetterReason.UNKNOWN_TYPE, "is no decision", "ce_type")


class Oracle:
    """The truth of one cell, as its log has it."""

    def __init__(self, world: World, cell: str) -> None:
        self._world, self.cell = world, cell
        self.tp = ("decisions", world.ordinal(cell))
        self.state, self.ledger = CellState(cell), Ledger()
        self.accepted: dict[int, int] = {}
        self.is_damaged = False
        world.broker.watch(self.tp, self._landed)

    def _landed(self) -> None:
        if self.is_damaged:
            return
        for logged in self._world.broker.log[self.tp][self.state.offset + 1 :]:
            record, version = log_record(logged), self.state.version
            try:
                fold(self.state, record)
            except DamagedLog as error:
                self.is_damaged = True
                if not self._world.broker.lost_tails:
                    self._world.violated("log", str(error))
                return
            if self.state.version != version and isinstance(record.decision, Decision):
                self._accept(logged.offset, record.decision)

    def _accept(self, offset: int, decision: Decision) -> None:
        self.accepted[offset] = decision.version
        for effect in decision.effects:
            if isinstance(effect, InputResumed):
                self._world.person.resumed(effect)
        offence = self.ledger.take(decision)
        if offence is None and decision.version % RECOUNT_EVERY == 0:
            offence = self.recount()
        if offence is not None:
            self._world.violated(offence.invariant, f"{self.cell} version {decision.version}: {offence.text}")

    def recount(self) -> Offence | None:
        """The first offence of the whole state, or None."""
        return next(iter(check_state(self.state)), None) or self.ledger.compare(self.state)


def log_record(record: Logged) -> LogRecord:
    """A record of `decisions` as the fold takes it."""
    event = record.event()
    decision = event if isinstance(event, Decision | Undecodable) else NO_DECISION
    # Whose a record is the world knows, and proves it by no key.
    unproven_from = 0 if record.is_forged else None
    return LogRecord(record.offset, record.value or b"", record.chain, decision, unproven_from)
