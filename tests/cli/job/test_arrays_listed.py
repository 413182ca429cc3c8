"""In lists an array that is over is no job: its elements are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.job import jobs
from fallow.cli.log.at import as_object
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.view.keys import keys_of
from fallow.shared.view.lupa_view import LuaFunctions
from fallow.shared.view.reader import Read
from fallow.shared.view.row_batch import Rows, Stand, Totals
from fallow.shared.view.rows import JobRow
from fallow.shared.view.store import CellView
from tests.cluster.worlds.examples import cell, enqueued
from tests.hypothesis_profile import reaches

IDS = ["a", "a-1", "a.0", "a.1", "a.10", "ab", "ab.0x", "b", "b.0", "b.0-a", "c.0", "c.1", "d", "d.0-a", "d.0-b", "d.1"]
"""The arrays `a`, `b` and `d` are over, `d` without its first element; jobs are named nearly as elements are.
Of `c` an element is left, so that it has no row.
"""
ROWS = [JobRow(f"ada/{each}", "ada", JobStatus.QUEUED if each == "c.1" else JobStatus.FINISHED) for each in IDS]
ARRAYS = {"ada/a", "ada/b", "ada/d"}


class Client:
    """A client of a cell with these jobs."""

    async def jobs(self, cell: str, *, limit: int, after: str, **_: Any) -> Read[tuple[JobRow, ...]]:
        behind = sorted((row for row in ROWS if row.id > after), key=lambda row: row.id)
        return Read(tuple(behind[:limit]), 1, 0, 0)

    async def arrays(self, cell: str, jobs: Sequence[str]) -> Read[tuple[str, ...]]:
        answer = await FUNCTIONS.call("read_arrays", KEYS, jobs)
        return Read(tuple(answer[4:]), 1, 0, 0)


async def put_view() -> None:
    """A view of these jobs."""
    view = CellView(FUNCTIONS, KEYS)
    rows = [(row.id, f"ada {row.status} \n{row.id}") for row in ROWS]
    await view.begin_rebuild("t/1", None, 0)
    await view.load_rows("t/1", Rows(jobs=rows), 0)
    assert await view.finish_rebuild("t/1", Stand(1, 1, "c", 0, "[]"), Totals(len(rows), 0, 0, 0))


FUNCTIONS, KEYS = LuaFunctions(), keys_of("t", "main")
asyncio.run(put_view())


@given(limit=st.integers(1, len(IDS) + 1))
def test_pages_of_any_length_tell_arrays_from_jobs(limit: int) -> None:
    found, after, is_cut = set[str](), "", True
    while is_cut:
        read, is_cut, arrays = asyncio.run(jobs.page_of(Client(), "main", None, (), limit, after))  # type: ignore[arg-type]
        assert arrays <= {row.id for row in read.value}
        found |= arrays
        after = read.value[-1].id if read.value else ""
    reaches("elements stand on another page than their array", limit < len(IDS))
    assert found == ARRAYS


def test_the_title_counts_jobs_and_arrays_apart() -> None:
    assert jobs.told_apart(3, 0) == "3 jobs"
    assert jobs.told_apart(1, 1) == "1 job and 1 array that is over"
    assert jobs.told_apart(1_000, 2) == "1,000 jobs and 2 arrays that are over"
    over = JobRow("ada/a", "ada", JobStatus.FINISHED, over_ms=7)
    assert jobs._row(over, is_array=True)[-1] == "array, ended day 0 00:00:00"


def test_a_cell_of_then_counts_them_apart_too() -> None:
    elements = [enqueued(f"many.{at}", array=2, array_of="many", array_index=at) for at in range(2)]
    state = cell(enqueued("one"), *elements, *(e.JobCancelled(job=each.spec.id) for each in elements))
    told = as_object(state)
    assert (told["jobs_by_status"], told["jobs_over"]) == ({"cancelled": 2, "queued": 1}, 2)
