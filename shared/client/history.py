"""What the log tells a client: news as they come, decisions by version, and the story of one job."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator

from fallow.shared.client.port import Mark, News, is_of_a_stranger, job_of
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import JobEnqueued
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.jobs import JobRejected
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Reader, Record, TopicPartition
from fallow.shared.log.reading import event_of, unproven_from

READ_ONCE = 1_000
POLL_WAIT_MS = 200
IDLE_POLLS_MAX = 50

STALE_SPARE = 64
"""So many more records than asked for are read from the end of the log, since some of them may be stale."""

_VERSION = re.compile(rb'"version":(\d+)')


class History:
    """Reads one log. A record that is stale or foreign is passed over as the fold does it, by its version alone; so is
    one that no key of its cell proves.

    The first record of the version that follows the newest is the accepted one: one that came earlier would have been
    ahead of the log, and where its chain did not fit every reader stops. Who doubts the log runs `verify`.
    """

    def __init__(self, log: Log, layout: Layout) -> None:
        self._log, self._layout = log, layout
        self._passed_over = dict[str, int]()
        """The last offset of each cell at which a record was passed over that no key proves."""

    async def mark(self) -> Mark:
        """Where the topics that tell news end now."""
        tps = [self._layout.tp(topic, cell) for cell in self._layout.ordinals for topic in ("jobs", "decisions")]
        ends = await self._log.end_offsets(tps)
        return Mark({_name(tp): end for tp, end in ends.items()})

    async def news(self, since: Mark, wait_ms: int) -> AsyncGenerator[list[News], None]:
        """As the client's port says."""
        versions: dict[str, int] = {}
        reader = self._log.reader({_tp(name): offset for name, offset in since.offsets.items()})
        await reader.start()
        try:
            while True:
                records = await reader.poll(READ_ONCE, wait_ms)
                yield [news for record in records for news in self._told(record, versions)]
        finally:
            await reader.stop()

    def _told(self, record: Record, versions: dict[str, int]) -> Iterator[News]:
        event = event_of(record)
        if isinstance(event, JobRejected):
            yield News(event.cell, event)
        elif not isinstance(event, Decision) or self._is_forged(record, event.cell, event.version):
            return
        elif event.version > versions.get(event.cell, 0):
            versions[event.cell] = event.version
            yield from (News(event.cell, effect, event.version, event.at_ms) for effect in event.effects)

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        """As the client's port says."""
        last, begins = self._passed_over, since.offsets
        return tuple(cell for cell in last if last[cell] >= begins.get(_name(self._layout.tp("decisions", cell)), 0))

    async def decisions(self, cell: str, first: int, last: int | None) -> AsyncGenerator[Decision, None]:
        """As the client's port says."""
        expected = max(1, first)
        async for record in self._records(cell, await self._earliest(cell, expected)):
            decision = self._decision(record, cell)
            if decision is None or decision.version < expected:
                continue
            if decision.version > expected or (last is not None and expected > last):
                return
            yield decision
            expected += 1

    async def _earliest(self, cell: str, version: int) -> int:
        """Where the decision of this version may be at the earliest: each record makes one version at most. The log of
        a cell that was moved here begins with another version than the first.
        """
        async for record in self._records(cell, 0):
            decision = self._decision(record, cell)
            before = decision.version - 1 - record.offset if decision is not None else 0
            if before > 0:
                return version - 1 - before if record.offset == 0 else record.offset
            break
        return version - 1

    async def newest(self, cell: str, count: int, *, follow: bool) -> AsyncGenerator[Decision, None]:
        """As the client's port says."""
        tp = self._layout.tp("decisions", cell)
        begin, end = await self._bounds(tp)
        last, newest, position = 0, deque[Decision](maxlen=count), max(begin, end - count - STALE_SPARE)
        async for record in self._records(cell, position):
            position, decision = record.offset + 1, self._decision(record, cell)
            if decision is not None and decision.version > last:
                last = decision.version
                newest.append(decision)
        for decision in newest:
            yield decision
        if follow:
            async for decision in self._follow(tp, cell, position, last):
                yield decision

    async def _follow(self, tp: TopicPartition, cell: str, position: int, last: int) -> AsyncGenerator[Decision, None]:
        reader = self._log.reader({tp: position})
        await reader.start()
        try:
            while True:
                for record in await reader.poll(READ_ONCE, POLL_WAIT_MS):
                    decision = self._decision(record, cell)
                    if decision is not None and decision.version > last:
                        last = decision.version
                        yield decision
        finally:
            await reader.stop()

    async def story(self, cell: str, job: str) -> AsyncGenerator[News, None]:
        """As the client's port says. Only records that contain the id are decoded: a job is in few of many."""
        async for decision in self._holding(cell, f'"{job}"'.encode()):
            for effect in decision.effects:
                if job_of(effect) == job and not is_of_a_stranger(effect):
                    yield News(cell, effect, decision.version, decision.at_ms)

    async def names(self, cell: str, own: str) -> tuple[str, ...]:
        """As the client's port says. A job is in the log from the moment that it waits."""
        found: dict[str, None] = {}
        async for decision in self._holding(cell, f'/{own}"'.encode()):
            for effect in decision.effects:
                if isinstance(effect, JobEnqueued):
                    found |= dict.fromkeys((effect.spec.id, effect.spec.array_of or effect.spec.id))
        return _of_id(own, found) or _of_id(own, await self._rejected(cell, f'/{own}"'.encode()))

    async def _rejected(self, cell: str, needle: bytes) -> dict[str, None]:
        """The jobs about which admission said no to their own tenants, in records that hold these bytes."""
        found: dict[str, None] = {}
        async for record in self._records(cell, 0, "jobs"):
            event = event_of(record) if needle in (record.value or b"") else None
            if isinstance(event, JobRejected) and not is_of_a_stranger(event):
                found[event.job] = None
        return found

    async def _holding(self, cell: str, needle: bytes) -> AsyncGenerator[Decision, None]:
        """The accepted decisions that hold these bytes; no other is decoded."""
        last = 0
        async for record in self._records(cell, 0):
            found = _VERSION.search(record.value or b"", 0, 500)
            version = int(found[1]) if found else 0
            if version <= last or self._is_forged(record, cell, version):
                continue
            last = version
            decision = self._decision(record, cell) if needle in (record.value or b"") else None
            if decision is not None:
                yield decision

    def _decision(self, record: Record, cell: str) -> Decision | None:
        """The decision of this cell that a record holds; None where it holds none, or a forged one."""
        event = event_of(record)
        if not isinstance(event, Decision) or event.cell != cell:
            return None
        return None if self._is_forged(record, cell, event.version) else event

    def _is_forged(self, record: Record, cell: str, version: int) -> bool:
        """Whether no key of the cell proves the record, as a decision of this version; told of then."""
        unproven = unproven_from(record, self._layout.signers.of(cell))
        if unproven is None or version < unproven:
            return False
        self._layout.signers.skipped(cell, [record.offset])
        self._passed_over[cell] = max(record.offset, self._passed_over.get(cell, -1))
        return True

    async def _bounds(self, tp: TopicPartition) -> tuple[int, int]:
        return (await self._log.begin_offsets([tp]))[tp], (await self._log.end_offsets([tp]))[tp]

    async def _records(self, cell: str, first: int, topic: str = "decisions") -> AsyncGenerator[Record, None]:
        """The cell's decision log, or topic, from `first`, or from where it begins, to where it ends now."""
        tp = self._layout.tp(topic, cell)
        begin, end = await self._bounds(tp)
        position = max(first, begin)
        if position >= end:
            return
        reader = self._log.reader({tp: position})
        await reader.start()
        try:
            async for record in _until(reader, tp, end):
                yield record
        finally:
            await reader.stop()


async def _until(reader: Reader, tp: TopicPartition, end: int) -> AsyncGenerator[Record, None]:
    idle = 0
    while reader.positions()[tp] < end:
        records = await reader.poll(READ_ONCE, POLL_WAIT_MS)
        idle = 0 if records else idle + 1
        if idle > IDLE_POLLS_MAX:
            raise LogUnavailable(f"{tp[0]}: nothing comes from offset {reader.positions()[tp]} on, its end is {end}")
        for record in records:
            if record.offset >= end:
                return
            yield record


def _of_id(own: str, jobs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(job for job in jobs if own_id(job) == own))


def _name(tp: TopicPartition) -> str:
    topic, partition = tp
    return f"{topic}/{partition}"


def _tp(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)
