"""What a node's diary tells of the runs before: which were begun and not ended, and how the others ended."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.executor.policy.desired import DesiredRun, RunKey
from fallow.services.executor.policy.turn import Now
from fallow.shared.cluster.checks.run_journal import DiaryLine, may_be_of
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import RunStatus


def open_runs(diary: Sequence[DiaryLine]) -> dict[RunKey, DiaryLine]:
    """The runs that a diary says were begun and not ended, with the line of their start."""
    found: dict[RunKey, DiaryLine] = {}
    for line in diary:
        if line.event == "started":
            found[key_of(line)] = line
        elif line.event == "ended":
            found.pop(key_of(line), None)
    return found


def ended_runs(diary: Sequence[DiaryLine]) -> dict[RunKey, DiaryLine]:
    """The runs of which a diary says that they ended, and not that they were begun again behind that, with the line of
    their end.
    """
    found: dict[RunKey, DiaryLine] = {}
    for line in diary:
        if line.event == "ended":
            found[key_of(line)] = line
        elif line.event == "started":
            found.pop(key_of(line), None)
    return found


def is_of(line: DiaryLine | None, run: DesiredRun) -> bool:
    """Whether the line is about this very run, and not about one of an earlier job that had the same id. A line of an
    older release does not say when its run was ordered: one that was written long before this run was is of another.
    """
    if line is None:
        return False
    if line.ordered_ms is None:
        return may_be_of(line, run.started_ms)
    return line.ordered_ms == run.started_ms


def end_told(line: DiaryLine) -> RunStatus:
    """How the run ended, by the line of its end."""
    return line.status or RunStatus.STOPPED


def key_of(line: DiaryLine) -> RunKey:
    """The run that the line is about."""
    return (line.job, line.attempt, line.rank, line.turn)


def closed(line: DiaryLine, now: Now) -> DiaryLine:
    """The line that ends a run of which nothing is left."""
    return replace(line, event="ended", status=RunStatus.STOPPED, cell_ms=now.cell_ms, wall_ms=now.wall_ms)
