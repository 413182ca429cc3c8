"""Placement of one cell in the simulated world: standby and writer, one step for each wait of the process."""

from __future__ import annotations

from enum import Enum, auto
from functools import partial

from services.placement.service import Input, PlacementService, Tried
from services.simulator.actors.admission import letter_of, raw_record
from services.simulator.broker import Message
from services.simulator.follower import Follower
from services.simulator.history.record import Logged
from services.simulator.process import Inbox, Process, Waker
from shared.events.encoding import Undecodable
from shared.events.operations import ReloadCell
from shared.events.reasons import DeadLetterReason
from shared.log.machine.consumer import Dead
from shared.log.machine.tenure import Tenure, Verdict
from shared.log.machine.writer import Draft
from shared.log.port import Appended, AppendUnknown, LogUnavailable

INPUTS = ("jobs", "queue", "nodes", "proposals", "operations")
PACE_MS = 10
IDLE_MS = 500
AGAIN_MS = 250
EVENT_BYTES = 300
"""What an event counts in a record: in most worlds it never becomes bytes."""


class Stage(Enum):
    """Where a process stands with a cell."""

    FOLLOWS = auto()
    TAKES_OVER = auto()
    WRITES = auto()


class PlacementPart:
    """One cell in a placement process."""

    def __init__(self, process: Process, cell: str) -> None:
        self._process, self._world, self._cell = process, process.world, cell
        self._ordinal = self._world.ordinal(cell)
        self._waker = Waker(process, self._step)
        self._holds = self._waits = False
        self._stage = Stage.FOLLOWS
        self._wrote_ms = 0
        self._follower: Follower | None = None
        self._inbox: Inbox | None = None
        self._service: PlacementService
        self._tenure: Tenure[Tried]

    def begin(self) -> None:
        """Fold to the end, and follow."""
        if self._follower is None:
            self._follower = Follower(self._process, self._cell, self._waker)
        try:
            self._follower.catch_up()
        except LogUnavailable:
            self._process.after(AGAIN_MS, self.begin)
            return
        self._service = PlacementService(
            self._follower.state, self._world.file, writer=self._process.name, few=self._world.few
        )
        self._waker.within(1)

    def end(self) -> None:
        """Hear no more."""
        if self._follower is not None:
            self._follower.close()
        self._close_inputs()

    def _close_inputs(self) -> None:
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None

    def told(self, owned: frozenset[int]) -> None:
        """Write while the cell is ours."""
        self._holds = self._ordinal in owned
        self._waker.within(1)

    # Steps.

    def _step(self) -> None:
        if self._waits or self._follower is None or not hasattr(self, "_service"):
            return
        try:
            self._go_on(self._follower)
        except LogUnavailable:
            self._give_up()

    def _go_on(self, follower: Follower) -> None:
        if self._stage is Stage.WRITES and not (self._holds and self._tenure.writes):
            self._stage = Stage.FOLLOWS
            self._close_inputs()
        if self._stage is Stage.WRITES:
            self._cycle()
        elif self._holds:
            follower.catch_up()
            self._service.take_over(self._process.monotonic_ms)
            self._tenure = Tenure(follower.state, self._service)
            self._take_over()
        else:
            follower.poll()

    def _give_up(self) -> None:
        """The log is away: the cell is taken over anew when it is back."""
        self._stage = Stage.FOLLOWS
        self._close_inputs()
        self._waker.within(AGAIN_MS)

    def _take_over(self) -> None:
        self._stage = Stage.TAKES_OVER
        self._tenure.begin()
        self._append(self._service.start(self._process.cell_ms, self._process.monotonic_ms))

    def _cycle(self) -> None:
        records = self._read()
        if records:
            self._service.take([self._input(record) for record in records])
        self._decide()

    def _read(self) -> list[Logged]:
        inbox, found = self._inbox, list[Logged]()
        assert inbox is not None, "opened when the cell was taken over"
        for tp in inbox.positions:
            if not inbox.is_held(tp):
                records = self._world.broker.read(tp, inbox.positions[tp])
                inbox.positions[tp] += len(records)
                found += records
        return found

    def _decide(self) -> None:
        """One decision, if there is one."""
        self._look_for_the_end_of_nodes()
        self._tenure.begin()
        tried = self._service.decide(self._process.cell_ms, self._process.monotonic_ms)
        try:
            self._set_strays_aside()
        except LogUnavailable:
            self._tenure.abandon()
            raise
        if tried is None:
            self._tenure.abandon()
            self._plan()
        else:
            self._append(tried)

    def _look_for_the_end_of_nodes(self) -> None:
        if not self._world.broker.is_away:
            self._service.nodes_end(self._world.broker.end(("nodes", self._ordinal)), self._process.monotonic_ms)

    def _plan(self) -> None:
        """Wake again when something is due, or after a while to look at the leases."""
        due_ms = self._service.next_cell_ms()
        wait_ms = IDLE_MS if due_ms is None else min(IDLE_MS, max(1, due_ms - self._process.cell_ms))
        self._waker.within(1 if self._service.has_pending else wait_ms)

    def _append(self, tried: Tried) -> None:
        draft = self._tenure.draft(tried)
        decision, as_bytes = draft.decision, draft.value
        message = Message("decisions", self._ordinal, self._cell, decision.type, decision, as_bytes, draft.chain)
        self._waits = True
        done = self._world.reply(self._process, partial(self._answered, draft=draft, tried=tried))
        self._world.broker.append(self._process.name, message, done)

    def _answered(self, answer: Appended | AppendUnknown, draft: Draft, tried: Tried) -> None:
        self._waits = False
        try:
            if self._is_in_force(answer, draft, tried):
                self._goes_on(has_more=tried.has_more)
            else:
                self._look()
        except LogUnavailable:
            self._give_up()

    def _is_in_force(self, answer: Appended | AppendUnknown, draft: Draft, tried: Tried) -> bool:
        self._wrote_ms = self._process.monotonic_ms
        if self._tenure.answered(draft, tried, answer, self._wrote_ms) is not Verdict.IN_FORCE:
            return False
        assert isinstance(answer, Appended), "only what has an offset can be in force"
        self._world.believed(self._process, self._cell, answer.offset, draft.decision.version)
        return True

    def _goes_on(self, *, has_more: bool) -> None:
        assert self._follower is not None, "begun before anything is appended"
        if self._stage is Stage.TAKES_OVER:
            self._stage = Stage.WRITES
            inputs = self._follower.state.inputs
            positions = {(name, self._ordinal): inputs.get(f"{name}-{self._ordinal}", 0) for name in INPUTS}
            self._inbox = Inbox(self._process, self._waker, positions)
        elif has_more and self._holds:
            self._decide()
        else:
            self._waker.within(PACE_MS)

    def _look(self) -> None:
        """Not in force: fold forward, and decide anew on the newer state."""
        assert self._follower is not None, "begun before anything is appended"
        self._follower.catch_up()
        if self._stage is Stage.TAKES_OVER:
            if self._holds:
                self._service.take_over(self._process.monotonic_ms)
                self._take_over()
            else:
                self._stage = Stage.FOLLOWS
            return
        self._service.caught_up(self._process.monotonic_ms)
        if self._holds:
            self._decide()
        else:
            self._waker.within(1)

    # Inputs.

    def _input(self, record: Logged) -> Input:
        source, event = f"{record.topic}-{record.partition}", record.event()
        if isinstance(event, Undecodable):
            self._set_aside(Dead(raw_record(record), event.reason, str(event)))
            return Input(source, record.offset + 1, None)
        home = event.home()
        if home is not None and home != self._cell:
            self._set_aside(Dead(raw_record(record), DeadLetterReason.WRONG_CELL, f"cell: {home}"))
            return Input(source, record.offset + 1, None)
        if isinstance(event, ReloadCell):
            self._service.reload(self._world.file)
        return Input(source, record.offset + 1, event, EVENT_BYTES, record)

    def _set_strays_aside(self) -> None:
        for item, stray in self._service.take_strays():
            assert isinstance(item.origin, Logged), "every input of a node comes with its record"
            self._set_aside(Dead(raw_record(item.origin), stray.reason, stray.text))
        self._service.take_past()

    def _set_aside(self, dead: Dead) -> None:
        """One dead letter, confirmed before the cursor passes the record. Raises LogUnavailable."""
        if self._world.broker.is_away:
            raise LogUnavailable("the broker is away")
        self._world.broker.land(letter_of(dead, "placement"))
