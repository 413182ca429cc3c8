"""What nodes said before a writer took over, by the broker's stamps of topic `nodes`: a writer that knows no more than
the log still knows for how long a node is silent.

The stamps are of one partition and so of one clock at a time. Only differences count, and of these none that is longer
than a pause: then the topic may have taken no record, and no node could be heard. So a cell all of whose nodes are
silent tells nothing, and a clock that is set tells too little and not too much.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.events.base import Event
from shared.events.encoding import Undecodable
from shared.events.nodes import NodeEvent, NodesReported, RunsReported


class EarlierReports:
    """The records of topic `nodes` from some offset to an end, in their order. Times are milliseconds."""

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._listened_ms = 0
        self._stamp_ms: int | None = None
        self._heard_ms: dict[str, int] = {}

    def take(self, stamp_ms: int, event: Event | Undecodable) -> None:
        """The next record. One that says nothing still tells that the topic takes records."""
        passed_ms = 0 if self._stamp_ms is None else stamp_ms - self._stamp_ms
        if 0 < passed_ms <= self._pause_ms:
            self._listened_ms += passed_ms
        self._stamp_ms = stamp_ms
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
