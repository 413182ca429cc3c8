"""Two releases on one log: admission writes nothing for a cell whose log it cannot read, and reads no submission that
the other release could not answer any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from fallow.cli.log.repairing import From, repair, survey
from fallow.services.admission.app import keeping_pace
from fallow.services.admission.app.answering import main
from fallow.services.admission.app.keeping_pace import KeepingPace
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.cluster.fold.fold import DamagedLog, OtherRelease, fold
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import TYPE_HEADER, ce_headers, encode
from fallow.shared.events.decisions import CHAIN_HEADER, Decision, next_chain
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Outgoing, Record
from fallow.shared.log.reading import log_record
from fallow.shared.log.release import Trail, trail_of
from fallow.shared.log.sharing.delivery import Delivery
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import make_context
from tests.contract.eventually import eventually
from tests.histories import CELL, History, outgoing
from tests.log.worlds.earlier_release import as_then, first_decision
from tests.log.worlds.snapshot_world import snapshot
from tests.signing import STRANGERS, WRITERS, believing, public, signed

LAYOUT = Layout("t", {CELL: 0, "cell-b": 1})
DECISIONS = LAYOUT.tp("decisions", CELL)
FILE = parse_cell_file(
    f"""
cells:
  - {{name: {CELL}, ordinal: 0, pools: [{{name: training, gpus: 8}}]}}
  - {{name: cell-b, ordinal: 1, pools: [{{name: spare, gpus: 8}}]}}
tenants: [{{name: vision}}]
""",
    "cell",
)
TOLD = f"is of another release, this one reads {Decision.type} (got fallow.decision.v1)"


class OneFile(Host):
    """A machine with this cell file."""

    def cell_file(self, path: Path) -> CellFile:
        return FILE


class Shared:
    """The submissions that a process shares with others, in place of a group of Kafka: the test hands them over."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery, self.is_open = delivery, False

    async def start(self) -> None:
        self.is_open = True

    async def stop(self) -> None:
        self.is_open = False


class Running:
    """A process of admission before a log in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker, self.joined = broker, list[Shared]()
        self.context = replace(make_context("admission", AdmissionSettings(namespace="t")), host=OneFile())

    async def opened(self, _: object, __: object) -> MemoryLog:
        log = MemoryLog(self.broker)
        await log.start()
        return log

    def sharing(self, _: object, topics: Sequence[str], __: object, delivery: Delivery) -> Shared:
        self.joined.append(Shared(delivery))
        return self.joined[-1]

    @property
    def reads(self) -> bool:
        """Whether it has a share of the submissions just now."""
        return bool(self.joined) and self.joined[-1].is_open

    @property
    def is_ready(self) -> bool:
        return self.context.health.is_ready

    def says(self, words: str) -> bool:
        return words in str(self.context.health.answer("/readyz"))

    @property
    def answers(self) -> int:
        return sum(len(self.broker.partition(("t.jobs", n)).records) for n in range(2))

    async def is_handed(self, number: int) -> None:
        """A batch of one submission that came before it could leave."""
        event = SubmitJob(job=JobSpec(id=f"job-{number}", tenant="vision", pools=("training",)))
        headers = ce_headers(event, id="1", source="test", wall_ms=0)
        await self.joined[-1].delivery._handler([Record("t.submissions", 0, number, b"k", encode(event), headers, 1)])


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    for topic in ("operations", "submissions", "decisions", "snapshots", "jobs", "dead-letters"):
        made.create_topic(f"t.{topic}", 2)
    return made


@asynccontextmanager
async def running(broker: MemoryBroker) -> AsyncIterator[Running]:
    found = Running(broker)
    process = asyncio.create_task(main(found.context, found.opened, found.sharing))
    try:
        yield found
        assert not process.done()
    finally:
        found.context.stopping.set()
        await process


def write(broker: MemoryBroker, *messages: Outgoing) -> None:
    for message in messages:
        broker.write(message)


async def whose_is(broker: MemoryBroker, layout: Layout = LAYOUT, cell: str = CELL) -> str:
    """What is told of the cell's log."""
    try:
        return "own" if await trail_of(MemoryLog(broker), layout, cell) else "not known"
    except OtherRelease as other:
        return str(other)


