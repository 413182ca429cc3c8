"""loaning's state machine for one cell: it folds along, looks for who yields when something has changed, and proposes.

It decides nothing. What it knows beside the state is what it has proposed (`Memory`).
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.loaning.policy.preemption.look import Seen, look
from fallow.services.loaning.policy.preemption.memory import Asked, Memory
from fallow.services.loaning.policy.preemption.search import Found
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.ranges import ranges_of
from fallow.shared.events.decisions import Decision
from fallow.shared.events.proposals import PLACES_MAX, PreemptionProposed, Victim

_CHANGES_NOTHING = (e.JobDeferred, e.ReservationSet, e.ReservationCleared)
"""Effects behind which nobody yields who would not have before. A refused proposal is not among them: its victims are
there for the jobs behind, while its own job waits for the end of its pause.
"""


class LoaningService:
    """One cell. `seen` is what the last look has found."""

    def __init__(self, writer: str) -> None:
        """`writer` is a name of this process that none before it had: the ids of its proposals begin with it."""
        self.seen = Seen()
        self._writer, self._memory = writer, Memory()
        self._proposals = 0
        self._is_news = True
        self._looked_ms = 0

    def on_folded(self, decision: Decision) -> None:
        """A decision is in force, and the state behind it is folded."""
        self._memory.on_folded(decision)
        self._is_news |= any(not isinstance(effect, _CHANGES_NOTHING) for effect in decision.effects)

    def on_take_over(self) -> None:
        """This process proposes from here on."""
        self._memory.on_take_over()
        self._is_news = True

    def is_due(self, now_ms: int) -> bool:
        """Whether a look may find what the last one has not."""
        again_ms = self.next_ms()
        return self._is_news or not self.seen.is_whole or (again_ms is not None and again_ms <= now_ms)

    def next_ms(self) -> int | None:
        """When a look is due though nothing changes."""
        times = (self.seen.again_ms, self._memory.next_ms(self._looked_ms))
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def propose(self, state: CellState, queues: Sequence[Queue], now_ms: int) -> list[PreemptionProposed]:
        """Look at all that wait, and propose who yields."""
        self.seen = look(state, queues, now_ms, self._memory)
        self._is_news, self._looked_ms = False, now_ms
        found = []
        for job, each in self.seen.found.items():
            proposal = self._proposal(state, job, each)
            if len(proposal.places) <= PLACES_MAX:
                self._memory.on_proposed(job, Asked(proposal.proposal, each, now_ms))
                found.append(proposal)
        return found

    def _proposal(self, state: CellState, job: str, found: Found) -> PreemptionProposed:
        self._proposals += 1
        return PreemptionProposed(
            cell=state.cell,
            proposal=f"{self._writer}.{self._proposals}",
            version=state.version,
            preemptor=job,
            cause=found.cause,
            victims=tuple(Victim(job=each.id, attempt=each.attempt) for each in found.victims),
            places=ranges_of(found.places),
        )
