"""A repair that does not come to its end, at whichever of its steps: every reader can begin, or is told to repair."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

import pytest

from fallow.cli.log.repairing import NotRepairable, repair, survey
from fallow.cli.verify.verification import LiveCheck
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.machine.snapshot import cut, hour_slot
from fallow.shared.log.machine.writer import Sign
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.log.port import (
    AppendAnswer,
    AppendUnknown,
    LogTruncated,
    LogUnavailable,
    Outgoing,
    TopicPartition,
)
from fallow.shared.log.snapshots import NoUsableSnapshot, newest_manifest, read_catalogue, write_snapshot
from tests.cli.log.test_repairing import DECISIONS, LAYOUT, Kept
from tests.cli.log.test_repairing_an_emptied_log import EMPTIED, SNAPSHOTS, goes_on_by_one, made_anew
from tests.histories import CELL, folded
from tests.signing import WRITERS, believing, public

FENCED = (LogTruncated, NoUsableSnapshot, DamagedLog)
SIGNED = believing(LAYOUT, public(WRITERS), cell=CELL)
Breaks = Callable[[Kept], Awaitable[None]]


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
        """One after the other, as they come into the log."""
        for message in messages:
            self._changes()
            await super().publish([message])
        return None

    async def append(self, message: Outgoing) -> AppendAnswer:
        self._changes()
        return await super().append(message)

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        self._changes()
        await super().delete_before(tp, offset)


class Unanswered(MemoryLog):
    """What is appended comes into the log, and no answer comes back."""

    async def append(self, message: Outgoing) -> AppendAnswer:
        await super().append(message)
        return AppendUnknown("no answer in 30 s")


def sign_of(kept: Kept) -> Sign | None:
    return None if kept.key is None else kept.key.sign


async def repaired(kept: Kept, log: MemoryLog) -> CellState:
    found = await survey(log, kept.layout, CELL)
    return await repair(log, kept.layout, found, None, by="ada", wall_ms=0, sign=sign_of(kept))


async def snapshot(kept: Kept, state: CellState) -> None:
    catalogue = await read_catalogue(kept.log, kept.layout, CELL)
    await write_snapshot(kept.log, kept.layout, state, catalogue, writer="s", wall_ms=0)


def lost(*, begin: int, end: int) -> Breaks:
    """The tail from `end` on is lost, of a log whose records before `begin` retention has deleted."""

    async def breaks(kept: Kept) -> None:
        kept.broker.delete_before(DECISIONS, begin)
        kept.broker.cut(DECISIONS, end)
        has_read_all(kept, end)

    return breaks


def has_read_all(kept: Kept, version: int) -> None:
    """The inputs hold no more than the state of this version has read: to look through more takes the tests minutes."""
    for name in ("jobs", "nodes"):
        kept.broker.cut(LAYOUT.tp(name, CELL), folded(kept.decisions[:version]).inputs.get(f"{name}-0", 0))


def damaged(*bad: int, begin: int = 0, end: int = 40) -> Breaks:
    """The records at these offsets cannot be read."""

    async def breaks(kept: Kept) -> None:
        await lost(begin=begin, end=end)(kept)
        kept.broker.damage(DECISIONS, *bad)

    return breaks


def written_over(*, begin: int, end: int) -> Breaks:
    """Behind a lost tail others have written what no reader believes."""

    async def breaks(kept: Kept) -> None:
        await lost(begin=begin, end=end)(kept)
        for version in range(41, 44):
            kept.forge(version)

    return breaks


async def moved(kept: Kept) -> None:
    """It goes on from the snapshot with which it was moved here, and has lost the tail behind that."""
    made_anew(kept)
    state = await repaired(kept, kept.log)
    for _ in range(6):
        await goes_on_by_one(kept.log, state, sign_of(kept))
    await snapshot(kept, state)
    kept.broker.cut(DECISIONS, 4)


async def of_two_histories(kept: Kept) -> None:
    """The snapshot that was written last is of an older version than another one."""
    await snapshot(kept, folded(kept.decisions[:20]))
    made_anew(kept)
    has_read_all(kept, 20)


def emptied(how: Callable[[Kept], None]) -> Breaks:
    async def breaks(kept: Kept) -> None:
        how(kept)

    return breaks


BROKEN: dict[str, Breaks] = {
    "tail lost": lost(begin=0, end=30),
    "tail lost before any snapshot": lost(begin=0, end=12),
    "tail lost of an old log": lost(begin=8, end=35),
    "last record lost of an old log": lost(begin=8, end=39),
    "tail lost up to the snapshot of an old log": lost(begin=8, end=20),
    "first records damaged and tail lost": damaged(1, end=22),
    "damaged behind a snapshot of an old log": damaged(30, begin=8),
    "damaged behind a snapshot of an old log with a lost tail": damaged(30, begin=8, end=35),
    "damaged at the end of an old log": damaged(37, begin=8, end=38),
    "tail written over": written_over(begin=0, end=30),
    "tail written over in an old log": written_over(begin=8, end=30),
    "moved": moved,
    "of two histories": of_two_histories,
    **{how.__name__: emptied(how) for how in EMPTIED},
}


async def broken(how: str, *, is_signed: bool) -> Kept:
    kept = Kept(SIGNED, WRITERS) if is_signed else Kept()
    await kept.live()
    await BROKEN[how](kept)
    return kept


async def goes_on(kept: Kept, version: int, jobs: set[str]) -> None:
    """Every reader begins at the repaired version, at once or behind another repair."""
    try:
        assert (await kept.state()).version >= version, "no reader begins before what was good"
    except FENCED:
        assert not (await survey(kept.log, kept.layout, CELL)).is_whole, "who is fenced is told what to repair"
    if not (await survey(kept.log, kept.layout, CELL)).is_whole:
        await repaired(kept, kept.log)
    state, found = await kept.state(), await survey(kept.log, kept.layout, CELL)
    assert version <= state.version <= version + 2, "the records of two repairs at the most"
    assert state.jobs.keys() == jobs
    assert (found.is_whole, digest_of(found.state)) == (True, digest_of(state))
    begun = await newest_manifest(kept.log, kept.layout, CELL)
    assert begun is None or begun.version <= state.version
    assert (await LiveCheck(kept.log, kept.layout, CELL).run()).first_violation is None


@pytest.mark.parametrize("is_signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize("how", BROKEN)
async def test_a_repair_that_is_killed_anywhere_can_be_done_again(how: str, *, is_signed: bool) -> None:
    changes, is_done = 0, False
    while not is_done:
        kept = await broken(how, is_signed=is_signed)
        good = (await survey(kept.log, kept.layout, CELL)).state
        try:
            await repaired(kept, Dying(kept, changes))
            is_done = True
        except LogUnavailable:
            changes += 1
        await goes_on(kept, good.version, set(good.jobs))
    assert changes > 3


@pytest.mark.parametrize("how", ["damaged at the end of an old log", "tail written over", "tail_deleted"])
async def test_what_a_cell_decides_behind_a_repair_that_was_killed_is_not_given_up(how: str) -> None:
    """Its services start where a new reader begins already, and the repair was not run again."""
    changes, went_on = 0, 0
    while True:
        kept, changes = await broken(how, is_signed=False), changes + 1
        with contextlib.suppress(LogUnavailable):
            await repaired(kept, Dying(kept, changes - 1))
            break
        try:
            state = await kept.state()
        except FENCED:
            continue
        went_on += 1
        await goes_on_by_one(kept.log, state)
        await goes_on_by_one(kept.log, state)
        await goes_on(kept, state.version, set(state.jobs))
    assert went_on


@pytest.mark.parametrize("is_signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize("how", BROKEN)
async def test_a_repair_whose_record_is_not_answered_can_be_done_again(how: str, *, is_signed: bool) -> None:
    kept = await broken(how, is_signed=is_signed)
    good = (await survey(kept.log, kept.layout, CELL)).state
    with pytest.raises(NotRepairable, match="is not known to be in the log"):
        await repaired(kept, Unanswered(kept.broker))
    await goes_on(kept, good.version, set(good.jobs))


async def test_a_reader_goes_by_the_snapshots_that_are_left_where_a_person_made_the_newest_void() -> None:
    kept = Kept()
    await kept.live()
    kept.broker.delete_before(DECISIONS, 8)
    for slot in ("newest", hour_slot((await kept.state()).at_ms)):
        await kept.log.publish([Outgoing(SNAPSHOTS[0], None, f"{CELL}/{slot}".encode(), partition=0)])
    begun = await newest_manifest(kept.log, LAYOUT, CELL)
    assert begun is not None
    assert (begun.version, (await kept.state()).version) == (20, 40)
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole


async def test_a_log_whose_end_no_new_reader_comes_to_is_not_whole_and_a_repair_leads_it_there() -> None:
    """A late process has put an older snapshot in the newest one's place, and was killed before that one was void."""
    kept = Kept()
    await kept.live()
    state = await kept.state()
    await goes_on_by_one(kept.log, state)
    await snapshot(kept, state)
    kept.broker.cut(DECISIONS, 40)
    older, late = folded(kept.decisions[:20]), Dying(kept, 2)
    catalogue = await read_catalogue(late, LAYOUT, CELL)
    with pytest.raises(LogUnavailable):
        await write_snapshot(late, LAYOUT, older, catalogue, writer="late", wall_ms=0)
    [chunk] = cut(older, "half")
    await kept.log.publish([LAYOUT.outgoing(chunk, id="half", source="s", wall_ms=0)])
    with pytest.raises(LogTruncated):
        await kept.state()
    found = await survey(kept.log, LAYOUT, CELL)
    assert (found.is_whole, found.state.version, found.contradicting) == (False, 40, [])
    assert "a new reader does not begin: " in found.damage
    await repaired(kept, kept.log)
    assert (await kept.state()).version == 41
    assert (await survey(kept.log, LAYOUT, CELL)).is_whole
