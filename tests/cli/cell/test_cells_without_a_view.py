"""Where the view does not answer, the log tells in which cell a job is; and which right a user may lack."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from typing import NoReturn

import pytest

from fallow.cli.cells_there import none_seen
from fallow.cli.job.cancel import Whereabouts, outcome_of, whereabouts
from fallow.shared.client.port import ClientUnavailable, Mark, News, ViewUnanswering
from fallow.shared.events import effects as e
from fallow.shared.runtime.kafka_access import KafkaAccess, Protocol

SECURED = KafkaAccess("a:1", Protocol.SASL_SSL, username="ada", password="x")
BY_CERTIFICATE = KafkaAccess("a:1", Protocol.SSL)


@dataclass
class Away:
    """A client of two cells without a view, whose logs tell of these jobs."""

    north: Collection[str] = ()
    south: Collection[str] = ()
    why: str = "Redis: no Redis at a:1: Connection refused"
    cells: tuple[str, ...] = ("north", "south")

    async def job(self, *_: object, **__: object) -> NoReturn:
        raise (ViewUnanswering if self.why.startswith("Redis") else ClientUnavailable)(self.why)

    async def story(self, cell: str, job: str) -> AsyncGenerator[News, None]:
        if job in (self.north if cell == "north" else self.south):
            yield News(cell, e.JobReleased(job=job), 7)

    async def cancel(self, job: str, tenant: str, *, cell: str | None = None, reason: str = "") -> Mark:
        return Mark({f"{tenant} cancels {job} in {cell}": 0})

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        return ()

    async def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        (said,) = since.offsets
        assert said == "vision cancels vision/train in south"
        while True:
            yield [News("south", e.JobCancelled(job="vision/train"), 8)]


@pytest.mark.parametrize("cell", [None, "south"])
@pytest.mark.parametrize("told", ["vision/train", "vision/train.0"])
async def test_the_log_tells_where_a_job_or_an_array_is(told: str, cell: str | None) -> None:
    client = Away(["vision/other"], [told])
    found = await whereabouts(client, "vision/train", cell)  # type: ignore[arg-type]
    assert found == Whereabouts("south", None, is_known=True)


async def test_a_job_in_one_of_two_cells_is_cancelled_without_a_view() -> None:
    client = Away((), ["vision/train"])
    found = await outcome_of(client, "vision/train", None, None, "", 1_000)  # type: ignore[arg-type]
    assert found == [News("south", e.JobCancelled(job="vision/train"), 8)]


async def test_where_the_log_does_not_tell_either_the_error_says_what_would_do() -> None:
    with pytest.raises(ClientUnavailable, match=r"Redis: .*; with --cell and TENANT/ID no view is needed"):
        await whereabouts(Away(), "vision/train", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("cell", "why"), [("north", "Redis: away"), (None, "Kafka: away")])
async def test_it_says_no_such_thing_where_that_would_not_help(cell: str | None, why: str) -> None:
    with pytest.raises(ClientUnavailable, match=r"away$"):
        await whereabouts(Away(why=why), "vision/train", cell)  # type: ignore[arg-type]


def test_who_sees_no_topics_at_an_open_kafka_has_named_another_namespace() -> None:
    assert none_seen("moon", KafkaAccess("a:1")) == (
        "there are no topics of namespace moon (FALLOW_NAMESPACE) at this Kafka: another name was meant, "
        "or `fallow topics create` has not made them yet"
    )


@pytest.mark.parametrize(("kafka", "who"), [(SECURED, "user ada"), (BY_CERTIFICATE, "this user")])
def test_at_a_kafka_that_asks_who_comes_it_may_be_a_right_that_is_missing(kafka: KafkaAccess, who: str) -> None:
    told = none_seen("moon", kafka)
    assert told.startswith(
        f"{who} sees no topics of namespace moon (FALLOW_NAMESPACE) at this Kafka: it may have no right"
    )
    assert "deploy/kafka/access.yaml" in told
    assert told.endswith("another name was meant, or `fallow topics create` has not made them yet")
