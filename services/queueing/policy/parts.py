"""A window in parts that each fit into one record."""

from __future__ import annotations

from shared.events.queue import QueueHead
from shared.events.value import replace

JOBS_PER_PART = 4_000
"""Ids have at most 128 characters, so a part stays below 600 kB."""


def in_parts(heads: list[QueueHead]) -> list[tuple[QueueHead, ...]]:
    """The heads in their order, cut where a part is full. A queue that is cut goes on in the next part: walks take its
    pieces as one line after the other, so a strict queue, whose head must stop all behind it, is never cut.
    """
    parts: list[tuple[QueueHead, ...]] = []
    part: list[QueueHead] = []
    room = JOBS_PER_PART
    for head in heads:
        for piece in _pieces(head):
            if len(piece.jobs) > room and part:
                parts.append(tuple(part))
                part, room = [], JOBS_PER_PART
            part.append(piece)
            room -= len(piece.jobs)
    return [*parts, tuple(part)]


def _pieces(head: QueueHead) -> list[QueueHead]:
    if len(head.jobs) <= JOBS_PER_PART:
        return [head]
    pieces = []
    for begin in range(0, len(head.jobs), JOBS_PER_PART):
        cuts = tuple(at - begin for at in head.cuts if begin <= at < begin + JOBS_PER_PART)
        jobs = head.jobs[begin : begin + JOBS_PER_PART]
        pieces.append(replace(head, jobs=jobs, cuts=cuts))
    return pieces
