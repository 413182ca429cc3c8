"""How far an array is: its elements by status, and where each of them is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from services.cli.counts import counted
from services.cli.output import print_line, print_table
from shared.client.port import CellClient
from shared.cluster.arrays import is_element_of
from shared.cluster.job import JobStatus
from shared.events.values import ARRAY_MOST
from shared.view.rows import JobRow

ELEMENTS_SHOWN_MOST = 50


async def elements(client: CellClient, cell: str, array: str) -> tuple[JobRow, ...]:
    """The elements that the view knows, by index; none where this is no array. Raises as the client does."""
    page = (await client.jobs(cell, limit=2 * ARRAY_MOST, after=f"{array}.")).value
    found = [row for row in page if is_element_of(row.id, array)]
    return tuple(sorted(found, key=_index))


def _nodes(row: JobRow) -> str:
    return " ".join(dict.fromkeys(place.node for place in row.places))


def _index(row: JobRow) -> int:
    return int(row.id.rpartition(".")[2])


def tell(array: str, cell: str, rows: tuple[JobRow, ...]) -> None:
    """For people."""
    counts = ", ".join(f"{count} {status}" for status, count in _by_status(rows).items())
    print_line(f"array {array} of cell {cell}, {counted(len(rows), 'element')}: {counts}")
    open_rows = [row for row in rows if row.status is not JobStatus.FINISHED]
    shown = [
        (row.id, row.status, row.deferred or "", row.attempt, _nodes(row)) for row in open_rows[:ELEMENTS_SHOWN_MOST]
    ]
    if shown:
        print_table("elements that have not finished", ("ELEMENT", "STATUS", "WAITS FOR", ">ATTEMPT", "NODES"), shown)
    if len(open_rows) > ELEMENTS_SHOWN_MOST:
        print_line(f"and {len(open_rows) - ELEMENTS_SHOWN_MOST} more")


def as_object(rows: tuple[JobRow, ...]) -> dict[str, Any]:
    """For programs."""
    return {
        "elements": len(rows),
        "by_status": {str(status): count for status, count in _by_status(rows).items()},
        "jobs": {row.id: str(row.status) for row in rows},
    }


def _by_status(rows: tuple[JobRow, ...]) -> dict[JobStatus, int]:
    counts = Counter(row.status for row in rows)
    return {status: counts[status] for status in JobStatus if counts[status]}
