"""One cell in an executor process of the simulated world: the diary first, then the world hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from services.executor.policy.records import Said, as_records
from services.executor.policy.turn import Now, Turn
from services.executor.service import ExecutorService
from services.simulator.follower import Follower
from services.simulator.process import Process, Waker
from shared.events.nodes import NodeJoined
from shared.log.port import LogUnavailable

SLOTS = 4
TICK_MS = 100
"""How late a run's end may be noticed: ends are told of together."""

REPORT_EVERY_MS = 1_500
IDLE_MS = 700
AGAIN_MS = 250
RETRY_FIRST_MS, RETRY_MOST_MS = 50, 1_000
FENCED_PAUSE_MS = 1_000


class ExecutorPart:
    """One cell's nodes in one executor process."""

    def __init__(self, process: Process, cell: str) -> None:
        self._process, self._world, self._cell = process, process.world, cell
        self._service = ExecutorService(cell, self._world.nodes[cell], SLOTS, report_every_wall_ms=REPORT_EVERY_MS)
        self._waker = Waker(process, self._step)
        self._follower: Follower | None = None
        self._is_following = False
        self._held: dict[int, int] = {}
        self._take_from: dict[int, tuple[int, int]] = {}
        self._assigned: frozenset[int] = frozenset()
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
        self._assigned = owned
        self._let_go([slot for slot in self._held if slot not in owned])
        self._take_from = {slot: due for slot, due in self._take_from.items() if slot in owned}
        new = [s for s in self._service.slots_with_nodes() if s in owned and s not in self._held]
        if new:
            self._plan_take_over(new)

    def _plan_take_over(self, slots: list[int]) -> None:
        try:
            end = self._world.broker.end(("decisions", self._world.ordinal(self._cell)))
        except LogUnavailable:
            self._process.after(1_000, lambda: self.told(self._assigned))
            return
        self._take_from.update(dict.fromkeys(slots, (end, 0)))
        self._waker.within(1)

    def _let_go(self, slots: list[int]) -> None:
        if slots:
            self._service.lose(slots)
            for slot in slots:
                del self._held[slot]

    def _take_over(self, follower: Follower) -> None:
        for slot, (offset, not_before_ms) in list(self._take_from.items()):
            if not_before_ms > self._process.monotonic_ms:
                self._waker.within(not_before_ms - self._process.monotonic_ms)
                continue
            if offset > follower.next_offset:
                continue
            seq = self._world.disk.take(self._cell, slot)
            del self._take_from[slot]
            self._held[slot] = seq
            self._carry_out(self._service.take_over(slot, follower.state, seq, self._world.disk.read, self._now()))

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
        if self._held:
            self._carry_out(self._service.tick(follower.state, self._now()))
        due_ms = self._service.next_due_ms()
        idle_ms = IDLE_MS if self._held else 10 * IDLE_MS
        wait_ms = idle_ms if due_ms is None else min(idle_ms, max(1, due_ms - self._process.cell_ms))
        self._waker.within(wait_ms)

    def _carry_out(self, turn: Turn) -> None:
        if turn.lines:
            self._fence(self._world.disk.write(self._process.name, self._cell, SLOTS, self._held, turn.lines))
        for event in turn.events:
            if isinstance(event, NodeJoined):
                self._world.disk.boot(event.node)
        events = self._service.still_ours(turn.events)
        if events:
            self._waiting.append((turn.now.monotonic_ms, events))
            self._send()

    def _fence(self, slots: list[int]) -> None:
        """Let go of the slots whose reign is somebody else's, and ask again a little later."""
        fenced = [slot for slot in slots if slot in self._held]
        if fenced:
            self._let_go(fenced)
            again_ms = self._process.monotonic_ms + FENCED_PAUSE_MS
            self._take_from.update({slot: (0, again_ms) for slot in fenced if slot in self._assigned})
            self._waker.within(FENCED_PAUSE_MS)

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
        self._fence(self._world.disk.lost(self._cell, self._held))
        ours = self._service.still_ours(events)
        done = self._world.reply(self._process, partial(self._sent, made_ms=made_ms, events=ours))
        if not ours:
            self._process.after(0, lambda: done(None))
            return
        messages = [self._world.message(record) for record in as_records(self._cell, ours)]
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
