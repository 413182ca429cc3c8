"""One cell in an executor process: follows its log, its clock and its slots, and does what the service says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from fallow.services.executor.app.catching_up import LOOK_AGAIN_MS, CatchingUp
from fallow.services.executor.app.outbox import Outbox
from fallow.services.executor.diaries import Diaries, Lives
from fallow.services.executor.policy.records import by_node
from fallow.services.executor.policy.slots import Slots
from fallow.services.executor.policy.turn import Now, Turn
from fallow.services.executor.service import ExecutorService
from fallow.services.executor.settings import ExecutorSettings
from fallow.services.executor.telemetry import ExecutorTelemetry
from fallow.shared.events.operations import AdvanceTime
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.missing_keys import NODES, NONE_YET, obstacle
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogTruncated, LogUnavailable, UnreadableRecords
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.clocks import SteppedCellClock, WallCellClock
from fallow.shared.runtime.process import Context

POLL_WAIT_MS = 1_000
"""How long a reader waits for decisions before it waits anew."""

RECORDS_PER_POLL = 500
TICK_WALL_MS_MIN, TICK_WALL_MS_BUSY = 2, 10
"""Runs that end close together are told of together, the more there are the longer."""

REST_MS_PER_WORD = 2
"""What a word adds to the rest behind a turn that says it."""

AWAY_FIRST_S = 0.25
"""How long a reader of an unreachable log waits at first before it tries again."""


class CellExecutor:
    """The tasks of one cell. Between two awaits there is one whole turn: state, diaries and outbox agree."""

    def __init__(
        self,
        context: Context[ExecutorSettings],
        log: Log,
        layout: Layout,
        service: ExecutorService,
        diaries: Diaries,
        telemetry: ExecutorTelemetry,
        note: Callable[[], None],
    ) -> None:
        """`note` is told whenever the next due time or the outbox may have changed."""
        self.service = service
        self._note = note
        self._context, self._log, self._layout, self._telemetry = context, log, layout, telemetry
        self._follower = Follower(
            log, layout, service.cell, snapshots=not context.settings.embedded, service=context.service
        )
        self._diaries, self._host = diaries, context.host
        self._outbox = Outbox(context, log, layout, service, telemetry, self._look_at_reigns, self._look_at_plan)
        if context.settings.records_by_node:
            self._outbox.records_of = by_node
        self._keys = f"decisions of {service.cell}"
        self._wake, self._may_take_over = asyncio.Event(), asyncio.Event()
        self._asks = asyncio.Event()
        self._catching_up = CatchingUp(context, log, layout.tp("decisions", service.cell), service.cell)
        self._unread_why: str | None = None
        self._planned_ms: int | None = None
        self._planned_look_ms: int | None = None
        self._ticked_ms = self._rests_until_ms = self._asked_end_ms = 0
        self._slots = Slots()

    @property
    def held(self) -> dict[int, None]:
        """The slots that are looked after."""
        return self._slots.held

    @property
    def is_idle(self) -> bool:
        """Whether everything that its nodes said is acknowledged."""
        return self._outbox.is_empty

    async def begin(self) -> None:
        """Fold the log up to now. Raises LogUnavailable, and DamagedLog or LogTruncated where it cannot be trusted."""
        await self._follower.stop()
        try:
            await self._follower.start()
            await self._follower.catch_up()
        except BaseException:
            await self._follower.stop()
            raise
        self._tell_what_is_unread()
        self._handled_decisions()

    async def run(self) -> None:
        """Work until cancelled; an error in any task ends all."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._outbox.run(), name="publisher")
                tasks.create_task(self._follow_log(), name="decisions")
                tasks.create_task(self._follow_slots(), name="slots")
                tasks.create_task(self._catch_up(), name="leases")
                if isinstance(self._context.clock, SteppedCellClock):
                    tasks.create_task(self._follow_operations(self._context.clock), name="operations")
                else:
                    tasks.create_task(self._follow_time(self._context.clock), name="time")
        finally:
            await self._follower.stop()

    async def end(self) -> None:
        """Let go of all slots, and of the log."""
        await self.assign(frozenset())
        await self._follower.stop()
        self._context.health.ready(self._keys)

    def _tell_what_is_unread(self) -> None:
        """Tell people why the cell's nodes are kept out: the log of the process once. Those that have joined are spoken
        for no longer: their leases run out, and the cell counts on them no more.
        """
        cell, found = self.service.cell, obstacle(NODES, self._follower, self._context.settings.cell_file)
        why = None if found is None else f"no node joins cell {cell}: {found}"
        if why == self._unread_why:
            return
        self._unread_why = why
        if why is None:
            self._context.health.ready(self._keys)
            return
        self._context.health.not_ready(why, self._keys, cell=cell)
        if found == NONE_YET:  # as at the first start of a new cell, of which nothing is missing
            self._context.logger.info("waiting for the first decision of the cell", cell=cell)
        else:
            self._context.logger.warning("decisions are missing", cell=cell, reason=why)
        self._let_go(self._slots.put_off())

    async def settle(self, wait_s: float) -> None:
        """Let what was said still go out, for so long."""
        with contextlib.suppress(TimeoutError):  # the process that takes the nodes over says what is left
            await asyncio.wait_for(self._outbox.drained(), wait_s)

    # Slots.

    async def assign(self, owned: frozenset[int]) -> None:
        """These slots should be ours now: let go of others at once, take new ones once the log up to now is folded."""
        lost, new = self._slots.assign(owned, self.service.slots_with_nodes())
        self._let_go(lost)
        if new:
            self._slots.come(new, await self._end_of_log())
            self._asked_end_ms = self._host.monotonic_ms()
            self._may_take_over.set()

    async def _end_of_log(self) -> int:
        tp = self._layout.tp("decisions", self.service.cell)
        while True:
            try:
                return (await self._log.end_offsets([tp]))[tp]
            except LogUnavailable as error:
                self._context.logger.warning("cannot take slots over yet", cell=self.service.cell, reason=str(error))
                await asyncio.sleep(1)

    def _let_go(self, slots: list[int]) -> None:
        if slots:
            self.service.lose(slots)
            for slot in slots:
                self._diaries.let_go(slot)
            self._context.logger.info("slots lost", cell=self.service.cell, slots=slots)

    async def _follow_slots(self) -> None:
        """Take slots over: whenever one has come, the log is folded further, or the pause behind a fence is over."""
        loop = asyncio.get_running_loop()
        while True:
            timer, due_ms = None, None if self._is_blind() else self._slots.next_claim_ms()
            if due_ms is not None:
                timer = loop.call_later((due_ms - self._host.monotonic_ms()) / 1000, self._may_take_over.set)
            await self._may_take_over.wait()
            self._may_take_over.clear()
            if timer is not None:
                timer.cancel()
            await self._take_over()

    def _is_blind(self) -> bool:
        """Whether it would not hear what its nodes shall run."""
        return self._unread_why is not None

    async def _take_over(self) -> None:
        if self._is_blind():
            return  # tried again with the next decision
        now_ms = self._host.monotonic_ms()
        if self._slots.is_coming and now_ms - self._asked_end_ms >= LOOK_AGAIN_MS:
            self._asked_end_ms = now_ms
            self._slots.cut(await self._end_of_log())
        for slot in self._slots.to_claim(self._follower.next_offset, self._host.monotonic_ms()):
            seq = self._diaries.take(slot, self._host.wall_ms())
            if not self._slots.claimed(slot, seq, await self._end_of_log()):
                self._diaries.let_go(slot)
        if self._is_blind():
            return  # found out meanwhile
        for slot, seq in self._slots.to_adopt(self._follower.next_offset).items():
            if slot not in self.held:
                continue  # lost since the one before it was taken over
            state = self._follower.state
            past = self._diaries.read(slot, state.jobs)
            self._carry_out(self.service.take_over(slot, state, seq, past.__getitem__, self._now()))
            self._context.logger.info("slot taken over", cell=self.service.cell, slot=slot)
            await asyncio.sleep(0)

    # Turns.

    async def _follow_log(self) -> None:
        away, read = self._context.back_off(AWAY_FIRST_S), self._context.telemetry.records_read.labels("decisions")
        while True:
            try:
                decisions = await self._follower.poll(POLL_WAIT_MS, RECORDS_PER_POLL)
            except LogUnavailable as error:
                self._context.logger.warning("cannot read", cell=self.service.cell, reason=str(error))
                await asyncio.sleep(away.next_s())
                continue
            away.reset()
            self._tell_what_is_unread()
            if decisions:
                self._carry_out(self.service.decided(self._follower.state, decisions, self._now()))
                read.inc(len(decisions))
            if self._slots.is_coming:
                self._may_take_over.set()
            self._catching_up.has_read()
            next_offset = self._follower.next_offset
            await self._outbox.drained()
            self._handled_decisions(next_offset)

    async def _catch_up(self) -> None:
        """Where nodes have a lease again: tell them when the log has been read to the end that it had by then."""
        while True:
            await self._asks.wait()
            self._asks.clear()
            asked = dict(self.service.asking)
            await self._catching_up.wait(self._follower)
            self.service.caught_up(asked)
            self._wake.set()

    async def _follow_time(self, clock: WallCellClock) -> None:
        loop = asyncio.get_running_loop()
        while True:
            wait_ms = self._wait_ms(clock)
            if wait_ms is not None and wait_ms <= 0:
                self._ticked_ms = self._host.monotonic_ms()
                self._carry_out(self.service.tick(self._follower.state, self._now()))
                if self.service.asking:
                    self._asks.set()
                continue
            timer = None if wait_ms is None else loop.call_later(wait_ms / 1000, self._wake.set)
            await self._wake.wait()
            self._wake.clear()
            if timer is not None:
                timer.cancel()

    def _wait_ms(self, clock: WallCellClock) -> int | None:
        """The wall time until the next tick: until a run ends and the rest is over, or reports and leases are to be
        looked at. None: until something is planned.
        """
        self._planned_ms = due_ms = self.service.next_due_ms()
        self._planned_look_ms = look_ms = self.service.next_look_ms()
        now_ms, waits = self._host.monotonic_ms(), list[int]()
        if due_ms is not None:
            waits.append(max(clock.wall_wait_ms(due_ms), self._rests_until_ms - now_ms))
        if look_ms is not None:
            waits.append(max(look_ms, self._ticked_ms + self._context.settings.look_every_wall_ms) - now_ms)
        return min(waits, default=None)

    async def _follow_operations(self, clock: SteppedCellClock) -> None:
        topic, partition = tp = self._layout.tp("operations", self.service.cell)
        reader = self._log.reader(await self._log.begin_offsets([tp]))
        await reader.start()
        try:
            while True:
                try:
                    records = await reader.poll()
                except LogTruncated as error:
                    # Only the newest time counts; what was deleted unread, or cannot be read, is older.
                    if isinstance(error, UnreadableRecords):
                        self._context.logger.warning("operations are passed over", reason=str(error))
                    reader.seek(tp, error.begin)
                    continue
                for record in records:
                    event = event_of(record)
                    if isinstance(event, AdvanceTime) and event.cell == self.service.cell:
                        clock.advance_to(event.now_ms)
                self._carry_out(self.service.tick(self._follower.state, self._now()))
                next_offset = reader.positions()[tp]
                await self._outbox.drained()
                self._context.health.handled(topic, partition, next_offset)
        finally:
            await reader.stop()

    def _carry_out(self, turn: Turn) -> None:
        """The diary first, then the world hears of it; of a slot of another process nothing."""
        if turn.lines:
            self._fence(self._diaries.write(turn.lines))
            self._forget_past()
        self._outbox.put(turn.events, turn.now.monotonic_ms)
        rest_ms = min(TICK_WALL_MS_MIN + REST_MS_PER_WORD * len(turn.events), TICK_WALL_MS_BUSY)
        self._rests_until_ms = turn.now.monotonic_ms + rest_ms
        self._look_at_plan()
        self._note()

    def _look_at_plan(self) -> None:
        """Wake the task that waits for the next tick, if it may be due earlier by now."""
        due_ms, look_ms = self.service.next_due_ms(), self.service.next_look_ms()
        if _is_earlier(due_ms, self._planned_ms) or _is_earlier(look_ms, self._planned_look_ms):
            self._wake.set()

    def _forget_past(self) -> None:
        """Shorten the diaries that have grown. What the log has taken as over needs no line any more. Of a slot that is
        still being taken over this process has not read yet what its last owner had read.
        """
        state = self._follower.state
        for slot in self._diaries.grown():
            if slot in self.held and not self._diaries.forget(slot, Lives(state.version, state.jobs, state.nodes)):
                self._fence([slot])

    async def _look_at_reigns(self) -> None:
        """An agent that is told to stop what it never began writes no line, and would not notice that it is fenced."""
        self._fence(self._diaries.lost())

    def _fence(self, slots: list[int]) -> None:
        fenced = self._slots.fenced(slots, self._host.monotonic_ms())
        if fenced:
            self._telemetry.fenced.inc(len(fenced))
            self._let_go(fenced)
            self._may_take_over.set()

    def _handled_decisions(self, next_offset: int | None = None) -> None:
        topic, partition = self._layout.tp("decisions", self.service.cell)
        offset = self._follower.next_offset if next_offset is None else next_offset
        self._context.health.handled(topic, partition, offset)
        self._context.health.progress.version[self.service.cell] = self._follower.state.version
        self._note()

    def _now(self) -> Now:
        return Now(self._context.clock.now_ms(), self._host.wall_ms(), self._host.monotonic_ms())


def _is_earlier(due_ms: int | None, planned_ms: int | None) -> bool:
    """Whether something is due before what is planned."""
    return due_ms is not None and (planned_ms is None or due_ms < planned_ms)