def between(value: bytes, before: str, type_: bytes = b"fallow.decision.v1") -> tuple[Outgoing, str]:
    """A stranger's record that continues the chain up to there, which any reader can compute; and its own chain."""
    (topic, partition), chain = DECISIONS, next_chain(before, value)
    return Outgoing(topic, value, b"k", ((TYPE_HEADER, type_), (CHAIN_HEADER, chain.encode())), partition), chain


def cut_short(version: int) -> bytes:
    """What no reader can read to its end as a decision."""
    return b'{"cell":"%s","version":%d}' % (CELL.encode(), version)


def next_of(history: History, count: int) -> list[Outgoing]:
    """The next decisions, as records behind those of before."""
    chain = history.state.chain
    return outgoing(LAYOUT, history.decisions(count), chain)


async def test_on_a_log_of_another_release_admission_leaves_all_submissions_unread(broker: MemoryBroker) -> None:
    write(broker, first_decision(LAYOUT))
    async with running(broker) as admission:
        await eventually(lambda: admission.says(TOLD))
        assert admission.says(f"cell {CELL}: offset 0: ")
        assert not admission.is_ready
        assert not admission.joined
    assert admission.answers == 0


async def test_it_begins_once_the_cell_has_a_log_of_its_own_release(broker: MemoryBroker) -> None:
    write(broker, first_decision(LAYOUT))
    async with running(broker) as admission:
        await eventually(lambda: admission.says(TOLD))
        broker.cut(DECISIONS, 0)
        await eventually(lambda: admission.reads and admission.is_ready, 20)
        await admission.is_handed(1)
    assert admission.answers == 1


@pytest.mark.parametrize("decisions", [0, 5])
async def test_a_log_on_which_another_release_goes_on_is_let_go_of(broker: MemoryBroker, decisions: int) -> None:
    history = History(3)
    write(broker, *outgoing(LAYOUT, history.decisions(decisions)))
    async with running(broker) as admission:
        await eventually(lambda: admission.reads)
        await admission.is_handed(1)
        if decisions:
            write(broker, *map(as_then, next_of(history, 1)))
        else:
            write(broker, first_decision(LAYOUT))
        await eventually(lambda: not admission.reads)
        await eventually(lambda: admission.says(TOLD))
        with pytest.raises(LogUnavailable):
            await admission.is_handed(2)
    assert admission.answers == 1


@pytest.mark.parametrize("goes_on", [False, True], ids=["strangers alone", "decisions behind them"])
async def test_what_a_stranger_calls_of_another_release_keeps_no_submission_waiting(
    broker: MemoryBroker, *, goes_on: bool
) -> None:
    history, stranger = History(3), first_decision(LAYOUT, chain_before="f" * 32)
    write(broker, *outgoing(LAYOUT, history.decisions(5)), stranger, stranger)
    if goes_on:
        write(broker, *next_of(history, 1))
    async with running(broker) as admission:
        await eventually(lambda: admission.reads)
        await admission.is_handed(1)
        write(broker, stranger)
        await asyncio.sleep(1.2)
        assert admission.reads
        assert admission.is_ready
        await admission.is_handed(2)
    assert admission.answers == 2


async def test_a_log_is_told_by_what_continues_it(broker: MemoryBroker) -> None:
    """A writer that knew an old state alone leaves records behind it that continue nothing."""
    history, stranger = History(3), first_decision(LAYOUT, chain_before="f" * 32)
    ours = outgoing(LAYOUT, history.decisions(4))
    write(broker, *ours)
    assert [await whose_is(broker, LAYOUT, cell) for cell in (CELL, "cell-b")] == ["own", "own"]
    write(broker, ours[1], stranger, ours[2])
    assert await whose_is(broker) == "own"
    write(broker, *map(as_then, next_of(history, 2)), ours[1])
    assert TOLD in await whose_is(broker)


