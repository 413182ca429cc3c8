"""Which records of decisions a reader believes by its own keys, and that it passes over all others without a word of
theirs stopping it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import (
    BEFORE_HEADER,
    CHAIN_HEADER,
    CHAIN_START,
    SIGNATURE_HEADER,
    Decision,
    next_chain,
)
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.signers import Signers, asks_too_early, keys_of_cells
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.reading import UNPROVEN, log_record
from tests.histories import CELL, History, folded
from tests.log.worlds.snapshot_world import TOPICS, layout_of, snapshot
from tests.signing import NEXT, STRANGERS, WRITERS, believing, forgeries, public, signed, signed_file, with_header

PLAIN = layout_of("fallow")
LAYOUT = believing(PLAIN, public(WRITERS), cell=CELL)


class CountingSigners(Signers):
    """Notes which places were passed over."""

    def __init__(self, file: CellFile) -> None:
        super().__init__(file)
        self.places: list[int] = []

    def skipped(self, cell: str, offsets: Sequence[int]) -> None:
        self.places += offsets


@pytest.fixture
def log() -> MemoryLog:
    broker = MemoryBroker()
    for topic in TOPICS:
        broker.create_topic(PLAIN.topic(topic), 2)
    return MemoryLog(broker)


async def read(log: MemoryLog, layout: Layout = LAYOUT) -> Follower:
    """A reader that starts afresh and has read to the end."""
    follower = Follower(log, layout, CELL)
    try:
        await follower.start()
        await follower.catch_up()
    finally:
        await follower.stop()
    return follower


def history(count: int = 6) -> list[Decision]:
    return History(31).decisions(count)


KINDS = list(forgeries(PLAIN, history(), 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [1, 3, 5])
async def test_a_forged_record_is_passed_over_wherever_it_stands(log: MemoryLog, kind: str, at: int) -> None:
    decisions = history()
    honest = signed(PLAIN, decisions, WRITERS)
    forged = forgeries(PLAIN, decisions, at)[kind]
    await log.publish([*honest[:at], forged, forged, *honest[at:], forged])
    follower = await read(log)
    assert (follower.state.version, follower.state.skipped, follower.state.offset) == (6, 3, 8)
    assert follower.state.chain == folded(decisions).chain
    confirmed = follower.confirmed()
    assert (confirmed.version, confirmed.offset, confirmed.skipped) == (6, 7, 2), "and not behind the last one"


async def test_of_what_no_key_proves_nothing_is_read_where_signatures_begin_with_the_log(log: MemoryLog) -> None:
    """It may be large and dear to read, and it is passed over whatever it says."""
    await log.publish(signed(PLAIN, history(1), STRANGERS))
    reader = log.reader({LAYOUT.tp("decisions", CELL): 0})
    await reader.start()
    (record,) = await reader.poll()
    await reader.stop()
    assert log_record(record, LAYOUT.signers.of(CELL)).decision is UNPROVEN
    later = believing(PLAIN, public(WRITERS), cell=CELL, from_version=2)
    assert isinstance(log_record(record, later.signers.of(CELL)).decision, Decision), "it may be of before that"


async def test_a_log_whose_decisions_no_key_proves_stays_one_behind_what_is_no_decision(log: MemoryLog) -> None:
    """Perhaps a key is missing here: the cell must not be begun anew."""
    layout = believing(PLAIN, public(WRITERS), cell=CELL, from_version=3)
    decisions = history()
    forged = signed(PLAIN, decisions[2:3], STRANGERS, folded(decisions[:2]).chain)
    await log.publish([*forged, replace(forged[0], value=b"no decision", headers=())])
    assert (await read(log, layout)).is_all_forged


async def test_a_copy_of_an_old_decision_confirms_nothing_that_no_key_proves(log: MemoryLog) -> None:
    """Perhaps only a key is missing here: a reader that has it reads decisions there, whatever stands behind them."""
    decisions = history()
    honest = signed(PLAIN, decisions, WRITERS)
    chain = folded(decisions[:2]).chain
    await log.publish([*honest[:2], honest[0], *signed(PLAIN, decisions[2:4], NEXT, chain), honest[0], honest[1]])
    follower = await read(log)
    assert (follower.state.version, follower.state.offset) == (2, 6)
    confirmed = follower.confirmed()
    assert (confirmed.version, confirmed.offset, confirmed.skipped) == (2, 2, 1)
    whole = await read(log, believing(PLAIN, public(WRITERS), public(NEXT), cell=CELL))
    assert whole.confirmed() is whole.state
    assert whole.state.version == 4


async def test_what_the_log_no_longer_holds_is_in_no_doubt(log: MemoryLog) -> None:
    decisions = history()
    forged = signed(PLAIN, decisions[2:3], STRANGERS, folded(decisions[:2]).chain)
    await log.publish([*signed(PLAIN, decisions[:2], WRITERS), *forged, *forged, *forged])
    follower = await read(log)
    assert [follower.confirmed(begin).offset for begin in (0, 2, 3, 5)] == [1, 1, 2, 4]
    assert follower.state.offset == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reader_that_knows_its_last_place_already_reads_a_forged_record_there_again(
    log: MemoryLog, kind: str
) -> None:
    decisions = history()
    await log.publish([*signed(PLAIN, decisions, WRITERS)[:3], forgeries(PLAIN, decisions, 3)[kind]])
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    await follower.rest()
    await follower.catch_up()
    assert (follower.state.version, follower.state.skipped) == (3, 1)
    await follower.stop()


async def test_what_was_passed_over_is_told_once_for_each_place(log: MemoryLog) -> None:
    decisions = history()
    forged = forgeries(PLAIN, decisions, 3)["unsigned"]
    await log.publish([*signed(PLAIN, decisions, WRITERS)[:3], forged, forged])
    signers = CountingSigners(signed_file(public(WRITERS), cell=CELL, ordinal=1))
    follower = Follower(log, Layout("fallow", PLAIN.ordinals, signers), CELL)
    await follower.start()
    for _ in range(2):
        await follower.catch_up()
        await follower.rest()
    assert signers.places == [3, 4]
    await follower.stop()


async def test_a_writers_own_record_that_is_damaged_fences_as_soon_as_the_next_one_shows_the_gap(
    log: MemoryLog,
) -> None:
    honest = signed(PLAIN, history(), WRITERS)
    value = honest[3].value or b""
    damaged = replace(honest[3], value=value[:-3] + bytes((value[-3] ^ 1,)) + value[-2:])
    await log.publish([*honest[:3], damaged])
    assert (await read(log)).state.version == 3
    await log.publish(honest[4:])
    with pytest.raises(DamagedLog, match="version 5 follows 3: records are missing"):
        await read(log)


async def test_a_signed_record_of_a_later_release_that_cannot_be_read_fences(log: MemoryLog) -> None:
    honest = signed(PLAIN, history(), WRITERS)
    chain, value = folded(history()[:3]).chain, b'{"from":"a later release"}'
    sealed = next_chain(chain, value)
    later = replace(honest[3], value=value)
    headers = {BEFORE_HEADER: chain, CHAIN_HEADER: sealed, SIGNATURE_HEADER: WRITERS.sign(sealed)}
    for name, text in headers.items():
        later = with_header(later, name, text.encode())
    await log.publish([*honest[:3], later])
    with pytest.raises(DamagedLog, match="cannot be read"):
        await read(log)


async def test_a_rotated_key_proves_old_records_and_no_new_ones(log: MemoryLog) -> None:
    decisions = history()
    old, chain = signed(PLAIN, decisions[:3], WRITERS), folded(decisions[:3]).chain
    late = signed(PLAIN, [replace(decisions[3], effects=())], WRITERS, chain)
    new = signed(PLAIN, decisions[3:], NEXT, chain)
    await log.publish([*old, *late, *new])
    follower = await read(log, believing(PLAIN, public(NEXT), public(WRITERS, until_version=3), cell=CELL))
    assert (follower.state.version, follower.state.skipped) == (6, 1)
    assert follower.state.chain == folded(decisions).chain


async def test_records_from_before_the_first_signed_version_are_believed_without(log: MemoryLog) -> None:
    decisions = history()
    unsigned, chain = signed(PLAIN, decisions[:4], None), folded(decisions[:4]).chain
    forged = signed(PLAIN, [replace(decisions[4], effects=())], None, chain)
    await log.publish([*unsigned, *forged, *signed(PLAIN, decisions[4:], WRITERS, chain)])
    follower = await read(log, believing(PLAIN, public(WRITERS), cell=CELL, from_version=5))
    assert (follower.state.version, follower.state.skipped) == (6, 1)


async def test_without_keys_all_is_as_it_was(log: MemoryLog) -> None:
    decisions = history()
    await log.publish(signed(PLAIN, decisions[:3], None))
    await log.publish(signed(PLAIN, decisions[3:], STRANGERS, folded(decisions[:3]).chain))
    assert digest_of((await read(log, PLAIN)).state) == digest_of(folded(decisions))


async def test_keys_that_a_state_or_a_record_names_are_not_believed(log: MemoryLog) -> None:
    """A forged snapshot holds the cell file of its forger, as in force."""
    decisions = history()
    theirs = as_effect(signed_file(public(STRANGERS), cell=CELL, ordinal=1))
    claim = Decision(cell=CELL, version=1, epoch=0, at_ms=0, effects=(theirs,))
    await snapshot(log, PLAIN, folded([claim]))
    chain = folded([claim]).chain
    then = replace(decisions[1], version=2, effects=())
    await log.publish([*signed(PLAIN, [claim], STRANGERS), *signed(PLAIN, [then], STRANGERS, chain)])
    follower = await read(log)
    assert follower.state.version == 1, "the snapshot is believed, and nothing that only its keys prove"


async def test_a_file_that_asks_for_signatures_of_what_the_file_in_force_believes_without_is_known_by_a_snapshot(
    log: MemoryLog,
) -> None:
    """It stands for decisions that nothing here proves. Without it such a reader stays at version 0."""
    claim = Decision(cell=CELL, version=1, epoch=0, at_ms=0, effects=(as_effect(signed_file(cell=CELL, ordinal=1)),))
    await log.publish(signed(PLAIN, [claim], None))
    assert (await read(log)).is_all_forged
    await snapshot(log, PLAIN, folded([claim]))
    found = await read(log)
    assert (found.state.version, found.is_all_forged, found.asks_too_early) == (1, False, True)


@pytest.mark.parametrize(
    ("in_force_from", "own_from", "version", "is_too_early"),
    [
        (None, None, 5, False),
        (None, 5, 4, False),
        (None, 5, 5, True),
        (None, 1, 5, True),
        (1, 1, 5, False),
        (1, 3, 5, False),
        (6, 3, 5, True),
        (6, 6, 5, False),
    ],
)
def test_which_files_ask_too_early(
    in_force_from: int | None, own_from: int | None, version: int, is_too_early: bool
) -> None:
    in_force, own = (
        signed_file(cell=CELL) if at is None else signed_file(public(WRITERS), cell=CELL, from_version=at)
        for at in (in_force_from, own_from)
    )
    keys = keys_of_cells(own).get(CELL)
    assert asks_too_early(as_effect(in_force), keys, CELL, version) is is_too_early
    assert asks_too_early(None, keys, CELL, version) is False


class Reloading(Signers):
    """A file that has another key as soon as it is read again."""

    def __init__(self) -> None:
        super().__init__(signed_file(public(WRITERS), cell=CELL, ordinal=1))
        self.reads = 0

    async def renewed(self) -> bool:
        self.reads += 1
        before, file = self._keys, signed_file(public(WRITERS), public(NEXT), cell=CELL, ordinal=1)
        self._keys = Signers(file)._keys
        return before != self._keys


async def test_before_a_record_is_passed_over_the_keys_are_read_again(log: MemoryLog) -> None:
    decisions = history()
    await log.publish(signed(PLAIN, decisions[:3], WRITERS))
    await log.publish(signed(PLAIN, decisions[3:], NEXT, folded(decisions[:3]).chain))
    signers = Reloading()
    follower = await read(log, Layout("fallow", PLAIN.ordinals, signers))
    assert (follower.state.version, follower.state.skipped, follower.confirmed().offset) == (6, 0, 5)


async def test_a_cell_file_that_comes_into_force_has_its_own_read_again(log: MemoryLog) -> None:
    effect = as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL, ordinal=1))
    decision = Decision(cell=CELL, version=1, epoch=0, at_ms=0, effects=(effect,))
    await log.publish(signed(PLAIN, [decision], WRITERS))
    signers = Reloading()
    follower = Follower(log, Layout("fallow", PLAIN.ordinals, signers), CELL)
    await follower.start()
    await follower.catch_up()
    for _ in range(2):
        await follower.poll(wait_ms=0)
    assert signers.reads == 1
    await follower.stop()


class Slow(Reloading):
    """It takes a while to read the file."""

    async def renewed(self) -> bool:
        await asyncio.sleep(0.05 if self.reads == 0 else 0)
        return await super().renewed()


async def test_a_reader_that_is_cancelled_while_it_reads_the_keys_again_misses_no_record(log: MemoryLog) -> None:
    decisions = history()
    await log.publish(signed(PLAIN, decisions[:3], WRITERS))
    await log.publish(signed(PLAIN, decisions[3:], NEXT, folded(decisions[:3]).chain))
    signers = Slow()
    follower = Follower(log, Layout("fallow", PLAIN.ordinals, signers), CELL)
    await follower.start()
    polling = asyncio.create_task(follower.poll())
    await asyncio.sleep(0.01)
    polling.cancel()
    await asyncio.wait([polling])
    assert (polling.cancelled(), follower.state.version) == (True, 0)
    await follower.catch_up()
    assert (follower.state.version, follower.state.skipped) == (6, 0)
    await follower.stop()


def test_what_a_signature_is_of_is_the_chain_and_no_other_words_of_the_writer() -> None:
    (message,) = signed(PLAIN, history(1), WRITERS, CHAIN_START)
    chain = next_chain(CHAIN_START, encode(history(1)[0]))
    assert dict(message.headers)[SIGNATURE_HEADER].decode() == WRITERS.sign(chain)
    assert WRITERS.sign(chain) != WRITERS.sign(next_chain(chain, b""))
