"""With a cell file that lacks the cell's keys nothing is repaired: to it the writer's own decisions are forged."""

from __future__ import annotations

import pytest

from fallow.cli.log.repair import lines_of
from fallow.cli.log.repairing import NotRepairable, survey
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import AnyEffect, WriterStarted
from fallow.shared.events.fields.value import replace
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.snapshots import read_catalogue, write_snapshot
from tests.histories import CELL, folded
from tests.signing import NEXT, STRANGERS, WRITERS, believing, public, signed, signed_file

PLAIN = Layout("t", {CELL: 0})
IN_FORCE = believing(PLAIN, public(WRITERS), cell=CELL)
LACKING = believing(PLAIN, public(NEXT), cell=CELL)
LATER = believing(PLAIN, public(WRITERS), cell=CELL, from_version=1_000)
CUT_SHORT = believing(PLAIN, public(WRITERS, until_version=4), public(NEXT), cell=CELL)
DECISIONS = PLAIN.tp("decisions", CELL)
COUNT, COVERED, TOLD = 9, 4, "no key of this cell file proves"


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


@pytest.mark.parametrize("covered", [COVERED, COUNT])
async def test_a_whole_log_is_not_repaired_by_a_file_without_its_keys(covered: int) -> None:
    log = await log_of(COUNT, covered=covered)
    with pytest.raises(NotRepairable, match=TOLD):
        await survey(log, LACKING, CELL)
    assert (await state_of(log))[0] == COUNT


@pytest.mark.parametrize(
    ("layout", "told"),
    [(PLAIN, "asks for none"), (LATER, "asks for them from version 1000 on")],
    ids=["that_asks_for_no_signatures", "that_asks_for_them_later"],
)
async def test_nor_by_one_to_which_a_strangers_record_is_the_writers(layout: Layout, told: str) -> None:
    log = await log_of(COVERED)
    ahead = Decision(cell=CELL, version=COVERED + 2, epoch=9, at_ms=0, inputs={}, effects=())
    await log.publish(signed(PLAIN, [ahead], None))
    await log.publish(signed(PLAIN, decisions(), WRITERS)[COVERED:])
    with pytest.raises(NotRepairable, match=told):
        await survey(log, layout, CELL)
    assert await state_of(log) == (COUNT, 1)


@pytest.mark.parametrize(("began", "asks_from"), [(3, 2), (3, 3), (6, 2)])
async def test_nor_one_that_was_signed_later_by_a_file_that_asks_for_signatures_before(
    began: int, asks_from: int
) -> None:
    """The first decisions stand unsigned; to the file they are forged, and the signed ones behind follow nothing."""
    log, _ = await signed_later(file_at=began, from_version=began + 1)
    assert (await survey(log, asking_from(began + 1), CELL)).state.version == COUNT
    told = (
        f"asks for signatures from version {asks_from} on, and the log shows that they begin with version {began + 1}"
    )
    with pytest.raises(NotRepairable, match=told):
        await survey(log, asking_from(asks_from), CELL)


@pytest.mark.parametrize("asks_from", [5, 6])
async def test_nor_one_whose_file_in_force_asks_for_signatures_some_versions_later(asks_from: int) -> None:
    """The state before the unsigned decisions holds a file with keys already."""
    log, _ = await signed_later(file_at=4, from_version=7)
    told = f"asks for signatures from version {asks_from} on, and the log shows that they begin with version 7"
    with pytest.raises(NotRepairable, match=told):
        await survey(log, asking_from(asks_from), CELL)
    assert (await survey(log, asking_from(7), CELL)).is_whole


async def test_nor_one_that_is_damaged_before_the_first_signed_decision() -> None:
    """Nothing that is signed continues the unsigned decision, and the file in force asks for no signature of it."""
    log, _ = await signed_later(file_at=4, from_version=7)
    log._broker.damage(DECISIONS, 5)
    told = "asks for signatures from version 5 on, and the file in force at version 4 asks for them from version 7 on"
    with pytest.raises(NotRepairable, match=told):
        await survey(log, asking_from(5), CELL)
    assert (await survey(log, asking_from(7), CELL)).state.version == 5


async def test_nor_are_its_inputs_behind_a_state_from_before_unsigned_decisions() -> None:
    """Nothing contradicts the log to its end; the record of a repair would be stale to who believes them."""
    log, _ = await signed_later(file_at=4, from_version=7)
    log._broker.cut(DECISIONS, 6)
    jobs = PLAIN.tp("jobs", CELL)
    log._broker.write_marker(jobs)
    log._broker.damage(jobs, 0)
    assert (await survey(log, asking_from(7), CELL)).losses.keys() == {"jobs-0"}
    with pytest.raises(NotRepairable, match="in force at version 4 asks for them from version 7 on"):
        await survey(log, asking_from(5), CELL)


