"""A process of the simulated world: it may crash, start again, be paused, and has a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NoReturn, Protocol

from fallow.simulator.engine import Action
from fallow.simulator.history.record import EPOCH_MS
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.world import World


ORIGIN_MS = 50_000
"""What a monotonic clock shows when the world begins."""

HANDLES_MAX = 12
"""So many handles of an event loop run at most between a wake-up and the fault that it draws."""


class Died(BaseException):
    """The process has died in the middle of what it does: raised where it stands, so that nothing more follows."""


class Release(Enum):
    """Which release of the services a process runs."""

    EARLIER = auto()
    THIS = auto()
    LATER = auto()


class Part(Protocol):
    """What runs in a process: begun when the process starts, let go of when it dies."""

    def begin(self) -> None:
        """The process has started."""

    def end(self) -> None:
        """The process is dead: no step of this part runs any more."""

    def told(self, owned: frozenset[int]) -> None:
        """These partitions of the group should be ours now."""

    @property
    def is_ready(self) -> bool:
        """Whether it says that it does its work."""


class Process:
    """One process. What it plans is dropped when it dies, and waits while it is paused."""

    def __init__(self, world: World, name: str, group: str, parts: Callable[[Process], list[Part]]) -> None:
        self.world, self.name, self.group = world, name, group
        self._make, self.parts = parts, list[Part]()
        self.incarnation = 0
        self.is_up = self.is_fenced = self.is_member = False
        self.paused_until_ms = 0
        self.skew_ms = 0
        self.release = Release.THIS
        self.owned: frozenset[int] = frozenset()
        self.declines: frozenset[int] = frozenset()

    # Its clocks.

    @property
    def cell_ms(self) -> int:
        """Cell time, by this process's own clock."""
        return EPOCH_MS + self.world.engine.now_ms + self.skew_ms

    @property
    def monotonic_ms(self) -> int:
        """Time since any origin: never set, never skewed."""
        return self.world.engine.now_ms + ORIGIN_MS

    @property
    def life(self) -> tuple[str, int]:
        """Its name and which of its lives this is: for a coordinator one that starts again is another member."""
        return self.name, self.incarnation

    # Its life.

    def start(self) -> None:
        """Begin, with nothing in memory."""
        self.incarnation += 1
        self.is_up, self.paused_until_ms, self.owned, self.declines = True, 0, frozenset(), frozenset()
        self.parts = self._make(self)
        for part in self.parts:
            self.after(1, part.begin)

    def stop(self) -> None:
        """Die at once."""
        self.incarnation += 1
        self.is_up = self.is_member = False
        for part in self.parts:
            part.end()
        self.parts = []

    def pause(self, for_ms: int) -> None:
        """Do nothing for so long, and then go on as if nothing had been."""
        self.paused_until_ms = self.world.engine.now_ms + for_ms

    @property
    def is_paused(self) -> bool:
        """Whether it does nothing now."""
        return self.world.engine.now_ms < self.paused_until_ms

    @property
    def is_ready(self) -> bool:
        """Whether it is up and says that it does its work."""
        return self.is_up and all(part.is_ready for part in self.parts)

    # Its steps.

    def after(self, delay_ms: int, action: Action) -> None:
        """Take this step after a delay, if the process still lives then."""
        self.at(self.world.engine.now_ms + delay_ms, action)

    def at(self, at_ms: int, action: Action) -> None:
        """Take this step at that time, if the process still lives then."""
        engine, incarnation = self.world.engine, self.incarnation

        def step() -> None:
            if self.incarnation != incarnation:
                return
            if engine.now_ms < self.paused_until_ms:
                engine.at(self.paused_until_ms, step)
                return
            self.world.step(self, action)

        engine.at(at_ms, step)

    def woke(self) -> tuple[int, Action] | None:
        """It wakes from a wait: whether it dies or stands still in the course of this, behind how many handles."""
        faults, engine = self.world.faults, self.world.engine
        if faults.happens(Fault.CRASH, self.name):
            return engine.between(0, HANDLES_MAX), lambda: self.world.crash(self)
        if faults.happens(Fault.PAUSE, self.name):
            return engine.between(0, HANDLES_MAX), lambda: self.world.pause(self)
        return None

    def dies(self) -> NoReturn:
        """Die here and now. Raises Died."""
        self.world.crash(self)
        raise Died

    def failed(self, error: BaseException) -> None:
        """Something in it raised what it should not have."""
        self.world.failed(self, error)

    def cell_failed(self, error: BaseException) -> None:
        """The work on one of its cells has met an error that ends it."""
        self.world.cell_failed(self, error)

    def told(self, owned: frozenset[int]) -> None:
        """The group says what should be ours."""
        self.owned = owned
        for part in self.parts:
            part.told(owned)