async def test_what_those_who_fold_the_log_pass_over_hides_no_other_release(broker: MemoryBroker) -> None:
    history = History(3)
    write(broker, *outgoing(LAYOUT, history.decisions(5)))
    async with running(broker) as admission:
        await eventually(lambda: admission.reads)
        write(broker, *between(cut_short(history.state.version + 1), "f" * 32, Decision.type.encode())[:1])
        write(broker, *map(as_then, next_of(history, 1)))
        await eventually(lambda: not admission.is_ready and not admission.reads)


async def test_behind_damage_that_a_person_has_mended_another_release_is_seen_again(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping_pace, "LOOK_AGAIN_MS", 0)
    for topic in ("nodes", "proposals"):
        broker.create_topic(f"t.{topic}", 2)
    history, log = History(3), MemoryLog(broker)
    await log.start()
    write(broker, *outgoing(LAYOUT, history.decisions(5)))
    keeping = KeepingPace(make_context("admission", AdmissionSettings(namespace="t")), log, LAYOUT, [CELL])
    await keeping.begin()
    assert await keeping.others() is None
    history.decisions(1)  # a record that is lost
    write(broker, *next_of(history, 1))
    await keeping.look()
    mended = await repair(log, LAYOUT, await survey(log, LAYOUT, CELL), From.END, by="ada", wall_ms=0)
    await keeping.look()
    write(broker, between(cut_short(mended.version + 1), mended.chain)[0])
    with pytest.raises(OtherRelease, match="is of another release"):
        await keeping.look()
    await keeping.end()


@pytest.mark.parametrize("decisions", [1, 3, 100], ids=lambda count: f"{count} decisions")
@pytest.mark.parametrize("begin", [0, 1])
async def test_strangers_who_continue_each_other_alone_hold_nothing_up(
    broker: MemoryBroker, decisions: int, begin: int
) -> None:
    history = History(3)
    write(broker, *outgoing(LAYOUT, history.decisions(decisions)))
    if begin:
        await snapshot(MemoryLog(broker), LAYOUT, history.state)
        broker.delete_before(DECISIONS, begin)
    first, chain = between(b'{"a":1}', "f" * 32)
    write(broker, first, between(b'{"a":2}', chain)[0])
    assert await whose_is(broker) == "own"
    write(broker, *next_of(history, 1))
    assert await whose_is(broker) == "own"


@pytest.mark.parametrize("value", [b'{"version":0}', b'{"version":3}', b'{"version":999}', b"", b"{}"])
@pytest.mark.parametrize("decisions", [0, 3, 100])
async def test_in_a_cell_with_keys_what_continues_the_log_without_one_holds_nothing_up(
    broker: MemoryBroker, value: bytes, decisions: int
) -> None:
    history, layout = History(3), believing(LAYOUT, public(WRITERS), cell=CELL)
    write(broker, *signed(layout, history.decisions(decisions), WRITERS))
    write(broker, *(between(value, history.state.chain)[0] for _ in range(3)))
    assert await whose_is(broker, layout) == "own"


@pytest.mark.parametrize("count", [5, 200])
async def test_a_log_of_another_release_is_known_behind_what_strangers_write(broker: MemoryBroker, count: int) -> None:
    write(broker, *map(as_then, outgoing(LAYOUT, History(3).decisions(count))))
    write(broker, *[between(b'{"a":1}', "f" * 32, b"x")[0]] * 16)
    assert TOLD in await whose_is(broker)


