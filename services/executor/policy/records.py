"""What nodes say, as records: words of runs go together into few, everything else is a record of its own."""

from __future__ import annotations

from collections.abc import Iterable

from shared.events.base import CellEvent
from shared.events.nodes import RUN_WORDS_MOST, NodeEvent, RunsReported, RunWord

Said = NodeEvent | RunWord
"""One thing that a node says, under a number of its own."""

RECORD_BYTES_MOST = 200_000
WORD_BYTES, ESCAPED_BYTES = 160, 6
"""What a word takes beside its names, and what a character of its text may take at most."""


def as_records(cell: str, said: Iterable[Said]) -> list[CellEvent]:
    """The records that say all this, in an order that keeps each node's own.

    A word joins the words before it, past what other nodes have said since; never past what its own node said.
    """
    records: list[CellEvent] = []
    words: list[RunWord] = []
    room, at = RECORD_BYTES_MOST, 0
    behind: dict[str, None] = {}
    for each in said:
        if type(each) is not RunWord:
            assert isinstance(each, NodeEvent), "a node says words of runs and events"
            behind[each.node] = None
            records.append(each)
            continue
        size = WORD_BYTES + len(each.node) + len(each.boot) + len(each.job) + ESCAPED_BYTES * len(each.text)
        if words and (len(words) == RUN_WORDS_MOST or size > room or each.node in behind):
            records.insert(at, RunsReported(cell=cell, words=tuple(words)))
            words = []
        if not words:
            room, at, behind = RECORD_BYTES_MOST, len(records), {}
        words.append(each)
        room -= size
    if words:
        records.insert(at, RunsReported(cell=cell, words=tuple(words)))
    return records
