"""When nodes whose maintenance is planned close for those that wait: then these keep back fewer others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from fallow.services.placement.queue.lines.row import Need
from fallow.services.placement.search.reason_precedence import PRECEDENCE, ReasonKind

_FOR_ROOM = (ReasonKind.CAPACITY, ReasonKind.TOPOLOGY)


class Closing:
    """The rooms for which there are no places, with when the next node closes for each, in cell time."""

    __slots__ = ("_at_ms", "next_ms")

    def __init__(self, begins_ms: Iterable[int], needs: Iterable[Need], now_ms: int) -> None:
        """`begins_ms`: when the planned maintenance of nodes begins. The last part of a room's key is how long a run
        may take there, since such maintenance is known.
        """
        begins, known = sorted(set(begins_ms)), dict[object, int | None]()
        self._at_ms: dict[Need, int] = {}
        for need in needs:
            if need.code is None or PRECEDENCE[need.code] not in _FOR_ROOM:
                continue
            longest_ms = need.key[-1]
            if longest_ms not in known:
                known[longest_ms] = next_closing_ms(begins, longest_ms, now_ms)
            if (at_ms := known[longest_ms]) is not None:
                self._at_ms[need] = at_ms
        self.next_ms = min(self._at_ms.values(), default=None)

    def due(self, now_ms: int) -> dict[Need, None]:
        """Those for which a node has closed."""
        return {need: None for need, at_ms in self._at_ms.items() if at_ms <= now_ms}


def next_closing_ms(begins: list[int], longest_ms: object, now_ms: int) -> int | None:
    """When the first of the nodes closes that are open now to a run of this length: it would not be over in time."""
    assert isinstance(longest_ms, int), "it stands in each key while maintenance is planned"
    number = bisect_left(begins, now_ms + longest_ms)
    return begins[number] - longest_ms + 1 if number < len(begins) else None
