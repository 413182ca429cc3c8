"""`fallow queue`: the lines in which jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from fallow.cli.access import access_of, run
from fallow.cli.cell.now import cell_now_ms
from fallow.cli.errors.failures import refuse
from fallow.cli.job.story.why_waits import waits
from fallow.cli.log.newest import newest_state
from fallow.cli.log.sentences import gpus
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import to_the_second
from fallow.cli.output.output import AsJson, CellName, print_json, print_line, print_table
from fallow.services.placement.explain.queue_listing import QueueListing, WaitingJob, listings_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.job_ids import own_id, parted
from fallow.shared.near import first_named, listed, meant

app = typer.Typer(no_args_is_help=True, help="List the waiting jobs of queues, in the order of their turns.")

COLUMNS = ("JOB", ">PLACE", ">GPUS", ">PRIORITY", "SUBMITTED", "WHY", "PLANNED START", "KEPT FOR IT")
SPARE = ("SUBMITTED", "PRIORITY")
NAMED_MAX = 2
"""So many nodes, and so many jobs that hold them, are named in a row."""

ROWS_MAX = 10_000


@app.callback()
def _group() -> None:
    """Keep `list` a command behind the noun though it is the only one."""


@app.command("list")
def list_queues(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="One queue; all if none.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=ROWS_MAX, help="So many jobs of each queue at most.")] = 20,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """List the waiting jobs of each queue in the order of their turns: why each waits, when it is planned to start,
    which nodes are kept for it until then, and which jobs run there.

    Each job is behind all jobs above it; one without a place stands in no line, since others yield to it already. In a
    queue by fair shares the order supposes room for every job.
    """
    access = access_of(context)
    name = access.cell(cell)
    queues = access.cells().cell(name).queues
    names = [each.name for each in queues]
    if queue is not None and queue not in names:
        refuse("QUEUE", queue, f"must be a queue of cell {name}: {listed(names)}{meant(queue, names)}")
    state = run(newest_state(access, name))
    found = listings_of(state, queues, cell_now_ms(state.at_ms), limit)
    chosen = [each for each in found if queue in (None, each.queue)]
    if as_json:
        print_json(as_object(state, chosen))
        return
    for each in chosen:
        _tell(state, each)


def as_object(state: CellState, found: list[QueueListing]) -> dict[str, Any]:
    """The queues for programs."""
    return {
        "cell": state.cell,
        "version": state.version,
        "at_ms": state.at_ms,
        "queues": [{**asdict(each), "jobs": [_job_object(job) for job in each.jobs]} for each in found],
    }


def _job_object(job: WaitingJob) -> dict[str, Any]:
    names = {"id": own_id(job.job), "tenant": parted(job.job)[0], "job": job.job}
    return {**asdict(job), **names, "place": None if job.place is None else job.place + 1}


def _tell(state: CellState, queue: QueueListing) -> None:
    title = f"Queue {queue.queue} of cell {state.cell} at version {state.version}: {', '.join(_counts(queue))}"
    print_table(title, COLUMNS, [_row(job) for job in queue.jobs], SPARE)
    if more := queue.waiting - len(queue.jobs):
        print_line(f"and {counted(more, 'job')} more: --limit")


def _counts(queue: QueueListing) -> Iterator[str]:
    rule = f"{queue.order}, {queue.discipline}" if queue.is_in_file else "not in the cell file any more"
    yield f"{rule}; {counted(queue.waiting, 'job')} waiting for {gpus(queue.gpus_milli)}"
    if queue.held:
        yield f"{queue.held:,} held"
    if queue.awaiting:
        yield f"{queue.awaiting:,} waiting for other jobs to end"
    if queue.at_array_limit:
        yield f"{queue.at_array_limit:,} beyond the limit of their arrays"


def _row(job: WaitingJob) -> tuple[object, ...]:
    return (
        job.job,
        "" if job.place is None else job.place + 1,
        gpus(job.gpus_milli).split()[0],
        job.priority,
        to_the_second(job.submit_ms),
        waits(job.why, "", ()) or "not looked at yet",
        "" if job.planned_start_ms is None else to_the_second(job.planned_start_ms),
        _kept(job),
    )


def _kept(job: WaitingJob) -> str:
    """The nodes that are kept for the job, and the jobs that run there now."""
    if not job.kept_nodes:
        return ""
    nodes = first_named(job.kept_nodes, NAMED_MAX)
    return f"{nodes}, held by {first_named(job.held_by, NAMED_MAX)}" if job.held_by else nodes
