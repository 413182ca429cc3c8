"""What nodes say, as records: words of runs go together into few, everything else is a record of its own."""

from __future__ import annotations

from collections.abc import Iterable

from shared.events.base import CellEvent
from shared.events.nodes import RUN_WORDS_MOST, NodeEvent, RunsReported, RunWord

Said = NodeEvent | RunWord
"""One thing that a node says, under a number of its own."""

TEXT_BYTES_MOST = 100_000
"""The texts of one record's words; without any, as many words as fit take some 150 kB, and four times that at most."""

ESCAPED_BYTES = 6
"""What a character of a text may take."""


def as_records(cell: str, said: Iterable[Said]) -> list[CellEvent]:
    """The records that say all this, in an order that keeps each node's own.

    A word joins the words before it, past what other nodes have said since; never past what its own node said.
    """
    records: list[CellEvent] = []
    words: list[RunWord] = []
    room, at = TEXT_BYTES_MOST, 0
    behind: dict[str, None] = {}
    for each in said:
        if type(each) is not RunWord:
            assert isinstance(each, NodeEvent), "a node says words of runs and events"
            behind[each.node] = None
            records.append(each)
            continue
        if words and (len(words) == RUN_WORDS_MOST or each.node in behind or ESCAPED_BYTES * len(each.text) > room):
            records.insert(at, RunsReported(cell=cell, words=tuple(words)))
            words = []
        if not words:
            room, at, behind = TEXT_BYTES_MOST, len(records), {}
        words.append(each)
        if each.text:
            room -= ESCAPED_BYTES * len(each.text)
    if words:
        records.insert(at, RunsReported(cell=cell, words=tuple(words)))
    return records
