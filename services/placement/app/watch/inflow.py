"""The inputs of a writer as they come in: each topic has a reader of its own, so that none waits for another.

New jobs are read ahead only so far: what a flood of them leaves unread costs no memory and delays nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from fallow.shared.log.port import LogTruncated, Reader, Record

POLL_WAIT_MS = 5_000
"""How long a reader waits for news before it begins to wait anew."""


class Inflow:
    """Readers that all wait at once. A record that one of them has read is handed out exactly once."""

    def __init__(
        self, readers: Mapping[str, Reader], poll_records: int, on_truncated: Callable[[LogTruncated], bool]
    ) -> None:
        """`on_truncated` is told when a topic does not hold a reader's position, and says whether that reader goes on
        where its topic begins; else it reads no more.
        """
        self._readers, self._poll_records, self._on_truncated = dict(readers), poll_records, on_truncated
        self._polls: dict[str, asyncio.Task[list[Record]]] = {}
        self.given = {name: next(iter(reader.positions().values())) for name, reader in self._readers.items()}
        """How far each topic was handed out, what is no record included."""
        self._closed: list[Reader] = []
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Connect to all, or to none. Raises LogUnavailable within a bound."""
        try:
            starts = (reader.start() for reader in self._readers.values())
            outcomes = await asyncio.gather(*starts, return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Let go of all connections. What was read and not handed out is read again by the next writer."""
        for poll in self._polls.values():
            poll.cancel()
        await asyncio.gather(*self._polls.values(), return_exceptions=True)
        self._polls = {}
        for reader in (*self._readers.values(), *self._closed):
            await reader.stop()

    def close(self, name: str) -> None:
        """Read this topic no more."""
        poll = self._polls.pop(name, None)
        if poll is not None:
            poll.cancel()
        reader = self._readers.pop(name, None)
        if reader is not None:
            self._closed.append(reader)

    def wake(self) -> None:
        """Something else has come that the waiting writer must look at."""
        self._news.set()

    async def wait(self, wait_ms: int, *, without: frozenset[str] = frozenset()) -> bool:
        """Return when there is something to take or `wake` was called, after `wait_ms` at the latest. Topics in
        `without` are let be. Whether anything has come.
        """
        self._news.clear()
        for name, reader in self._readers.items():
            if name not in self._polls and name not in without:
                self._polls[name] = poll = asyncio.create_task(reader.poll(self._poll_records, POLL_WAIT_MS))
                poll.add_done_callback(self._came)
        if any(poll.done() for name, poll in self._polls.items() if name not in without):
            await asyncio.sleep(0)
            return True
        with contextlib.suppress(TimeoutError):  # the time is over: that is what was waited for
            async with asyncio.timeout(wait_ms / 1_000):  # not wait_for, which may swallow a cancel
                await self._news.wait()
        return self._news.is_set()

    def _came(self, _poll: asyncio.Task[list[Record]]) -> None:
        self._news.set()

    async def take(self) -> list[Record]:
        """All that has come, without waiting. Raises LogUnavailable."""
        found: list[Record] = []
        for name in [name for name, poll in self._polls.items() if poll.done()]:
            records = await self._outcome(name, self._polls.pop(name))
            room = self._poll_records - len(records)
            if records and room and name in self._readers:
                records += await self._outcome(name, self._readers[name].poll(room, 0))
            found += records
            if name in self._readers:
                self.given[name] = next(iter(self._readers[name].positions().values()))
        return found

    async def _outcome(self, name: str, poll: Awaitable[list[Record]]) -> list[Record]:
        try:
            return await poll
        except LogTruncated as error:
            if self._on_truncated(error):
                self._readers[name].seek(error.tp, error.begin)
            else:
                self.close(name)
            return []
