"""What the agent of a simulated machine has of it: its state, its disk, and the driver of its workers."""

from __future__ import annotations

import asyncio

from fallow.services.executor.policy.lease import KeptLease
from fallow.services.executor.policy.turn import Observation, Start, Stop
from fallow.services.executor.policy.worker_environment import Gang
from fallow.simulator.machine import Machine
from fallow.simulator.process import Process
from fallow.simulator.shells.log import Dead

LOOK_S = 0.35
"""How often it looks without a cause: at reports and the lease."""

SEEN_MS = 60
"""How late an end of a worker is seen at most."""


class WorldState:
    """What outlives the agent. One process at a time is the machine's agent."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def boot(self) -> str | None:
        """None after a loss of power."""
        return self._machine.boot

    def has_begun(self, boot: str) -> bool:
        """Also before a loss of power: the disk has it."""
        return self._machine.has_begun(boot)

    def new_boot(self) -> str:
        """A name that was never used."""
        return self._machine.new_boot()

    def close(self) -> None:
        """Nothing is held."""


class WorldDriver:
    """One agent's handle onto the workers of its machine. `end` is called when it dies: from then on all is refused."""

    def __init__(self, process: Process, machine: Machine) -> None:
        machine.attach(self._changed)
        self._process, self._machine = process, machine
        self._waiter: asyncio.Future[None] | None = None
        self._is_dead = self._has_changed = False

    def end(self) -> None:
        """The agent is dead."""
        self._is_dead = True

    def _reach(self) -> Machine:
        if self._is_dead:
            raise Dead(self._process.name)
        return self._machine

    def keep_lease(self, renewed_ms: int, until_ms: int) -> None:
        """As the port says."""
        self._reach().keep_lease(renewed_ms, until_ms)

    def kept_lease(self) -> KeptLease | None:
        """As the port says."""
        return self._reach().kept

    def start(self, order: Start, gang: Gang | None) -> Observation | None:
        """As the port says."""
        return self._reach().start(order, has_gang=gang is not None)

    def stop(self, order: Stop) -> Observation | None:
        """As the port says."""
        return self._reach().stop(order)

    def show_world(self, job: str, attempt: int, gang: Gang | None) -> None:
        """Its workers look at nothing."""

    def look(self) -> list[Observation]:
        """As the port says."""
        return self._reach().look()

    async def next_look(self) -> None:
        """As the port says: soon when something has become of a worker."""
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(LOOK_S, self._look_now)
        if self._has_changed:
            self._look_soon()
        await waiter
        timer.cancel()

    def stop_everything(self) -> bool:
        """As the port says."""
        self._reach().stop_everything()
        return True

    def close(self) -> None:
        """Nothing is held."""

    def _changed(self) -> None:
        """Something has become of a worker."""
        if not (self._is_dead or self._has_changed):
            self._has_changed = True
            if self._waiter is not None:
                self._look_soon()

    def _look_soon(self) -> None:
        engine = self._process.world.engine
        engine.after(engine.between(1, SEEN_MS), self._look_now)

    def _look_now(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not (self._is_dead or waiter.done()):
            self._has_changed = False
            waiter.set_result(None)
