"""`fallow bench a1`: KAI-Scheduler's scale set on a running cell, case by case, its published figures beside ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.bench.kai.cases import BY_NAME, NODES, UNASKED, Case, Plan, Way, cell_of
from fallow.bench.kai.run import Outcome, outcome_of
from fallow.bench.load.processor_time import Used
from fallow.bench.load.stages import fresh_namespace, is_durable, servers_for
from fallow.cli.errors.failures import refuse
from fallow.local.local_cell import Servers, stage_for
from fallow.local.service_set import Clock
from fallow.shared.events.proposals import VICTIMS_MAX
from fallow.shared.runtime.process import loop_factory

LETTERS = {"j": "near_miss"}
"""How KAI's set is counted elsewhere."""

MOVES_BY_RECLAIM = "nothing is moved: the owner reclaims, and those that yield start again where there is room"
OF_ANOTHER_SIZE = "the cell has not the size of KAI's: the figures do not compare"
OF_THE_METRIC = "the verdict is loaning's metric, and not a record"


@dataclass(frozen=True, slots=True)
class Row:
    """A case, its size, and what came of it."""

    case: Case
    plan: Plan
    outcome: Outcome

    @property
    def is_as_large(self) -> bool:
        """Whether the case has the size of KAI's, so that the figures compare."""
        return self.plan.nodes == self.case.plan(NODES).nodes

    @property
    def note(self) -> str | None:
        """What has to be known beside the figure, or why there is none."""
        if self.outcome.note is not None:
            return self.outcome.note
        notes = []
        if self.case.way is Way.MOVED:
            notes.append(MOVES_BY_RECLAIM)
        if self.case.way is Way.VERDICT:
            notes.append(OF_THE_METRIC)
        if not self.is_as_large:
            notes.append(OF_ANOTHER_SIZE)
        return "; ".join(notes) or None

    def as_json(self) -> dict[str, object]:
        """For `--json`. Cases of which KAI tells nothing have no `kai_s`, and others no `search_ms`."""
        case, outcome = self.case, self.outcome
        kai: dict[str, object] = {} if case.kai_s is None else {"kai_s": case.kai_s}
        search: dict[str, object] = {}
        if case.way is Way.VERDICT:
            search = {"search_ms": None if outcome.search_ms is None else round(outcome.search_ms, 1)}
        return {
            "case": case.name,
            "seconds": None if outcome.seconds is None else round(outcome.seconds, 3),
            **kai,
            **search,
            "nodes": self.plan.nodes,
            "jobs": sum(each.count for each in self.plan.asked),
            "yielded": outcome.yielded,
            "others_cpu": outcome.used.others_cores,
            "cpu_s": {name: round(seconds, 1) for name, seconds in outcome.used.by_process.items()},
            "note": self.note,
        }

    def __str__(self) -> str:
        case, seconds = self.case, self.outcome.seconds
        took = "no figure" if seconds is None else f"{seconds:.2f} s"
        kai = "" if case.kai_s is None else f", KAI {case.kai_s:g} s"
        times = (
            "" if case.kai_s is None or not seconds or not self.is_as_large else f" ({case.kai_s / seconds:.0f} times)"
        )
        search = "" if self.outcome.search_ms is None else f", of which the search {self.outcome.search_ms:.0f} ms"
        note = "" if self.note is None else f"; {self.note}"
        return f"{case.name}: {took}{search}{kai}{times}: {case.text}{note}"


def cases_of(names: Sequence[str] | None) -> list[Case]:
    """The cases of these names, in the order of the set; ends the command where one does not exist."""
    if not names:
        return [*UNASKED]
    wanted = [LETTERS.get(name, name) for name in names]
    for name in wanted:
        if name not in BY_NAME:
            refuse("--case", name, f"is none of {', '.join(BY_NAME)}")
    return [case for name, case in BY_NAME.items() if name in wanted]


def a1(console: Console, cases: Sequence[Case], *, nodes: int, durable: bool) -> Figure:
    """Run these. Raises StackError, LogUnavailable."""
    with (
        servers_for(console, durable=durable) as (servers, path),
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        rows, flushed = runner.run(_rows(console, servers, path, cases, nodes))
    return figure_of(rows, nodes, durable=flushed)


async def _rows(
    console: Console, servers: Servers, path: Path, cases: Sequence[Case], nodes: int
) -> tuple[list[Row], bool | None]:
    rows: list[Row] = []
    flushed: bool | None = None
    for case in cases:
        plan = case.plan(nodes)
        if plan.victims > VICTIMS_MAX:
            rows.append(Row(case, plan, cannot_run(plan)))
        else:
            console.print(f"{case.name}: {case.text}, {plan.nodes} nodes", highlight=False, soft_wrap=True)
            outcome, flushed = await _on_its_own(console, servers, path / case.name, case, plan)
            rows.append(Row(case, plan, outcome))
        console.print(str(rows[-1]), highlight=False, soft_wrap=True)
    return rows, flushed


def cannot_run(plan: Plan) -> Outcome:
    """A case in which more would have to yield to one job than may."""
    note = f"cannot run: {plan.victims} jobs would have to yield to one, and at most {VICTIMS_MAX} may"
    return Outcome(None, Used(0.0, {}, 0.0), note=note)


async def _on_its_own(console: Console, servers: Servers, path: Path, case: Case, plan: Plan) -> tuple[Outcome, bool]:
    """On services and topics of its own."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    async with stage_for(cell_of(plan), servers, path, fresh_namespace(), Clock(), say=say) as stage:
        outcome = await stage.unless_one_ends(outcome_of(stage, case, plan))
        return outcome, await is_durable(servers, stage.layout)


def figure_of(rows: Sequence[Row], nodes: int, *, durable: bool | None) -> Figure:
    """The figure for people and for programs."""
    lines = [str(row) for row in rows]
    lines.append("KAI's figures are its own, published, from its own machines: 500 nodes that no machine stands behind")
    body: dict[str, object] = {"rows": [row.as_json() for row in rows], "nodes": nodes}
    return Figure("a1", lines, body, _used(rows), durable)


def _used(rows: Sequence[Row]) -> Used:
    """Of all cases together."""
    wall_s, by_process, others_s = 0.0, dict[str, float](), 0.0
    for row in rows:
        used = row.outcome.used
        wall_s, others_s = wall_s + used.wall_s, others_s + used.others_cores * used.wall_s
        for name, seconds in used.by_process.items():
            by_process[name] = by_process.get(name, 0.0) + seconds
    return Used(wall_s, by_process, round(others_s / wall_s, 2) if wall_s else 0.0)
