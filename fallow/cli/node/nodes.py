"""`fallow nodes`."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.cell.retry import patiently
from fallow.cli.job.jobs import as_object
from fallow.cli.log.newest import newest_state
from fallow.cli.log.sentences import devices
from fallow.cli.node.emptying import TO_TAKE_OUT, is_empty, named
from fallow.cli.node.silence import silence, silence_lines
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import window
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence, print_table
from fallow.shared.events.fields.values import GPU
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.view.reader import Read
from fallow.shared.view.rows import NodeRow

app = typer.Typer()

COLUMNS = ("NODE", "POOL", "STATUS", ">GPUS", ">FREE", ">IN USE", "FAILED", "JOBS", "REMARK")
SPARE = ("IN USE", "GPUS", "POOL", "FAILED")


@app.command()
def nodes(context: typer.Context, cell: CellName = None, as_json: AsJson = False) -> None:
    """List nodes with their free GPUs and what runs on them."""
    access = access_of(context)
    name = access.cell(cell)
    read = run(_nodes(access, name))
    if as_json:
        print_json(as_object(name, read, "nodes"))
        return
    silent = sum(node.silent_wall_ms > 0 for node in read.value)
    state, now_ms = (run(newest_state(access, name)) if silent else None), wall_ms()
    told = {} if state is None else {node_id: silence(state.nodes[node_id], now_ms) for node_id in sorted(state.silent)}
    title = f"{counted(len(read.value), 'node')} of cell {name} at version {read.version}, {gpus_free(read.value)}"
    title += f", {silent} silent" if silent else ""
    print_table(title, COLUMNS, [_row(node, told.get(node.id, "")) for node in read.value], SPARE)
    if any(map(is_empty, read.value)):
        print_sentence(f"Of an empty node: {TO_TAKE_OUT}.")
    if state is not None:
        for line in silence_lines(state, [state.nodes[node_id] for node_id in sorted(state.silent)]):
            print_sentence(line)


def gpus_free(nodes: Sequence[NodeRow]) -> str:
    """How many GPUs are free where new work may come, and how many elsewhere."""
    free = sum(node.gpus_free for node in nodes if node.takes_work)
    idle = sum(node.gpus_free for node in nodes) - free
    elsewhere = f", {idle:,} more on nodes that take nothing" if idle else ""
    return f"{counted(free, 'GPU')} free{elsewhere}"


async def _nodes(access: Access, cell: str) -> Read[tuple[NodeRow, ...]]:
    async with access.client() as client:
        return await patiently(lambda: client.nodes(cell))


def maintenance(node: NodeRow) -> str:
    """When maintenance of the node is planned, or goes on, and why."""
    if node.maintenance_ms is None:
        return ""
    return f"maintenance {window(*node.maintenance_ms, node.maintenance_why)}"


def _row(node: NodeRow, silent: str) -> tuple[object, ...]:
    loan = "" if node.loan is None else f"loan {node.loan} ({node.loan_status})"
    return (
        node.id,
        node.pool,
        node.status,
        node.gpus,
        node.gpus_free,
        f"{node.allocated_milli / GPU:g}",
        devices(node.gpus_failed),
        named(node.jobs),
        ", ".join(filter(None, (silent, "empty" if is_empty(node) else "", node.reason, maintenance(node), loan))),
    )
