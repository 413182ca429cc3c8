"""How a job stands as the view knows it, and an array: by all of its elements, since none speaks for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from fallow.cli.cell.retry import patiently
from fallow.shared.client.port import CellClient
from fallow.shared.cluster.model.arrays import is_element_of
from fallow.shared.cluster.model.job import FINAL, WAITING, JobStatus
from fallow.shared.events.fields.values import ARRAY_MAX
from fallow.shared.view.reader import Read
from fallow.shared.view.rows import JobRow

FIRST_ROWS = 20
"""So many rows are read first where elements of an array may stand."""


async def rows_of(client: CellClient, cell: str, job: str, *, at_least: int | None = None) -> tuple[JobRow, ...]:
    """The rows of the job, asked for again while the view is being built. Raises as the client does."""
    return (await patiently(partial(read_of, client, cell, job, at_least=at_least))).value


async def read_of(client: CellClient, cell: str, job: str, *, at_least: int | None = None) -> Read[tuple[JobRow, ...]]:
    """The job's own row; of an array, which has none while it lives, those of its elements; none where the cell knows
    no such job. Raises as the client does.
    """
    read = await client.job(cell, job, at_least=at_least)
    if read.value is None:
        return await elements(client, cell, job, at_least=at_least)
    return Read((read.value,), read.version, read.offset, read.at_ms, read.is_fenced)


async def elements(
    client: CellClient, cell: str, array: str, *, at_least: int | None = None
) -> Read[tuple[JobRow, ...]]:
    """The elements that the view knows, by index; none where this is no array. Raises as the client does.

    Most ids that are looked for so are of no array: a few rows tell that, and all are read only where these do not.
    """
    first = f"{array}."
    read = await client.jobs(cell, limit=FIRST_ROWS, after=first, at_least=at_least)
    if len(read.value) == FIRST_ROWS and read.value[-1].id.startswith(first):
        read = await client.jobs(cell, limit=2 * ARRAY_MAX, after=first, at_least=at_least)
    found = [row for row in read.value if is_element_of(row.id, array)]
    return replace(read, value=tuple(sorted(found, key=lambda row: int(row.id.rpartition(".")[2]))))


async def by_elements(client: CellClient, cell: str, job: str, rows: tuple[JobRow, ...]) -> tuple[JobRow, ...]:
    """These rows; where they are an array's own, which it has when it is over, those of the elements that the view
    still knows: its own tells the worst end of all. Raises as the client does.
    """
    if len(rows) != 1 or rows[0].id != job or rows[0].status not in FINAL:
        return rows
    return (await patiently(partial(elements, client, cell, job))).value or rows


def by_status(rows: Iterable[JobRow]) -> dict[JobStatus, int]:
    """How many there are in each status that there is, in the order of a job's life."""
    counts = Counter(row.status for row in rows)
    return {status: counts[status] for status in JobStatus if counts[status]}


def statuses(rows: Iterable[JobRow]) -> str:
    """How many jobs have each status, in words: `18 held, 1 running`."""
    return ", ".join(f"{count} {status}" for status, count in by_status(rows).items())


def standing(rows: Sequence[JobRow]) -> JobStatus:
    """The status of a job, or of an array: it is over when no element is left that is not, then as its worst one is."""
    found = {row.status for row in rows}
    living = next((row.status for row in rows if row.status not in FINAL), None)
    worst = (status for status in (JobStatus.FAILED, JobStatus.CANCELLED) if status in found)
    return living or next(worst, JobStatus.FINISHED)


def are_held(rows: Sequence[JobRow]) -> bool:
    """Whether there is one that waits, and all that wait are held: another hold would change nothing."""
    waiting = [row.status for row in rows if row.status in WAITING]
    return bool(waiting) and all(status is JobStatus.HELD for status in waiting)


def are_free(rows: Sequence[JobRow]) -> bool:
    """Whether there is one that waits, and none is held: a release would change nothing."""
    waiting = [row.status for row in rows if row.status in WAITING]
    return bool(waiting) and JobStatus.HELD not in waiting


def are_stopping(rows: Sequence[JobRow]) -> bool:
    """Whether there is one that is to stop, and no other is left that is not over."""
    living = [row.status for row in rows if row.status not in FINAL]
    return bool(living) and all(status is JobStatus.STOPPING for status in living)
