"""How far an array is: its elements by status, and where each of them is."""

from __future__ import annotations

from typing import Any

from fallow.cli.job.jobs import NODES_NAMED_MAX
from fallow.cli.job.story.standing import by_status, statuses
from fallow.cli.job.story.why_waits import waits
from fallow.cli.output.counts import counted
from fallow.cli.output.output import print_line, print_sentence, print_table
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.near import first_named
from fallow.shared.view.rows import JobRow

COLUMNS = ("ELEMENT", "STATUS", "WAITS FOR", ">ATTEMPT", "NODES")

ELEMENTS_SHOWN_MAX = 50


def _nodes(row: JobRow) -> str:
    return first_named(list(dict.fromkeys(place.node for place in row.places)), NODES_NAMED_MAX)


def tell(array: str, cell: str, rows: tuple[JobRow, ...]) -> None:
    """For people."""
    print_sentence(f"array {array} of cell {cell}, {counted(len(rows), 'element')}: {statuses(rows)}")
    open_rows = [row for row in rows if row.status is not JobStatus.FINISHED]
    shown = [
        (
            row.id,
            row.status,
            waits(row.deferred, row.held_why, row.waits_for, row.waits_for_more),
            row.attempt,
            _nodes(row),
        )
        for row in open_rows[:ELEMENTS_SHOWN_MAX]
    ]
    if shown:
        print_table("elements that have not finished", COLUMNS, shown)
    if len(open_rows) > ELEMENTS_SHOWN_MAX:
        print_line(f"and {len(open_rows) - ELEMENTS_SHOWN_MAX} more")


def as_object(rows: tuple[JobRow, ...], own: JobRow | None) -> dict[str, Any]:
    """For programs. An array has a row of its `own` once it is over."""
    return {
        "elements": len(rows),
        "by_status": {str(status): count for status, count in by_status(rows).items()},
        "over_ms": None if own is None else own.over_ms,
        "jobs": {row.id: str(row.status) for row in rows},
    }
