"""`fallow node`: what may happen on one node."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.access import Access, access_of, run
from services.cli.failures import Exit, end_with
from services.cli.moments import CALENDAR_FROM_MS
from services.cli.operate import give, operation, tell_answer
from services.cli.output import AsJson, CellName
from services.cli.patience import patiently
from services.cli.when import DURATION_RULE, duration_of
from shared.client.port import News
from shared.events.effects import NodeChanged, ProposalRefused
from shared.events.operations import Cordon, Drain, Operation, Uncordon
from shared.runtime.clocks import wall_ms

app = typer.Typer(no_args_is_help=True, help="Close a node for new work, empty it, open it again.")

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="The node's id.", show_default=False)]
Reason = Annotated[str, typer.Option(help="Words that are shown with the node.")]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")]


@app.command()
def cordon(
    context: typer.Context,
    node: NodeName,
    reason: Reason = "",
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Place nothing new on a node. What runs there goes on."""
    access = access_of(context)
    _give(access, operation(Cordon, cell=access.cell(cell), node=node, reason=reason), node, timeout_s, as_json=as_json)


@app.command()
def uncordon(
    context: typer.Context, node: NodeName, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Use a node again that was cordoned or drained."""
    access = access_of(context)
    _give(access, operation(Uncordon, cell=access.cell(cell), node=node), node, timeout_s, as_json=as_json)


@app.command()
def drain(
    context: typer.Context,
    node: NodeName,
    within: Annotated[
        str | None, typer.Option(help="How long runs may go on: 90s, 10min, 2h. None: not at all.")
    ] = None,
    reason: Reason = "",
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Empty a node: nothing new, and what still runs in the end is stopped and queued again."""
    access = access_of(context)
    name = access.cell(cell)
    more_ms = None if within is None else duration_of(within)
    if within is not None and more_ms is None:
        end_with(Exit.USAGE, f"fallow: --within = {within!r}: must be {DURATION_RULE}")
    deadline_ms = None if more_ms is None else run(_cell_time(access, name)) + more_ms
    wish = operation(Drain, cell=name, node=node, deadline_ms=deadline_ms, reason=reason)
    _give(access, wish, node, timeout_s, as_json=as_json)


async def _cell_time(access: Access, cell: str) -> int:
    """The cell's time by its view; a cell that runs by the calendar may have been quiet since."""
    async with access.client() as client:
        at_ms = (await patiently(lambda: client.summary(cell))).at_ms
    return max(at_ms, wall_ms()) if at_ms >= CALENDAR_FROM_MS else at_ms


def _give(access: Access, wish: Operation, node: str, timeout_s: int, *, as_json: bool) -> None:
    def is_answer(news: News) -> bool:
        event = news.event
        if isinstance(event, ProposalRefused):
            return event.proposal == node
        return isinstance(event, NodeChanged) and event.spec.id == node

    answer = run(give(access, wish, is_answer, timeout_s * 1000))
    tell_answer({"node": node}, answer, as_json=as_json)
