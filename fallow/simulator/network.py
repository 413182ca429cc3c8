"""Who reaches what in a simulated world: the broker, one partition, Redis; and whose news come late for long.

A party that is cut off neither reads nor writes there, while others do. It is told nothing: its calls run out of time.
"""

from __future__ import annotations

from fallow.simulator.engine import Action, Engine
from fallow.simulator.history.record import TopicPartition

BROKER, REDIS = "the broker", "Redis"

Party = str | TopicPartition
"""What a process may be cut off from: `BROKER`, `REDIS`, or one partition."""


class Network:
    """The lines between processes and what they use. All are whole where nothing else was said."""

    def __init__(self, engine: Engine, healed: Action) -> None:
        """`healed` is called when news may be there that did not come through before."""
        self._engine, self._healed = engine, healed
        self._cut_until_ms: dict[tuple[str, Party], int] = {}
        self._lags: dict[TopicPartition, tuple[int, int, str]] = {}

    def cut(self, who: str, what: Party, for_ms: int) -> None:
        """Let nothing through between these two for so long."""
        until_ms = max(self._cut_until_ms.get((who, what), 0), self._engine.now_ms + for_ms)
        self._cut_until_ms[who, what] = until_ms
        self._engine.at(until_ms, self._healed)

    def reaches(self, who: str, what: Party) -> bool:
        """Whether this process gets an answer there. A process that does not reach the broker reaches none of its
        partitions.
        """
        if not self._cut_until_ms:
            return True
        now_ms = self._engine.now_ms
        is_whole = self._cut_until_ms.get((who, what), 0) <= now_ms
        return is_whole and (what in {BROKER, REDIS} or self._cut_until_ms.get((who, BROKER), 0) <= now_ms)

    def lag(self, tp: TopicPartition, by_ms: int, for_ms: int, group: str) -> None:
        """For so long, let each record of a partition come so much later to the processes of this service."""
        self._lags[tp] = (by_ms, self._engine.now_ms + for_ms, group)
        self._engine.at(self._engine.now_ms + for_ms, self._healed)

    @property
    def has_lags(self) -> bool:
        """Whether records of any partition have come later in this world."""
        return bool(self._lags)

    @property
    def is_lagging(self) -> bool:
        """Whether records of a partition come later now."""
        return any(self._engine.now_ms < until_ms for _, until_ms, _ in self._lags.values())

    def lag_ms(self, who: str, tp: TopicPartition) -> int:
        """How much later its records come to this process now; 0 where they come as they are written."""
        by_ms, until_ms, group = self._lags.get(tp, (0, 0, ""))
        return by_ms if self._engine.now_ms < until_ms and who.startswith(group) else 0
