"""Feeds a trace step by step: the clock stands still until every service has done all that there is to do at its time.

A step is one submission or one due time, in the order (time, kind, id): at equal times a due time (the end of runs,
of a back-off, of a limit) comes before a submission, and submissions come in the order of the workload, which for a
trace is that of their ids. All that is due at one time is one step. So waits are the scheduler's, and not those of
the pipe.

A step ends when the cursors of admission, placement and executor equal the ends of their topics twice in a
row and none of them is busy. Queueing, projector and metrics only follow the log and decide nothing: no step waits for
them, but all must have reached the end before the run is over.

What makes it fast: one task, one kept connection to each service, one request for the ends of all partitions; the ends
are asked for only once the cursors have passed what the step itself wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fallow.local.cursor_line import CursorLine
from fallow.local.local_cell import LocalCell
from fallow.replay.workload import CELL, Timed, Workload
from fallow.shared.events.base import Event
from fallow.shared.events.operations import AdvanceTime
from fallow.shared.log.machine.partitioner import partition_of
from fallow.shared.log.port import Outgoing, TopicPartition
from fallow.shared.runtime.clocks import monotonic_ms

READS = {
    "admission": ("submissions",),
    "queueing": ("decisions",),
    "loaning": ("decisions",),
    "placement": ("jobs", "nodes", "proposals", "operations", "decisions"),
    "executor": ("decisions", "operations"),
    "projector": ("decisions",),
    "metrics": ("decisions",),
}
"""What each service has to have read before it is at rest; a cursor that it does not show yet stands at 0. What it
shows beyond these counts too.
"""

ACTORS = ("admission", "placement", "executor")
"""The services that act; the others only follow."""

SETTLE_WALL_MS = 60_000
"""No step takes so long: then something is stuck, and the run ends with what it waits for."""

REPEATS_MAX = 1_000
"""So many steps at one time that only do what is due; more means a due time on which no service acts."""

HUB = "placement"
HUB_LOOKS_MAX = 20
PAUSE_S = 0.0015

Progress = Callable[["Lockstep"], None]


class Stuck(Exception):
    """A step does not come to its end; says which service has not got where."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one service says of itself."""

    service: str
    cursors: dict[TopicPartition, int]
    next_due_ms: int | None
    is_busy: bool
    body: dict[str, Any]


