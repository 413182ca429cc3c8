"""The production services of one cell on one clock, without a log in between: what one says, the others are told at
once, as objects.

A step ends when no service has anything left to do at its time, so it comes to the decisions that a stepped replay on
the running services comes to. Nothing is written as bytes: the log's own work is not what a simulation asks about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fallow.services.admission.service import AdmissionService
from fallow.services.executor.policy.records import Said, as_records
from fallow.services.executor.policy.turn import Now, Turn
from fallow.services.executor.service import ExecutorService
from fallow.services.loaning.service import LoaningService
from fallow.services.placement.service import Input, PendingDecision, PlacementService
from fallow.shared.cluster.fold.fold import seal
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.events.operations import AdvanceTime, PreemptionMode
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.log.layout import tenant_of
from fallow.shared.log.machine.writer import UnwritableDecision

Follow = Callable[[CellState, Decision], None]
"""A listener to each decision, and to the state behind it."""

DECISIONS_AT_ONCE_MAX = 100_000
"""More at one moment of cell time is a cell that does not come to rest."""


class Restless(Exception):
    """The services tell each other news without end, at one time."""


class VirtualCell:
    """One cell. `now_ms` is the cell time; `decisions` counts those in force."""

    takes_plans = False
    """Whether planned starts are put in force."""

    moments_in_vain_max = 100_000
    """So many moments in a row at which no job comes, starts or ends, and what is left waits for good."""

    def __init__(
        self,
        file: CellFile,
        nodes: Iterable[NodeSpec],
        follow: Sequence[Follow] = (),
    ) -> None:
        self.file, self.now_ms, self.decisions, self._lives = file, 0, 0, 0
        self._specs, self._follow = tuple(nodes), tuple(follow)
        self._read: dict[str, int] = {}
        self.begin_services(CellState(file.cells[0].name))

    def begin_services(self, state: CellState) -> None:
        """New services that know nothing but this state."""
        part, name = self.file.cells[0], "simulator"
        self.state = state
        self.admission = AdmissionService(self.file)
        self.placement = PlacementService(state, self.file, writer=name, stepped=True, takes_plans=self.takes_plans)
        self.executor = ExecutorService(part.name, self._specs, 1, says_by_itself=False)
        self._lives += 1
        self.loaning = LoaningService(f"{name}-{self._lives}")

    def begin(self, at_ms: int = 0) -> None:
        """Take over as writer, and let all nodes join."""
        self.now_ms = at_ms
        self.take_writer()
        self.say(self.executor.take_over(0, self.state, 0, lambda _: (), self._now()))
        self.settle()

    def take_writer(self) -> None:
        """Placement takes over as the cell's writer."""
        self.placement.take_over(self.now_ms)
        mark = self.state.checkpoint()
        self._keep(mark, self.placement.start(self.now_ms, self.now_ms))
        self.tell(AdvanceTime(cell=self.state.cell, now_ms=self.now_ms))

    # What comes from outside.

    def submit(self, command: SubmitJob | CancelJob | UpdateJob) -> Event | Undecodable:
        """Hand a command to admission, as by the topic of its tenant; its answer, which the others have been told of
        too.
        """
        tenant = tenant_of(command)
        own = tenant if tenant in self.file.own_topics else None
        answer = self.admission.answer(command.type, encode(command), own, self.now_ms)
        if not isinstance(answer, Undecodable) and answer.topic == "jobs":
            self.tell(answer)
        return answer

    def tell(self, event: Event) -> None:
        """Hand an event to the readers of its topic."""
        source = f"{event.topic}-0"
        number = self._read[source] = self._read.get(source, 0) + 1
        self.hand_over(Input(source, number, event))

    def hand_over(self, item: Input) -> None:
        """Hand an event with its place in its topic to its readers."""
        self.placement.take([item])

    def say(self, turn: Turn) -> None:
        """Tell placement what the nodes said in this turn."""
        if turn.events:
            for record in as_records(self.state.cell, self.heard(turn.events)):
                self.tell(record)

    def heard(self, said: list[Said]) -> list[Said]:
        """What of the nodes' words gets through: all of them."""
        return said

    # Time.

    def next_due_ms(self) -> int | None:
        """When something happens by itself."""
        due = (self.executor.next_due_ms(), self.placement.next_cell_ms(), self.loaning.next_ms())
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def advance(self, to_ms: int | None) -> None:
        """Let everything happen that is due up to and including `to_ms`, moment by moment; None: all there is, until
        only such is due as moves no job any more.
        """
        steps = in_vain = 0
        while (due_ms := self.next_due_ms()) is not None and (to_ms is None or due_ms <= to_ms):
            steps = steps + 1 if due_ms <= self.now_ms else 0
            if steps > DECISIONS_AT_ONCE_MAX:
                raise Restless(f"at {self.now_ms} ms something stays due at {due_ms} ms")
            before = self._jobs
            self._step_to(due_ms)
            in_vain = in_vain + 1 if self._jobs == before else 0
            if to_ms is None and in_vain > self.moments_in_vain_max:
                return
        if to_ms is not None and to_ms > self.now_ms:
            self.now_ms = to_ms

    @property
    def _jobs(self) -> tuple[int, int, int]:
        """What changes as jobs come, start and end."""
        return len(self.state.jobs), self.state.waiting, self.state.over_next

    def _step_to(self, due_ms: int) -> None:
        self.now_ms = max(self.now_ms, due_ms)
        woken_ms = self.placement.next_cell_ms()
        if woken_ms is not None and woken_ms <= self.now_ms:
            self.tell(AdvanceTime(cell=self.state.cell, now_ms=self.now_ms))
        self.say(self.executor.tick(self.state, self._now()))
        self.settle()

    def settle(self) -> None:
        """Let the services act until none has anything left to do at this time."""
        self._settle()
        for _ in range(DECISIONS_AT_ONCE_MAX):
            if not self._propose():
                return
            self._settle()
        raise Restless(f"at {self.now_ms} ms jobs yield without end")

    def _propose(self) -> bool:
        """Let loaning propose who yields, if it has anything to look at. Whether it has."""
        if self.state.policy.preemption is PreemptionMode.OFF or not self.loaning.is_due(self.now_ms):
            return False
        proposals = self.loaning.propose(self.state, self.file.cells[0].queues, self.now_ms)
        for proposal in proposals:
            self.tell(proposal)
        return bool(proposals)

    def _settle(self) -> None:
        for _ in range(DECISIONS_AT_ONCE_MAX):
            mark = self.state.checkpoint()
            tried = self.placement.decide(self.now_ms, self.now_ms)
            if tried is None:
                self.state.rollback(mark)
            elif tried.fault is not None:
                self._decide_anew(mark, tried, tried.fault)
            else:
                self._keep(mark, tried)
            if not self.placement.has_pending and (tried is None or not tried.has_more):
                return
        raise Restless(f"at {self.now_ms} ms the cell does not come to rest")

    def _decide_anew(self, mark: int, tried: PendingDecision, fault: Undecodable) -> None:
        """The state refused an effect of the decision: placement makes another one, as behind a real log."""
        self.state.rollback(mark)
        if not self.placement.unwritable(tried, fault):
            raise UnwritableDecision(f"a decision that comes from no input cannot be written: {fault}")

    def _keep(self, mark: int, tried: PendingDecision) -> None:
        """Put a decision in force, and let everybody follow it."""
        state = self.state
        decision = Decision(
            cell=state.cell,
            version=state.version + 1,
            epoch=state.epoch,
            inputs=tried.inputs,
            at_ms=max(tried.at_ms, state.at_ms),
            effects=tuple(tried.effects),
        )
        state.commit(mark)
        state.offset += 1
        seal(state, decision, state.chain)
        self.decisions += 1
        self.placement.accepted(tried)
        self.placement.note(decision.effects, self.now_ms)
        self.loaning.on_folded(decision)
        for follow in self._follow:
            follow(state, decision)
        self.say(self.executor.decided(state, (decision,), self._now()))

    def _now(self) -> Now:
        return Now(self.now_ms, self.now_ms, self.now_ms)
