"""Faults that last: clocks that jump, parties that do not reach each other, news that come late for long, nodes that
flap or fall silent by the dozen, and groups that are shared anew every few hundred milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fallow.simulator.network import BROKER, REDIS, Party
from fallow.simulator.process import Process
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.world import World

WITHIN_MS = (-25_000, -8_000, -1_500, 1_500, 8_000, 25_000)
"""Jumps of a clock that its process bears."""

BEYOND_MS = (-40 * 86_400_000, -45_000, 45_000, 2 * 3_600_000)
"""Jumps with which nothing is written: the bound is 30 s, and skew and an earlier jump come on top."""

LAGGING = (("nodes", "placement"), ("nodes", "placement"), ("jobs", "placement"), ("decisions", "executor"),
           ("decisions", "queueing"))  # fmt: skip
"""Topics whose news come late, and the services for which they do."""

FLAPS_MAX = 4
SHARED_ANEW = ("placement", "placement", "executor", "queueing", "projector", "admission")


class Lasting:
    """Each takes a while, and is over by itself."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._flapping: dict[str, None] = {}

    @property
    def doings(self) -> dict[Fault, Callable[[], None]]:
        """What to do for each kind, whenever it is due."""
        return {
            Fault.CLOCK: self._jump,
            Fault.PARTITION: self._part,
            Fault.LAG: self._lag,
            Fault.FLAP: self._flap,
            Fault.SILENCE: self._silence,
            Fault.RESHARED: self._share_anew,
        }

    # Clocks.

    def _jump(self) -> None:
        world, engine = self._world, self._world.engine
        process = engine.chance.choice(world.processes)
        by_ms = engine.chance.choice(WITHIN_MS if engine.between(0, 2) else BEYOND_MS)
        for_ms = engine.between(300, 5_000)
        if world.faults.inject(Fault.CLOCK, f"{process.name} by {by_ms} ms for {for_ms} ms"):
            process.skew_ms += by_ms
            engine.after(for_ms, partial(self._set_right, process, by_ms))

    def _set_right(self, process: Process, by_ms: int) -> None:
        process.skew_ms -= by_ms

    # Who reaches what.

    def _part(self) -> None:
        world, engine = self._world, self._world.engine
        process = engine.chance.choice(world.processes)
        tps = [(topic, partition) for topic, count in world.broker.topics.items() for partition in range(count)]
        parties: tuple[Party, ...] = (BROKER, REDIS, engine.chance.choice(tps))
        what = engine.chance.choice(parties)
        if what == REDIS and process.group != "projector":
            what = BROKER  # no other process uses Redis
        for_ms = engine.between(300, 7_000)
        if world.faults.inject(Fault.PARTITION, f"{process.name} does not reach {_named(what)} for {for_ms} ms"):
            world.broker.network.cut(process.name, what, for_ms)
            if what == BROKER:
                world.groups.left(process)
                engine.after(for_ms + 1, partial(world.groups.share, process.group))

    def _lag(self) -> None:
        world, engine = self._world, self._world.engine
        topic, group = engine.chance.choice(LAGGING)
        partition = engine.chance.randrange(0, world.broker.topics[topic])
        by_ms, for_ms = engine.between(2_000, 30_000), engine.between(3_000, 15_000)
        if world.faults.inject(Fault.LAG, f"{topic}/{partition} to {group} by {by_ms} ms for {for_ms} ms"):
            world.broker.network.lag((topic, partition), by_ms, for_ms, group)

    # Nodes.

    def _flap(self) -> None:
        """A node is silent for longer than its lease and back, again and again."""
        world, engine = self._world, self._world.engine
        nodes = [node for node in world.machines if node not in self._flapping]
        if not nodes:
            return
        node = engine.chance.choice(nodes)
        if world.faults.inject(Fault.FLAP, f"agent-{node}"):
            self._flapping[node] = None
            self._falls_silent(f"agent-{node}", 1)

    def _falls_silent(self, agent: str, number: int) -> None:
        engine, for_ms = self._world.engine, self._world.engine.between(6_500, 8_000)
        self._world.broker.cut_off(agent, for_ms)
        if number < FLAPS_MAX:
            back_ms = for_ms + engine.between(1_700, 2_500)
            engine.after(back_ms, partial(self._falls_silent, agent, number + 1))

    def _silence(self) -> None:
        """No process that speaks for nodes gets a word through: all at once, or one after the other."""
        world, engine = self._world, self._world.engine
        who = [process.name for process in world.processes if process.group in ("executor", "agent")]
        spread_ms, for_ms = engine.chance.choice((0, 0, 4_000)), engine.between(6_000, 12_000)
        if world.faults.inject(Fault.SILENCE, f"all nodes within {spread_ms} ms for {for_ms} ms"):
            for name in who:
                engine.after(engine.between(0, spread_ms), partial(world.broker.cut_off, name, for_ms))

    # Groups.

    def _share_anew(self) -> None:
        world, engine = self._world, self._world.engine
        group, every_ms = engine.chance.choice(SHARED_ANEW), engine.between(150, 700)
        until_ms = engine.now_ms + engine.between(1_500, 6_000)
        if world.faults.inject(Fault.RESHARED, f"{group} every {every_ms} ms until {until_ms} ms"):
            self._share(group, every_ms, until_ms)

    def _share(self, group: str, every_ms: int, until_ms: int) -> None:
        self._world.groups.share(group, anew=True)
        if self._world.engine.now_ms + every_ms < until_ms:
            self._world.engine.after(every_ms, partial(self._share, group, every_ms, until_ms))


def _named(what: Party) -> str:
    return what if isinstance(what, str) else f"{what[0]}/{what[1]}"
