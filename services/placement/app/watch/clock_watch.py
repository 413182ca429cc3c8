"""Whether the writer's clock and the broker's agree: a writer whose clock is wrong would expire, refuse or freeze jobs.

The broker's time comes from the stamps that it gives: of each decision that is appended, and of a small record in topic
`cells` where there was none for long, or where the clock looks wrong. Nothing is decided before the first of them: a
writer that topic `cells` does not answer takes the cell over at the time of the log, and the stamp of that record is
the first. From then on the writer goes on deciding while the broker is asked: between two stamps the machine's two
clocks tell whether one of them jumps, and topic `cells` may be away for longer than the cell can wait.

A standby asks the same, so that a process which could not take over is noticed before the writer is gone.
"""

from __future__ import annotations

import asyncio

from fallow.services.placement.app.setbacks import CannotWrite
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.log.machine.broker_clock import BrokerClock
from fallow.shared.log.port import Appended, AppendRefused, AppendUnknown, Log, LogUnavailable, Outgoing
from fallow.shared.runtime.clocks import WallCellClock
from fallow.shared.runtime.process import Context
from fallow.shared.runtime.settings import ClockKind

ASK_EVERY_MS = 10_000
"""A monotonic clock that stood still while the machine slept is found out by then."""

FIRST_ANSWER_S = 5.0
"""So long a writer that takes over waits for an answer of topic `cells`."""


class ClockWatch:
    """One cell's, in the process that writes it. `topic` and `partition` are those of the cell in topic `cells`."""

    def __init__(self, context: Context[PlacementSettings], log: Log, topic: str, partition: int) -> None:
        self._context, self._log, self._topic, self._partition = context, log, topic, partition
        self._clock = BrokerClock()
        self._ask_at_ms = self._failed = 0
        self._has_answer = False
        self._question: asyncio.Task[None] | None = None
        self._why_not: str | None = None
        self._is_checked = context.settings.clock is ClockKind.WALL

    @property
    def is_known(self) -> bool:
        """Whether the machine's clock was compared with the broker's, so that decisions may be made by it."""
        return self._has_answer or not self._is_checked

    async def begin(self) -> None:
        """The process is to take the cell over: ask the broker for its time, but wait only so long for the answer.
        Raises CannotWrite where the clock is wrong, LogUnavailable where it was and may be so still.
        """
        if not self.is_known:
            self._question = self._question or asyncio.create_task(self._ask(), name="ask for the broker's time")
            await asyncio.wait([self._question], timeout=FIRST_ANSWER_S)
            self._look_at_answer()
        if self.is_known:
            await self.check()
        else:
            self._context.logger.warning(
                "takes over at the time of the log: the broker's is not known", note=self._note
            )

    def stamped(self, answer: Appended, sent_ms: int) -> None:
        """A decision was sent at this monotonic time, and the answer has come."""
        self._has_answer = True
        if answer.stamped_ms is not None:
            now_ms = self._context.host.monotonic_ms()
            self._clock.stamped(answer.stamped_ms, sent_ms, now_ms)
            self._ask_at_ms = now_ms + ASK_EVERY_MS

    async def check(self) -> None:
        """Ask the broker for its time where that is due, or where the clock looks wrong. Raises CannotWrite where it is
        wrong, LogUnavailable.
        """
        if not self._is_checked:
            return
        host, bound_ms = self._context.host, self._context.settings.clock_bound_wall_ms
        self._look_at_answer()
        is_due, is_right = host.monotonic_ms() >= self._ask_at_ms, abs(self._ahead_ms()) <= bound_ms
        if self._has_answer and is_right:
            self._forget_wrong_time(bound_ms)
            if is_due and self._question is None:
                self._question = asyncio.create_task(self._ask(), name="ask for the broker's time")
            return
        await self.stop()
        await self._ask()
        self.compare()

    def compare(self) -> None:
        """Look at the stamp that has just come. Raises CannotWrite where the machine's clock is wrong."""
        if wrong := self._wrong():
            if isinstance(self._context.clock, WallCellClock):
                self._context.clock.forget()
            raise CannotWrite(wrong)
        if self._is_checked:
            self._forget_wrong_time(self._context.settings.clock_bound_wall_ms)

    def look(self) -> str | None:
        """For a standby: why it could not take the cell over by its clock, as the broker's last answer tells; None
        where it could. The broker is asked where that is due, or where the clock looks otherwise than it told, and
        nothing waits for the answer.
        """
        if not self._is_checked:
            return None
        now_ms, is_answered = self._context.host.monotonic_ms(), self._question is not None and self._question.done()
        try:
            self._look_at_answer()
            if is_answered:
                self._why_not = self._wrong()
        except CannotWrite as error:
            self._why_not, self._ask_at_ms = str(error), now_ms + ASK_EVERY_MS
        is_other = self._has_answer and bool(self._wrong()) != bool(self._why_not)
        if self._question is None and (is_other or now_ms >= self._ask_at_ms):
            self._question = asyncio.create_task(self._ask(), name="ask for the broker's time")
        return self._why_not

    def _wrong(self) -> str | None:
        """What is wrong with the machine's clock; None where it is right, or nothing is known."""
        bound_ms, ahead_ms = self._context.settings.clock_bound_wall_ms, self._ahead_ms()
        if not self._is_checked or abs(ahead_ms) <= bound_ms:
            return None
        how = "ahead of" if ahead_ms > 0 else "behind"
        return (
            f"this machine's clock is {abs(ahead_ms) / 1_000:.1f} s {how} the broker's, at most "
            f"{bound_ms / 1_000:g} s are allowed (FALLOW_CLOCK_BOUND_WALL_MS): set the clock"
        )

    def _forget_wrong_time(self, bound_ms: int) -> None:
        """The clock may have been wrong where it was not compared: in a standby, or while the broker was away."""
        if isinstance(self._context.clock, WallCellClock):
            self._context.clock.forget_if_ahead(bound_ms)

    def _look_at_answer(self) -> None:
        """What became of the last question. Raises CannotWrite."""
        question = self._question
        if question is None or not question.done():
            return
        self._question = None
        try:
            question.result()
        except LogUnavailable as error:
            self._failed += 1
            self._ask_at_ms = self._context.host.monotonic_ms() + ASK_EVERY_MS
            self._context.logger.warning("asked for the broker's time in vain", times=self._failed, reason=str(error))
            self._context.health.noted(self._note, f"{error} ({self._failed} times in a row)")

    def left(self) -> None:
        """The cell is another process's to write: what hinders its writer is told there."""
        self._context.health.noted(self._note)

    async def stop(self) -> None:
        """Let a question that is under way go."""
        question, self._question = self._question, None
        if question is not None:
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)

    @property
    def _note(self) -> str:
        return f"broker's time of {self._topic}/{self._partition}"

    def _ahead_ms(self) -> int:
        host = self._context.host
        return self._clock.ahead_ms(host.wall_ms(), host.monotonic_ms())

    async def _ask(self) -> None:
        sent_ms = self._context.host.monotonic_ms()
        question = Outgoing(self._topic, b"", self._context.instance.encode(), partition=self._partition)
        answer = await self._log.append(question)
        match answer:
            case Appended():
                self._ask_at_ms = self._context.host.monotonic_ms() + ASK_EVERY_MS
                self._failed = 0
                self._context.health.noted(self._note, None)
                self.stamped(answer, sent_ms)
            case AppendUnknown():
                raise LogUnavailable(f"the broker's time is not known: {answer.reason}")
            case AppendRefused():
                raise CannotWrite(f"the broker's time is not known: {self._topic} cannot be written: {answer.reason}")
