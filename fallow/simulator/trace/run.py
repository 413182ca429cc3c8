"""A trace of jobs on the services of one cell, in virtual time, and its figures.

Arrivals are handed over one by one, each settled before the next, and at equal times after everything that is due: the
same steps as those of a stepped replay, so it comes to the same starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.trace.cell import VirtualCell
from fallow.simulator.trace.figures import TraceFigures, figures_of
from fallow.simulator.trace.measures import Measures


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, and when it comes."""

    at_ms: int
    command: SubmitJob


@dataclass(frozen=True, slots=True)
class TraceRun:
    """What came of it: the figures, and what they and others are made of."""

    figures: TraceFigures
    measures: Measures


def run_trace(
    file: CellFile, nodes: Iterable[NodeSpec], arrivals: Sequence[Arrival], carried: Collection[str] = frozenset()
) -> TraceRun:
    """Let all arrivals come, in their order, and everything end that ends; what waits for good is unfinished then.
    `carried` are jobs, in full, that ran before.
    """
    measures = Measures(carried)
    cell = VirtualCell(file, nodes, (measures.follow,))
    cell.begin()
    for arrival in arrivals:
        cell.advance(arrival.at_ms)
        answer = cell.submit(arrival.command)
        measures.submitted(arrival.command, answer, is_carried=arrival.command.key() in carried)
        cell.settle()
    measures.note_load(cell.now_ms)
    cell.advance(None)
    return TraceRun(figures_of(measures, measures.until_ms, cell.decisions), measures)
