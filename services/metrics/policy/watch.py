"""I1 to I4 and LEASE on the live log: each decision by a ledger of its own, and the whole state piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from fallow.shared.cluster.checks import invariants as i
from fallow.shared.cluster.checks.audit import ledger_of
from fallow.shared.cluster.checks.invariants import Offence
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision

REMEMBERED_ENDS = 10_000
"""Ended jobs that the ledger can still name in an offence, at least; at most twice as many."""

INVARIANTS = ("I1", "I2", "I3", "I4", "LEASE", "index")
"""What an offence can be against, in a fixed order."""

Check = Callable[[CellState], list[Offence]]


class LogWatch:
    """Watches one cell from a state on. The first offence stays: what follows it may be its consequence."""

    def __init__(self, state: CellState) -> None:
        self.first: Offence | None = None
        self._ledger = ledger_of(state)
        self._turn = 0
        self._checks: tuple[tuple[str, Check], ...] = (
            ("devices", i.no_device_over_committed),
            ("jobs", i.no_job_twice),
            ("gangs", i.gangs_are_whole),
            ("usage", i.usage_adds_up),
            ("indices", i.indices_equal_a_recount),
            ("ledger", self._compare),
        )

    def take(self, decision: Decision) -> Offence | None:
        """The offence of this decision, if it is the first one ever."""
        if self.first is not None:
            return None
        self.first = self._ledger.take(decision)
        ended = self._ledger.ended
        if len(ended) > 2 * REMEMBERED_ENDS:
            # Many at a time: to find the oldest of a table is to step over all that were taken out before it.
            for job in list(islice(ended, len(ended) - REMEMBERED_ENDS)):
                del ended[job]
        return self.first

    def violations(self, invariant: str) -> int:
        """How many offences against this invariant were found: 0, or 1 since the first one ever."""
        return int(self.first is not None and self.first.invariant == invariant)

    def check_next(self, state: CellState) -> tuple[str, Offence | None]:
        """Run the next of the checks of a whole state, in turns; its name, and the offence if it is the first one ever.

        The ledger must have taken every decision of this state.
        """
        name, check = self._checks[self._turn]
        self._turn = (self._turn + 1) % len(self._checks)
        if self.first is not None:
            return name, None
        self.first = next(iter(check(state)), None)
        return name, self.first

    def _compare(self, state: CellState) -> list[Offence]:
        offence = self._ledger.compare(state)
        return [] if offence is None else [offence]
