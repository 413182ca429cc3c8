"""What nodes said before a writer took over, by the broker's stamps of topic `nodes`: a writer that knows no more than
the log still knows for how long a node is silent.

Only the time by which a stamp passes the highest one before it counts, and none that is longer than a pause: then the
topic may have taken no record, and no node could be heard. So a cell all of whose nodes are silent tells nothing, and a
clock that is set back tells too little. Where brokers whose clocks differ stamp the topic in turn, their difference is
counted once at the most.
"""

from __future__ import annotations

from collections.abc import Iterable

from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.nodes import NodeEvent, NodesReported, RunsReported


class EarlierReports:
    """The records of topic `nodes` from some offset to an end, in their order. Times are milliseconds."""

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._listened_ms = 0
        self._highest_ms: int | None = None
        self._heard_ms: dict[str, int] = {}

    def take(self, stamp_ms: int, event: Event | Undecodable) -> None:
        """The next record. One that says nothing still tells that the topic takes records."""
        highest_ms = stamp_ms if self._highest_ms is None else max(self._highest_ms, stamp_ms)
        passed_ms = 0 if self._highest_ms is None else highest_ms - self._highest_ms
        if passed_ms <= self._pause_ms:
            self._listened_ms += passed_ms
        self._highest_ms = highest_ms
        for node_id in _speakers(event):
            self._heard_ms[node_id] = self._listened_ms

    def silent_ms(self, node_id: str) -> int:
        """For how long the node was silent at the end, at least."""
        return self._listened_ms - self._heard_ms.get(node_id, 0)


def _speakers(event: Event | Undecodable) -> Iterable[str]:
    """The nodes of which a record tells that they live."""
    match event:
        case NodesReported():
            return [report.node for report in event.reports]
        case RunsReported():
            return [word.node for word in event.words]
        case NodeEvent():
            return [event.node]
    return ()
