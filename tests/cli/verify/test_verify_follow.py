from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from fallow.cli.verify.verification import LiveCheck
from fallow.cli.verify.verify import Violation
from fallow.cli.verify.verify_follow import Following
from fallow.shared.events.effects import JobRunning
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from tests.cli.worlds.cells import publish
from tests.cli.worlds.logs import LogWriter, an_honest_log, enqueued, node

LAYOUT = Layout("t", {"main": 0})


class Watched:
    """A check that follows a log, and the log to write on."""

    def __init__(self) -> None:
        broker = MemoryBroker()
        broker.create_topic("t.decisions", 1)
        broker.create_topic("t.snapshots", 1)
        self.told: list[Violation] = []
        self.log = MemoryLog(broker)
        self.following = Following(LiveCheck(self.log, LAYOUT, "main"), lambda _, found: self.told.append(found))
        self._published = 0

    async def write(self, written: LogWriter) -> None:
        await publish(self.log, written.records[self._published :], "t")
        self._published = len(written.records)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():  # noqa: ASYNC110 - the check has no event to wait for
                await asyncio.sleep(0.01)

    async def until_read(self, written: LogWriter) -> None:
        await self.until(lambda: self.following.result().records == len(written.records))


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    await made.following.begin()
    task = asyncio.create_task(made.following.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_honest_log_is_followed_without_a_word(watched: Watched) -> None:
    written = an_honest_log()
    await watched.write(written)
    await watched.until_read(written)
    written.write(enqueued("later"))
    await watched.write(written)
    await watched.until_read(written)
    assert (watched.told, watched.following.result().ok, watched.following.result().to_version) == ([], True, 10)


async def test_an_offence_is_told_and_the_check_goes_on_behind_it(watched: Watched) -> None:
    written = LogWriter()
    written.write(node(0))
    written.write(enqueued("a"))
    stale = written.write_stale()
    written.records[-1] = replace(stale, value=(stale.value or b"") + b" ")
    written.write(enqueued("b"))
    written.write(enqueued("c"))
    await watched.write(written)
    await watched.until_read(written)
    assert [(found.invariant, found.version, found.offset) for found in watched.told] == [("chain", 2, 2)]
    assert (watched.following.result().ok, watched.following.result().to_version) == (False, 4)


async def test_behind_a_record_that_cannot_be_folded_nothing_is_judged(watched: Watched) -> None:
    written = LogWriter()
    written.write(node(0))
    written.write_unchecked(JobRunning(job="absent", attempt=1))
    written.write_unchecked(enqueued("a"))
    await watched.write(written)
    await watched.until(lambda: watched.following.is_stuck)
    assert [found.version for found in watched.told] == [2]
    assert watched.told[0].text.endswith("nothing behind it can be checked")
