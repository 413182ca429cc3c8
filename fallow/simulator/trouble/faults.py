"""What can go wrong, how often in this world, and what did."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from fallow.simulator.engine import Engine
from fallow.simulator.history.record import Injected


class Fault(StrEnum):
    """Every kind of fault. Each has a rate in a world, drawn from its seed; 0 in about half of them."""

    CRASH = "crash"
    PAUSE = "pause"
    DUPLICATE = "duplicate"
    DELAY = "delay"
    ACK_LOST = "ack-lost"
    REFUSED = "refused"
    LATE = "late"
    REBALANCE = "rebalance"
    OUTAGE = "outage"
    REDIS_TAIL = "redis-tail"
    REDIS_FLUSH = "redis-flush"
    REDIS_AWAY = "redis-away"
    REDIS_GONE = "redis-gone"
    REDIS_LATE = "redis-late"
    NODE_LOST = "node-lost"
    NODE_LIES = "node-lies"
    DEVICE = "device"
    LEASE = "lease"
    SKEW = "skew"
    HOSTILE = "hostile"
    LOST_TAIL = "lost-tail"
    FORGED = "forged"
    RELOAD = "reload"
    SNAPSHOT = "snapshot"
    OLD_VERSION = "old-version"
    TORN = "torn"
    CLOCK = "clock"
    PARTITION = "partition"
    LAG = "lag"
    FLAP = "flap"
    SILENCE = "silence"
    RESHARED = "reshared"
    INPUT_LOST = "input-lost"
    FLIPPED = "bit-flip"
    OVERSIZED = "oversized"
    POISONED = "poisoned"
    IMPOSTOR = "impostor"
    DENIED = "denied"


RATES: dict[Fault, float] = {
    Fault.CRASH: 0.012,
    Fault.PAUSE: 0.008,
    Fault.DUPLICATE: 0.05,
    Fault.DELAY: 0.06,
    Fault.ACK_LOST: 0.06,
    Fault.REFUSED: 0.06,
    Fault.LATE: 0.04,
    Fault.REBALANCE: 0.4,
    Fault.REDIS_AWAY: 0.05,
    Fault.REDIS_LATE: 0.06,
    Fault.SNAPSHOT: 0.05,
    Fault.SKEW: 0.8,
    Fault.OLD_VERSION: 0.5,
    Fault.TORN: 0.02,
    Fault.FLIPPED: 0.01,
}
"""The highest rate of what is drawn at each occasion: at each step, each append, each call."""

INTERVALS_MS: dict[Fault, int] = {
    Fault.REBALANCE: 2_500,
    Fault.OUTAGE: 9_000,
    Fault.REDIS_TAIL: 4_000,
    Fault.REDIS_FLUSH: 6_000,
    Fault.REDIS_GONE: 7_000,
    Fault.NODE_LOST: 5_000,
    Fault.NODE_LIES: 900,
    Fault.DEVICE: 8_000,
    Fault.LEASE: 8_000,
    Fault.HOSTILE: 900,
    Fault.RELOAD: 7_000,
}
"""The shortest mean time between two faults of what comes by itself."""

LASTING_MS: dict[Fault, int] = {
    Fault.CLOCK: 2_500,
    Fault.PARTITION: 2_000,
    Fault.LAG: 3_500,
    Fault.FLAP: 2_000,
    Fault.SILENCE: 6_000,
    Fault.RESHARED: 4_000,
    Fault.INPUT_LOST: 3_000,
}
"""The shortest mean time between two faults that last, or that a person has to mend."""

KINDS_AT_A_TIME = 0.55
"""So large a share of the kinds happens in one world."""

LASTING_AT_A_TIME = 0.15
"""And so large a share of those that last."""

LOST_TAIL_OF_SEEDS = 0.04
"""In so many worlds the broker loses an acknowledged tail: once, since nothing goes on after it."""

SMALL_OF_SEEDS, SMALL_BYTES = 0.08, (4_500, 5_000)
"""In so many worlds a decision may have no more bytes than one of these."""

FORGED_OF_SEEDS = 0.03
"""In so many worlds a stranger writes a decision that is not this cell's writer's: once, for the same reason."""


@dataclass(slots=True)
class Faults:
    """Draws faults. The draws are the same whatever is left out, so that a shorter story of a seed can be looked for.

    `only` are the kinds that may happen; `keep` the numbers of those that do (None: all).
    """

    engine: Engine
    only: Collection[Fault] = tuple(Fault)
    keep: frozenset[int] | None = None
    is_active: bool = False
    rates: dict[Fault, float] = field(default_factory=dict)
    intervals_ms: dict[Fault, int] = field(default_factory=dict)
    loses_tail: bool = False
    is_forged: bool = False
    denies: bool = False
    decision_bytes_max: int | None = None
    injected: list[Injected] = field(default_factory=list)
    _number: int = 0

    def draw_rates(self) -> None:
        """The rates of this world."""
        random = self.engine.chance.random
        for fault, most in RATES.items():
            on, share = random() < KINDS_AT_A_TIME, random()
            self.rates[fault] = most * share if on and fault in self.only else 0.0
        for fault, shortest_ms in INTERVALS_MS.items():
            on, share = random() < KINDS_AT_A_TIME, random()
            self.intervals_ms[fault] = int(shortest_ms / (0.3 + 0.7 * share)) if on and fault in self.only else 0
        for fault, shortest_ms in LASTING_MS.items():
            on, share = random() < LASTING_AT_A_TIME, random()
            self.intervals_ms[fault] = int(shortest_ms / (0.3 + 0.7 * share)) if on and fault in self.only else 0
        self.loses_tail = random() < LOST_TAIL_OF_SEEDS and Fault.LOST_TAIL in self.only
        small, bytes_max = random() < SMALL_OF_SEEDS, self.engine.chance.choice(SMALL_BYTES)
        if small and Fault.OVERSIZED in self.only:
            self.decision_bytes_max = bytes_max
        self.is_forged = random() < FORGED_OF_SEEDS and Fault.FORGED in self.only and not self.loses_tail

    def happens(self, fault: Fault, what: str) -> bool:
        """Whether this fault hits this occasion; then it is written down."""
        rate = self.rates[fault]
        return rate > 0.0 and self.is_active and self.engine.chance.random() < rate and self.inject(fault, what)

    def inject(self, fault: Fault, what: str) -> bool:
        """This fault is to happen now. Whether it may: then it is written down."""
        number = self._number
        self._number += 1
        if self.keep is not None and number not in self.keep:
            return False
        self.injected.append(Injected(number, self.engine.now_ms, fault.value, what))
        return True

    def next_ms(self, fault: Fault) -> int:
        """How long until the next fault of a kind that comes by itself."""
        mean_ms = self.intervals_ms[fault]
        return self.engine.between(mean_ms // 4, mean_ms * 7 // 4)
