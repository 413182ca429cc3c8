"""What nodes say, as records: words of runs go together into few, reports too, and everything else is a record of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fallow.shared.events.base import CellEvent
from fallow.shared.events.fields.values import ObservedRun
from fallow.shared.events.nodes import (
    REPORTS_MAX,
    RUN_WORDS_MAX,
    NodeEvent,
    NodeReport,
    NodesReported,
    RunsReported,
    RunStatusUpdate,
)

Said = NodeEvent | RunStatusUpdate
"""One thing that a node says, under a number of its own."""

TEXT_BYTES_MAX = 100_000
"""The texts and runs of one record's words or reports; without any, as many words as fit take some 150 kB, and four
times that at most.
"""

ESCAPED_BYTES = 6
"""What a character of a text may take."""

RUN_BYTES = 250
"""What a run in a report may take without its text."""

DEVICE_BYTES = 6
"""What a failed device in a report may take."""

REPORT_BYTES_MAX = 400_000
"""A report that would be larger is told in parts."""


@dataclass(slots=True)
class _Gathering:
    """Words or reports on their way into one record, at place `at` among the records. `behind` are the nodes that have
    said something further back since: what they say now may not go past it.
    """

    at: int
    count_max: int
    said: list[Said] = field(default_factory=list)
    behind: dict[str, None] = field(default_factory=dict)
    room: int = TEXT_BYTES_MAX

    def takes(self, node: str, size_bytes: int) -> bool:
        """Whether the record has room for so many bytes, and no other report stands behind the node's last one."""
        return size_bytes <= self.room and len(self.said) < self.count_max and node not in self.behind


def as_records(cell: str, said: Iterable[Said]) -> list[CellEvent]:
    """The records that say all this, in an order that keeps each node's own.

    A word joins the words before it, and a report the reports, past what other nodes have said since; never past what
    its own node said.
    """
    records: list[_Gathering | NodeEvent] = []
    words: _Gathering | None = None
    reports: _Gathering | None = None
    for each in said:
        if type(each) is RunStatusUpdate:
            size = ESCAPED_BYTES * len(each.text) if each.text else 0
            if words is None or not words.takes(each.node, size):
                words = _begin(records, RUN_WORDS_MAX)
            at = _join(words, each, size)
        elif type(each) is NodeReport:
            size = _report_bytes(each) if each.observed or each.failed_devices else 0
            if reports is None or not reports.takes(each.node, size):
                reports = _begin(records, REPORTS_MAX)
            at = _join(reports, each, size)
        else:
            assert isinstance(each, NodeEvent), "a node says words of runs and events"
            at = len(records)
            records.append(each)
        for gathering in (words, reports):
            if gathering is not None and gathering.at < at:
                gathering.behind[each.node] = None
    return [_record(cell, each) if isinstance(each, _Gathering) else each for each in records]


def by_node(cell: str, said: Iterable[Said]) -> list[CellEvent]:
    """The records, each about one node only, as agents of single machines write them."""
    of_node: dict[str, list[Said]] = {}
    for each in said:
        of_node.setdefault(each.node, []).append(each)
    return [record for own in of_node.values() for record in as_records(cell, own)]


def _begin(records: list[_Gathering | NodeEvent], count_max: int) -> _Gathering:
    gathering = _Gathering(len(records), count_max)
    records.append(gathering)
    return gathering


def _join(gathering: _Gathering, each: Said, size_bytes: int) -> int:
    gathering.said.append(each)
    gathering.room -= size_bytes
    return gathering.at


def _report_bytes(report: NodeReport) -> int:
    return sum(map(_run_bytes, report.observed)) + DEVICE_BYTES * len(report.failed_devices)


def _run_bytes(run: ObservedRun) -> int:
    return RUN_BYTES + ESCAPED_BYTES * len(run.text)


def in_parts(observed: Sequence[ObservedRun]) -> Iterator[tuple[ObservedRun, ...]]:
    """The runs of one report, in as few parts as records hold; one part where there are none."""
    part, room = list[ObservedRun](), REPORT_BYTES_MAX
    for run in observed:
        size_bytes = _run_bytes(run)
        if size_bytes > room and part:
            yield tuple(part)
            part, room = [], REPORT_BYTES_MAX
        part.append(run)
        room -= size_bytes
    yield tuple(part)


def _record(cell: str, gathering: _Gathering) -> CellEvent:
    reports = tuple([each for each in gathering.said if type(each) is NodeReport])
    if len(reports) == 1:
        return reports[0]
    if reports:
        return NodesReported(cell=cell, reports=reports)
    return RunsReported(cell=cell, words=tuple([each for each in gathering.said if type(each) is RunStatusUpdate]))