async def test_the_snapshots_of_another_release_tell_whose_a_log_is_that_they_stand_for(broker: MemoryBroker) -> None:
    history, written = History(3), MemoryBroker()
    written.create_topic(LAYOUT.topic("snapshots"), 2)
    written.create_topic(LAYOUT.topic("decisions"), 2)
    write(broker, *map(as_then, outgoing(LAYOUT, history.decisions(9))))
    await snapshot(MemoryLog(written), LAYOUT, history.state)
    for record in written.partition(LAYOUT.tp("snapshots", CELL)).records:
        write(broker, as_then(Outgoing(record.topic, record.value, record.key, record.headers, 0)))
    broker.delete_before(DECISIONS, 9)
    assert TOLD.partition(",")[0] in await whose_is(broker)


async def test_where_those_who_fold_the_log_are_fenced_nothing_is_known(broker: MemoryBroker) -> None:
    write(broker, *outgoing(LAYOUT, History(3).decisions(5)))
    broker.delete_before(DECISIONS, 2)
    assert await whose_is(broker) == "not known"


async def test_what_cannot_be_read_is_passed_over(broker: MemoryBroker) -> None:
    write(broker, *map(as_then, outgoing(LAYOUT, History(3).decisions(100))))
    broker.damage(DECISIONS, 99)
    assert TOLD in await whose_is(broker)


async def test_in_a_cell_with_keys_only_what_one_of_them_proves_says_whose_log_it_is(broker: MemoryBroker) -> None:
    history, layout = History(3), believing(LAYOUT, public(WRITERS), cell=CELL)
    write(broker, *signed(layout, history.decisions(3), WRITERS))
    chain, more = history.state.chain, history.decisions(2)
    write(broker, *map(as_then, signed(layout, more, STRANGERS, chain)))
    assert await whose_is(broker, layout) == "own"
    write(broker, *map(as_then, signed(layout, more, WRITERS, chain)))
    assert await whose_is(broker, layout) == "own", "a copy of what this release has signed is none of another one"
    write(broker, *signed(layout, more, WRITERS, chain, "fallow.decision.v1"))
    assert TOLD in await whose_is(broker, layout)


async def test_what_was_written_before_the_cell_had_keys_needs_none(broker: MemoryBroker) -> None:
    layout, history = believing(LAYOUT, public(WRITERS), cell=CELL, from_version=100), History(3)
    write(broker, *map(as_then, outgoing(layout, history.decisions(3))))
    assert TOLD in await whose_is(broker, layout)


@pytest.mark.parametrize("seed", range(20))
async def test_a_trail_judges_each_record_as_who_folds_the_log(broker: MemoryBroker, seed: int) -> None:
    """Decisions, old ones again, strangers' records and another release's, in any order. What continues the log and
    has the type of this release counts as its own, whatever is in it.
    """
    chance, history, state, trail = Random(seed), History(seed), CellState(CELL), Trail(CELL)
    for _ in range(30):
        before, own = history.state.chain, outgoing(LAYOUT, history.decisions(1), history.state.chain)[0]
        odd = [as_then(own), between(b"{}", before, b"x")[0], between(b"{}", "f" * 32)[0], between(b"", before)[0]]
        odd += [
            between(cut_short(version), chain, Decision.type.encode())[0]
            for version in range(history.state.version - 2, history.state.version + 3)
            for chain in (before, "f" * 32)
            if (version, chain) != (history.state.version, before)
        ]
        message = chance.choice([own] * 20 + odd)
        broker.write(message)
        record = broker.partition(DECISIONS).records[-1]
        judged = [kind_of(partial(fold_on, state, record)), kind_of(partial(trail.follow, record, None))]
        assert judged[0] == judged[1]
        if isinstance(judged[0], str):
            return


def fold_on(state: CellState, record: Record) -> bool:
    version = state.version
    return fold(state, log_record(record, None)).version > version


def kind_of(judge: Callable[[], bool]) -> bool | str:
    """Whether the record continues the log, or what is raised of it."""
    try:
        return judge()
    except DamagedLog as error:
        return type(error).__name__
