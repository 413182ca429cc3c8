"""A machine that runs real processes, without them: they outlive the agent that began them, and neither the lease nor
the machine itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fallow.services.executor.policy.boot import boot_number
from fallow.services.executor.policy.desired import RunKey
from fallow.services.executor.policy.lease import KeptLease
from fallow.services.executor.policy.turn import Observation, Start, Stop
from fallow.services.executor.policy.virtual import end_of
from fallow.shared.events.fields.values import GPU, NodeSpec, RunStatus, VirtualRun
from fallow.simulator.history.record import NodeMoment
from fallow.simulator.process import ORIGIN_MS
from fallow.simulator.storage.disk import Folder

if TYPE_CHECKING:
    from fallow.simulator.world import World

SUPERVISOR_LOOKS_MS = 1_000
"""How late a supervisor may notice that the lease is over: it looks as seldom as that."""


MustEnd = Callable[[int, int | None, int], str]
"""A supervisor's word on why its worker must end: from the time, when it is told to, and the end of the lease."""


def _nobody_looks() -> None:
    """The machine has no agent yet."""


@dataclass(slots=True)
class Workers:
    """The processes of one run. `status` is how they ended, None while they live; `is_seen` what its agent knows."""

    order: Start
    is_told: bool = False
    status: RunStatus | None = None
    is_seen_running: bool = False


class Machine:
    """One node's hardware and kernel: processes, the state folder, and supervisors that keep the lease."""

    def __init__(self, world: World, cell: str, spec: NodeSpec, must_end: MustEnd) -> None:
        self._world, self.cell, self.spec, self._must_end = world, cell, spec, must_end
        self.boot: str | None = None
        self.kept: KeptLease | None = None
        self._changed: Callable[[], None] = _nobody_looks
        self.folder: Folder = {}
        self._boots = 0
        self._lease_until_ms = 0
        self._runs: dict[RunKey, Workers] = {}
        self._attached: dict[RunKey, None] = {}

    # Its life.

    def new_boot(self) -> str:
        """Begin a new boot: a name that was never used."""
        self._boots += 1
        self.boot = f"boot-{self._boots}"
        return self.boot

    def has_begun(self, boot: str) -> bool:
        """Whether this machine ever began that boot."""
        return boot_number(boot) in range(1, self._boots + 1)

    def die(self) -> None:
        """The power is gone, and with it all processes. Its disk is there again when it comes up, without a part of
        what was not written to it for certain.
        """
        for stored in self.folder.values():
            size_bytes = len(stored.text)
            kept_bytes = self._world.engine.between(min(stored.certain_bytes, size_bytes), size_bytes)
            self._world.disk.forgot(self.spec.id, bytes(stored.text[kept_bytes:]))
            del stored.text[kept_bytes:]
        self._runs, self._attached, self.boot, self.kept = {}, {}, None, None

    def attach(self, changed: Callable[[], None]) -> None:
        """It has a new agent, which looks after no run yet, and is told when something has become of one."""
        self._changed, self._attached = changed, {}

    def stop_everything(self) -> None:
        """End whatever an earlier boot left, at once."""
        for key in [*self._runs]:
            self._end(key, RunStatus.STOPPED)
        self._runs = {}

    @property
    def _monotonic_ms(self) -> int:
        return self._world.engine.now_ms + ORIGIN_MS

    # The lease: supervisors end everything when it is over.

    def keep_lease(self, renewed_ms: int, until_ms: int) -> None:
        """The workers may live until then; both times are monotonic."""
        self.kept = KeptLease(renewed_ms, until_ms)
        if until_ms != self._lease_until_ms:
            self._lease_until_ms = until_ms
            late_ms = self._world.engine.between(0, SUPERVISOR_LOOKS_MS)
            self._world.engine.after(max(0, until_ms - self._monotonic_ms) + late_ms, self._look_at_lease)

    def _look_at_lease(self) -> None:
        if self._must_end(self._monotonic_ms, None, self._lease_until_ms):
            for key, run in [*self._runs.items()]:
                if run.status is None:
                    self._end(key, RunStatus.STOPPED)

    # What its agent asks for.

    def start(self, order: Start, *, has_gang: bool) -> Observation | None:
        """Begin the workers of a run, or go on with them."""
        key = order.key
        if key in self._attached:
            return None
        if not has_gang:
            return self._seen(key, RunStatus.STOPPED)
        self._attached[key] = None
        if key not in self._runs:
            self._begin(key, order)
        return None

    def _begin(self, key: RunKey, order: Start) -> None:
        self._runs[key] = run = Workers(order)
        self._note("began", key)
        self._check_devices(key)
        assert isinstance(order.run, VirtualRun), "every job of a world says how long it takes"
        end = end_of(order.run, order.attempt + order.turn, 0)
        if end is not None:
            self._world.engine.after(end[0], lambda: self._ends(self._runs.get(key), run, end[1]))
        self._changed()

    def _ends(self, now: Workers | None, then: Workers, status: RunStatus) -> None:
        """These processes end by now, unless they went before."""
        if now is then and then.status is None:
            self._end(then.order.key, status)

    def stop(self, order: Stop) -> Observation | None:
        """Ask a run to end within its grace."""
        key = order.key
        run = self._runs.get(key)
        if run is None:
            return self._seen(key, RunStatus.STOPPED)
        self._attached[key] = None
        run.is_told = True
        takes_ms = self._world.engine.between(0, order.grace_wall_ms)
        self._world.engine.after(takes_ms, lambda: self._ends(self._runs.get(key), run, RunStatus.STOPPED))
        return None

    def look(self) -> list[Observation]:
        """What has become of the runs since the last look."""
        found: list[Observation] = []
        for key in [*self._attached]:
            run = self._runs[key]
            if not run.is_seen_running and not run.is_told and run.status is None:
                run.is_seen_running = True
                found.append(self._seen(key, RunStatus.RUNNING))
            elif run.status is not None:
                del self._attached[key], self._runs[key]
                found.append(self._seen(key, run.status))
        return found

    def _seen(self, key: RunKey, status: RunStatus) -> Observation:
        job, attempt, rank, turn = key
        exit_code = 1 if status is RunStatus.FAILED else None
        return Observation(self.spec.id, job, attempt, status, exit_code, rank=rank, turn=turn)

    # The truth.

    def _end(self, key: RunKey, status: RunStatus) -> None:
        run = self._runs[key]
        if run.status is None:
            run.status = status
            self._note("ended", key)
        self._changed()

    def _note(self, what: Literal["began", "ended"], key: RunKey) -> None:
        now_ms = self._world.engine.now_ms
        devices, milli = _held(self._runs[key].order)
        job, attempt, rank, turn = key
        moment = NodeMoment(now_ms, self.spec.id, what, job, attempt, devices, milli, rank, turn)
        self._world.history.moments.append(moment)

    def _check_devices(self, key: RunKey) -> None:
        """I1 on the machine: no device is used by more than fits."""
        used: dict[int, int] = {}
        for run in self._runs.values():
            if run.status is None:
                devices, milli = _held(run.order)
                for device in devices:
                    used[device] = used.get(device, 0) + milli
        if any(milli > GPU for milli in used.values()):
            self._world.violated("I1", f"{self.spec.id} has too much on a device once {key[0]}/{key[1]} has begun")


def _held(order: Start) -> tuple[tuple[int, ...], int]:
    places = order.places
    return tuple(device for place in places for device in place.devices), min(places[0].gpu_milli, GPU)
