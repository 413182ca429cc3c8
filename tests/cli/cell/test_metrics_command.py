"""`fallow metrics`: the figures of a cell from its log, for all of it and for a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from fallow.cli.cell.metrics_command import figures_between
from fallow.cli.log.past import Then, open_past
from fallow.shared.events.effects import JobFinished, WriterStarted
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from tests.cli.worlds.cells import publish
from tests.cli.worlds.logs import LogWriter, enqueued, node, place, started

LAYOUT = Layout("t", {"main": 0})
CHECKS = Path(__file__).parents[3] / "docs" / "checks.md"


def a_log() -> LogWriter:
    """One node of 8. A job holds 4 GPUs from second 2 to second 6; another comes at second 10 and waits."""
    log = LogWriter()
    log.write(WriterStarted(epoch=1, writer="placement"), node(0), at_ms=0)
    log.write(enqueued("first", 4), at_ms=1_000)
    log.write(started("first", place(0, 0, 1, 2, 3)), at_ms=2_000)
    log.write(JobFinished(job="first", attempt=1), at_ms=6_000)
    log.write(enqueued("second", 8, tenant="speech"), at_ms=10_000)
    return log


@pytest.fixture
async def log() -> MemoryLog:
    broker = MemoryBroker()
    for topic in ("decisions", "snapshots", "jobs"):
        broker.create_topic(f"t.{topic}", 1)
    found = MemoryLog(broker)
    await publish(found, a_log().records, "t")
    return found


async def told(log: MemoryLog, since: Then | None = None, until: Then | None = None) -> dict[str, Any]:
    async with open_past(log, LAYOUT, "main", since or Then(version=0)) as past:
        return await figures_between(past, since, until or Then())


async def test_of_the_whole_log_the_figures_are_those_of_its_time(log: MemoryLog) -> None:
    found = await told(log)
    assert (found["from_ms"], found["until_ms"], found["decisions"], found["version"]) == (0, 10_000, 5, 5)
    assert (found["gar_now"], found["sor"], found["waiting_jobs"]) == (0.0, 0.2, 1)
    assert found["gar_mean"] == pytest.approx(0.2)
    assert found["gfr_mean"] == pytest.approx(0.4)
    assert found["jwtd"]["2-4"]["count"] == 1
    assert found["jwtd"]["2-4"]["longest_ms"] == 2_000


async def test_pools_and_tenants_have_figures_of_their_own(log: MemoryLog) -> None:
    found = await told(log)
    assert found["pools"]["training"]["sor"] == pytest.approx(0.2)
    assert found["tenants"]["vision"]["sor"] == pytest.approx(0.2)
    assert (found["tenants"]["speech"]["sor"], found["tenants"]["speech"]["waiting_jobs"]) == (0.0, 1)


async def test_as_they_stood_at_a_version(log: MemoryLog) -> None:
    found = await told(log, until=Then(version=3))
    assert (found["version"], found["until_ms"], found["gar_now"], found["gfr_now"]) == (3, 2_000, 0.5, 1.0)


async def test_since_a_time_only_what_came_after_it_counts(log: MemoryLog) -> None:
    found = await told(log, since=Then(at_ms=4_000), until=Then(at_ms=8_000))
    assert (found["from_ms"], found["until_ms"]) == (4_000, 8_000)
    assert found["sor"] == pytest.approx(0.25)


async def test_since_a_time_before_the_log_is_since_the_log_begins(log: MemoryLog) -> None:
    late = LogWriter()
    late.write(node(0), at_ms=5_000)
    broker = MemoryBroker()
    for topic in ("decisions", "snapshots", "jobs"):
        broker.create_topic(f"t.{topic}", 1)
    younger = MemoryLog(broker)
    await publish(younger, late.records, "t")
    assert (await told(younger, since=Then(at_ms=1_000)))["from_ms"] == 5_000


LATE_MS = 1_790_000_000_000


async def at_rest(since: Then | None = None, until: Then | None = None) -> dict[str, Any]:
    """A cell by the calendar: a job of 4 of 8 GPUs runs from the first second on, another waits; a minute later."""
    quiet, broker = LogWriter(), MemoryBroker()
    quiet.write(node(0), enqueued("first", 4), enqueued("second", 8), at_ms=LATE_MS)
    quiet.write(started("first", place(0, 0, 1, 2, 3)), at_ms=LATE_MS + 10_000)
    for topic in ("decisions", "snapshots", "jobs"):
        broker.create_topic(f"t.{topic}", 1)
    await publish(MemoryLog(broker), quiet.records, "t")
    first, now_ms = since or Then(version=0), LATE_MS + 60_000
    async with open_past(MemoryLog(broker), LAYOUT, "main", first, wall=lambda: now_ms) as past:
        return await figures_between(past, since, until or Then())


async def test_in_a_cell_at_rest_the_figures_go_to_now() -> None:
    found = await at_rest()
    assert (found["until_ms"], found["waiting_oldest_ms"]) == (LATE_MS + 60_000, LATE_MS + 60_000)  # since 0
    assert found["sor"] == pytest.approx(50 / 120)
    since = await at_rest(since=Then(at_ms=LATE_MS + 30_000))
    assert (since["from_ms"], since["until_ms"], since["sor"]) == (LATE_MS + 30_000, LATE_MS + 60_000, 0.5)


@pytest.mark.parametrize(
    ("until", "after_ms"), [(Then(version=2), 10_000), (Then(at_ms=LATE_MS + 40_000), 40_000), (Then(version=1), 0)]
)
async def test_in_a_cell_at_rest_an_end_that_was_asked_for_stays(until: Then, after_ms: int) -> None:
    assert (await at_rest(until=until))["until_ms"] == LATE_MS + after_ms


async def test_figures_of_a_time_that_is_still_to_come_are_refused(log: MemoryLog) -> None:
    with pytest.raises(typer.Exit) as ended:
        await told(log, until=Then(at_ms=1_800_000_000_000))
    assert ended.value.exit_code == 1


async def test_an_end_before_the_beginning_is_wrong_use(log: MemoryLog) -> None:
    with pytest.raises(typer.Exit) as ended:
        await told(log, since=Then(version=4), until=Then(version=2))
    assert ended.value.exit_code == 2


async def test_every_key_stands_in_the_document(log: MemoryLog) -> None:
    found = await told(log)
    section = CHECKS.read_text(encoding="utf-8").split("## `fallow metrics --json`")[1].split("\n## ")[0]
    rows = (
        found,
        *found["pools"].values(),
        *found["tenants"].values(),
        *found["jwtd"].values(),
        *found["jtted"].values(),
    )
    keys = {key: None for row in rows for key in row}
    assert [key for key in keys if f"`{key}`" not in section] == []
