"""A topic that refuses records for good: a right was withdrawn, or a setting of the topic was changed. After a while a
person mends it. Meanwhile a process that is refused tries seldom, is not ready, and leaves a cell that it cannot write.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fallow.shared.log.port import Refusal
from fallow.simulator.history.record import TopicPartition
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.process import Process
    from fallow.simulator.world import World

DENIED_EVERY, DENIED_FIRST = 13, 7
"""In one of so many worlds topics refuse records, from that seed on. It goes by the seed, so that all others stay as
they were.
"""

WRITERS = {
    "decisions": "placement",
    "jobs": "admission",
    "nodes": "agent",
    "queue": "queueing",
    "dead-letters": "placement",
}
"""Topics that refuse records, and the service whose right to write them may be withdrawn from one process alone."""

TOPICS = ("decisions", "decisions", *WRITERS)
CODES = (Refusal.NOT_ALLOWED, Refusal.TIMESTAMP, Refusal.INVALID, Refusal.TOO_LARGE)
FOR_MS, AGAIN_MS = (1_500, 8_000), (500, 3_000)
LAPSES_MS = 3_000
"""A topic begins to refuse with the first record that is to be written into it: dead letters, say, are few. If none
comes for so long, another topic is drawn.
"""

MOMENT_MS, TRIES_OF_A_MOMENT, TRIES_OF_WORDS = 100, 4, 6
"""So often one process may be refused by one topic within a moment: twice for each of two cells, or three times where
it is words of nodes. What is refused for its size is made smaller at once, and does not count here.
"""

SECOND_MS, TRIES_OF_A_SECOND, TRIES_OF_SIZES = 1_000, 12, 40
"""And so often within a second; where each try may be smaller than the one before, by halves, of each of two cells."""

AWAY_MS, TRIES_OF_A_WRITER = 15_000, 5
"""A writer tries so often in a row; then it leaves its cell to others, for so long at least."""

TOLD_AFTER_MS, STILL_TRIES_MS = 300, 100
"""So long after a refusal its process is not ready, unless something was written since, or what it writes is another's
by then: a word of a node may be so soon, which is judged only if it was tried again so long after the refusal.
"""

Life = tuple[str, int]
"""A process, by its name, and which of its lives it is."""


@dataclass(frozen=True, slots=True)
class Denial:
    """What refuses records: the topic, whose (empty: everybody's), why, and for how long."""

    topic: str
    who: str
    code: Refusal
    for_ms: int

    def hits(self, who: str, topic: str) -> bool:
        """Whether it refuses what this process writes into this topic."""
        return topic == self.topic and self.who in ("", who)


@dataclass(frozen=True, slots=True)
class Refused:
    """What was so when a process was refused: what had been written of its work, and what it was to write."""

    process: Process
    life: Life
    at_ms: int
    tp: TopicPartition
    written: int
    owned: frozenset[int]


class Denied:
    """Of one world. One topic at a time refuses the records of all processes, or of one.

    `refusals` counts the records that each topic has refused, and `judged` the refusals behind which its process was to
    say that it is not ready.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.refusals, self.judged = Counter[str](), Counter[str]()
        self._planned: Denial | None = None
        self._denial: Denial | None = None
        self._until_ms = 0
        self._tries: dict[tuple[Life, str], deque[int]] = {}
        self._in_a_row: dict[tuple[Life, TopicPartition], deque[int]] = {}
        self._taken: Counter[tuple[str, TopicPartition]] = Counter()

    def begin(self) -> None:
        """From now on."""
        engine = self._world.engine
        engine.after(engine.between(*AGAIN_MS), self._happen)

    def _happen(self) -> None:
        world, engine = self._world, self._world.engine
        topic, code, for_ms = engine.chance.choice(TOPICS), engine.chance.choice(CODES), engine.between(*FOR_MS)
        group = WRITERS[topic]
        who = engine.chance.choice(["", *(each.name for each in world.processes if each.group == group)])
        if not world.faults.is_active:
            return
        self._planned = Denial(topic, who, code, for_ms)
        engine.after(LAPSES_MS, partial(self._lapse, self._planned))

    def _lapse(self, denial: Denial) -> None:
        if self._planned is denial:
            self._happen()

    def _begin_planned(self, denial: Denial) -> None:
        """A record is about to be written that is to be refused."""
        engine, self._planned = self._world.engine, None
        what = f"{denial.topic} of {denial.who or 'everybody'} for {denial.for_ms} ms ({denial.code})"
        if self._world.faults.inject(Fault.DENIED, what):
            self.deny(denial)
        engine.after(denial.for_ms + engine.between(*AGAIN_MS), self._happen)

    def deny(self, denial: Denial) -> None:
        """Let the topic refuse records from now on."""
        self._denial, self._until_ms = denial, self._world.engine.now_ms + denial.for_ms

    def refusal(self, who: str, topic: str) -> Refusal | None:
        """Why the topic takes no record of this process now; None where it does. When all faults are over a person has
        mended it.
        """
        world, planned = self._world, self._planned
        if not world.faults.is_active:
            return None
        if planned is not None and planned.hits(who, topic):
            self._begin_planned(planned)
        denial = self._denial
        is_denied = denial is not None and denial.hits(who, topic) and world.engine.now_ms < self._until_ms
        return denial.code if is_denied and denial is not None else None

    # What is seen of those that are refused.

    def took(self, who: str, tp: TopicPartition) -> None:
        """The partition has taken a record of this process."""
        self._taken[who, tp] += 1
        self._in_a_row.pop((self._process(who).life, tp), None)

    def refused(self, who: str, tp: TopicPartition) -> None:
        """The process has been refused: it must not try again at once, and must say that it cannot do its work."""
        engine, process = self._world.engine, self._process(who)
        self.refusals[tp[0]] += 1
        self._count(process, tp)
        seen = Refused(process, process.life, engine.now_ms, tp, self._written(process, tp), process.owned)
        engine.after(TOLD_AFTER_MS, partial(self._look, seen))

    def _process(self, who: str) -> Process:
        return next(each for each in self._world.processes if each.name == who)

    def _count(self, process: Process, tp: TopicPartition) -> None:
        assert self._denial is not None
        now_ms, is_size = self._world.engine.now_ms, self._denial.code is Refusal.TOO_LARGE
        tries = self._tries.setdefault((process.life, tp[0]), deque(maxlen=TRIES_OF_SIZES + 1))
        tries.append(now_ms)
        of_a_moment = sum(at_ms > now_ms - MOMENT_MS for at_ms in tries)
        of_a_second = sum(at_ms > now_ms - SECOND_MS for at_ms in tries)
        most = TRIES_OF_WORDS if tp[0] == "nodes" else TRIES_OF_A_MOMENT
        is_often = of_a_moment > most or of_a_second > TRIES_OF_A_SECOND
        if of_a_second > TRIES_OF_SIZES if is_size else is_often:
            self._breaks(f"{process.name} tries again at once, {of_a_second} times in a second, what {tp[0]} refuses")
        if tp[0] == "decisions" and not is_size:
            in_a_row = self._in_a_row.setdefault((process.life, tp), deque())
            in_a_row.append(now_ms)
            while in_a_row[0] <= now_ms - AWAY_MS:
                in_a_row.popleft()
            if len(in_a_row) > TRIES_OF_A_WRITER:
                self._breaks(f"{process.name} keeps the cell though {tp[0]}/{tp[1]} refuses what it writes")

    def _look(self, seen: Refused) -> None:
        process, (topic, partition) = seen.process, seen.tp
        still_tries = topic != "nodes" or self._tries[seen.life, topic][-1] >= seen.at_ms + STILL_TRIES_MS
        is_over = self._written(process, seen.tp) != seen.written or not seen.owned <= process.owned or not still_tries
        if process.life != seen.life or process.paused_until_ms >= seen.at_ms or is_over:
            return
        self.judged[topic] += 1
        if process.is_ready:
            self._breaks(f"{process.name} is ready though {topic}/{partition} refused its record")

    def _written(self, process: Process, tp: TopicPartition) -> int:
        """How many records the partition has taken of this process; and how many decisions any writer of a cell has
        brought in, since another one may have taken over what this one has given up.
        """
        if process.group != "placement":
            return self._taken[process.name, tp]
        cells = [tp[1]] if tp[0] == "decisions" else range(len(self._world.oracles))
        log = self._world.broker.log
        return self._taken[process.name, tp] + sum(len(log.get(("decisions", cell), ())) for cell in cells)

    def _breaks(self, text: str) -> None:
        self._world.violated("refused", text)
