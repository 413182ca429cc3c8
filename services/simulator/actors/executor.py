"""One cell in an executor process of the simulated world: the diary first, then the world hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from services.executor.policy.records import Said, as_records
from services.executor.policy.slots import Slots
from services.executor.policy.turn import Now, Turn
from services.executor.service import ExecutorService
from services.simulator.follower import Follower
from services.simulator.process import Process, Release, Waker
from services.simulator.versions import word_by_word
from shared.events.nodes import NodeJoined
from shared.log.port import LogUnavailable

SLOTS = 4
TICK_MS = 100
"""How late a run's end may be noticed: ends are told of together."""

REPORT_EVERY_MS = 1_500
IDLE_MS = 700
AGAIN_MS = 250
RETRY_FIRST_MS, RETRY_MOST_MS = 50, 1_000
AWAY_MS = 1_000


class ExecutorPart:
    """One cell's nodes in one executor process."""

    joins_by_itself = False

    def __init__(self, process: Process, cell: str) -> None:
        self._process, self._world, self._cell = process, process.world, cell
        self._service = ExecutorService(cell, self._world.nodes[cell], SLOTS, report_every_wall_ms=REPORT_EVERY_MS)
        self._waker = Waker(process, self._step)
        self._follower: Follower | None = None
        self._is_following = False
        self._slots = Slots()
        self._reigns: dict[int, int] = {}
        self._waiting: list[tuple[int, Sequence[Said]]] = []
        self._sending: list[tuple[int, Sequence[Said]]] = []
        self._retry_ms = RETRY_FIRST_MS

    def begin(self) -> None:
        """Fold to the end before anything is taken over."""
        if self._follower is None:
            self._follower = Follower(self._process, self._cell, self._waker)
        try:
            self._follower.catch_up()
        except LogUnavailable:
            self._process.after(AGAIN_MS, self.begin)
            return
        self._is_following = True
        self._waker.within(1)

    def end(self) -> None:
        """Hear no more."""
        if self._follower is not None:
            self._follower.close()

    # Slots.

    def told(self, owned: frozenset[int]) -> None:
        """Let go of others at once, take new ones once the log up to now is folded."""
        lost, new = self._slots.assign(owned, self._service.slots_with_nodes())
        self._let_go(lost)
        if new:
            self._hear_of(new)

    def _hear_of(self, new: list[int]) -> None:
        end = self._end_of_log()
        if end is None:
            self._process.after(AWAY_MS, lambda: self._hear_of(new))
            return
        self._slots.come(new, end)
        self._waker.within(1)

    def _end_of_log(self) -> int | None:
        try:
            return self._world.broker.end(("decisions", self._world.ordinal(self._cell)))
        except LogUnavailable:
            return None

    def _let_go(self, slots: list[int]) -> None:
        self._service.lose(slots)
        for slot in slots:
            self._reigns.pop(slot, None)

    def _take_over(self, follower: Follower) -> None:
        now_ms = self._process.monotonic_ms
        for slot in self._slots.to_claim(follower.next_offset, now_ms):
            end = self._end_of_log()
            if end is not None:
                self._reigns[slot] = self._world.disk.take(self._cell, slot)
                self._slots.claimed(slot, self._reigns[slot], end)
            self._waker.within(1 if end is not None else AWAY_MS)
        for slot, seq in self._slots.to_adopt(follower.next_offset).items():
            self._carry_out(self._service.take_over(slot, follower.state, seq, self._world.disk.read, self._now()))
        due_ms = self._slots.next_claim_ms()
        if due_ms is not None:
            self._waker.within(max(1, due_ms - now_ms))

    # Turns.

    def _step(self) -> None:
        follower = self._follower
        if follower is None or not self._is_following:
            return
        if self._is_drained:
            decisions = follower.poll(500)
            if decisions:
                self._carry_out(self._service.decided(follower.state, decisions, self._now()))
            self._take_over(follower)
        if self._slots.held:
            self._carry_out(self._service.tick(follower.state, self._now()))
        due_ms = self._service.next_due_ms()
        idle_ms = IDLE_MS if self._slots.held else 10 * IDLE_MS
        wait_ms = idle_ms if due_ms is None else min(idle_ms, max(1, due_ms - self._process.cell_ms))
        self._waker.within(wait_ms)

    def _carry_out(self, turn: Turn) -> None:
        if turn.lines:
            self._fence(self._world.disk.write(self._process.name, self._cell, SLOTS, self._reigns, turn.lines))
        for event in turn.events:
            if isinstance(event, NodeJoined):
                self._world.disk.boot(event.node)
        events = self._service.still_ours(turn.events)
        if events:
            self._waiting.append((turn.now.monotonic_ms, events))
            self._send()

    def _fence(self, slots: list[int]) -> None:
        """Let go of the slots whose reign is somebody else's, and ask again a little later."""
        fenced = self._slots.fenced(slots, self._process.monotonic_ms)
        if fenced:
            self._let_go(fenced)
            self._waker.within(1)

    # The outbox: in order, and again with new numbers until it is acknowledged.

    @property
    def _is_drained(self) -> bool:
        return not self._waiting and not self._sending

    def _send(self) -> None:
        if self._sending or not self._waiting:
            return
        self._sending, self._waiting = self._waiting, []
        self._send_first()

    def _send_first(self) -> None:
        made_ms, events = self._sending[0]
        # Who never began a run writes no line when it is told to stop, and so would not notice that it is fenced.
        self._fence(self._world.disk.lost(self._cell, self._reigns))
        ours = self._service.still_ours(events)
        done = self._world.reply(self._process, partial(self._sent, made_ms=made_ms, events=ours))
        if not ours:
            self._process.after(0, lambda: done(None))
            return
        says = word_by_word if self._process.release is Release.EARLIER else as_records
        messages = [self._world.message(record, self._process) for record in says(self._cell, ours)]
        self._world.broker.publish(self._process.name, messages, done)

    def _sent(self, error: LogUnavailable | None, made_ms: int, events: Sequence[Said]) -> None:
        if error is not None:
            batches, self._waiting = [*self._sending, *self._waiting], []
            self._sending = [(made, self._service.renumber(batch)) for made, batch in batches]
            self._process.after(self._retry_ms, self._send_first)
            self._retry_ms = min(2 * self._retry_ms, RETRY_MOST_MS)
            return
        self._retry_ms = RETRY_FIRST_MS
        self._service.confirmed(events, made_ms)
        self._sending = self._sending[1:]
        if self._sending:
            self._send_first()
        elif self._waiting:
            self._send()
        else:
            self._waker.within(1)

    def _now(self) -> Now:
        return Now(self._process.cell_ms, self._process.cell_ms, self._process.monotonic_ms)
