"""`fallow node lost` and `fallow node remove`: the end of nodes, of one or of several at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.cell.retry import patiently
from fallow.cli.failures import Exit, end_with, say
from fallow.cli.ids import an_id
from fallow.cli.log.sentences import sentence
from fallow.cli.node.operate import REFUSALS, operation
from fallow.cli.output.output import AsJson, CellName, print_json, print_line
from fallow.cli.question import NOTHING_DONE, agreed
from fallow.shared.client.port import News
from fallow.shared.events.effects import Effect, LeaseExpired, NodeRemoved, ProposalRefused
from fallow.shared.events.operations import DeclareLost, Operation, RemoveNode
from fallow.shared.events.values import NodeStatus
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.view.rows import NodeRow

Nodes = Annotated[
    list[str], typer.Argument(metavar="NODE...", callback=an_id, help="The nodes' ids.", show_default=False)
]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answers.")]

JOBS_NAMED_MOST = 3


def lost(
    context: typer.Context,
    nodes: Nodes,
    reason: Annotated[str, typer.Option(help="Words that the log keeps.")] = "",
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
    name, named = access.cell(cell), list(dict.fromkeys(nodes))
    wishes = {node: operation(DeclareLost, cell=name, node=node, reason=reason) for node in named}
    if not yes:
        _ask(run(_reporting(access, name, named)))
    _end(run(_answers(access, wishes, timeout_s * 1000)), as_json=as_json)


def remove(
    context: typer.Context, nodes: Nodes, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Remove lost nodes on which nothing is held any more. If one comes back, it joins as a new one.

    Exit 1 if one is refused, 3 if one is not answered in time.
    """
    access = access_of(context)
    name = access.cell(cell)
    wishes = {node: operation(RemoveNode, cell=name, node=node) for node in dict.fromkeys(nodes)}
    _end(run(_answers(access, wishes, timeout_s * 1000)), as_json=as_json)


async def _reporting(access: Access, cell: str, nodes: Sequence[str]) -> list[NodeRow]:
    """Those of these nodes of which the cell hears."""
    async with access.client() as client:
        rows = (await patiently(lambda: client.nodes(cell))).value
    return [row for row in rows if row.id in nodes and row.status is not NodeStatus.LOST and not row.silent_wall_ms]


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
    named = ", ".join(job for job, _ in row.jobs[:JOBS_NAMED_MOST])
    more = len(row.jobs) - JOBS_NAMED_MOST
    if not row.jobs:
        what = "nothing is queued again: it is idle"
    elif len(row.jobs) == 1:
        what = f"its job {named} is queued again while it may still run there"
    else:
        rest = f" and {more} more" if more > 0 else ""
        what = f"its jobs {named}{rest} are queued again while they may still run there"
    return f"node {row.id} is {row.status} and reports. If it is declared lost, {what}."


async def _answers(access: Access, wishes: dict[str, Operation], wait_ms: int) -> dict[str, News | None]:
    """The log's answer for each node, None where there is none in time. Raises ClientUnavailable."""
    found: dict[str, News | None] = dict.fromkeys(wishes)
    async with access.client() as client:
        marks = [await client.operate(wish) for wish in wishes.values()]
        deadline_ms = monotonic_ms() + wait_ms
        async with aclosing(client.news(marks[0])) as stream:
            async for some in stream:
                for news in some:
                    node = _node_of(news.event)
                    if node in found and found[node] is None:
                        found[node] = news
                if None not in found.values() or monotonic_ms() > deadline_ms:
                    break
    return found


def _node_of(event: object) -> str:
    """The node that this answers a wish about."""
    if isinstance(event, ProposalRefused):
        return event.proposal
    return event.node if isinstance(event, LeaseExpired | NodeRemoved) else ""


def _end(answers: dict[str, News | None], *, as_json: bool) -> None:
    """Tell the outcome of each node; the exit code is that of the worst."""
    told = [_outcome(node, answer) for node, answer in answers.items()]
    if as_json:
        one = told[0] if len(told) == 1 else {"nodes": told}
        print_json({"ok": all(each["ok"] for each in told), **one})
    for each in told:
        if each["version"] is None:
            say(f"fallow: {each['answer']}")
        elif not as_json:
            print_line(str(each["answer"]))
    if not all(each["ok"] for each in told):
        is_refused = any(not each["ok"] and each["version"] is not None for each in told)
        raise typer.Exit(Exit.NO if is_refused else Exit.AWAY)


def _outcome(node: str, answer: News | None) -> dict[str, object]:
    if answer is None:
        said = f"no answer yet about {node}; the request is on its way"
        return {"node": node, "ok": False, "version": None, "answer": said}
    assert isinstance(answer.event, Effect), "answers come from the log of decisions"
    is_refused = isinstance(answer.event, REFUSALS)
    said = f"{node}: {answer.event.text}" if isinstance(answer.event, ProposalRefused) else sentence(answer.event)
    return {"node": node, "ok": not is_refused, "version": answer.version, "answer": said}
