"""What a node's diary tells of the runs before: which were begun and not ended, and how the others ended."""

from __future__ import annotations

from collections.abc import Sequence

from services.executor.policy.turn import Now
from shared.cluster.diary import DiaryLine
from shared.events.value import replace
from shared.events.values import RunStatus


def open_runs(diary: Sequence[DiaryLine]) -> dict[tuple[str, int], DiaryLine]:
    """The runs that a diary says were begun and not ended, with the line of their start, by (job, attempt)."""
    found: dict[tuple[str, int], DiaryLine] = {}
    for line in diary:
        if line.event == "started":
            found[line.job, line.attempt] = line
        elif line.event == "ended":
            found.pop((line.job, line.attempt), None)
    return found


def ended_runs(diary: Sequence[DiaryLine]) -> dict[tuple[str, int], RunStatus]:
    """How the runs ended of which a diary says that they did, by (job, attempt)."""
    return {(line.job, line.attempt): line.status or RunStatus.STOPPED for line in diary if line.event == "ended"}


def closed(line: DiaryLine, now: Now) -> DiaryLine:
    """The line that ends a run of which nothing is left."""
    return replace(line, event="ended", status=RunStatus.STOPPED, cell_ms=now.cell_ms, wall_ms=now.wall_ms)
