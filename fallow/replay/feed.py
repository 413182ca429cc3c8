"""Sends the commands of a workload when their time has come, and waits until all that followed from them is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fallow.local.local_cell import LocalCell
from fallow.local.watch import Watch
from fallow.replay.workload import CELL, Timed, Workload
from fallow.shared.events.base import Command, Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.port import Log, Outgoing, TopicPartition
from fallow.shared.runtime.clocks import WallCellClock, monotonic_ms

SEND_EVERY_S = 0.005
"""Commands that fall due within this time go out together."""

SEND_MAX = 1_000
LOOK_AGAIN_S = 0.1
STALL_WALL_MS = 20_000
"""When nothing has happened for so long, and no service has anything due, nothing will."""


class Target(Protocol):
    """Where commands are sent: a started log, and the layout that gives a command its place in it."""

    @property
    def log(self) -> Log:
        """The log."""

    def outgoing(self, event: Event) -> Outgoing:
        """A command as a record."""


@dataclass(slots=True)
class Feed:
    """One paced feeding. `base_ms` is the cell time that counts as the beginning of the workload.

    `sent` is how many commands have gone out: after an error `run` may be called again and goes on from there.
    """

    target: Target
    workload: Workload
    clock: WallCellClock
    base_ms: int
    sent: int = field(default=0)

    async def run(self) -> None:
        """Send everything, each command when the clock has reached its time."""
        commands = self.workload.commands
        while self.sent < len(commands):
            due = self._due(commands)
            if due:
                await self.target.log.publish([self.target.outgoing(shifted(timed, self.base_ms)) for timed in due])
                self.sent += len(due)
            else:
                wait_ms = self.clock.wall_wait_ms(commands[self.sent].at_ms + self.base_ms)
                await asyncio.sleep(max(SEND_EVERY_S, min(wait_ms / 1000, 1.0)))

    def _due(self, commands: Sequence[Timed]) -> Sequence[Timed]:
        now_ms, end = self.clock.now_ms() - self.base_ms, self.sent
        while end < len(commands) and end - self.sent < SEND_MAX and commands[end].at_ms <= now_ms:
            end += 1
        return commands[self.sent : end]


def shifted(timed: Timed, base_ms: int) -> Command:
    """The command with its submit time in cell time."""
    command = timed.command
    if isinstance(command, SubmitJob) and command.submit_ms is not None:
        return replace(command, submit_ms=command.submit_ms + base_ms)
    return command


async def drain(stage: LocalCell, watch: Watch, workload: Workload) -> bool:
    """Wait until everything sent is answered and no job is left that comes to an end by itself.

    Returns False when jobs are left and nothing happens any more: they can never start, or they were lost on the way.
    """
    counts = await stage.log.partition_counts(stage.layout.submission_topics)
    submissions = [(topic, number) for topic, count in counts.items() for number in range(count)]
    answered = await _handled(stage, "admission", submissions)
    taken_in = answered and await _handled(stage, "placement", [stage.layout.tp("jobs", CELL)])
    is_over = taken_in and await _all_over(stage, watch, workload)
    # Redis is compared with the log next; a view that has fallen far behind shall have come up by then.
    await _handled(stage, "projector", [stage.layout.tp("decisions", CELL)])
    return is_over


async def _handled(stage: LocalCell, service: str, tps: list[TopicPartition]) -> bool:
    """Wait until a service has handled these partitions to where they end now; False when it gets no further."""
    ends = await stage.log.end_offsets(tps)
    stalled = Stall()
    while True:
        cursors = (await stage.services.cursors())[service]["cursors"]
        left = sum(max(0, end - cursors.get(f"{topic}/{number}", 0)) for (topic, number), end in ends.items())
        if not left:
            return True
        if stalled.lasts(left):
            return False
        await asyncio.sleep(LOOK_AGAIN_S)


async def _all_over(stage: LocalCell, watch: Watch, workload: Workload) -> bool:
    stalled = Stall()
    while watch.has_live_jobs(workload.endless):
        watch.check()
        state = watch.state
        if stalled.lasts((len(state.jobs), state.waiting, state.over_next)) and not await _anything_due(stage):
            return False
        await asyncio.sleep(LOOK_AGAIN_S)
    return True


async def _anything_due(stage: LocalCell) -> bool:
    answers = await stage.services.cursors()
    return any(answer["next_due_ms"] is not None or answer["busy"] for answer in answers.values())


@dataclass(slots=True)
class Stall:
    """Notices that something has stayed the same for too long."""

    seen: object = None
    since_ms: int = field(default_factory=monotonic_ms)

    def lasts(self, seen: object) -> bool:
        """Whether this has been so for STALL_WALL_MS."""
        if seen != self.seen:
            self.seen, self.since_ms = seen, monotonic_ms()
        return monotonic_ms() - self.since_ms > STALL_WALL_MS
