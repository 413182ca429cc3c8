"""Who mistypes a job's id is told the one that was meant, where the view knows one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from fallow.cli.job.meant import hint_by, hint_of_no
from fallow.shared.client.port import CellClient, ClientUnavailable, News
from fallow.shared.events.effects import JobRefused
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RefuseCode, RejectCode
from fallow.shared.view.reader import Read


@dataclass
class Row:
    id: str


class View:
    """Of two cells, the second of which cannot be read."""

    cells: tuple[str, ...] = ("main", "away")

    async def jobs(self, cell: str, *, limit: int) -> Read[tuple[Any, ...]]:
        assert limit > 0
        if cell == "away":
            raise ClientUnavailable("Redis is away")
        return Read((Row("vision/hello"), Row("search/many")), 1, 1, 1)

    async def names(self, cell: str, own: str) -> Read[tuple[str, ...]]:
        if cell == "away":
            raise ClientUnavailable("Redis is away")
        return Read(tuple(sorted(f"{tenant}/{own}" for tenant in TENANTS.get((cell, own), ()))), 1, 1, 1)


TENANTS = {
    ("main", "hello"): ("vision",),
    ("main", "many.3"): ("search", "vision"),
    ("north", "train"): ("ads", "vision"),
    ("south", "train"): ("search",),
}


class OneCell(View):
    cells = ("main",)


class TwoCells(View):
    cells = ("north", "south")

    async def jobs(self, cell: str, *, limit: int) -> Read[tuple[Any, ...]]:
        return Read((), 1, 1, 1)


async def test_the_job_that_is_most_like_the_word_is_named() -> None:
    client = cast("CellClient", View())
    assert await hint_by(client, "helo", None) == " (did you mean vision/hello?)"
    assert await hint_by(client, "vision/helo", None) == " (did you mean vision/hello?)"
    assert await hint_by(client, "manny", "main") == " (did you mean search/many?)"


@pytest.mark.parametrize("job", ["vision/hello", "vision/many.3"])
async def test_a_job_that_the_view_knows_by_this_very_name_is_what_was_meant(job: str) -> None:
    """Also one that stands behind those that the view lists."""
    assert not await hint_by(cast("CellClient", View()), job, None)
    assert not await hint_by(cast("CellClient", OneCell()), job, "main")


async def test_without_such_a_job_or_without_a_view_nothing_is_named() -> None:
    client = cast("CellClient", View())
    assert not await hint_by(client, "quite-another", None)
    assert not await hint_by(client, "helo", "away")


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("search/hello", "search has no job hello; there is vision/hello"),
        ("ads/many.3", "ads has no job many.3; there are search/many.3, vision/many.3"),
    ],
)
async def test_the_right_id_under_a_wrong_tenant_is_told_with_the_jobs_that_have_it(job: str, told: str) -> None:
    assert await hint_by(cast("CellClient", OneCell()), job, None) == f" ({told})"
    assert await hint_by(cast("CellClient", OneCell()), job, "main") == f" ({told})"


async def test_where_there_are_several_cells_each_of_them_is_named() -> None:
    client = cast("CellClient", TwoCells())
    told = "lab has no job train; there are ads/train in north, search/train in south, vision/train in north"
    assert await hint_by(client, "lab/train", None) == f" ({told})"
    assert await hint_by(client, "lab/train", "south") == f" ({told})"


async def test_a_job_of_another_cell_than_the_one_that_is_named_is_told_with_its_cell() -> None:
    assert await hint_by(cast("CellClient", TwoCells()), "ads/train", "south") == " (it is a job of cell north)"


NO_JOB = JobRefused(job="search/hello", request="hold", code=RefuseCode.UNKNOWN_JOB)
NO_TENANT = JobRejected(
    cell="main", job="search/hello", tenant="search", command="cancel", code=RejectCode.UNKNOWN_TENANT
)
OVER = JobRefused(job="search/hello", request="hold", code=RefuseCode.ALREADY_OVER)


@pytest.mark.parametrize(("event", "is_told"), [(NO_JOB, True), (NO_TENANT, True), (OVER, False)])
async def test_a_no_of_the_cell_to_such_a_name_is_told_so_too(event: JobRefused | JobRejected, is_told: bool) -> None:
    hint = await hint_of_no(cast("CellClient", OneCell()), "search/hello", None, [News("main", event)])
    assert hint == ("no job search/hello (search has no job hello; there is vision/hello)" if is_told else "")
