"""One turn of the writer: the state that it changes, the time, and the effects so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.cluster.apply import apply
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.values import RunStatus

STARTS_MOST = 1_000
BYTES_MOST = 400_000
"""A record stops growing here, well below Kafka's limit, also when the last input was a large one."""

_EFFECT_BYTES = 160
_WORKER_BYTES = 110

_RELEASES: frozenset[type[e.Effect]] = frozenset(
    {
        e.JobFinished,
        e.JobFailed,
        e.JobCancelled,
        e.JobRequeued,
        e.JobPreempted,
        e.JobResized,
        e.NodeChanged,
        e.DeviceChanged,
        e.NodeLent,
        e.NodeReclaimed,
        e.QuotaSet,
        e.PolicySet,
        e.ReservationCleared,
    }
)


@dataclass(slots=True)
class Turn:
    """Effects are applied as they are made, so each rule sees what the ones before it did.

    `runs` collects what nodes said in this turn, by (job, attempt) and node; it is settled once, so that a gang whose
    nodes all speak in one turn makes one effect and not one for each node. `has_released` tells that something may fit
    that did not before.
    """

    state: CellState
    now_ms: int
    effects: list[e.AnyEffect] = field(default_factory=list)
    starts: int = 0
    bytes: int = 0
    has_released: bool = False
    runs: dict[tuple[str, int], dict[str, RunStatus]] = field(default_factory=dict)
    words: dict[tuple[str, int], str] = field(default_factory=dict)

    def do(self, effect: e.AnyEffect, size_bytes: int = 0) -> None:
        """Apply an effect and keep it for the record."""
        apply(self.state, effect, self.now_ms)
        self.effects.append(effect)
        self.bytes += _EFFECT_BYTES + size_bytes
        if isinstance(effect, e.JobStarted):
            self.starts += 1
            self.bytes += sum(_WORKER_BYTES + 4 * len(place.devices) for place in effect.workers)
        elif type(effect) in _RELEASES:
            self.has_released = True

    @property
    def is_full(self) -> bool:
        """Whether the record must end here and the rest go into the next one."""
        return self.starts >= STARTS_MOST or self.bytes >= BYTES_MOST
