"""Whether the writer's clock and the broker's agree: a writer whose clock is wrong would expire, refuse or freeze jobs.

The broker's time comes from the stamps that it gives: of each decision that is appended, and of a small record in topic
`cells` where there was none for long, or where the clock looks wrong. Nothing is decided before the first of them.
"""

from __future__ import annotations

from services.placement.app.setbacks import CannotWrite
from services.placement.settings import PlacementSettings
from shared.log.machine.broker_clock import BrokerClock
from shared.log.port import Appended, AppendRefused, AppendUnknown, Log, LogUnavailable, Outgoing
from shared.runtime.clocks import WallCellClock
from shared.runtime.process import Context
from shared.runtime.settings import ClockKind

ASK_EVERY_MS = 10_000
"""A monotonic clock that stood still while the machine slept is found out by then."""


class ClockWatch:
    """One cell's, in the process that writes it. `topic` and `partition` are those of the cell in topic `cells`."""

    def __init__(self, context: Context[PlacementSettings], log: Log, topic: str, partition: int) -> None:
        self._context, self._log, self._topic, self._partition = context, log, topic, partition
        self._clock = BrokerClock()
        self._ask_at_ms = 0
        self._is_checked = context.settings.clock is ClockKind.WALL

    def stamped(self, answer: Appended, sent_ms: int) -> None:
        """A decision was sent at this monotonic time, and the answer has come."""
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
        if host.monotonic_ms() < self._ask_at_ms and abs(self._ahead_ms()) <= bound_ms:
            return
        await self._ask()
        ahead_ms = self._ahead_ms()
        if abs(ahead_ms) > bound_ms:
            if isinstance(self._context.clock, WallCellClock):
                self._context.clock.forget()
            how = "ahead of" if ahead_ms > 0 else "behind"
            raise CannotWrite(
                f"this machine's clock is {abs(ahead_ms) / 1_000:.1f} s {how} the broker's, at most "
                f"{bound_ms / 1_000:g} s are allowed (FALLOW_CLOCK_BOUND_WALL_MS): set the clock"
            )

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
                self.stamped(answer, sent_ms)
            case AppendUnknown():
                raise LogUnavailable(f"the broker's time is not known: {answer.reason}")
            case AppendRefused():
                raise CannotWrite(f"the broker's time is not known: {self._topic} cannot be written: {answer.reason}")
