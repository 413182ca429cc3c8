"""`fallow node`: what may happen on one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.ids import a_node, a_reason
from fallow.cli.cell.now import cell_now_ms
from fallow.cli.cell.retry import patiently
from fallow.cli.errors.failures import Exit, end_with, refuse, say
from fallow.cli.log.newest import newest_state
from fallow.cli.node.answers import answers_to, is_refused, other_nodes, rows_by_id, tell_each, unknown_among
from fallow.cli.node.emptying import EMPTY, as_object, to_be_stopped
from fallow.cli.node.end import Nodes, lost, remove
from fallow.cli.node.nodes import maintenance
from fallow.cli.node.nodes import nodes as list_nodes
from fallow.cli.node.operate import operation
from fallow.cli.node.silence import silence_lines
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import moment
from fallow.cli.output.output import AsJson, CellName, print_json, print_line, print_sentence
from fallow.cli.output.when import DURATION_RULE, POINT_RULE, Point, duration_of, point_of
from fallow.shared.client.port import ClientUnavailable
from fallow.shared.events.effects import MaintenanceSet, NodeChanged
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import (
    CancelMaintenance,
    Cordon,
    Drain,
    Operation,
    PlanMaintenance,
    Uncordon,
)
from fallow.shared.view.rows import NodeRow

app = typer.Typer(
    no_args_is_help=True,
    help="List nodes; close one for new work, empty it, open it; plan maintenance; declare it lost, remove it.",
)

AHEAD, AT = "90s, 10min or 2h from now", "2026-03-01 12:30 in UTC"
"""How a time is given."""

ANSWER_S = 30
"""How long to wait for the cell's answer to a plan."""

app.command("list")(list_nodes)
app.command()(lost)
app.command()(remove)

NodeName = Annotated[str, typer.Argument(metavar="NODE", callback=a_node, help="The node's id.", show_default=False)]
Reason = Annotated[str, typer.Option(callback=a_reason, help="Words that are shown with the node.")]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")]


