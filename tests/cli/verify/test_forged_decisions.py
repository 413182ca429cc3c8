"""Every reader of a log passes over the same records: those that no key of the cell proves.

What each tells of a log with forged decisions between the honest ones is what it tells of the honest ones alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from fallow.cli.errors.passed_over import SAID_MAX, Places, TellingSigners
from fallow.cli.log.past import Then, open_past
from fallow.cli.log.repair import signature_for
from fallow.cli.log.repairing import From, NotRepairable, repair, survey
from fallow.cli.log.why import explain
from fallow.cli.verify.verification import LiveCheck
from fallow.shared.client.history import History as ClientHistory
from fallow.shared.client.port import Mark
from fallow.shared.events.decisions import SIGNATURE_HEADER, Decision
from fallow.shared.events.effects import JobEnqueued
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Outgoing
from tests.histories import CELL, History
from tests.signing import WRITERS, believing, forgeries, public, signed, signed_file

PLAIN = Layout("t", {CELL: 0})
LAYOUT = believing(PLAIN, public(WRITERS), cell=CELL)
DECISIONS = LAYOUT.tp("decisions", CELL)
TOPICS = ("decisions", "snapshots", "jobs", "queue", "nodes", "proposals", "operations")
COUNT, AT = 12, (4, 8, 11)
Told = Callable[[MemoryLog], Awaitable[object]]


def history() -> list[Decision]:
    return History(31).decisions(COUNT)


def a_job() -> str:
    return next(each.spec.id for d in history() for each in d.effects if isinstance(each, JobEnqueued))


async def log_of(records: Sequence[Outgoing]) -> MemoryLog:
    broker = MemoryBroker()
    for topic in TOPICS:
        broker.create_topic(PLAIN.topic(topic), 1)
    log = MemoryLog(broker)
    await log.publish(records)
    return log


async def honest() -> MemoryLog:
    return await log_of(signed(PLAIN, history(), WRITERS))


async def with_forged() -> MemoryLog:
    decisions = history()
    own, records = signed(PLAIN, decisions, WRITERS), list[Outgoing]()
    for number, message in enumerate(own):
        records += forgeries(PLAIN, decisions, number).values() if number in AT else ()
        records.append(message)
    return await log_of(records)


async def all_of(found: AsyncIterator[object]) -> list[object]:
    return [each async for each in found]


async def decisions_by_version(log: MemoryLog) -> object:
    return await all_of(ClientHistory(log, LAYOUT).decisions(CELL, 1, None))


async def decisions_from_the_end(log: MemoryLog) -> object:
    return await all_of(ClientHistory(log, LAYOUT).newest(CELL, 7, follow=False))


async def story_of_a_job(log: MemoryLog) -> object:
    return await all_of(ClientHistory(log, LAYOUT).story(CELL, a_job()))


async def news(log: MemoryLog) -> object:
    mark = Mark({f"{topic}/0": 0 for topic in (PLAIN.topic("jobs"), PLAIN.topic("decisions"))})
    async with aclosing(ClientHistory(log, LAYOUT).news(mark, 0)) as found:
        return await anext(found)


async def why(log: MemoryLog) -> object:
    return (await explain(log, LAYOUT, CELL, a_job(), wall=lambda: 10**15)).steps


async def past(log: MemoryLog) -> object:
    told = []
    for then in (Then(version=6), Then()):
        async with open_past(log, LAYOUT, CELL, then, wall=lambda: 10**15) as found:
            state = await found.go_to(then)
            told.append((state.version, state.chain))
    return told


async def verification(log: MemoryLog) -> object:
    found = await LiveCheck(log, LAYOUT, CELL).run()
    return (found.first_violation, found.to_version)


async def survey_of_a_repair(log: MemoryLog) -> object:
    found = await survey(log, LAYOUT, CELL)
    return (found.damage, found.state.version, found.state.chain)


READERS = (
    decisions_by_version,
    decisions_from_the_end,
    story_of_a_job,
    news,
    why,
    past,
    verification,
    survey_of_a_repair,
)


@pytest.mark.parametrize("told", READERS)
async def test_a_reader_tells_nothing_of_what_no_key_proves(told: Told) -> None:
    wanted = await told(await honest())
    assert wanted
    assert await told(await with_forged()) == wanted


async def test_verify_counts_what_no_key_proves_and_finds_no_offence() -> None:
    found = await LiveCheck(await with_forged(), LAYOUT, CELL).run()
    count = len(AT) * len(forgeries(PLAIN, history(), 4))
    assert (found.ok, found.skipped, found.forged) == (True, count, count)


async def test_verify_without_the_keys_believes_what_continues_the_chain_and_finds_that_it_is_not_alone() -> None:
    found = await LiveCheck(await with_forged(), PLAIN, CELL).run()
    assert found.first_violation is not None
    assert (found.forged, found.first_violation.invariant) == (0, "chain")


def test_a_command_says_the_first_places_once_and_what_that_means(capsys: pytest.CaptureFixture[str]) -> None:
    file, places = signed_file(public(WRITERS), cell=CELL), Places()
    for _ in range(2):
        TellingSigners(file, Path("c.yaml"), places).skipped(CELL, range(SAID_MAX + 9))
    first, means, *others, last = capsys.readouterr().err.splitlines()
    assert first == f"fallow: cell {CELL}, offset 0: no key of the cell proves this record, it is passed over"
    assert "c.yaml lacks a key in signing.keys, or its from_version is too early" in means
    assert means.endswith("give the command the cell file in force (--cell-file)")
    assert len(others) == SAID_MAX - 1
    assert "passed over more" in last


async def damaged() -> MemoryLog:
    """A log that lacks a decision, so that every reader stops there."""
    records = signed(PLAIN, history(), WRITERS)
    return await log_of([*records[:8], *records[9:]])


async def test_a_repair_of_a_signed_cell_is_signed() -> None:
    log = await damaged()
    found = await survey(log, LAYOUT, CELL)
    state = await repair(log, LAYOUT, found, From.END, by="ada", wall_ms=0, sign=WRITERS.sign)
    assert (await survey(log, LAYOUT, CELL)).state.version == state.version
    (last,) = (await log.last_before({DECISIONS: (await log.end_offsets([DECISIONS]))[DECISIONS]})).values()
    assert SIGNATURE_HEADER in dict(last.headers)


async def test_a_repair_without_a_key_of_the_cell_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FALLOW_SIGNING_KEY", raising=False)
    with pytest.raises(NotRepairable, match="FALLOW_SIGNING_KEY has to be one of its keys, and there is none"):
        signature_for(LAYOUT, CELL)
    assert signature_for(PLAIN, CELL) is None
