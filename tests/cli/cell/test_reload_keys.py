"""`fallow cell reload` of a file by whose keys the log of the cell is not proven to its end."""

from __future__ import annotations

import pytest

from fallow.cli.cell.reload_answer import QUIET_MS, ReloadAnswer
from fallow.cli.cell.reload_keys import Picture, mistake_in_keys, picture_of
from fallow.cli.errors.failures import Exit
from fallow.shared.client.port import News
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import CHAIN_START, Decision
from fallow.shared.events.effects import AnyEffect
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.keys.signers import Signers
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from tests.signing import NEXT, STRANGERS, WRITERS, public, signed, signed_file

PLAIN = Layout("t", {"main": 0})
UNSIGNED, FIRST = signed_file(), signed_file(public(WRITERS))
BOTH, SECOND = signed_file(public(WRITERS), public(NEXT)), signed_file(public(NEXT))


class Written:
    """A log that its writer fills, version by version."""

    def __init__(self, file: CellFile) -> None:
        broker = MemoryBroker()
        for topic in ("decisions", "snapshots"):
            broker.create_topic(PLAIN.topic(topic), 1)
        self.log, self._chain, self._version, self._file = MemoryLog(broker), CHAIN_START, 0, file

    async def decide(self, key: SigningKey | None, *effects: AnyEffect, is_kept: bool = True) -> None:
        own = () if self._version else (as_effect(self._file),)
        decision = Decision(
            cell="main", version=self._version + 1, epoch=1, at_ms=1 + self._version, effects=(*own, *effects)
        )
        (record,) = signed(PLAIN, [decision], key, self._chain)
        await self.log.publish([record])
        if is_kept:
            headers = dict(record.headers)
            self._version += 1
            self._chain = (headers["chain"] or b"").decode()

    async def picture(self, file: CellFile) -> Picture:
        return await picture_of(self.log, layout_of(file), "main")

    async def mistake(self, file: CellFile) -> str:
        return await mistake_in_keys(self.log, layout_of(file), file, await self.picture(file))


def layout_of(file: CellFile) -> Layout:
    return Layout(PLAIN.namespace, PLAIN.ordinals, Signers(file))


async def written(file: CellFile, *keys: SigningKey | None) -> Written:
    made = Written(file)
    for key in keys:
        await made.decide(key)
    return made


@pytest.mark.parametrize("file", [signed_file(public(STRANGERS)), SECOND])
async def test_a_file_that_proves_no_decision_is_refused_for_that_and_the_cell_has_begun(file: CellFile) -> None:
    cell = await written(FIRST, WRITERS, WRITERS)
    assert (await cell.picture(file)).state.version == 0
    why = await cell.mistake(file)
    assert why.startswith("cells: main: signing: keys: no key of it proves any decision of cell main")


async def test_a_file_that_lacks_the_newer_key_is_refused() -> None:
    cell = await written(BOTH, WRITERS, WRITERS, NEXT)
    why = await cell.mistake(FIRST)
    assert why.startswith("cells: main: signing: keys: a key is missing, by which the decisions behind version 2 ")
    assert not await cell.mistake(BOTH)


@pytest.mark.parametrize("from_version", [1, 2, 3])
async def test_a_file_that_begins_signatures_at_a_version_that_is_written_is_told_so_with_the_version_now(
    from_version: int,
) -> None:
    cell = await written(UNSIGNED, None, None, None)
    why = await cell.mistake(signed_file(public(WRITERS), from_version=from_version))
    assert why == (
        f"cells: main: signing: from_version: {from_version} is written already, without a signature that must be "
        "there: must be above 3, the cell's version now"
    )
    assert not await cell.mistake(signed_file(public(WRITERS), from_version=4))


async def test_so_is_one_that_moves_the_begin_back_though_its_key_proves_all() -> None:
    cell = await written(signed_file(public(WRITERS), from_version=9), WRITERS, WRITERS, WRITERS)
    assert "from_version: 2 is written already" in await cell.mistake(signed_file(public(WRITERS), from_version=2))


@pytest.mark.parametrize("key", [STRANGERS, None])
async def test_what_a_stranger_writes_at_the_end_refuses_no_file(key: SigningKey | None) -> None:
    cell = await written(FIRST, WRITERS, WRITERS)
    await cell.decide(key, as_effect(signed_file(public(STRANGERS))), is_kept=False)
    own = await cell.picture(FIRST)
    assert (own.state.version, own.is_proven) == (2, False)
    assert not await cell.mistake(FIRST)
    assert not await cell.mistake(BOTH)
    await cell.decide(WRITERS)
    assert (await cell.picture(FIRST)).is_proven


async def state_of(file: CellFile) -> CellState:
    return (await (await written(file, WRITERS)).picture(file)).state


async def answer_behind(before: CellFile, *effects: AnyEffect) -> ReloadAnswer:
    """What is told of a reload of a file with both keys, behind which decisions were passed over."""
    answer = ReloadAnswer(BOTH, "cell.yaml", await state_of(before))
    for number, effect in enumerate(effects):
        answer.take(News("main", effect, version=2 + number))
    answer.passes_over()
    answer.is_read(0)
    return answer


@pytest.mark.parametrize("before", [FIRST, BOTH])
async def test_silence_is_no_answer_where_decisions_were_passed_over(before: CellFile) -> None:
    answer = await answer_behind(before)
    assert (answer.is_over(QUIET_MS), answer.code) == (False, Exit.AWAY)
    assert answer.text.startswith("no answer about cell main can be read: no key in signing.keys")
    assert "readyz" not in answer.text


async def test_an_answer_that_was_read_counts_whatever_was_passed_over() -> None:
    answer = await answer_behind(FIRST, as_effect(BOTH))
    assert (answer.is_over(0), answer.code) == (True, Exit.OK)
    other = await answer_behind(FIRST, as_effect(SECOND))
    assert (other.is_over(0), other.code) == (True, Exit.NO)
