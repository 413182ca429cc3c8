"""One turn of the executor: the times at which it happens, and everything that comes out of it, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fallow.services.executor.policy.desired import RunKey
from fallow.services.executor.policy.records import Said
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events.fields.values import Run, RunStatus, WorkerPlace


class Now(NamedTuple):
    """Cell time, wall time (for people who read diaries) and monotonic time (for leases), in milliseconds."""

    cell_ms: int
    wall_ms: int
    monotonic_ms: int


class Start(NamedTuple):
    """To the driver: begin the workers of a run. `rank` and `turn` name it where each worker is a run of its own."""

    node: str
    job: str
    attempt: int
    places: tuple[WorkerPlace, ...]
    run: Run
    started_ms: int
    rank: int | None = None
    turn: int = 0

    @property
    def key(self) -> RunKey:
        """What tells it from all other runs of its node."""
        return (self.job, self.attempt, self.rank, self.turn)


class Stop(NamedTuple):
    """To the driver: end a run within its grace."""

    node: str
    job: str
    attempt: int
    grace_wall_ms: int
    rank: int | None = None
    turn: int = 0

    @property
    def key(self) -> RunKey:
        """What tells it from all other runs of its node."""
        return (self.job, self.attempt, self.rank, self.turn)


class Observation(NamedTuple):
    """From the driver: what a run is now: RUNNING, or one of the states in which nothing is left of it."""

    node: str
    job: str
    attempt: int
    status: RunStatus
    exit_code: int | None = None
    infrastructure: bool = False
    text: str = ""
    rank: int | None = None
    turn: int = 0

    @property
    def key(self) -> RunKey:
        """What tells it from all other runs of its node."""
        return (self.job, self.attempt, self.rank, self.turn)


@dataclass(slots=True)
class Turn:
    """What one turn wants done: diary lines first, then what nodes say. Actions are for the driver at once. `worlds`
    are attempts (job, attempt) on this node whose workers have changed anywhere: the others may look.
    """

    now: Now
    actions: list[Start | Stop] = field(default_factory=list)
    lines: list[DiaryLine] = field(default_factory=list)
    events: list[Said] = field(default_factory=list)
    worlds: list[tuple[str, int]] = field(default_factory=list)
