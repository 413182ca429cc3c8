"""Where topic `nodes` ends, asked beside the writer's cycles: silence counts only as far as the topic is read."""

from __future__ import annotations

import asyncio

from shared.log.port import Log, LogUnavailable, TopicPartition

LOOK_MS_MOST = 1_000
LOOKS_PER_LEASE = 8


class NodesEnd:
    """One question at a time, and at most one in each interval. While the log is away there is no answer."""

    def __init__(self, log: Log, tp: TopicPartition) -> None:
        self._log, self._tp = log, tp
        self._asked_ms: int | None = None
        self._question: asyncio.Task[int | None] | None = None

    def ask(self, now_ms: int, lease_wall_ms: int) -> tuple[int, int] | None:
        """The newest answer that was not told yet: the end, and when it was asked for (monotonic). Asks anew when it is
        time to.
        """
        answer, question = None, self._question
        if question is not None and question.done() and self._asked_ms is not None:
            end, self._question = question.result(), None
            answer = None if end is None else (end, self._asked_ms)
        every_ms = min(LOOK_MS_MOST, max(1, lease_wall_ms // LOOKS_PER_LEASE))
        if self._question is None and (self._asked_ms is None or now_ms - self._asked_ms >= every_ms):
            self._asked_ms = now_ms
            self._question = asyncio.create_task(self._end())
        return answer

    async def stop(self) -> None:
        """Ask no more."""
        question, self._question = self._question, None
        if question is not None:
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)

    async def _end(self) -> int | None:
        try:
            return (await self._log.end_offsets([self._tp]))[self._tp]
        except LogUnavailable:
            return None  # the watch of the log tells of it