@dataclass(slots=True)
class Lockstep:
    """One stepped feeding."""

    stage: LocalCell
    workload: Workload
    progress: Progress = lambda _: None
    now_ms: int = 0
    steps: int = 0
    sent: int = 0
    polls: int = 0
    _lines: dict[str, CursorLine] = field(default_factory=dict)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _keys: dict[str, TopicPartition] = field(default_factory=dict)
    _reads: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _partitions: dict[str, int] = field(default_factory=dict)
    _due_ms: int | None = None

    async def run(self) -> None:
        """Step through the whole workload, then through all due times that are left. Raises Stuck, Unanswered,
        LogUnavailable.
        """
        await self._begin()
        await self._settle(ACTORS)
        for timed in self.workload.commands:
            await self._due_until(timed.at_ms)
            await self._step(timed.at_ms, timed)
            self.sent += 1
        await self._due_until(None)
        await self._settle(self.stage.services.names)
        for line in self._lines.values():
            line.close()

    async def _begin(self) -> None:
        layout = self.stage.layout
        self._partitions = await self.stage.log.partition_counts(layout.submission_topics)
        parted = {
            "submissions": [(name, number) for name, count in self._partitions.items() for number in range(count)]
        }
        for name in self.stage.services.names:
            port = self.stage.services.port(name)
            assert port is not None, "a service that is ready has told its port"
            self._lines[name] = CursorLine(name, port)
            reads = (parted.get(topic) or [layout.tp(topic, CELL)] for topic in READS[name])
            self._reads[name] = {tp: 0 for tps in reads for tp in tps}

    async def _due_until(self, at_ms: int | None) -> None:
        """One step for each due time up to and including this one; None: for all there are."""
        repeats = 0
        while (due_ms := self._due_ms) is not None and (at_ms is None or due_ms <= at_ms):
            # What was due may bring something that is due at once: a run that takes no time, for instance.
            repeats = repeats + 1 if due_ms <= self.now_ms else 0
            if repeats > REPEATS_MAX:
                raise Stuck(f"at {self.now_ms} ms something stays due at {due_ms} ms")
            await self._step(due_ms, None)

    async def _step(self, at_ms: int, timed: Timed | None) -> None:
        events: list[Event] = []
        if at_ms > self.now_ms or timed is None or not self.steps:
            self.now_ms = max(at_ms, self.now_ms)
            events.append(AdvanceTime(cell=CELL, now_ms=self.now_ms, by="replay"))
        if timed is not None:
            events.append(timed.command)
        await self._publish([self.stage.outgoing(event) for event in events])
        await self._settle(ACTORS)
        self.steps += 1
        self.progress(self)

    async def _publish(self, messages: Sequence[Outgoing]) -> None:
        """Write them at once. No other process writes to these topics, so their ends are known without a question."""
        await self.stage.log.publish(messages)
        for message in messages:
            number = message.partition
            if number is None:
                number = partition_of(message.key or b"", self._partitions[message.topic])
            tp = (message.topic, number)
            self._ends[tp] = self._ends.get(tp, 0) + 1

    async def _settle(self, names: Sequence[str]) -> None:
        """Wait until these services rest."""
        await self._hub_is_quiet()
        deadline_ms = monotonic_ms() + SETTLE_WALL_MS
        before: object = None
        while True:
            answers = await asyncio.gather(*(self._ask(name) for name in names))
            self.polls += 1
            # The ends as last seen are a lower bound: a service that has not reached them does not rest, and is not
            # asked.
            left = self._left(answers) or await self._left_now(answers)
            picture = None if left else [answer.cursors for answer in answers]
            if picture is not None and picture == before:
                break
            before = picture
            if monotonic_ms() > deadline_ms:
                raise Stuck(f"at {self.now_ms} ms, after {SETTLE_WALL_MS // 1000} s: {left}")
            await asyncio.sleep(0 if picture else PAUSE_S)
        due = [answer.next_due_ms for answer in answers if answer.next_due_ms is not None]
        self._due_ms = min(due) if due else None

    async def _hub_is_quiet(self) -> None:
        """Wait, for a moment at most, until placement has read what the step wrote and says the same twice.

        Everything passes through placement, so it is not worth while to ask the others before. This proves nothing.
        """
        before: Answer | None = None
        for _ in range(HUB_LOOKS_MAX):
            await asyncio.sleep(PAUSE_S)
            answer = await self._ask(HUB)
            if answer is before and not any(offset < self._ends.get(tp, 0) for tp, offset in answer.cursors.items()):
                return
            before = answer

    async def _left_now(self, answers: Sequence[Answer]) -> str:
        self._ends = await self.stage.log.end_offsets({tp: None for answer in answers for tp in answer.cursors})
        return self._left(answers)

    def _left(self, answers: Sequence[Answer]) -> str:
        """The services that are not at rest, and why; "" when all are."""
        for answer in answers:
            if answer.is_busy:
                return f"{answer.service} is busy"
            for tp, offset in answer.cursors.items():
                if offset < self._ends.get(tp, 0):
                    return f"{answer.service} is at {offset} of {tp[0]}/{tp[1]}, which ends at {self._ends[tp]}"
        return ""

    async def _ask(self, name: str) -> Answer:
        body = await self._lines[name].ask()
        known = self._answers.get(name)
        if known is not None and known.body is body:
            return known
        cursors = self._reads[name].copy()
        for key, offset in body["cursors"].items():
            cursors[self._tp(key)] = offset
        answer = self._answers[name] = Answer(name, cursors, body["next_due_ms"], body["busy"], body)
        return answer

    def _tp(self, key: str) -> TopicPartition:
        known = self._keys.get(key)
        if known is None:
            topic, _, number = key.rpartition("/")
            known = self._keys[key] = (topic, int(number))
        return known
