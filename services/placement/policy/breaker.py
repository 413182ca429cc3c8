"""When many nodes fall silent at once, they are more likely cut off than dead. So nothing is declared lost for a while,
and then only so many nodes in a minute, those that are silent for longest first, until none is overdue any more.

How long that has gone on stands in the log, so that a writer that takes over goes on there. It goes by the time in
which topic `nodes` was read, as leases do.
"""

from __future__ import annotations

from shared.cluster.state import CellState
from shared.events.effects import EvictionsHeld, EvictionsResumed
from shared.events.values import NodeStatus

BREAKER_PERCENT = 20
BREAKER_NODES = 3

STEP_MS = 10_000
"""After so much more of it the log is told for how long it has gone on."""

_MINUTE_MS = 60_000


class Breaker:
    """Lets nodes that are silent beyond their lease be lost one by one. `_begun_ms` is when it began to hold them."""

    def __init__(self) -> None:
        self._begun_ms: int | None = None

    def judge(
        self, state: CellState, overdue: dict[str, int], listened_ms: int
    ) -> tuple[list[str], EvictionsHeld | EvictionsResumed | None]:
        """The nodes to be lost now, and what the log is to know of it. `overdue` are those beyond their lease, with
        their silence; `listened_ms` is for how long nodes were listened to, since any origin.
        """
        held = state.evictions
        if not (overdue if held is not None else _are_too_many(state, overdue)):
            self._begun_ms = None
            return [*overdue], None if held is None else EvictionsResumed()
        if self._begun_ms is None or held is None:
            self._begun_ms = listened_ms - (0 if held is None else held.held_wall_ms)
        held_ms, lost = listened_ms - self._begun_ms, 0 if held is None else held.lost
        may_be_lost = max(0, min(_lost_by_then(state, held_ms) - lost, _at_once_most(state)))
        longest_first = sorted(overdue, key=lambda node_id: (-overdue[node_id], node_id))
        now = longest_first[:may_be_lost]
        if now or held is None or held_ms >= held.held_wall_ms + STEP_MS:
            return now, EvictionsHeld(silent=len(overdue) - len(now), held_wall_ms=held_ms, lost=lost + len(now))
        return [], None


def _are_too_many(state: CellState, overdue: dict[str, int]) -> bool:
    if len(overdue) < BREAKER_NODES:
        return False
    return len(overdue) * 100 > BREAKER_PERCENT * _living(state)


def _at_once_most(state: CellState) -> int:
    """How many nodes one record may declare lost, however high the rate is."""
    return max(BREAKER_NODES - 1, BREAKER_PERCENT * _living(state) // 100)


def _living(state: CellState) -> int:
    return sum(node.status is not NodeStatus.LOST for node in state.nodes.values())


def _lost_by_then(state: CellState, held_ms: int) -> int:
    """How many nodes may have been lost when they were held for so long: the first as soon as the wait is over."""
    over_ms = held_ms - state.policy.breaker_wait_wall_ms
    return 0 if over_ms < 0 else 1 + over_ms * state.policy.breaker_nodes_per_minute // _MINUTE_MS
