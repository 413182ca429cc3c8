"""A cell whose topic of decisions holds nothing to go on from, beside snapshots that are whole, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fallow.cli.log.repair import BEGINS_ANEW, lines_of
from fallow.cli.log.repairing import NotRepairable, Survey, repair, survey
from fallow.cli.verify.verification import LiveCheck
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import LogRepaired
from fallow.shared.events.snapshots import SnapshotChunk
from fallow.shared.log.machine.snapshot import ORIGIN
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.log.port import AppendAnswer, LogTruncated, LogUnavailable, Outgoing, TopicPartition
from fallow.shared.log.reading import event_of
from fallow.shared.log.snapshots import NoUsableSnapshot, read_catalogue, write_snapshot
from tests.cli.test_repairing import DECISIONS, LAYOUT, Kept
from tests.histories import CELL, History, outgoing
from tests.log.earlier_release import as_then

SNAPSHOTS = LAYOUT.tp("snapshots", CELL)
FENCED = (LogTruncated, NoUsableSnapshot)
"""With what a reader of such a log ends."""


def made_anew(kept: Kept) -> None:
    kept.broker.delete_topic(DECISIONS[0])
    kept.broker.create_topic(DECISIONS[0], 1)


def first_damaged(kept: Kept) -> None:
    made_anew(kept)
    kept.forge(41)


def deleted(kept: Kept, *, further: int = 5, left: int = 0) -> None:
    """As by `kafka-delete-records`, of a log that had gone on behind its newest snapshot."""
    for version in range(41, 41 + further):
        kept.forge(version)
    kept.broker.delete_before(DECISIONS, kept.broker.partition(DECISIONS).end - left)


def but_for_the_last(kept: Kept) -> None:
    deleted(kept, left=1)


def tail_deleted(kept: Kept) -> None:
    """Its old records are deleted by retention, and the others are lost."""
    kept.broker.delete_before(DECISIONS, 20)
    kept.broker.cut(DECISIONS, 20)


EMPTIED = [made_anew, first_damaged, deleted, but_for_the_last, tail_deleted]


def told(found: Survey) -> str:
    return "\n".join(lines_of(found))


async def goes_on(kept: Kept, repaired: CellState, before: CellState) -> None:
    """The cell holds all that it held, for every reader."""
    assert (repaired.jobs.keys(), repaired.nodes.keys()) == (before.jobs.keys(), before.nodes.keys())
    assert (repaired.finished.first, repaired.over_next) == (before.finished.first, before.over_next)
    assert repaired.inputs == before.inputs
    assert digest_of(await kept.state()) == digest_of(repaired)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.is_whole, found.state.version) == (True, repaired.version)
    assert (await LiveCheck(kept.log, LAYOUT, CELL).run()).first_violation is None


@pytest.mark.parametrize("emptied", EMPTIED)
async def test_an_emptied_log_goes_on_from_the_newest_whole_snapshot(emptied: Callable[[Kept], None]) -> None:
    kept = Kept()
    await kept.live()
    before = await kept.state()
    emptied(kept)
    if emptied is not first_damaged:
        with pytest.raises(FENCED):
            await kept.state()
    found = await survey(kept.log, LAYOUT, CELL)
    assert found.base is not None
    assert (found.base.version, found.state.version, found.is_whole, found.losses) == (40, 40, False, {})
    assert "No record of it leads to a state" in told(found)
    assert "A repair goes on from the snapshot of version 40, " in told(found)
    assert BEGINS_ANEW not in told(found)
    repaired = await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    done = kept.last().effects[1]
    assert isinstance(done, LogRepaired)
    assert (done.by, done.good_until, done.end) == ("ada", found.begin, found.end)
    assert (repaired.version, repaired.epoch) == (before.version + 1, before.epoch + 1)
    await goes_on(kept, repaired, before)


async def test_an_emptied_log_whose_newest_snapshot_is_torn_goes_on_from_the_one_before() -> None:
    kept = Kept()
    await kept.live()
    newest = (await read_catalogue(kept.log, LAYOUT, CELL)).manifests["newest"].snapshot
    made_anew(kept)
    kept.broker.damage(SNAPSHOTS, *chunks_of(kept, newest))
    found = await survey(kept.log, LAYOUT, CELL)
    assert found.state.version == 20
    assert (await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)).version == 21
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole


def chunks_of(kept: Kept, snapshot: str = "") -> list[int]:
    events = {r.offset: event_of(r) for r in kept.broker.partition(SNAPSHOTS).records if r.value}
    return [at for at, event in events.items() if isinstance(event, SnapshotChunk) and snapshot in ("", event.snapshot)]


async def test_a_moved_cell_whose_log_is_emptied_does_not_go_back_to_the_state_of_its_move() -> None:
    kept = Kept()
    await kept.live()
    moved = await kept.state()
    moved.offset = -1
    made_anew(kept)
    catalogue = await read_catalogue(kept.log, LAYOUT, CELL)
    await write_snapshot(kept.log, LAYOUT, moved, catalogue, writer="move", wall_ms=0, more_slots=(ORIGIN,))
    await repair(kept.log, LAYOUT, await survey(kept.log, LAYOUT, CELL), None, by="ada", wall_ms=0)
    assert (await kept.state()).version == 41
    made_anew(kept)
    before = await survey(kept.log, LAYOUT, CELL)
    assert before.state.version == 41
    repaired = await repair(kept.log, LAYOUT, before, None, by="ada", wall_ms=0)
    assert ((await kept.state()).version, repaired.version) == (42, 42)
    assert (await LiveCheck(kept.log, LAYOUT, CELL).run()).first_violation is None


class Dying(MemoryLog):
    """Of a process that is killed before it changes something for the `changes`-th time."""

    def __init__(self, kept: Kept, changes: int) -> None:
        super().__init__(kept.broker)
        self.left = changes

    def _changes(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise LogUnavailable("the command was killed here")

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        self._changes()
        return await super().publish(messages)

    async def append(self, message: Outgoing) -> AppendAnswer:
        self._changes()
        return await super().append(message)

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        self._changes()
        await super().delete_before(tp, offset)


@pytest.mark.parametrize("emptied", EMPTIED)
async def test_a_repair_that_is_killed_anywhere_can_be_done_again(emptied: Callable[[Kept], None]) -> None:
    changes, is_done = 0, False
    while not is_done:
        kept = Kept()
        await kept.live()
        before = await kept.state()
        emptied(kept)
        dying = Dying(kept, changes)
        try:
            await repair(dying, LAYOUT, await survey(dying, LAYOUT, CELL), None, by="ada", wall_ms=0)
            is_done = True
        except LogUnavailable:
            changes += 1
        found = await survey(kept.log, LAYOUT, CELL)
        if not found.is_whole:
            await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
        await goes_on(kept, await kept.state(), before)
    assert changes > 5


async def test_an_emptied_log_without_a_whole_snapshot_begins_anew_and_says_what_that_means() -> None:
    kept = Kept()
    await kept.live()
    made_anew(kept)
    kept.broker.damage(SNAPSHOTS, *chunks_of(kept))
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.base) == (0, None)
    assert BEGINS_ANEW in told(found)


async def test_a_log_in_which_another_release_has_gone_on_behind_what_is_lost_is_left_as_it_is() -> None:
    kept = Kept()
    await kept.live()
    state = await kept.state()
    for _ in range(2):
        kept.broker.write(as_then(outgoing(LAYOUT, History(5).decisions(1), state.chain)[0]))
    kept.broker.delete_before(DECISIONS, 41)
    with pytest.raises(NotRepairable, match=r"t\.decisions/0, offset 41: .* is of another release"):
        await survey(kept.log, LAYOUT, CELL)


async def test_where_nothing_is_left_of_a_cell_whose_records_were_deleted_a_person_is_told_what_to_do() -> None:
    kept = Kept()
    await kept.live()
    deleted(kept)
    kept.broker.damage(SNAPSHOTS, *chunks_of(kept))
    with pytest.raises(NotRepairable, match=r"no whole snapshot .* fallow snapshot import"):
        await survey(kept.log, LAYOUT, CELL)


async def test_a_log_that_has_a_good_record_counts_and_not_the_snapshot_that_it_does_not_reach() -> None:
    """Another writer may have gone on from there."""
    kept = Kept()
    await kept.live()
    made_anew(kept)
    await kept.log.publish(outgoing(LAYOUT, kept.decisions)[:1])
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.base) == (1, None)
