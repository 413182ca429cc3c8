"""The hard load on a running cell: at a rate of its own, or behind a backlog that stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from fallow.bench.load.arrivals import Ends
from fallow.bench.load.course import Course, course_of
from fallow.bench.load.job_mix import FULL, GPUS_PER_NODE, Ready, run_ms_for
from fallow.bench.load.load import (
    DRAIN_WAIT_S,
    LOOK_AGAIN_S,
    WARM_PART,
    Load,
    Window,
    nodes_joined,
    percentile,
    quiet,
    window_of,
)
from fallow.bench.load.sender import Sender
from fallow.bench.load.traffic import Flow, ends_of, flows
from fallow.bench.real.cell import ends_of_fillers, fillers
from fallow.bench.real.mix import JobClass, Maker, RealMix
from fallow.local.local_cell import LocalCell
from fallow.replay.workload import CELL
from fallow.shared.events.fields.values import GPU
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.stack.child import StackError

FULL_AGAIN_S = 1.0
"""So long after the last GPU was given up all are in use again."""

LATE_S = 10.0
"""A job of the measured time behind a backlog that has not started so long after it never starts."""

STAND_WAIT_S = 120.0
"""When nothing has been added to the backlog for so long, it never stands."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a cell of so many nodes is offered: `rate` jobs a second, for so long. With a `backlog` so many wait before
    it begins, and new ones come as others leave the queue: as many as `rate` if classes started as often as each
    other. Small jobs pass large ones, so that more do.
    """

    nodes: int
    rate: float
    seconds: float
    backlog: int = 0

    @property
    def gpus(self) -> int:
        """All there are."""
        return self.nodes * GPUS_PER_NODE

    def run_ms(self, mix: RealMix) -> int:
        """The mean run that makes it so."""
        return run_ms_for(self.rate, self.nodes, mix.gpus_mean, 1.0 if self.backlog else FULL)


@dataclass(frozen=True, slots=True)
class RealLoad:
    """What came of an offer. `classes` of the jobs, in the order in which they were sent."""

    offer: Offer
    load: Load
    course: Course
    classes: list[JobClass]
    traffic: dict[str, Flow]
    run_ms: int

    @property
    def gpus_in_use_pct(self) -> float:
        """Of all GPUs, in the mean while it was measured."""
        held = self.course.held_mean_milli(self.load.begin_s, self.load.end_s)
        return round(100 * held / (self.offer.gpus * GPU), 1)

    @property
    def offered_per_s(self) -> float:
        """Jobs that were due in a second, while it was measured."""
        load = self.load
        due = sum(load.begin_s <= due_s < load.end_s for due_s in load.due_s)
        return due / (load.end_s - load.begin_s)

    @property
    def waiting(self) -> int:
        """Jobs waiting, in the mean while it was measured."""
        return round(self.course.waiting_mean(self.load.begin_s, self.load.end_s))

    @property
    def waiting_least(self) -> int:
        """The fewest of them at any moment."""
        return self.course.waiting_least(self.load.begin_s, self.load.end_s)

    @property
    def not_queued(self) -> int:
        """Jobs that were due in the end and that the cell had not taken into its queue: they wait in topics."""
        return max(0, self.load.backlog(self.load.end_s) - self.course.waiting_at(self.load.end_s))

    def started(self) -> dict[str, int]:
        """Jobs started while it was measured, by label, of all that were sent."""
        found: dict[str, int] = {}
        for number, at_s in enumerate(self.load.told.started_s):
            for label in self.classes[number].labels:
                found[label] = found.get(label, 0) + (self.load.begin_s <= at_s < self.load.end_s)
        return dict(sorted(found.items()))

    def p99_ms(self) -> dict[str, float | None]:
        """From when a job is due to its start, by label, of those with a job that was due while it was measured."""
        numbers: dict[str, list[int]] = {}
        for number, due_s in enumerate(self.load.due_s):
            if self.load.begin_s <= due_s < self.load.end_s:
                for label in self.classes[number].labels:
                    numbers.setdefault(label, []).append(number)
        return {label: percentile(self.load.waits_ms(of_it), 99) for label, of_it in sorted(numbers.items())}


@dataclass(slots=True)
class _Run:
    """An offer under way."""

    stage: LocalCell
    offer: Offer
    maker: Maker
    sender: Sender
    ends: Ends

    def another(self, number: int) -> Ready:
        """A new job of the same class as this one."""
        return self.maker.one(self.maker.made[number])


async def put_real_load(stage: LocalCell, mix: RealMix, offer: Offer, *, is_told: bool) -> RealLoad:
    """Make the offer to a stage whose nodes are still to come. Where its waits are told, jobs that are due and have not
    started in the end are given time: until nothing comes any more, or behind a backlog for LATE_S, in which the offer
    goes on.

    Raises StackError, LogUnavailable, LogOverflowed.
    """
    await nodes_joined(stage, offer.nodes)
    before, topic = await ends_of(stage), stage.layout.topic("submissions")
    sender = Sender(stage.servers.kafka_access, topic)
    ends = Ends(stage.log, stage.layout.tp("decisions", CELL))
    maker = mix.maker(offer.run_ms(mix), await stage.log.partitions(topic), wall_ms())
    run = _Run(stage, offer, maker, sender, ends)
    await sender.start()
    try:
        await ends.start()
        await asyncio.sleep(LOOK_AGAIN_S)
        window = await (_behind_a_backlog(run, LATE_S * is_told) if offer.backlog else _at_a_rate(run))
        if is_told and not offer.backlog:
            await sender.cancel_what_is_left()
            await quiet(ends, DRAIN_WAIT_S)
    finally:
        await ends.stop()
        await sender.stop()
    course, told = await course_of(ends, stage.log, len(sender.due_s))
    load = Load.of(offer.rate, sender, told, window, stage.rss_mb())
    traffic = await flows(stage, before, max(1, told.started))
    return RealLoad(offer, load, course, maker.made, traffic, maker.run_ms)


async def _at_a_rate(run: _Run) -> Window:
    offer = run.offer
    ready = run.maker.some(int(offer.rate * offer.seconds))
    sending = asyncio.create_task(run.sender.send(ready, offer.rate), name="sender")
    return await window_of(run.stage, sending, offer.seconds * WARM_PART)


async def _behind_a_backlog(run: _Run, late_s: float) -> Window:
    """All GPUs are held until so many jobs wait. They become free over the time of one run, and from then on a job of
    the same class comes for each that leaves the queue: as many wait still, and as many come as end once all GPUs are
    in use. It is measured after one run more, and goes on for `late_s` behind that.
    """
    offer, maker, free_s = run.offer, run.maker, max(1.0, run.maker.run_ms / 1000)
    filler = Sender(run.stage.servers.kafka_access, run.stage.layout.topic("submissions"))
    await filler.start()
    try:
        await filler.send(list(fillers(offer.nodes, maker.partitions, wall_ms())), None)
        await _until(lambda: run.ends.started, offer.nodes)
        standing = maker.some(offer.backlog)
        await run.sender.send(standing, None)
        await _until(lambda: run.ends.enqueued, offer.nodes + len(standing))
        frees = list(ends_of_fillers(offer.nodes, maker.partitions, wall_ms()))
        lead_s = 2 * free_s + FULL_AGAIN_S
        freeing = asyncio.create_task(filler.send(frees, offer.nodes / free_s), name="fillers end")
        come = run.sender.send_for_each(run.another, run.ends.left, lead_s + offer.seconds)
        sending = asyncio.create_task(come, name="sender")
        window = await window_of(run.stage, sending, lead_s + offer.seconds * WARM_PART)
        await freeing
        await run.sender.send_for_each(run.another, run.ends.left, late_s)
        return window
    finally:
        await filler.stop()


async def _until(count: Callable[[], int], wanted: int) -> None:
    """Wait until the log has told of so many. Raises StackError when no more come."""
    seen, since_s = count(), monotonic()
    while seen < wanted:
        await asyncio.sleep(LOOK_AGAIN_S)
        if count() > seen:
            seen, since_s = count(), monotonic()
        if monotonic() - since_s > STAND_WAIT_S:
            raise StackError(f"the backlog does not come to stand: {seen} of {wanted} jobs are there")
