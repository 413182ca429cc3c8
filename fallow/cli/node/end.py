"""`fallow node lost` and `fallow node remove`: the end of nodes, of one or of several at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from fallow.cli.access import access_of, run
from fallow.cli.arguments.ids import a_node, a_reason
from fallow.cli.errors.failures import Exit, end_with, say
from fallow.cli.node.answers import answers_to, rows_by_id, tell_each, unknown_among
from fallow.cli.node.emptying import named
from fallow.cli.node.operate import operation
from fallow.cli.output.output import AsJson, CellName
from fallow.cli.question import NOTHING_DONE, agreed
from fallow.shared.events.effects import LeaseExpired, NodeRemoved
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import DeclareLost, RemoveNode
from fallow.shared.view.rows import NodeRow

Nodes = Annotated[
    list[str], typer.Argument(metavar="NODE...", callback=a_node, help="The nodes' ids.", show_default=False)
]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answers.")]


def lost(
    context: typer.Context,
    nodes: Nodes,
    reason: Annotated[str, typer.Option(callback=a_reason, help="Words that the log keeps.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Also nodes that report, without being asked.")] = False,
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Declare nodes lost at once: their work is queued again. Only for nodes that are powered off, since what still
    runs there would run twice. For a node that reports you are asked first.

    Exit 1 if one is refused, 3 if one is not answered in time.
    """
    access = access_of(context)
    name = access.cell(cell)
    wishes = {node: operation(DeclareLost, cell=name, node=node, reason=reason) for node in nodes}
    if not yes:
        _ask(_reporting(run(rows_by_id(access, name)), list(wishes)))
    answers = run(answers_to(access, wishes, (LeaseExpired,), timeout_s * 1000))
    tell_each(answers, timeout_s, as_json=as_json, hints=unknown_among(access, name, answers))


def remove(
    context: typer.Context, nodes: Nodes, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Remove lost nodes on which nothing is held any more. If one comes back, it joins as a new one.

    Exit 1 if one is refused, 3 if one is not answered in time.
    """
    access = access_of(context)
    name = access.cell(cell)
    wishes = {node: operation(RemoveNode, cell=name, node=node) for node in nodes}
    answers = run(answers_to(access, wishes, (NodeRemoved,), timeout_s * 1000))
    tell_each(answers, timeout_s, as_json=as_json, hints=unknown_among(access, name, answers))


def _reporting(rows: Mapping[str, NodeRow], nodes: Sequence[str]) -> list[NodeRow]:
    """Those of these nodes of which the cell hears."""
    found = [rows[node] for node in nodes if node in rows]
    return [row for row in found if row.status is not NodeStatus.LOST and not row.silent_wall_ms]


def _ask(reporting: Sequence[NodeRow]) -> None:
    """Ends the command where a node reports and nothing but its loss is to be had from it."""
    for row in reporting:
        say(f"fallow: {_what_happens(row)}")
    if not reporting:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        end_with(Exit.USAGE, "fallow: nothing was done; give --yes to declare lost what reports")
    if not agreed("Declare lost all the same?"):
        end_with(Exit.NO, NOTHING_DONE)


def _what_happens(row: NodeRow) -> str:
    if not row.jobs:
        what = "nothing is queued again: it is idle"
    elif len(row.jobs) == 1:
        what = f"its job {named(row.jobs)} is queued again while it may still run there"
    else:
        what = f"its jobs {named(row.jobs)} are queued again while they may still run there"
    return f"node {row.id} is {row.status} and reports. If it is declared lost, {what}."
