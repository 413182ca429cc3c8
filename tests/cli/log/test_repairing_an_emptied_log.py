"""A cell whose topic of decisions holds nothing to go on from, beside snapshots that are whole, and the way back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from enum import StrEnum

import pytest
from msgspec import structs

from fallow.cli.log.repair import BEGINS_ANEW, lines_of
from fallow.cli.log.repairing import NotRepairable, Survey, repair, survey
from fallow.cli.verify.verification import LiveCheck
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import TYPE_HEADER, encode
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, next_chain
from fallow.shared.events.effects import LogRepaired, WriterStarted
from fallow.shared.events.snapshots import SnapshotChunk, SnapshotManifest
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import ORIGIN
from fallow.shared.log.machine.writer import Draft, Sign, Writer
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.log.port import Appended, LogTruncated, Outgoing
from fallow.shared.log.reading import event_of
from fallow.shared.log.snapshots import NoUsableSnapshot, read_catalogue, write_snapshot
from tests.cli.log.test_repairing import DECISIONS, LAYOUT, Kept
from tests.histories import CELL, History, folded, outgoing
from tests.log.worlds.earlier_release import as_then

SNAPSHOTS = LAYOUT.tp("snapshots", CELL)
OTHER = Layout("t", {"cell-b": 0})
"""Of a file that gives another cell this one's ordinal."""
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


def filled_again(kept: Kept) -> None:
    """Beyond its old end, by records that lead to no state."""
    made_anew(kept)
    for version in range(100, 150):
        kept.forge(version)


def filled_by_strangers(kept: Kept) -> None:
    """Records of other programs, which every reader skips, and one of a cell that is not this one."""
    made_anew(kept)
    for _ in range(50):
        kept.broker.write(Outgoing(DECISIONS[0], b"{}", partition=0))
    kept.broker.write(outgoing(OTHER, [structs.replace(kept.decisions[0], cell="cell-b")])[0])


def but_for_the_last(kept: Kept) -> None:
    deleted(kept, left=1)


def tail_deleted(kept: Kept) -> None:
    """Its old records are deleted by retention, and the others are lost."""
    kept.broker.delete_before(DECISIONS, 20)
    kept.broker.cut(DECISIONS, 20)


EMPTIED = [made_anew, first_damaged, filled_again, filled_by_strangers, deleted, but_for_the_last, tail_deleted]


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
    if emptied in (made_anew, deleted, but_for_the_last, tail_deleted):
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


class Holds(StrEnum):
    """What the log still holds before the place at which its tail is lost."""

    ALL = "all records"
    SOME = "records that lead to its end"
    DAMAGED = "damaged records"
    NOTHING = "no record"


class Reached(StrEnum):
    """The snapshot of the state with which the log ends."""

    MISSING = "is not there"
    OLD = "was written before the one beyond"
    NEWEST = "was written last"


GOES_ON = {"same history": 0, "other history, newer epoch": 1, "same epoch": 3, "older epoch": 4}
"""By so many decisions, each of a further epoch, another writer has gone on from version 20, of epoch 5; the snapshot
beyond is of version 40 and epoch 8.
"""


class Lost:
    """A cell whose tail is lost from version 20 on, from where another writer may have gone on."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.beyond, self.ending = CellState(CELL), CellState(CELL)

    async def live(self, decisions: int) -> None:
        await self.kept.live()
        self.beyond = await self.kept.state()
        self.kept.broker.cut(DECISIONS, 20)
        self.ending = folded(self.kept.decisions[:20])
        assert (self.ending.epoch, self.beyond.epoch) == (5, 8)
        for _ in range(decisions):
            await goes_on_by_one(self.kept.log, self.ending)
        self.kept.broker.delete_topic(SNAPSHOTS[0])
        self.kept.broker.create_topic(SNAPSHOTS[0], 1)

    async def has_snapshots(self, *states: CellState) -> None:
        """In this order: the last one is the newest, each other has its hour's slot."""
        for state in states:
            catalogue = await read_catalogue(self.kept.log, LAYOUT, CELL)
            await write_snapshot(self.kept.log, LAYOUT, state, catalogue, writer="s", wall_ms=0)

    def holds(self, what: Holds) -> None:
        broker, end = self.kept.broker, self.kept.broker.partition(DECISIONS).end
        if what is not Holds.ALL:
            broker.delete_before(DECISIONS, end if what is Holds.NOTHING else 15)
        if what is Holds.DAMAGED:
            broker.damage(DECISIONS, *range(15, end))


