"""A job is named by TENANT/ID, or by its id alone where it is clear whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import typer

from fallow.cli.errors.failures import Exit
from fallow.cli.job import named as naming
from fallow.cli.job.named import Named, in_full, one_in_full, several
from fallow.shared.client.port import ClientUnavailable
from fallow.shared.events.decisions import Decision
from fallow.shared.view.reader import Read

LONGEST = f"{'t' * 63}/{'j' * 128}"

VIEWED = 5
"""The version that each view is at."""


@dataclass
class Cells:
    """Clients of cells whose views know these jobs, in full, and whose logs tell of those. None: there is no view."""

    seen: Mapping[str, Sequence[str] | None]
    told: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    ends: Mapping[str, int] = field(default_factory=dict)
    reading_s: float = 0.0
    """So long each log is read."""

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(self.seen)

    async def names(self, cell: str, own: str, *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        self.asked.append(f"view {cell}")
        known = self.seen[cell]
        if known is None or (at_least or 0) > VIEWED:
            raise ClientUnavailable("Redis: it is away")
        return Read(tuple(job for job in known if job.endswith(f"/{own}")), 1, 0, 0)

    async def newest(self, cell: str, count: int, *, follow: bool = False) -> AsyncGenerator[Decision, None]:
        for version in range(self.ends.get(cell, 0), 0, -1):
            yield Decision(cell=cell, version=version, epoch=1, at_ms=0)
            return

    async def names_told(self, cell: str, own: str) -> tuple[str, ...]:
        self.asked.append(f"log {cell}")
        await asyncio.sleep(self.reading_s)
        return tuple(job for job in self.told.get(cell, ()) if job.endswith(f"/{own}"))


BOTH = Cells({"east": ["vision/hello", "vision/once", "vision/many.3"], "west": ["search/hello", LONGEST]})


async def named(client: Cells, *typed: str, tenant: str | None = None, cell: str | None = None) -> list[str]:
    return await in_full(client, typed, tenant, cell)  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", ["search/hello", LONGEST, f"{LONGEST}.99", "absent/nothing"])
async def test_a_job_in_full_is_that_job_and_no_cell_is_asked(typed: str) -> None:
    cells = Cells({"main": None})
    assert (await named(cells, typed), cells.asked) == ([typed], [])


async def test_an_id_alone_is_a_job_of_the_tenant_that_is_given() -> None:
    cells = Cells({"main": None})
    assert await named(cells, "hello", "hello.3", tenant="ads") == ["ads/hello", "ads/hello.3"]
    assert not cells.asked


@pytest.mark.parametrize(
    ("typed", "job"), [("once", "vision/once"), ("many.3", "vision/many.3"), (LONGEST[64:], LONGEST)]
)
async def test_without_a_tenant_it_is_the_only_job_of_that_id_in_all_cells(typed: str, job: str) -> None:
    assert await named(BOTH, typed) == [job]


@pytest.mark.parametrize(("cell", "job"), [("east", "vision/hello"), ("west", "search/hello")])
async def test_without_a_tenant_it_is_the_only_job_of_that_id_in_the_cell_that_is_given(cell: str, job: str) -> None:
    assert await named(BOTH, "hello", cell=cell) == [job]


async def test_of_several_jobs_all_are_told_and_the_command_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        await named(BOTH, "once", "hello")
    assert ended.value.exit_code == Exit.USAGE
    said = "several tenants have a job hello: name one, as search/hello or vision/hello, or give --tenant"
    assert capsys.readouterr().err == f"fallow: {said}\n"


async def test_the_same_job_named_twice_is_one() -> None:
    assert await named(BOTH, "once", "vision/once") == ["vision/once"]


async def test_an_id_that_no_tenant_has_stays_as_it_was_typed() -> None:
    assert await named(BOTH, "none") == ["none"]


async def test_a_job_in_full_is_that_job_whatever_tenant_is_given_for_others() -> None:
    assert await named(BOTH, "vision/hello", "hello", tenant="search") == ["vision/hello", "search/hello"]


@pytest.mark.parametrize("seen", [None, []])
async def test_where_no_view_knows_the_job_the_log_is_asked(seen: list[str] | None) -> None:
    client = Cells({"east": seen, "west": []}, {"west": ["vision/hello"]})
    assert await named(client, "hello") == ["vision/hello"]
    assert client.asked == ["view east", "view west", "log east", "log west"]


async def test_where_the_views_know_the_job_no_log_is_read() -> None:
    client = Cells({"east": ["vision/hello"], "west": []}, {"east": ["search/hello"]})
    assert await named(client, "hello") == ["vision/hello"]
    assert not [each for each in client.asked if each.startswith("log")]


async def test_a_cell_whose_view_is_away_is_asked_by_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    client = Cells({"east": ["search/train"], "west": None}, {"west": ["vision/train"]})
    with pytest.raises(typer.Exit):
        await named(client, "train")
    assert "search/train or vision/train" in capsys.readouterr().err


@pytest.mark.parametrize("end", [VIEWED, VIEWED + 1])
async def test_what_changes_a_job_goes_by_all_that_the_log_holds(end: int) -> None:
    """A view that is a moment behind may not know yet that another tenant has the id, too."""
    client = Cells({"main": ["search/train"]}, {"main": ["search/train", "vision/train"]}, ends={"main": end})
    if end > VIEWED:
        with pytest.raises(typer.Exit):
            await in_full(client, ["train"], None, None, at_end=True)  # type: ignore[arg-type]
    else:
        assert await in_full(client, ["train"], None, None, at_end=True) == ["search/train"]  # type: ignore[arg-type]


async def test_a_job_of_one_name_in_two_cells_is_told_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    client = Cells({"east": ["vision/train"], "west": ["vision/train"]})
    with pytest.raises(typer.Exit):
        await named(client, "train")
    said = "vision/train is a job in east and in west: name its cell by --cell"
    assert capsys.readouterr().err == f"fallow: {said}\n"


async def test_ids_typed_twice_are_looked_up_once() -> None:
    client = Cells({"main": []})
    assert await named(client, "nope", "nope") == ["nope"]
    assert client.asked == ["view main", "log main"]


def test_of_very_many_jobs_the_first_are_told() -> None:
    jobs = [f"t-{number:02}/a" for number in range(12)]
    told = several("a", jobs)
    assert told.startswith("several tenants have a job a: name one, as t-00/a, t-01/a, ")
    assert told.endswith(", t-08/a, t-09/a or one of 2 more, or give --tenant")


TWICE = "vision/train is a job in east and in west: name its cell by --cell"


@pytest.mark.parametrize(("typed", "tenant"), [("vision/train", None), ("train", "vision"), ("train", None)])
@pytest.mark.parametrize("west", [["vision/train"], None])
async def test_a_job_that_two_cells_have_is_never_taken_for_one_of_them_however_it_is_named(
    typed: str, tenant: str | None, west: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Cells({"east": ["vision/train"], "west": west}, {"west": ["vision/train", "search/other"]})
    with pytest.raises(typer.Exit) as ended:
        await named(client, typed, tenant=tenant)
    assert ended.value.exit_code == Exit.USAGE
    assert capsys.readouterr().err == f"fallow: {TWICE}\n"
    assert await named(client, typed, tenant=tenant or "vision", cell="west") == ["vision/train"]


async def test_other_tenants_jobs_of_the_same_id_are_no_matches_of_a_job_in_full() -> None:
    client = Cells({"east": ["search/train"], "west": ["vision/train", "ads/train"]})
    assert await named(client, "vision/train") == ["vision/train"]


@dataclass
class Place:
    """As much of the command's access as naming a job takes."""

    cells: Cells

    @asynccontextmanager
    async def client(self, *, tells_fence: bool) -> AsyncIterator[Cells]:
        assert not tells_fence
        yield self.cells


@pytest.mark.parametrize("typed", ["vision/train", "train"])
async def test_the_cell_that_has_the_job_is_known_from_then_on(typed: str) -> None:
    """The log of another cell may still tell of an older job of that name."""
    place = Place(Cells({"east": [], "west": ["vision/train"]}, {"east": ["vision/train"]}))
    assert await one_in_full(place, typed, None, None) == Named("vision/train", "west")  # type: ignore[arg-type]


@pytest.mark.parametrize(("typed", "way"), [("train", "TENANT/ID, or --tenant, that"), ("vision/train", "--cell that")])
async def test_that_a_log_is_read_for_long_is_told_with_what_does_without_it(
    typed: str, way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(naming, "SAY_AFTER_S", 0.01)
    quick, slow = (Cells({"east": [], "west": []}, {"west": ["vision/train"]}, reading_s=each) for each in (0, 0.1))
    assert await named(quick, typed) == ["vision/train"]
    await asyncio.sleep(0.05)
    assert not capsys.readouterr().err
    assert await named(slow, typed) == ["vision/train"]
    assert capsys.readouterr().err.splitlines() == [
        f"fallow: no view tells of job {typed}: the log of cell {cell} is read to its end; with {way} is not needed"
        for cell in ("east", "west")
    ]
