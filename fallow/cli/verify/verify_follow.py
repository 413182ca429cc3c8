"""`fallow verify --follow`: the check goes on as the log grows, and tells each offence when it is found."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from fallow.cli.verify.verification import LiveCheck
from fallow.cli.verify.verify import LogCheck, Verification, Violation
from fallow.shared.cluster.checks.run_journal import Orders
from fallow.shared.log.port import Reader
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.runtime.tasks.cancels import end_tasks
from fallow.shared.view.compare import ViewMoved

RECOUNT_EVERY_MS = 10_000
VIEW_EVERY_MS = 30_000
REMEMBERED_ENDS = 10_000
"""Ended jobs that the ledger can still name in an offence."""

Report = Callable[[str, Violation], None]
"""Is told the cell and each offence."""


class Following:
    """One cell's log, checked for as long as it grows. `found` counts the offences, the first one of `begun` too."""

    def __init__(self, live: LiveCheck, report: Report) -> None:
        self._live, self._report = live, report
        self._check: LogCheck
        self._told: dict[str, str] = {}
        self._due_ms = {"recount": 0, "view": 0}
        self._recounted = -1
        self.is_stuck = False
        self.found = 0

    async def begin(self) -> None:
        """Find where the log is checked from. Raises LogUnavailable, NoUsableSnapshot."""
        self._check = await self._live.begin()

    async def run(self) -> None:
        """Until cancelled. Raises LogTruncated, LogUnavailable, and what readers of the view raise."""
        reader = await self._live.reader(self._check)
        try:
            while True:
                for record in await self._live.more(reader):
                    if not self.is_stuck:
                        self._check.take(record)
                        self._settle()
                self._forget()
                if not self.is_stuck:
                    await self._look_at_the_whole(reader)
                await asyncio.sleep(0)
        finally:
            await reader.stop()

    def result(self) -> Verification:
        """All figures as of now."""
        return replace(self._check.result(), ok=not self.found)

    async def _look_at_the_whole(self, reader: Reader) -> None:
        """Now and then: a recount of the state if it has changed, and the view beside it."""
        if self._is_due("recount", RECOUNT_EVERY_MS) and self._recounted != self._check.state.version:
            self._recounted = self._check.state.version
            self._check.finish()
            self._settle()
        if self._live.has_view and self._is_due("view", VIEW_EVERY_MS):
            try:
                await self._live.compare_view(self._check, reader)
            except ViewMoved:
                return  # a busy cell: the next time will do
            self._settle()

    def _is_due(self, what: str, every_ms: int) -> bool:
        now_ms = monotonic_ms()
        if now_ms < self._due_ms[what]:
            return False
        self._due_ms[what] = now_ms + every_ms
        return True

    def _settle(self) -> None:
        """Tell the offence if there is one, and go on. The same words about the same invariant are told once: a state
        that stays wrong is found to be wrong again and again.
        """
        violation = self._check.violation
        if violation is None:
            return
        self.is_stuck = not self._check.pass_over()
        if self._told.get(violation.invariant) == violation.text:
            return
        self._told[violation.invariant] = violation.text
        self.found += 1
        more = "; nothing behind it can be checked" if self.is_stuck else ""
        self._report(self._live.cell, replace(violation, text=violation.text + more))

    def _forget(self) -> None:
        """A verification that follows for weeks keeps only a few of the jobs that are over."""
        if self._check.orders.started:
            self._check.orders = Orders()
        ended = self._check.ledger.ended
        while len(ended) > REMEMBERED_ENDS:
            del ended[next(iter(ended))]


async def until_signal(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of the work until SIGINT or SIGTERM comes, or one part fails; its error is raised."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    ends = asyncio.create_task(stopped.wait(), name="signal")
    tasks = [asyncio.create_task(part, name="check") for part in work]
    try:
        await asyncio.wait([ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(ends, *tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
