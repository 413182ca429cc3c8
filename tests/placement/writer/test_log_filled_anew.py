"""The decision log loses its last record and another writer fills its place: the offset of the next record tells
nothing of it, so a writer that has heard nothing of the log for a while looks before it appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from fallow.shared.log import follower
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.log.port import LogRefused, LogUnavailable, Record, Refusal, TopicPartition
from tests.contract.eventually import eventually
from tests.placement.worlds.lost_world import CELL, LAYOUT, LostWorld

DECISIONS = LAYOUT.tp("decisions", CELL)
TAKES_S = 0.05


@pytest.fixture
def world(tmp_path: Path) -> LostWorld:
    return LostWorld(tmp_path)


@pytest.fixture
def _never_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each append comes so late that the writer looks first."""
    monkeypatch.setattr(follower, "SURE_FOR_S", 0.0)


def fill_anew(world: LostWorld) -> int:
    """The last decision is lost, and the writer of the next epoch has put its own there: how many there are."""
    last = world.decisions()[-1]
    world.broker.cut(DECISIONS, world.end("decisions") - 1)
    world.tell(replace(last, version=last.version + 1, epoch=last.epoch + 1, effects=()))
    return world.end("decisions")


@pytest.mark.usefixtures("_never_sure")
async def test_a_writer_at_rest_writes_nothing_behind_a_record_that_took_the_place_of_its_own(
    world: LostWorld,
) -> None:
    world.admit("job-0")
    async with world.placement() as context:
        await world.until_enqueued(1)
        await eventually(lambda: context.health.is_ready)
        count = fill_anew(world)
        world.admit("job-1")
        await eventually(lambda: "different record" in (context.health.waiting_for or "") or len(world.enqueued()) > 1)
        status, _, body = context.health.answer(f"/readyz/{CELL}")
        assert (status, world.end("decisions")) == (503, count)
        assert b"now holds a different record from the one that this process read or wrote" in body


class SlowToTell(MemoryLog):
    """A broker that does not tell at once which record stands at an offset of the decisions, or refuses to tell."""

    unanswered = 0
    is_refused = False

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        if DECISIONS in offsets and SlowToTell.is_refused:
            raise LogRefused(Refusal.NOT_ALLOWED, "no right to read")
        if DECISIONS in offsets and SlowToTell.unanswered:
            SlowToTell.unanswered -= 1
            raise LogUnavailable("no answer")
        return await super().last_before(offsets)


@pytest.mark.usefixtures("_never_sure")
async def test_a_writer_that_is_not_told_what_stands_there_appends_nothing_and_tries_again(world: LostWorld) -> None:
    log = world.log = SlowToTell
    world.admit("job-0")
    async with world.placement() as context:
        await world.until_enqueued(1)
        await eventually(lambda: context.health.is_ready)
        log.unanswered, before = 2, len(world.decisions())
        world.admit("job-1")
        await world.until_enqueued(2)
    assert log.unanswered == 0
    assert [each.version for each in world.decisions()] == list(range(1, len(world.decisions()) + 1)) != []
    assert len(world.decisions()) > before


@pytest.mark.usefixtures("_never_sure")
async def test_a_writer_that_may_not_look_is_refused_as_one_that_may_not_append(
    world: LostWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log = SlowToTell
    world.admit("job-0")
    async with world.placement() as context:

        def figure(name: str, **labels: str) -> float:
            return context.registry.get_sample_value(name, {"cell": CELL, **labels}) or 0

        await world.until_enqueued(1)
        await eventually(lambda: context.health.is_ready)
        monkeypatch.setattr(SlowToTell, "is_refused", True)
        world.admit("job-1")
        await eventually(lambda: figure("fallow_stale_appends_total", why="refused") > 0)
        assert figure("fallow_stale_appends_total", why="unknown") == 0
    assert len(world.enqueued()) == 1


class TakesItsTime(MemoryLog):
    """A broker that takes a moment to tell which record stands at an offset of the decisions."""

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        if DECISIONS in offsets:
            await asyncio.sleep(TAKES_S)
        return await super().last_before(offsets)


@pytest.mark.usefixtures("_never_sure")
async def test_the_figure_of_an_append_counts_the_look_before_it(world: LostWorld) -> None:
    world.log = TakesItsTime
    async with world.placement() as context:
        for count in (1, 2):
            world.admit(f"job-{count}")
            await world.until_enqueued(count)
        registry = context.registry
        assert (registry.get_sample_value("fallow_append_seconds_sum", {"cell": CELL}) or 0) >= TAKES_S
