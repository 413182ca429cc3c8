"""What the nodes of one cell say, on its way to the log: in order, in batches, and again until it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fallow.services.executor.policy.records import Said, as_records
from fallow.services.executor.telemetry import ExecutorTelemetry
from fallow.shared.events.base import CellEvent
from fallow.shared.events.nodes import NodeEvent, NodeReport, NodesReported, RunsReported
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Outgoing, RecordTooLarge
from fallow.shared.runtime.process import Context
from fallow.shared.runtime.settings import ServiceSettings

EVENTS_PER_PUBLISH = 5_000
RETRY_FIRST_S, RETRY_MAX_S = 0.05, 1.0
EVENTS_PER_MS, REST_MS_MAX = 1, 25
"""Behind so many events the outbox gathers for a millisecond: many small records cost the broker, which flushes each,
and all their readers dearly. The writer of the cell lets such words gather for as long before it reads them.
"""


@dataclass(slots=True)
class Batch:
    """What was said at one monotonic time."""

    made_ms: int
    events: Sequence[Said]


class Speaker(Protocol):
    """Whose words these are: one cell's nodes, or one node."""

    cell: str

    def still_ours(self, events: Iterable[Said]) -> list[Said]:
        """Those of these events that may still be said."""

    def renumber(self, events: Iterable[Said]) -> list[Said]:
        """These events with new numbers, as far as they may still be said."""

    def confirmed(self, events: Iterable[Said], made_ms: int) -> None:
        """These are in the log."""

    def stamped(self, events: Iterable[Said], stamped_ms: int) -> bool:
        """The broker stamped these with this wall time. False: some have numbers that readers may not take."""


