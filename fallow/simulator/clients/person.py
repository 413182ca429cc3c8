"""The operator of a world's cells: a fenced input is read on from where the operator decides, and a cell
begins that a stranger wrote to before it had decided anything.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fallow.shared.events.effects import InputResumed
from fallow.shared.log.reading import input_checksum
from fallow.simulator.history.record import TopicPartition
from fallow.simulator.storage.redis import NAMESPACE
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.process import Process
    from fallow.simulator.world import World

OLD_ENOUGH_MS = 6_000
"""A topic that is cut here has lost what was there at the look before: readers look every five seconds."""

INPUTS = ("jobs", "jobs", "nodes", "proposals", "operations")


class Person:
    """Reads what placement says of a fenced input, or of a cell that cannot begin, and starts it with an answer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.resumes: dict[tuple[str, int], tuple[int, int]] = {}
        """Of an input (`jobs-0`) that was read to an offset, the offset from which it is read on, and for the how
        manieth time in just this way.
        """
        self._done: Counter[tuple[str, int, int]] = Counter()
        self._begins: dict[str, None] = {}
        """Cells of which placement has said that they do not begin without this person."""
        self.to_mend: dict[str, None] = {}
        """Inputs that have lost what was read, until they are read on."""

    def begin_cells(self) -> str:
        """The cells that the environment of placement names because they have not begun yet."""
        return ",".join(cell for cell in self._begins if not self._has_begun(cell))

    def resume_inputs(self) -> str:
        """Which inputs the environment of placement says to read on, and from where."""
        return ",".join(f"{source}@{read}:{start}:{n}" for (source, read), (start, n) in self.resumes.items())

    def fenced(self, topic: str, partition: int, offset: int, **_fields: object) -> None:
        """Placement has said that this input was read to here and holds something else now."""
        engine, at = self._world.engine, (topic.rpartition(".")[2], partition)
        key = (f"{at[0]}-{partition}", offset)
        start, time = self.resumes.get(key, (0, 0))
        if time > self._done[*key, start]:
            return
        cut = [lost.offset for lost in self._world.broker.lost_inputs if (lost.topic, lost.partition) == at]
        start = engine.chance.choice((0, min((*cut, offset))))
        self.resumes[key] = start, self._done[*key, start] + 1
        self.to_mend[key[0]] = None
        engine.after(engine.between(300, 3_000), self._start_again)

    def cannot_write(self, cell: str, reason: str) -> None:
        """Placement has said why it does not write this cell."""
        if "FALLOW_BEGIN_CELLS" in reason and cell not in self._begins and not self._has_begun(cell):
            self._begins[cell] = None
            self._world.engine.after(self._world.engine.between(300, 3_000), self._start_again)

    def _has_begun(self, cell: str) -> bool:
        return self._world.oracles[self._world.ordinal(cell)].state.version > 0

    def resumed(self, effect: InputResumed) -> None:
        """The log says that an input is read on."""
        self._done[effect.input, effect.from_offset, effect.to_offset] += 1
        self.to_mend.pop(effect.input, None)

    def dies(self, process: Process) -> None:
        """A process of placement ends, and with it what it alone knew of a cut input. Where the topic was filled anew
        and the log has read on behind the cut, no other process can notice it any more.
        """
        if process.group == "placement":
            self.to_mend = {source: None for source in self.to_mend if not self._is_whole(source)}

    def _is_whole(self, source: str) -> bool:
        """Whether an input holds the record that the log of its cell has read last."""
        topic, _, partition = source.rpartition("-")
        state = self._world.oracles[int(partition)].state
        at, logged = state.inputs.get(source, 0) - 1, self._world.broker.log.get((topic, int(partition)), [])
        if not 0 <= at < len(logged) or source not in state.input_checksums:
            return False
        return input_checksum(logged[at].record(f"{NAMESPACE}.{topic}")) == state.input_checksums[source]

    def _start_again(self) -> None:
        for process in self._world.processes:
            if process.group == "placement" and process.is_up:
                self._world.crash(process)


def lose_input(world: World) -> None:
    """A topic of inputs loses its tail, of what was read as well as of what was not. What comes next fills it again."""
    engine, broker = world.engine, world.broker
    tp: TopicPartition = (engine.chance.choice(INPUTS), engine.chance.choice(world.oracles).tp[1])
    logged = broker.log.get(tp, [])
    old = [record.offset for record in logged if record.at_ms <= engine.now_ms - OLD_ENOUGH_MS]
    if not old or any((lost.topic, lost.partition) == tp for lost in broker.lost_inputs):
        return
    offset = engine.chance.choice(old[-4:])
    if world.faults.inject(Fault.INPUT_LOST, f"{tp[0]}/{tp[1]} from {offset} of {len(logged)} on"):
        broker.lose_input(tp, offset)
        source = f"{tp[0]}-{tp[1]}"
        if world.oracles[tp[1]].state.inputs.get(source, 0) > offset:
            world.person.to_mend[source] = None