@app.command()
def cordon(
    context: typer.Context,
    nodes: Nodes,
    reason: Reason = "",
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Place nothing new on nodes. What runs there goes on."""
    access = access_of(context)
    name = access.cell(cell)
    wishes = {node: operation(Cordon, cell=name, node=node, reason=reason) for node in nodes}
    _give(access, name, wishes, timeout_s, as_json=as_json)


@app.command()
def uncordon(
    context: typer.Context, nodes: Nodes, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Use nodes again that were cordoned or drained."""
    access = access_of(context)
    name = access.cell(cell)
    wishes = {node: operation(Uncordon, cell=name, node=node) for node in nodes}
    _give(access, name, wishes, timeout_s, as_json=as_json)


@app.command()
def drain(
    context: typer.Context,
    nodes: Nodes,
    within: Annotated[
        str | None, typer.Option(help="How long runs may go on: 90s, 10min, 2h. None: not at all.")
    ] = None,
    reason: Reason = "",
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Empty nodes: nothing new, and what still runs in the end is stopped and queued again. The jobs are named."""
    access = access_of(context)
    name = access.cell(cell)
    more_ms = None if within is None else _ahead("--within", within)
    deadline_ms = None if more_ms is None else run(_cell_time(access, name)) + more_ms
    rows = _known_rows(access, name)
    wishes = {node: operation(Drain, cell=name, node=node, deadline_ms=deadline_ms, reason=reason) for node in nodes}
    answers = run(answers_to(access, wishes, (NodeChanged,), timeout_s * 1000))
    behind = {node: to_be_stopped(rows[node], deadline_ms) for node in wishes if node in rows}
    more = {node: as_object(rows.get(node), deadline_ms, is_refused=is_refused(answers[node])) for node in wishes}
    tell_each(answers, timeout_s, as_json=as_json, hints=unknown_among(access, name, answers), behind=behind, more=more)


def _known_rows(access: Access, cell: str) -> dict[str, NodeRow]:
    """The nodes and their jobs before anything is done; none, and a line, where the view is away: a drain goes on."""
    try:
        return run(rows_by_id(access, cell))
    except ClientUnavailable as error:
        say(f"fallow: which jobs will be stopped is not known: {error}")
        return {}


@app.command()
def maintain(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    node: NodeName,
    begin: Annotated[str | None, typer.Option("--from", help=f"When it begins: {AHEAD}, or {AT}. None: now.")] = None,
    until: Annotated[str | None, typer.Option(help=f"When it ends: {AHEAD}, or {AT}.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Give a plan up, or end what goes on.")] = False,
    reason: Reason = "",
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Plan maintenance of a node: nothing starts there that would outlast its begin, then it is emptied, and in the end
    it is used again.
    """
    access = access_of(context)
    name = access.cell(cell)
    wish: Operation
    if cancel:
        wish = operation(CancelMaintenance, cell=name, node=node)
    elif until is None:
        end_with(Exit.USAGE, "fallow: --until is needed, or --cancel")
    else:
        first, last = _point("--from", begin or "0s"), _point("--until", until)
        # Two durations, or two times, are in the wrong order whatever time it is: the cell is not asked for it.
        is_wrong = first.is_ahead == last.is_ahead and last.ms <= first.ms
        now_ms = 0 if is_wrong else run(_cell_time(access, name))
        begin_ms, end_ms = first.at_ms(now_ms), last.at_ms(now_ms)
        if begin is not None and begin_ms < now_ms:
            refuse("--from", begin, "lies in the past; without --from maintenance begins now")
        if end_ms <= begin_ms:
            refuse("--until", until, f"must be after --from, {begin or 'now'}")
        wish = operation(PlanMaintenance, cell=name, node=node, begin_ms=begin_ms, end_ms=end_ms, reason=reason)
    _give(access, name, {node: wish}, ANSWER_S, as_json=as_json)


def _point(option: str, text: str) -> Point:
    found = point_of(text)
    if found is None:
        refuse(option, text, f"must be {POINT_RULE}")
    return found


def _ahead(option: str, text: str) -> int:
    found = duration_of(text)
    if found is None:
        refuse(option, text, f"must be {DURATION_RULE}")
    return found


@app.command()
def show(context: typer.Context, node: NodeName, cell: CellName = None, as_json: AsJson = False) -> None:
    """Tell what a node is, what may happen on it, and what is planned."""
    access = access_of(context)
    rows = run(rows_by_id(access, access.cell(cell)))
    row = rows.get(node)
    if row is None:
        end_with(Exit.NO, f"fallow: the cell knows no node {node}{other_nodes(node, rows)}")
    if as_json:
        print_json({"node": asdict(row)})
        return
    why = f": {row.reason}" if row.reason else ""
    print_sentence(f"node {row.id} of pool {row.pool} is {row.status}{why}")
    failed = f", {len(row.gpus_failed)} failed" if row.gpus_failed else ""
    held = f", {row.gpus_held} held for a waiting job" if row.gpus_held else ""
    print_line(f"  {row.gpus_free} of {row.gpus} {row.gpu_type} are free{failed}{held}")
    if row.silent_wall_ms or row.status is NodeStatus.LOST:
        state = run(newest_state(access, access.cell(cell)))
        for line in silence_lines(state, [state.nodes[node]] if node in state.nodes else []):
            print_sentence(f"  {line}")
    if drained := drain_line(row):
        print_sentence(f"  {drained}")
    if planned := maintenance(row):
        print_sentence(f"  {planned}")
    for job, workers in row.jobs:
        print_line(f"  job {job} has {workers} of its workers here")


def drain_line(row: NodeRow) -> str:
    """How far a node is that is to be emptied; nothing of any other."""
    if row.status is not NodeStatus.DRAINING:
        return ""
    if not row.jobs:
        return EMPTY
    if row.drain_deadline_ms is None:
        return f"it is being emptied: {counted(len(row.jobs), 'job')} left"
    return f"{counted(len(row.jobs), 'job')} left; what runs at {moment(row.drain_deadline_ms)} is stopped"


async def _cell_time(access: Access, cell: str) -> int:
    """The cell's time now, by its view."""
    async with access.client() as client:
        return cell_now_ms((await patiently(lambda: client.summary(cell))).at_ms)


def _give(access: Access, cell: str, wishes: Mapping[str, Operation], timeout_s: int, *, as_json: bool) -> None:
    """Give the commands, one for each node, and tell what came of each."""
    answers = run(answers_to(access, wishes, (NodeChanged, MaintenanceSet), timeout_s * 1000))
    tell_each(answers, timeout_s, as_json=as_json, hints=unknown_among(access, cell, answers))