async def test_an_unsigned_record_of_a_version_that_has_to_be_signed_does_not_prevent_a_repair() -> None:
    """No reader with the file in force believes the record, whatever its writer."""
    log, first = await signed_later(file_at=2, from_version=5)
    log._broker.cut(DECISIONS, 4)
    await log.publish(signed(PLAIN, [first[4]], None, folded(first[:4]).chain))
    await log.publish(signed(PLAIN, [first[6]], WRITERS, folded(first[:6]).chain))
    found = await survey(log, asking_from(5), CELL)
    assert (found.state.version, found.damage_offset) == (4, 5)


def asking_from(version: int) -> Layout:
    """Of a file with the right key that asks for signatures from this version on."""
    return believing(PLAIN, public(WRITERS), cell=CELL, from_version=version)


async def signed_later(*, file_at: int, from_version: int) -> tuple[MemoryLog, list[Decision]]:
    """A log whose first decisions are unsigned, and its decisions; the file with the key is in force from `file_at`."""
    every = [replace(each, effects=each.effects[:1]) for each in decisions()]
    file = signed_file(public(WRITERS), cell=CELL, from_version=from_version)
    every[file_at - 1] = replace(every[file_at - 1], effects=(*every[file_at - 1].effects, as_effect(file)))
    log, unsigned = await log_of(0), from_version - 1
    await log.publish(signed(PLAIN, every[:unsigned], None))
    await log.publish(signed(PLAIN, every[unsigned:], WRITERS, folded(every[:unsigned]).chain))
    return log, every


async def test_what_a_key_signed_that_is_retired_on_purpose_is_given_up_and_told() -> None:
    """A key that was stolen is retired before what its thief has written."""
    found = await survey(await log_of(COUNT, covered=COUNT), CUT_SHORT, CELL)
    told = "is retired at version 4 by this cell file, and later or not at all"
    assert any(told in line for line in lines_of(found))


async def test_nor_one_without_any_snapshot() -> None:
    with pytest.raises(
        NotRepairable, match=f"{TOLD} 1 decision from offset 0 on, which may be the writer's. Nothing is changed"
    ):
        await survey(await log_of(COUNT), LACKING, CELL)


async def test_nor_the_whole_part_of_a_damaged_one() -> None:
    log = await log_of(COUNT, covered=COVERED)
    log._broker.damage(DECISIONS, COUNT - 1)
    with pytest.raises(NotRepairable, match=TOLD):
        await survey(log, LACKING, CELL)
    assert (await survey(log, IN_FORCE, CELL)).state.version == COUNT - 1


async def test_nor_one_whose_first_record_is_damaged_where_a_snapshot_behind_it_tells_the_keys() -> None:
    """No file is in force before the damage, and to the own file the log contradicts the snapshot."""
    log = await log_of(COUNT, covered=COVERED)
    log._broker.damage(DECISIONS, 0)
    told = f"{TOLD} 8 decisions from offset 1 on, and a key of the file in force at version {COVERED} does"
    with pytest.raises(NotRepairable, match=told):
        await survey(log, LACKING, CELL)
    found = await survey(log, IN_FORCE, CELL)
    assert (found.state.version, found.cut_offset) == (COUNT, None)


async def test_nor_one_whose_snapshot_tells_that_signatures_begin_later() -> None:
    log, every = await signed_later(file_at=2, from_version=7)
    covered = folded(every[:COVERED])
    await write_snapshot(log, PLAIN, covered, await read_catalogue(log, PLAIN, CELL), writer="w", wall_ms=0)
    log._broker.damage(DECISIONS, 0)
    with pytest.raises(NotRepairable, match=r"from version 2 on, and the log shows that they begin with version 7"):
        await survey(log, asking_from(2), CELL)
    assert (await survey(log, asking_from(7), CELL)).state.version == COUNT


async def test_a_snapshot_that_is_given_up_keeps_nobody_from_a_repair_where_nothing_in_the_log_needs_its_keys() -> None:
    """The tail that held the file with them is lost."""
    log, every = await signed_later(file_at=4, from_version=7)
    await write_snapshot(log, PLAIN, folded(every), await read_catalogue(log, PLAIN, CELL), writer="w", wall_ms=0)
    log._broker.cut(DECISIONS, 3)
    found = await survey(log, believing(PLAIN, public(NEXT), cell=CELL, from_version=7), CELL)
    assert (found.state.version, {m.version for m in found.contradicting}) == (3, {COUNT})


async def test_records_of_a_stranger_keep_nobody_from_a_repair() -> None:
    log = await log_of(COUNT - 2, covered=COUNT)
    await log.publish(signed(PLAIN, decisions()[COUNT - 2 :], STRANGERS, folded(decisions(COUNT - 2)).chain))
    found = await survey(log, IN_FORCE, CELL)
    assert (found.state.version, len(found.contradicting) > 0) == (COUNT - 2, True)


async def test_a_key_that_is_retired_at_a_version_which_is_lost_is_named_with_the_version_to_retire_it_at() -> None:
    retired = believing(PLAIN, public(WRITERS), public(NEXT, until_version=COUNT), cell=CELL)
    found = await survey(await log_of(COVERED, covered=COUNT), retired, CELL)
    (line,) = found.keys
    assert line in lines_of(found)
    assert f"{NEXT.public} is retired at version {COUNT}" in line
    assert f"set its until_version to {COVERED} on every machine" in line