async def goes_on_by_one(log: MemoryLog, state: CellState, sign: Sign | None = None) -> None:
    writer, started = Writer(state), WriterStarted(epoch=state.epoch + 1, writer="other")
    writer.begin()
    apply(state, started, state.at_ms)
    draft = writer.draft([started], {}, state.at_ms)
    assert isinstance(draft, Draft)
    more, name = draft.headers(sign), str(draft.decision.version)
    answer = await log.append(
        LAYOUT.outgoing(draft.decision, id=name, source="other", wall_ms=0, more=more, value=draft.value)
    )
    assert isinstance(answer, Appended)
    assert writer.appended(answer.offset)


def is_readable(holds: Holds, reached: Reached, decisions: int) -> bool:
    """Whether the log counts, and not the snapshot beyond it: its records lead to its end; or nothing of it can be
    read, and the snapshot at its end is the one with which a reader begins, or is of a newer epoch.
    """
    if holds is Holds.ALL:
        return True
    if reached is Reached.MISSING:
        return False
    return holds is Holds.SOME or reached is Reached.NEWEST or decisions == GOES_ON["older epoch"]


@pytest.mark.parametrize("beyond", GOES_ON)
@pytest.mark.parametrize("reached", Reached)
@pytest.mark.parametrize("holds", Holds)
async def test_a_log_from_which_a_reader_can_begin_counts_else_the_snapshot_beyond(
    holds: Holds, reached: Reached, beyond: str
) -> None:
    lost = Lost()
    await lost.live(GOES_ON[beyond])
    lost.holds(holds)
    order = {
        Reached.MISSING: [lost.beyond],
        Reached.OLD: [lost.ending, lost.beyond],
        Reached.NEWEST: [lost.beyond, lost.ending],
    }
    await lost.has_snapshots(*order[reached])
    expected = lost.ending if is_readable(holds, reached, GOES_ON[beyond]) else lost.beyond
    with contextlib.suppress(*FENCED):
        assert (await lost.kept.state()).version == expected.version, "what a reader has folded without a fault counts"
    found = await survey(lost.kept.log, LAYOUT, CELL)
    assert (found.state.version, found.state.epoch) == (expected.version, expected.epoch)
    assert (found.is_emptied, found.is_whole) == (expected is lost.beyond, False)
    assert "the log contradicts" not in told(found)
    repaired = await repair(lost.kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert (repaired.version, repaired.epoch) == (expected.version + 1, expected.epoch + 1)
    assert digest_of(await lost.kept.state()) == digest_of(repaired)
    assert (await survey(lost.kept.log, LAYOUT, CELL)).is_whole


@pytest.mark.parametrize(
    ("beyond", "is_ending_last", "is_ending_taken"),
    [
        ("other history, newer epoch", True, True),
        ("same epoch", True, True),
        ("older epoch", True, True),
        ("same epoch", False, False),
        ("older epoch", False, True),
    ],
)
async def test_of_two_histories_of_which_the_log_tells_nothing_the_one_that_was_written_last_goes_on(
    beyond: str, is_ending_last: bool, is_ending_taken: bool
) -> None:
    """But for one of an older epoch, which another writer has ended."""
    lost = Lost()
    await lost.live(GOES_ON[beyond])
    made_anew(lost.kept)
    await lost.has_snapshots(*([lost.beyond, lost.ending] if is_ending_last else [lost.ending, lost.beyond]))
    found = await survey(lost.kept.log, LAYOUT, CELL)
    expected = lost.ending if is_ending_taken else lost.beyond
    assert (found.state.version, found.state.epoch, found.is_emptied) == (expected.version, expected.epoch, True)
    repaired = await repair(lost.kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert digest_of(await lost.kept.state()) == digest_of(repaired)


@pytest.mark.parametrize("damaged", [(19,), (15, 16, 17, 18)])
async def test_one_good_record_of_those_that_lead_to_the_end_makes_the_log_count(damaged: tuple[int, ...]) -> None:
    lost = Lost()
    await lost.live(0)
    lost.holds(Holds.SOME)
    lost.kept.broker.damage(DECISIONS, *damaged)
    await lost.has_snapshots(lost.ending, lost.beyond)
    found = await survey(lost.kept.log, LAYOUT, CELL)
    assert (found.state.version, found.is_emptied) == (20, False)


async def test_a_record_of_another_chain_at_the_end_of_the_log_does_not_prove_the_snapshot_there() -> None:
    lost = Lost()
    await lost.live(0)
    lost.kept.broker.cut(DECISIONS, 19)
    lost.kept.forge(20)
    lost.kept.broker.delete_before(DECISIONS, 19)
    await lost.has_snapshots(lost.ending, lost.beyond)
    found = await survey(lost.kept.log, LAYOUT, CELL)
    assert (found.state.version, found.is_emptied) == (40, True)


def of_a_later_release(message: Outgoing, before: str, *, effect: bool = False) -> tuple[Outgoing, str]:
    """The record with a field, or an effect, that this release does not know, and its chain of hashes."""
    said = json.loads(message.value or b"")
    if effect:
        said["effects"] = [*said.get("effects", ()), {"kind": "FromLater", "x": 1}]
    else:
        said["later"] = 1
    value = json.dumps(said).encode()
    chain = next_chain(before, value)
    headers = tuple((name, chain.encode() if name == CHAIN_HEADER else was) for name, was in message.headers)
    return structs.replace(message, value=value, headers=headers), chain


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("first_left", [41, 42, 45])
async def test_decisions_with_a_field_or_an_effect_of_a_later_release_are_not_given_up(
    first_left: int, *, effect: bool
) -> None:
    kept = Kept()
    await kept.live()
    chain = (await kept.state()).chain
    for message in outgoing(LAYOUT, History(5).decisions(46))[40:]:
        later, chain = of_a_later_release(message, chain, effect=effect)
        kept.broker.write(later)
    kept.broker.delete_before(DECISIONS, first_left)
    with pytest.raises(NotRepairable, match=r"t\.decisions/0, offset .* of another release"):
        await survey(kept.log, LAYOUT, CELL)


async def test_what_a_stranger_wrote_behind_a_record_that_it_does_not_continue_is_no_other_release() -> None:
    kept = Kept()
    await kept.live()
    deleted(kept, left=1)
    kept.broker.write(of_a_later_release(outgoing(LAYOUT, History(5).decisions(1))[0], "f" * 32)[0])
    assert (await survey(kept.log, LAYOUT, CELL)).state.version == 40


def of_a_stranger(**headers: bytes) -> Outgoing:
    """A record that names the cell and the type of a decision, and cannot be read as one."""
    message = outgoing(LAYOUT, History(5).decisions(1))[0]
    kept = tuple((name, headers.get(name, was)) for name, was in message.headers if headers.get(name, was))
    return structs.replace(message, value=b'{"cell":"cell-a","x":1}', headers=kept)


async def test_a_strangers_record_without_a_chain_does_not_keep_a_person_from_the_repair() -> None:
    kept = Kept()
    await kept.live()
    made_anew(kept)
    kept.broker.write(of_a_stranger(**{CHAIN_HEADER: b""}))
    assert (await survey(kept.log, LAYOUT, CELL)).state.version == 40


async def test_a_person_who_knows_that_a_decision_is_a_strangers_is_told_how_to_repair_in_spite_of_it() -> None:
    kept = Kept()
    await kept.live()
    made_anew(kept)
    kept.broker.write(of_a_stranger())
    with pytest.raises(NotRepairable, match=r"decisions/0, offset 0: .*If none .* delete what stands before offset 1 "):
        await survey(kept.log, LAYOUT, CELL)
    kept.broker.delete_before(DECISIONS, 1)
    assert (await survey(kept.log, LAYOUT, CELL)).state.version == 40


async def test_a_person_who_knows_that_a_snapshot_is_a_strangers_is_told_how_to_repair_in_spite_of_it() -> None:
    kept = Kept()
    await kept.live()
    made_anew(kept)
    manifest = (await read_catalogue(kept.log, LAYOUT, CELL)).manifests["newest"]
    message = LAYOUT.outgoing(structs.replace(manifest, slot="x"), id="x", source="x", wall_ms=0)
    kept.broker.write(of_a_later_release(message, CHAIN_START)[0])
    with pytest.raises(NotRepairable, match=r"snapshots/0, offset .*make it void by a record of its key \(cell-a/x\) "):
        await survey(kept.log, LAYOUT, CELL)
    kept.broker.write(Outgoing(SNAPSHOTS[0], None, b"cell-a/x", partition=0))
    assert (await survey(kept.log, LAYOUT, CELL)).state.version == 40


async def test_good_decisions_before_what_cannot_be_read_are_not_told_to_be_deleted() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.write_marker(DECISIONS)
    kept.broker.damage(DECISIONS, 40)
    kept.broker.write(of_a_stranger())
    with pytest.raises(NotRepairable, match="offset 41") as told_by:
        await survey(kept.log, LAYOUT, CELL)
    assert "delete" not in str(told_by.value)


class OfALaterRelease(MemoryLog):
    """Of a process that writes a field which this release does not know into records of this type."""

    def __init__(self, kept: Kept, type_: str) -> None:
        super().__init__(kept.broker)
        self.type = type_.encode()

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        return await super().publish([self._later(message) for message in messages])

    def _later(self, message: Outgoing) -> Outgoing:
        is_of_type = (TYPE_HEADER, self.type) in message.headers
        return of_a_later_release(message, CHAIN_START)[0] if is_of_type else message


@pytest.mark.parametrize("type_", [SnapshotManifest.type, SnapshotChunk.type])
@pytest.mark.parametrize("emptied", [made_anew, deleted])
@pytest.mark.parametrize("are_older_whole", [True, False])
async def test_a_snapshot_with_a_field_of_a_later_release_is_not_passed_over(
    type_: str, emptied: Callable[[Kept], None], *, are_older_whole: bool
) -> None:
    kept, history = Kept(), History(5)
    await kept.live()
    older = chunks_of(kept)
    await kept.log.publish(outgoing(LAYOUT, history.decisions(60))[40:])
    log = OfALaterRelease(kept, type_)
    await write_snapshot(log, LAYOUT, history.state, await read_catalogue(log, LAYOUT, CELL), writer="s2", wall_ms=0)
    emptied(kept)
    if not are_older_whole:
        kept.broker.damage(SNAPSHOTS, *older)
    with pytest.raises(NotRepairable, match=r"t\.snapshots/0, offset .* of another release"):
        await survey(kept.log, LAYOUT, CELL)


@pytest.mark.parametrize("written", [of_a_later_release, lambda message, before: (as_then(message), before)])
async def test_what_another_release_decided_behind_a_damage_is_not_given_up(
    written: Callable[[Outgoing, str], tuple[Outgoing, str]],
) -> None:
    kept = Kept()
    await kept.live()
    chain = (await kept.state()).chain
    kept.broker.write_marker(DECISIONS)
    kept.broker.damage(DECISIONS, 40)
    for message in outgoing(LAYOUT, History(5).decisions(45))[41:]:
        later, chain = written(message, chain)
        kept.broker.write(later)
    with pytest.raises(NotRepairable, match=r"t\.decisions/0, offset 41: .* of another release"):
        await survey(kept.log, LAYOUT, CELL)


async def test_a_snapshot_of_a_later_release_behind_a_damage_is_not_given_up() -> None:
    """That release goes on from it, and has lost nothing."""
    kept, history = Kept(), History(5)
    await kept.live()
    decisions = outgoing(LAYOUT, history.decisions(60))[40:]
    await kept.log.publish(decisions)
    kept.broker.damage(DECISIONS, 45)
    log = OfALaterRelease(kept, SnapshotManifest.type)
    await write_snapshot(log, LAYOUT, history.state, await read_catalogue(log, LAYOUT, CELL), writer="s2", wall_ms=0)
    with pytest.raises(NotRepairable, match=r"t\.snapshots/0, offset .* of another release"):
        await survey(kept.log, LAYOUT, CELL)


async def test_strangers_records_behind_the_newest_snapshot_do_not_make_an_older_history_count() -> None:
    """Every reader begins with the newest snapshot, skips them, and comes to the end of the log."""
    lost = Lost()
    await lost.live(0)
    lost.holds(Holds.NOTHING)
    lost.kept.broker.write(Outgoing(DECISIONS[0], b"{}", partition=0))
    await lost.has_snapshots(lost.beyond, lost.ending)
    found = await survey(lost.kept.log, LAYOUT, CELL)
    assert (found.state.version, found.is_emptied) == (20, False)


@pytest.mark.parametrize("are_kept", [True, False], ids=["with snapshots", "without"])
@pytest.mark.parametrize("begins_later", [False, True])
async def test_the_log_of_another_cell_is_left_as_it_is(*, are_kept: bool, begins_later: bool) -> None:
    kept = Kept()
    await kept.live()
    if not are_kept:
        kept.broker.delete_topic(SNAPSHOTS[0])
        kept.broker.create_topic(SNAPSHOTS[0], 1)
    if begins_later:
        kept.broker.delete_before(DECISIONS, 30)
    where = "snapshots" if are_kept else "decisions"
    with pytest.raises(
        NotRepairable, match=rf"cell cell-b: t\.{where}/0: .* is of cell {CELL}, and nothing is changed"
    ):
        await survey(kept.log, OTHER, "cell-b")


async def forged_of_another_cell(kept: Kept, slot: str, key: str) -> SnapshotManifest:
    """A copy of the manifest of the newest snapshot, of a later version, that names another cell."""
    newest = (await read_catalogue(kept.log, LAYOUT, CELL)).manifests["newest"]
    forged = structs.replace(newest, cell="cell-x", slot=slot, version=newest.version + 500)
    made = LAYOUT.outgoing(structs.replace(forged, cell=CELL), id="f", source="rogue", wall_ms=0)
    kept.broker.write(structs.replace(made, key=key.encode(), value=encode(forged), partition=0))
    return forged


@pytest.mark.parametrize("slot", ["newest", "hour-3"])
@pytest.mark.parametrize("key", ["cell-x/{}", "cell-a/other/{}"])
@pytest.mark.parametrize("emptied", [None, made_anew, deleted])
async def test_a_forged_manifest_that_names_another_cell_is_made_void_by_a_repair(
    slot: str, key: str, emptied: Callable[[Kept], None] | None
) -> None:
    kept = Kept()
    await kept.live()
    before = await kept.state()
    forged = await forged_of_another_cell(kept, slot, key.format(slot))
    if emptied is not None:
        emptied(kept)
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.state.version, found.is_whole, forged in found.contradicting) == (40, False, True)
    assert f"({slot}) is of version {forged.version} at offset 39, which names cell cell-x." in told(found)
    assert "are given up" not in told(found)
    repaired = await repair(kept.log, LAYOUT, found, None, by="ada", wall_ms=0)
    assert (await read_catalogue(kept.log, LAYOUT, CELL)).foreign == {}
    await goes_on(kept, repaired, before)


async def test_the_snapshots_of_another_cell_beside_an_empty_log_are_left_as_they_are() -> None:
    kept = Kept()
    await kept.live()
    made_anew(kept)
    with pytest.raises(NotRepairable, match=rf"t\.snapshots/0: .* is of cell {CELL}, and nothing is changed"):
        await survey(kept.log, OTHER, "cell-b")
