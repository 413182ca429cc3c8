"""With a cell file that lacks the cell's keys nothing is repaired: to it the writer's own decisions are forged."""

from __future__ import annotations

import pytest

from fallow.cli.log.repair import lines_of
from fallow.cli.log.repairing import From, NotRepairable, repair, survey
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import AnyEffect, WriterStarted
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.snapshots import read_catalogue, write_snapshot
from tests.histories import CELL, folded
from tests.signing import NEXT, STRANGERS, WRITERS, believing, public, signed, signed_file

PLAIN = Layout("t", {CELL: 0})
IN_FORCE = believing(PLAIN, public(WRITERS), cell=CELL)
LACKING = believing(PLAIN, public(NEXT), cell=CELL)
CUT_SHORT = believing(PLAIN, public(WRITERS, until_version=2), public(NEXT), cell=CELL)
DECISIONS = PLAIN.tp("decisions", CELL)
COUNT, COVERED, TOLD = 9, 4, "no key of this cell file proves them"


def decisions(count: int = COUNT) -> list[Decision]:
    """Of a cell whose file names the key of its writers, which take it over in turn."""

    def effects(version: int) -> tuple[AnyEffect, ...]:
        began = WriterStarted(writer="w", epoch=version)
        return (began, as_effect(signed_file(public(WRITERS), cell=CELL))) if version == 1 else (began,)

    return [
        Decision(cell=CELL, version=version, epoch=version, at_ms=0, inputs={}, effects=effects(version))
        for version in range(1, count + 1)
    ]


async def log_of(count: int, *, covered: int | None = None) -> MemoryLog:
    """A log of so many signed decisions, and a snapshot of this version."""
    broker = MemoryBroker()
    for topic in ("decisions", "snapshots", "jobs", "queue", "nodes", "proposals", "operations"):
        broker.create_topic(PLAIN.topic(topic), 1)
    log = MemoryLog(broker)
    await log.publish(signed(PLAIN, decisions()[:count], WRITERS))
    if covered is not None:
        state = folded(decisions(covered))
        await write_snapshot(log, IN_FORCE, state, await read_catalogue(log, IN_FORCE, CELL), writer="w", wall_ms=0)
    return log


async def state_of(log: MemoryLog) -> tuple[int, int]:
    """The version to which a reader folds that knows nothing, and how many records it passes over."""
    reader = Follower(log, IN_FORCE, CELL)
    await reader.start()
    try:
        await reader.catch_up()
    finally:
        await reader.stop()
    return reader.state.version, reader.state.skipped


@pytest.mark.parametrize("layout", [LACKING, CUT_SHORT], ids=["without_the_key", "with_the_key_retired_too_early"])
@pytest.mark.parametrize("covered", [COVERED, COUNT])
async def test_a_whole_log_is_not_repaired_by_a_file_without_its_keys(layout: Layout, covered: int) -> None:
    log = await log_of(COUNT, covered=covered)
    with pytest.raises(NotRepairable, match=TOLD):
        await survey(log, layout, CELL)
    assert (await state_of(log))[0] == COUNT


async def test_nor_one_without_any_snapshot() -> None:
    with pytest.raises(NotRepairable, match=f"from offset 0 on: {TOLD}. Nothing is changed"):
        await survey(await log_of(COUNT), LACKING, CELL)


async def test_nor_the_whole_part_of_a_damaged_one() -> None:
    log = await log_of(COUNT, covered=COVERED)
    log._broker.damage(DECISIONS, COUNT - 1)
    with pytest.raises(NotRepairable, match=TOLD):
        await survey(log, LACKING, CELL)
    assert (await survey(log, IN_FORCE, CELL)).state.version == COUNT - 1


async def test_records_of_a_stranger_keep_nobody_from_a_repair() -> None:
    log = await log_of(COUNT - 2, covered=COUNT)
    await log.publish(signed(PLAIN, decisions()[COUNT - 2 :], STRANGERS, folded(decisions(COUNT - 2)).chain))
    found = await survey(log, IN_FORCE, CELL)
    assert (found.state.version, len(found.contradicting) > 0) == (COUNT - 2, True)


async def test_copies_of_what_was_lost_are_stale_behind_the_repair() -> None:
    log, lost = await log_of(COVERED, covered=COUNT), signed(PLAIN, decisions(), WRITERS)[COVERED:]
    found = await survey(log, IN_FORCE, CELL)
    behind = await repair(log, IN_FORCE, found, From.END, by="op", wall_ms=0, sign=WRITERS.sign)
    await log.publish(lost)
    assert await state_of(log) == (behind.version, len(lost))


async def test_a_key_that_is_retired_at_a_version_which_is_lost_is_named_with_the_version_to_retire_it_at() -> None:
    retired = believing(PLAIN, public(WRITERS), public(NEXT, until_version=COUNT), cell=CELL)
    found = await survey(await log_of(COVERED, covered=COUNT), retired, CELL)
    (line,) = found.keys
    assert line in lines_of(found)
    assert f"{NEXT.public} is retired at version {COUNT}" in line
    assert f"Set its until_version to {COVERED} on every machine" in line