class Outbox:
    """One cell's outbox. Its `run` is the only publisher, so the order of what each node says is kept."""

    def __init__(
        self,
        context: Context[ServiceSettings],
        log: Log,
        layout: Layout,
        service: Speaker,
        telemetry: ExecutorTelemetry,
        before_publish: Callable[[], Awaitable[None]] | None = None,
        after_publish: Callable[[], None] | None = None,
    ) -> None:
        """`before_publish` makes sure of what is to be said, or finds that some of it is another process's by now;
        `after_publish` is called when words have been confirmed.
        """
        self._context, self._log, self._layout = context, log, layout
        self._service, self._telemetry = service, telemetry
        self.records_of: Callable[[str, Sequence[Said]], list[CellEvent]] = as_records
        """How words are put into records."""
        self._about = f"words of {service.cell}"
        self._waiting: list[Batch] = []
        self._before_publish, self._after_publish = before_publish, after_publish
        self._host = context.host
        self._published = context.telemetry.records_published.labels("nodes")
        self._reports = telemetry.reports.labels(service.cell)
        self._filled, self._empty = asyncio.Event(), asyncio.Event()
        self._empty.set()

    @property
    def is_empty(self) -> bool:
        """Whether everything that was put in is acknowledged."""
        return self._empty.is_set()

    def put(self, events: Sequence[Said], made_ms: int) -> None:
        """Say these, behind everything before."""
        if events:
            self._waiting.append(Batch(made_ms, events))
            self._empty.clear()
            self._filled.set()

    async def drained(self) -> None:
        """Wait until everything that was put in is acknowledged, or belongs to another process now."""
        await self._empty.wait()

    async def run(self) -> None:
        """Publish until the process stops; what is in by then still goes out if the log takes it."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            batches, self._waiting = self._waiting, []
            begun_ms, count = self._host.monotonic_ms(), sum(len(batch.events) for batch in batches)
            await self._send(batches)
            if not self._waiting:
                self._empty.set()
            rest_ms = min(count // EVENTS_PER_MS, REST_MS_MAX) - (self._host.monotonic_ms() - begun_ms)
            if rest_ms > 0:
                await asyncio.sleep(rest_ms / 1000)

    async def _send(self, batches: list[Batch]) -> None:
        pause, most = self._context.back_off(RETRY_FIRST_S, RETRY_MAX_S), EVENTS_PER_PUBLISH
        while batches:
            now, rest = _split(batches, most)
            if self._before_publish is not None:
                await self._before_publish()
            said = [self._service.still_ours(batch.events) for batch in now]
            words, fewer = [each for events in said for each in events], 0
            try:
                are_taken = await self._publish(words)
            except LogUnavailable as error:
                are_taken, fewer = False, len(words) // 2 if isinstance(error, RecordTooLarge) else 0
                if not fewer:
                    self._cannot_publish(error, words)
            if not are_taken:
                # Some may have arrived, and a number that was heard once is ignored: say all with new numbers. What
                # has come in meanwhile stands behind them, and so must its numbers. Words whose numbers a wrong clock
                # gave have renewed no lease. What is too large together is said in smaller records at once.
                batches, self._waiting = without_outdated([*batches, *self._waiting]), []
                batches = [Batch(b.made_ms, self._service.renumber(b.events)) for b in batches]
                most = fewer or most
                await asyncio.sleep(0 if fewer else pause.next_s())
                continue
            for batch, events in zip(now, said, strict=True):
                self._service.confirmed(events, batch.made_ms)
            if self._after_publish is not None:
                self._after_publish()
            batches, most = rest, min(2 * most, EVENTS_PER_PUBLISH)
        self._context.health.ready(self._about)

    def _cannot_publish(self, error: LogUnavailable, words: Sequence[Said]) -> None:
        """While its nodes cannot report, the process is not ready."""
        cell, reason = self._service.cell, str(error)
        if isinstance(error, RecordTooLarge):
            self._telemetry.too_large.labels(cell).inc()
            reason = f"topic {self._layout.topic('nodes')} refuses a word of node {words[0].node} for its size: {error}"
            reason += "; `fallow topics check` tells which max.message.bytes it needs"
        self._context.logger.warning("cannot publish, will try again", cell=cell, reason=reason)
        self._context.health.not_ready(f"node reports are not being published: {reason}", self._about, cell=cell)

    async def _publish(self, said: Sequence[Said]) -> bool:
        """Whether readers take the numbers of all that was said. Raises LogUnavailable, RecordTooLarge."""
        records = self.records_of(self._service.cell, said)
        if not records:
            return True
        now_ms, begun_ms = self._host.wall_ms(), self._host.monotonic_ms()
        messages = [self._outgoing(record, now_ms) for record in records]
        stamped_ms = await self._log.publish(messages)
        are_taken = stamped_ms is None or self._service.stamped(said, stamped_ms)
        self._telemetry.publish.observe((self._host.monotonic_ms() - begun_ms) / 1000)
        self._published.inc(len(records))
        self._reports.inc(sum(type(each) is NodeReport for each in said))
        return are_taken

    def _outgoing(self, record: CellEvent, now_ms: int) -> Outgoing:
        if isinstance(record, RunsReported):
            first = record.words[0]
            about = f"{first.node}/{first.boot}/{first.seq}+{len(record.words) - 1}"
        elif isinstance(record, NodesReported):
            one = record.reports[0]
            about = f"{one.node}/{one.boot}/{one.seq}+{len(record.reports) - 1}"
        else:
            assert isinstance(record, NodeEvent), "everything else is said by one node"
            about = f"{record.node}/{record.boot}/{record.seq}"
        return self._layout.outgoing(record, id=about, source=self._context.instance, wall_ms=now_ms)


def _split(batches: list[Batch], most: int) -> tuple[list[Batch], list[Batch]]:
    """What goes out together, and the rest. One batch at least; a part of it where the topic took less of late."""
    first, count = batches[0], 0
    if len(first.events) > most < EVENTS_PER_PUBLISH:
        part, left = (Batch(first.made_ms, events) for events in (first.events[:most], first.events[most:]))
        return [part], [left, *batches[1:]]
    for number, batch in enumerate(batches):
        count += len(batch.events)
        if number and count > most:
            return batches[:number], batches[number:]
    return batches, []


def without_outdated(batches: list[Batch]) -> list[Batch]:
    """These batches without the reports of nodes that have reported again in a later batch: what a node reports at one
    time says all there is to say, and while the log is away it would pile up.
    """
    newest: dict[tuple[str, str], Batch] = {}
    for batch in batches:
        newest.update({(event.node, event.boot): batch for event in batch.events if type(event) is NodeReport})
    return [
        Batch(batch.made_ms, [e for e in batch.events if type(e) is not NodeReport or newest[e.node, e.boot] is batch])
        for batch in batches
    ]
