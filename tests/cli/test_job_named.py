"""A job is named by TENANT/ID, or by its id alone where it is clear whose it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import typer

from fallow.cli.failures import Exit
from fallow.cli.job.named import in_full, several
from fallow.shared.client.port import ClientUnavailable
from fallow.shared.view.reader import Read

LONGEST = f"{'t' * 63}/{'j' * 128}"


@dataclass
class Cells:
    """Clients of cells whose views know these jobs, in full, and whose logs tell of those. None: there is no view."""

    seen: Mapping[str, Sequence[str] | None]
    told: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(self.seen)

    async def names(self, cell: str, own: str, *, at_least: int | None = None) -> Read[tuple[str, ...]]:
        self.asked.append(f"view {cell}")
        known = self.seen[cell]
        if known is None:
            raise ClientUnavailable("Redis: it is away")
        return Read(tuple(job for job in known if job.endswith(f"/{own}")), 1, 0, 0)

    async def names_told(self, cell: str, own: str) -> tuple[str, ...]:
        self.asked.append(f"log {cell}")
        return tuple(job for job in self.told.get(cell, ()) if job.endswith(f"/{own}"))


BOTH = Cells({"east": ["vision/hello", "vision/once", "vision/many.3"], "west": ["search/hello", LONGEST]})


async def named(client: Cells, *typed: str, tenant: str | None = None, cell: str | None = None) -> list[str]:
    return await in_full(client, typed, tenant, cell)  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", ["search/hello", LONGEST, f"{LONGEST}.99", "nobody/nothing"])
async def test_a_job_in_full_is_that_job_and_nobody_is_asked(typed: str) -> None:
    nobody = Cells({"main": None})
    assert (await named(nobody, typed), nobody.asked) == ([typed], [])


async def test_an_id_alone_is_a_job_of_the_tenant_that_is_given() -> None:
    nobody = Cells({"main": None})
    assert await named(nobody, "hello", "hello.3", tenant="ads") == ["ads/hello", "ads/hello.3"]
    assert not nobody.asked


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
    said = "hello is a job of search and of vision: search/hello, vision/hello"
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


async def test_where_a_view_knows_the_job_the_log_is_not_read() -> None:
    client = Cells({"east": ["vision/hello"], "west": None}, {"east": ["search/hello"]})
    assert await named(client, "hello") == ["vision/hello"]
    assert not [each for each in client.asked if each.startswith("log")]


def test_of_very_many_jobs_the_first_are_told() -> None:
    jobs = [f"t-{number:02}/a" for number in range(12)]
    told = several("a", jobs)
    assert told.startswith("a is a job of t-00, of t-01, ")
    assert told.endswith(", t-08/a, t-09/a and 2 more")
    assert ", of t-09 and of 2 more: t-00/a, " in told
