"""Where topic `nodes` ends, asked beside the writer's cycles: silence counts only as far as the topic is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fallow.shared.log.port import Log, LogUnavailable, TopicPartition

LOOK_MS_MAX = 1_000
LOOKS_PER_LEASE = 8


class NodesEnd:
    """One question at a time, and at most one in each interval. While the log is away there is no answer.

    Asked is what was written, not what can be read: a transaction that a stranger holds open hides the reports behind
    it. Leases then wait, and the lag alert tells, until the broker ends the transaction.
    """

    def __init__(self, log: Log, tp: TopicPartition, on_answer: Callable[[], None] = lambda: None) -> None:
        """`on_answer` is called when there is an answer to be fetched."""
        self._log, self._tp, self._on_answer = log, tp, on_answer
        self._asked_ms: int | None = None
        self._question: asyncio.Task[int | None] | None = None

    def ask(self, now_ms: int, node_lease_wall_ms: int) -> tuple[int, int] | None:
        """The newest answer that was not told yet: the end, and when it was asked for (monotonic). Asks anew when it is
        time to.
        """
        answer, question = None, self._question
        if question is not None and question.done() and self._asked_ms is not None:
            end, self._question = question.result(), None
            answer = None if end is None else (end, self._asked_ms)
        if self._question is None and self.due_in_ms(now_ms, node_lease_wall_ms) <= 0:
            self._asked_ms = now_ms
            self._question = asyncio.create_task(self._end())
            self._question.add_done_callback(lambda _: self._on_answer())
        return answer

    def due_in_ms(self, now_ms: int, node_lease_wall_ms: int) -> int:
        """How long until it is time to ask; not before the last question is answered."""
        every_ms = min(LOOK_MS_MAX, max(1, node_lease_wall_ms // LOOKS_PER_LEASE))
        if self._question is not None and not self._question.done():
            return every_ms
        return 0 if self._asked_ms is None else self._asked_ms + every_ms - now_ms

    async def stop(self) -> None:
        """Ask no more."""
        question, self._question = self._question, None
        if question is not None:
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)

    async def _end(self) -> int | None:
        try:
            return (await self._log.written_ends([self._tp]))[self._tp]
        except LogUnavailable:
            return None  # the watch of the log tells of it
