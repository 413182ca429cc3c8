"""`fallow feed`: a generated day of jobs, in fast motion, for a cell that runs already."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.errors.failures import refuse, say
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.replay.feed import Feed
from fallow.replay.generate import DAY_MS, generate
from fallow.replay.time_scaling import squeezed
from fallow.replay.workload import Workload
from fallow.shared.client.own_topics import as_kafka_shows
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.submissions import CancelJob, SubmitJob
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import LogRefused, LogUnavailable, Outgoing
from fallow.shared.runtime.clocks import WallCellClock, wall_ms
from fallow.shared.runtime.tasks.backoff import BackOff
from fallow.shared.runtime.tasks.cancels import end_tasks

app = typer.Typer()

NAME = r"([a-z0-9][a-z0-9._-]{0,62})?"
CLIENT_ID = "fallow-feed"
MINUTE_MS = 60_000


@app.command()
def feed(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    count: Annotated[int, typer.Option(min=1, help="Jobs of a day.")] = 600,
    nodes: Annotated[
        int, typer.Option(min=1, help="For so many nodes of 8 GPUs, a quarter of them for inference.")
    ] = 32,
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="How long a day takes.")] = 10,
    days: Annotated[int, typer.Option(min=0, help="How many days, one after the other; 0: until stopped.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed makes the same day.")] = 1,
    name: Annotated[str, typer.Option(help="First part of all job ids; made from the time if none.")] = "",
    as_json: AsJson = False,
) -> None:
    """Submit generated days of jobs, each job when its time has come. The cell's clock must be the wall's.

    When stopped it first cancels the inference jobs that it started, since these end in no other way.
    """
    if re.fullmatch(NAME, name) is None:
        refuse(
            "--name", name, "must be up to 63 of a-z, 0-9, dot, dash and underscore, and begin with a letter or digit"
        )
    access, prefix = access_of(context), name or f"day-{wall_ms() // 1000}"
    found = itertools.count() if days == 0 else iter(range(days))
    factor = DAY_MS / (minutes * MINUTE_MS)
    made = (
        squeezed(generate(count=count, nodes=nodes, seed=seed + day), factor=factor, prefix=f"{prefix}-{day}")
        for day in found
    )
    sent = run(_feed(access, made))
    if as_json:
        print_json({"name": prefix, "sent": sent})
    else:
        print_line(f"{counted(sent, 'command')} sent, of days called {prefix}")


@dataclass(frozen=True, slots=True)
class RunningCell:
    """The cell that is fed: a handle of its log, and where its commands belong."""

    log: KafkaLog
    layout: Layout

    def outgoing(self, event: Event) -> Outgoing:
        """A command as a record."""
        name = f"{type(event).__name__}/{event.key()}"
        if isinstance(event, SubmitJob):
            event = replace(event, submit_ms=None)  # it waits since it comes, also where an outage has held it up
        return self.layout.outgoing(event, id=name, source=CLIENT_ID, wall_ms=wall_ms())


async def _feed(access: Access, days: Iterator[Workload]) -> int:
    """Feed day by day until there are no more, or until asked to stop. How many commands were sent."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    log = KafkaLog(access.kafka_access, CLIENT_ID)
    await log.start()
    sent = 0
    try:
        tenants = [tenant.name for tenant in access.cells().tenants]
        cell = RunningCell(log, await as_kafka_shows(log, access.layout(), tenants, tenants))
        for day in days:
            clock = WallCellClock()
            today = Feed(cell, day, clock, base_ms=clock.now_ms())
            await _until(stop, _through_outages(today))
            if stop.is_set():
                await cell.log.publish([cell.outgoing(cancel) for cancel in _left_running(today)])
            sent += today.sent
            if stop.is_set():
                break
    finally:
        await log.stop()
    return sent


async def _until(stop: asyncio.Event, work: asyncio.Task[None]) -> None:
    asked = asyncio.create_task(stop.wait())
    await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
    await end_tasks(work, asked)
    if not work.cancelled():
        work.result()


def _through_outages(today: Feed) -> asyncio.Task[None]:
    """A batch that may have got through before an outage is sent again: the same job twice does no harm."""

    async def work() -> None:
        pause = BackOff()
        while True:
            try:
                await today.run()
            except LogRefused:
                raise
            except LogUnavailable as error:
                say(f"fallow: {error}; trying again")
                await asyncio.sleep(pause.next_s())
            else:
                return

    return asyncio.create_task(work())


def _left_running(today: Feed) -> list[CancelJob]:
    """Cancels for the jobs of the day that run until they are cancelled, as far as they were submitted and were not."""
    sent = [timed.command for timed in today.workload.commands[: today.sent]]
    cancelled = {command.key() for command in sent if isinstance(command, CancelJob)}
    left = today.workload.endless - cancelled
    return [
        CancelJob(job=command.job.id, tenant=command.job.tenant, reason="the feed was stopped")
        for command in sent
        if isinstance(command, SubmitJob) and command.key() in left
    ]
