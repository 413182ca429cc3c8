"""The client that speaks to Kafka and Redis itself: for the command line and for programs beside the cell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from fallow.shared.client.history import History
from fallow.shared.client.own_topics import as_kafka_shows, sees_own_topics_alone
from fallow.shared.client.port import ClientUnavailable, Mark, News, NotYet, ViewUnanswering
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.base import Command, Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import Operation
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.shared.log.layout import Layout, tenant_of
from fallow.shared.log.port import Log, LogRefused, LogTruncated, LogUnavailable, NoTopics
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.view.reader import Read, ViewBehind, ViewReader, ViewRebuilding
from fallow.shared.view.rows import JobRow, NodeRow, QueueHeadRows, SummaryRow, TenantRow
from fallow.shared.view.store import Functions, ViewMisused, ViewUnavailable

T = TypeVar("T")

IN_ORDER_MAX = 64
"""So many jobs of one call queue in their order. They go to many partitions, and queue by the broker's stamps: each is
sent when the one before is acknowledged. More of them are sent at once, as that takes a few milliseconds for each.
"""

NOTHING_TOLD = Mark({})
"""Of a wish of a user who sees no topic that tells news."""

NOT_TOLD = "it is sent; what becomes of it stands in topics jobs and decisions, which this user of Kafka may not see"

APART_S = 0.002
"""A broker stamps in whole milliseconds."""


class DirectClient:
    """A client over one log handle, which it starts and stops, and the view's functions. `source` names the program.
    `on_fenced` is told the cell and the version whenever what was read is of a cell that is fenced. `known_tenants` are
    those of the cell file: what is wished for another one that has a topic of its own is not sent (`own_topics`).
    """

    def __init__(
        self,
        log: Log,
        functions: Functions,
        layout: Layout,
        *,
        source: str,
        on_fenced: Callable[[str, int], None] | None = None,
        known_tenants: Collection[str] | None = None,
    ) -> None:
        self._log, self._layout, self._source = log, layout, source
        self._known_tenants = known_tenants
        self._history = History(log, layout)
        self._view = ViewReader(functions, layout.namespace, layout.ordinals)
        self._is_connected = False
        self._on_fenced = on_fenced

    @property
    def cells(self) -> tuple[str, ...]:
        """As the port says."""
        return tuple(sorted(self._layout.ordinals, key=self._layout.ordinals.__getitem__))

    async def stop(self) -> None:
        """As the port says."""
        if self._is_connected:
            self._is_connected = False
            await self._log.stop()

    async def _connect(self) -> None:
        """Who only reads the view needs no log."""
        if not self._is_connected:
            await self._log.start()
            self._is_connected = True

    async def submit(self, jobs: Sequence[JobSpec], *, submit_ms: int | None = None) -> Mark:
        """As the port says."""
        commands = [SubmitJob(job=job, submit_ms=submit_ms) for job in jobs]
        return await self._wish(commands, in_turn=len(commands) <= IN_ORDER_MAX)

    async def cancel(self, job: str, tenant: str, *, cell: str | None = None, reason: str = "") -> Mark:
        """As the port says."""
        return await self._wish([CancelJob(job=job, tenant=tenant, cell=cell, reason=reason)])

    async def update(self, job: str, tenant: str, changes: JobChanges, *, cell: str | None = None) -> Mark:
        """As the port says."""
        return await self._wish([UpdateJob(job=job, tenant=tenant, cell=cell, changes=changes)])

    async def operate(self, operation: Operation) -> Mark:
        """As the port says."""
        return await self._wish([operation])

    async def _wish(self, commands: Sequence[Command], *, in_turn: bool = False) -> Mark:
        """Publish these together; `in_turn`: each when the one before is acknowledged, and a later stamp is due."""
        now_ms = wall_ms()
        tenants = list(dict.fromkeys(tenant for command in commands if (tenant := tenant_of(command)) is not None))
        with told():
            await self._connect()
            layout = await self._layout_for(tenants) if tenants else self._layout
            messages = [
                layout.outgoing(command, id=_id(command, now_ms), source=self._source, wall_ms=now_ms)
                for command in commands
            ]
            sees_no_answers = bool(tenants) and await sees_own_topics_alone(self._log, layout, tenants)
            mark = NOTHING_TOLD if sees_no_answers else await self._history.mark()
            for number, message in enumerate(messages if in_turn else ()):
                await asyncio.sleep(APART_S if number else 0)
                await self._log.publish([message])
            if not in_turn:
                await self._log.publish(messages)
        return mark

    async def _layout_for(self, tenants: Collection[str]) -> Layout:
        return await as_kafka_shows(self._log, self._layout, tenants, self._known_tenants)

    async def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        """As the port says."""
        if since == NOTHING_TOLD:
            raise ClientUnavailable(NOT_TOLD)
        with told():
            await self._connect()
            async for some in self._history.news(since, wait_ms):
                yield some

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        """As the port says."""
        return self._history.passed_over(since)

    async def decisions(self, cell: str, first: int, last: int | None = None) -> AsyncGenerator[Decision, None]:
        """As the port says."""
        with told():
            await self._connect()
            async for decision in self._history.decisions(cell, first, last):
                yield decision

    async def newest(self, cell: str, count: int, *, follow: bool = False) -> AsyncGenerator[Decision, None]:
        """As the port says."""
        with told():
            await self._connect()
            async for decision in self._history.newest(cell, count, follow=follow):
                yield decision

    async def story(self, cell: str, job: str) -> AsyncGenerator[News, None]:
        """As the port says."""
        with told():
            await self._connect()
            async for news in self._history.story(cell, job):
                yield news

    async def names(self, cell: str, own: str, *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        """As the port says."""
        with told():
            return self._seen(cell, await self._view.names(cell, own, at_least=at_least))

    async def arrays(self, cell: str, jobs: Sequence[str], *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        """As the port says."""
        with told():
            return self._seen(cell, await self._view.arrays(cell, jobs, at_least=at_least))

    async def names_told(self, cell: str, own: str) -> tuple[str, ...]:
        """As the port says."""
        with told():
            await self._connect()
            return await self._history.names(cell, own)

    async def job(self, cell: str, job: str, *, at_least: int | None = None) -> Read[JobRow | None]:
        """As the port says."""
        with told():
            return self._seen(cell, await self._view.job(cell, job, at_least=at_least))

    async def jobs(
        self,
        cell: str,
        *,
        tenant: str | None = None,
        statuses: Collection[JobStatus] = (),
        limit: int = 100,
        after: str = "",
        at_least: int | None = None,
    ) -> Read[tuple[JobRow, ...]]:
        """As the port says."""
        with told():
            read = await self._view.jobs(
                cell, tenant=tenant, statuses=statuses, limit=limit, after=after, at_least=at_least
            )
            return self._seen(cell, read)

    async def nodes(self, cell: str, *, at_least: int | None = None) -> Read[tuple[NodeRow, ...]]:
        """As the port says."""
        with told():
            return self._seen(cell, await self._view.nodes(cell, at_least=at_least))

    async def tenants(self, cell: str, *, at_least: int | None = None) -> Read[tuple[TenantRow, ...]]:
        """As the port says."""
        with told():
            return self._seen(cell, await self._view.tenants(cell, at_least=at_least))

    async def queue(
        self, cell: str, queue: str, *, limit: int = 100, at_least: int | None = None
    ) -> Read[QueueHeadRows]:
        """As the port says."""
        with told():
            return self._seen(cell, await self._view.queue(cell, queue, limit=limit, at_least=at_least))

    async def summary(self, cell: str, *, at_least: int | None = None) -> Read[SummaryRow]:
        """As the port says."""
        with told():
            return self._seen(cell, await self._view.summary(cell, at_least=at_least))

    def _seen(self, cell: str, read: Read[T]) -> Read[T]:
        if read.is_fenced and self._on_fenced is not None:
            self._on_fenced(cell, read.version)
        return read


@contextmanager
def told() -> Iterator[None]:
    """What the log says in its own words becomes what a client says."""
    try:
        yield
    except LogRefused:
        raise  # waiting would not help
    except NoTopics as error:
        raise ClientUnavailable(str(error)) from error
    except (LogUnavailable, LogTruncated) as error:
        raise ClientUnavailable(f"Kafka: {error}") from error
    except (ViewRebuilding, ViewBehind) as error:
        raise NotYet(str(error), error.cell) from error
    except (ViewUnavailable, ViewMisused) as error:
        raise ViewUnanswering(f"Redis: {error}") from error


def _id(command: Event, now_ms: int) -> str:
    """A submission is known by its job; any other wish may be repeated on purpose, so its time belongs to it."""
    name = type(command).__name__
    return f"{name}/{command.key()}" if isinstance(command, SubmitJob) else f"{name}/{command.key()}/{now_ms}"
