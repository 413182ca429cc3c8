"""Executor processes on one log: they share the nodes, and one takes over from another."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallow.cli.verify.verification import forgotten_version, read_diaries
from fallow.services.executor.app.wiring import execute
from fallow.services.executor.diaries import GROWN_BYTES
from fallow.services.executor.nodes_file import load_nodes
from fallow.services.executor.policy.records import Said
from fallow.services.executor.policy.slots import FENCED_PAUSE_MS
from fallow.services.executor.service import slot_of
from fallow.services.executor.settings import ExecutorSettings
from fallow.shared.cluster.checks.run_journal import DiaryLine, Orders, check_diaries
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import AnyEffect, PolicySet, WriterStarted
from fallow.shared.events.fields.value import plain, replace
from fallow.shared.events.fields.values import RunStatus, VirtualRun
from fallow.shared.events.nodes import LivingNode, RunStatusUpdate
from fallow.shared.events.operations import AdvanceTime, CellPolicy
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.keys.missing_keys import ALL_FORGED, NONE_YET, OLDER_COPY, TOO_EARLY
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Log, TopicPartition
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ClockKind
from tests.contract.eventually import eventually
from tests.executor.worlds.cells import CELL, Writer, each_said, node
from tests.signing import NEXT, STRANGERS, WRITERS, public, signed, signed_file, signed_text

CELL_FILE = """
cells:
  - {name: cell-a, ordinal: 0, pools: [{name: pool-a, gpus: 64}]}
tenants:
  - {name: acme}
"""
NODES = [node(number) for number in range(1, 9)]
SLOTS = 4


@dataclass
class World:
    """A log, a writer that answers the nodes, and executors that come and go."""

    folder: Path
    has_decided: bool = True
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    writer: Writer = field(default_factory=Writer)
    chain: str = CHAIN_START
    key: SigningKey | None = None
    heard: list[Said] = field(default_factory=list)
    contexts: list[Context[ExecutorSettings]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "cell.yaml").write_text(CELL_FILE)
        lines = [json.dumps({"cell": CELL, "node": plain(spec)}) for spec in NODES]
        (self.folder / "nodes.jsonl").write_text("\n".join(lines))
        for name, partitions in {
            "decisions": 1,
            "nodes": 1,
            "operations": 1,
            "snapshots": 1,
            "executor-slots": SLOTS,
        }.items():
            self.broker.create_topic(f"test.{name}", partitions)
        if self.has_decided:
            self.begin_cell()

    def begin_cell(self, *effects: AnyEffect) -> None:
        """The first decision of the cell."""
        self.append(self.writer.decide(WriterStarted(epoch=1, writer="w"), *effects))

    def settings(self, name: str, clock: ClockKind) -> ExecutorSettings:
        return ExecutorSettings(
            namespace="test",
            instance=name,
            cell_file=self.folder / "cell.yaml",
            nodes_file=self.folder / "nodes.jsonl",
            data_dir=self.folder,
            clock=clock,
            report_every_wall_ms=200,
        )

    @property
    def layout(self) -> Layout:
        return Layout("test", {CELL: 0})

    def start(
        self, name: str, clock: ClockKind = ClockKind.WALL, *, log: Log | None = None, host: Host | None = None
    ) -> Context[ExecutorSettings]:
        made = make_context(name, self.settings(name, clock))
        context = dataclasses.replace(made, host=host or made.host)
        self.contexts.append(context)
        file = load_cell_file(context.settings.cell_file)
        nodes = load_nodes(context.settings.nodes_file)
        log = log or MemoryLog(self.broker)
        self.tasks.append(asyncio.create_task(execute(context, log, file, nodes), name=name))
        return context

    def append(self, decision: Decision) -> None:
        (message,) = signed(self.layout, [decision], self.key, self.chain)
        self.chain = next_chain(self.chain, encode(decision))
        self.broker.write(message)

    def order(self, job: str, *nodes: str, duration_ms: int, at_ms: int = 0) -> None:
        self.append(self.writer.start(job, *nodes, run=VirtualRun(duration_ms=duration_ms), at_ms=at_ms))

    def advance(self, now_ms: int) -> None:
        message = self.layout.outgoing(AdvanceTime(cell=CELL, now_ms=now_ms), id="t", source="w", wall_ms=0)
        self.broker.write(message)

    async def answer(self) -> None:
        reader = MemoryLog(self.broker).reader({self.layout.tp("nodes", CELL): 0})
        await reader.start()
        while True:
            for record in await reader.poll():
                event = event_of(record)
                assert isinstance(event, Event)
                self.heard.extend(each_said(event))
                for decision in self.writer.take_in(each_said(event)):
                    self.append(decision)

    def finished(self) -> list[str]:
        return [
            said.job for said in self.heard if isinstance(said, RunStatusUpdate) and said.status is RunStatus.FINISHED
        ]

    def offences(self) -> list[str]:
        orders = Orders()
        for decision in self.writer.log:
            orders.take(decision)
        forgotten = forgotten_version(self.folder, CELL)
        return [offence.text for offence in check_diaries(orders, read_diaries(self.folder), forgotten)]


@asynccontextmanager
async def living(folder: Path, *, has_decided: bool = True) -> AsyncIterator[World]:
    world = World(folder, has_decided)
    answering = asyncio.create_task(world.answer())
    try:
        yield world
        assert not answering.done() or answering.result() is None
    finally:
        answering.cancel()
        for context in world.contexts:
            context.stopping.set()
        await asyncio.wait_for(asyncio.gather(*world.tasks, return_exceptions=True), 10)


@pytest.fixture
def all_nodes() -> list[str]:
    return [spec.id for spec in NODES]


def joined(world: World) -> Callable[[], bool]:
    return lambda: len(world.writer.state.nodes) == len(NODES)


async def test_two_executors_share_the_nodes_and_one_takes_over_from_the_other(
    tmp_path: Path, all_nodes: list[str]
) -> None:
    async with living(tmp_path) as world:
        first, second = world.start("first"), world.start("second")
        await eventually(joined(world))
        now_ms = first.clock.now_ms()
        for number, name in enumerate(all_nodes):
            world.order(f"job-{number}", name, duration_ms=1_000, at_ms=now_ms)
        await eventually(lambda: all(job.status == "running" for job in world.writer.state.jobs.values()))
        first.stopping.set()
        await eventually(lambda: len(world.finished()) >= len(NODES))
        assert second.health.is_ready
        assert sorted(set(world.finished())) == [f"job-{number}" for number in range(len(NODES))]
        assert world.offences() == []
        assert any('"adopted"' in path.read_text() for path in (tmp_path / "diaries").iterdir())


async def test_nodes_join_once_the_cells_first_decision_says_by_which_lease(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they would tell before that stands nowhere in the log: a writer that has not heard them would wait for less
    time than they work. Until then the executor is not ready.
    """
    async with living(tmp_path, has_decided=False) as world:
        context = world.start("only")
        await eventually(lambda: context.health.waiting_for == f"no node joins cell {CELL}: {NONE_YET}")
        await asyncio.sleep(0.3)
        assert (world.heard, context.health.is_ready) == ([], False)
        said = capsys.readouterr().out
        assert "waiting for the first decision of the cell" in said
        assert "warning" not in said
        short = CellPolicy(node_lease_wall_ms=5_000, lease_margin_wall_ms=1_500)
        world.begin_cell(PolicySet(policy=short))
        await eventually(joined(world))
        assert {said.node_lease_wall_ms for said in world.heard if isinstance(said, LivingNode)} == {5_000}
        await eventually(lambda: context.health.is_ready)


async def test_an_executor_whose_key_proves_no_decision_of_the_cell_says_so_and_is_not_ready(tmp_path: Path) -> None:
    """It keeps all its nodes out: a restart of executors with such a file must not go on to the next one."""
    async with living(tmp_path) as world:
        signing = f"signing: {{from_version: 1, keys: [{public(STRANGERS)}]}}"
        path = tmp_path / "cell.yaml"
        path.write_text(CELL_FILE.replace("pools:", f"{signing}, pools:"))
        context = world.start("only")
        why = f"no node joins cell {CELL}: {path} {ALL_FORGED.format(cell=CELL)}"
        await eventually(lambda: context.health.waiting_for == why)
        assert (world.heard, context.health.answer(f"/readyz/{CELL}")[0]) == ([], 503)


async def test_an_executor_with_an_older_copy_of_the_cell_file_is_not_ready(tmp_path: Path) -> None:
    """It passes over what is decided, so nothing starts on its nodes."""
    async with living(tmp_path, has_decided=False) as world:
        path = tmp_path / "cell.yaml"
        path.write_text(signed_text(public(WRITERS), cell=CELL))
        in_force = as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL))
        first = world.writer.decide(WriterStarted(epoch=1, writer="w"), in_force)
        second = world.writer.decide(PolicySet(policy=CellPolicy()))
        for decision, key in ((first, WRITERS), (second, NEXT)):
            for message in signed(world.layout, [decision], key, world.chain):
                world.broker.write(message)
            world.chain = next_chain(world.chain, encode(decision))
        context = world.start("only")
        await eventually(lambda: context.health.waiting_for == f"no node joins cell {CELL}: {path} {OLDER_COPY}")


async def test_an_executor_that_comes_to_lack_the_key_that_signs_speaks_for_no_node_any_more(tmp_path: Path) -> None:
    """Its nodes' leases run out, and the cell counts on them no longer: it would not hear what they shall run."""
    async with living(tmp_path, has_decided=False) as world:
        path = tmp_path / "cell.yaml"
        path.write_text(signed_text(public(WRITERS), cell=CELL))
        world.key = WRITERS
        in_force = as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL))
        world.begin_cell(in_force)
        context = world.start("only")
        await eventually(joined(world))
        await eventually(lambda: context.health.is_ready)
        world.key = NEXT
        world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
        await eventually(lambda: context.health.waiting_for == f"no node joins cell {CELL}: {path} {OLDER_COPY}")
        await asyncio.sleep(0.3)  # what was on its way goes out
        heard = len(world.heard)
        await asyncio.sleep(1)
        assert (len(world.heard), context.health.answer(f"/readyz/{CELL}")[0]) == (heard, 503)


async def test_an_executor_that_gets_the_key_later_is_fenced_and_says_first_to_start_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log is whole: a new start reads what was passed over."""
    async with living(tmp_path, has_decided=False) as world:
        path = tmp_path / "cell.yaml"
        path.write_text(signed_text(public(WRITERS), cell=CELL))
        world.key = WRITERS
        world.begin_cell(as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL)))
        context = world.start("only")
        await eventually(joined(world))
        world.key = NEXT
        world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
        await eventually(lambda: OLDER_COPY in (context.health.waiting_for or ""))
        path.write_text(signed_text(public(WRITERS), public(NEXT), cell=CELL))
        world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
        await eventually(lambda: CELL in context.health.fences)
        passed_over = world.broker.partition(world.layout.tp("decisions", CELL)).end - 2
        assert f"What stands from offset {passed_over} on was passed over here" in context.health.fences[CELL].reason
        [told] = [line for line in capsys.readouterr().out.splitlines() if "operator action needed" in line]
        assert "operator action needed, start the process again with the cell file in force" in told
        world.start("again")
        decided = world.writer.state.version
        await eventually(lambda: world.contexts[1].health.progress.version.get(CELL, 0) >= decided)


async def test_an_executor_whose_cell_file_comes_into_force_again_speaks_for_its_nodes_again(tmp_path: Path) -> None:
    async with living(tmp_path, has_decided=False) as world:
        (tmp_path / "cell.yaml").write_text(signed_text(public(WRITERS), cell=CELL))
        world.key = WRITERS
        world.begin_cell(as_effect(signed_file(public(WRITERS), cell=CELL)))
        context = world.start("only")
        await eventually(joined(world))
        await eventually(lambda: context.health.is_ready)
        world.append(world.writer.decide(as_effect(signed_file(cell=CELL))))
        await eventually(lambda: TOO_EARLY in (context.health.waiting_for or ""))
        await asyncio.sleep(0.3)  # what was on its way goes out
        heard = len(world.heard)
        await asyncio.sleep(0.5)
        assert len(world.heard) == heard
        world.append(world.writer.decide(as_effect(signed_file(public(WRITERS), cell=CELL))))
        await eventually(lambda: context.health.is_ready and len(world.heard) > heard)
        assert world.offences() == []


@pytest.mark.parametrize("file", [public(STRANGERS), public(WRITERS)], ids=["of no key", "an older copy"])
async def test_an_executor_that_lacks_the_key_that_signs_keeps_its_nodes_out(tmp_path: Path, file: str) -> None:
    async with living(tmp_path, has_decided=False) as world:
        (tmp_path / "cell.yaml").write_text(signed_text(file, cell=CELL))
        world.key = WRITERS
        world.begin_cell(as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL)))
        world.key = NEXT
        world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
        context = world.start("only")
        await eventually(lambda: f"no node joins cell {CELL}" in (context.health.waiting_for or ""))
        await asyncio.sleep(1)
        assert (world.heard, context.health.is_ready) == ([], False)


class ClaimedLog(MemoryLog):
    """Who asks where the log ends once a slot's reign is taken waits for `may_tell`."""

    def __init__(self, broker: MemoryBroker, folder: Path) -> None:
        super().__init__(broker)
        self._reigns, self.may_tell = folder / "reigns", asyncio.Event()

    @property
    def is_slot_claimed(self) -> bool:
        return any(path.stat().st_size for path in self._reigns.glob("*"))

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.is_slot_claimed:
            await self.may_tell.wait()
        return await super().end_offsets(tps)


async def test_an_executor_that_comes_to_lack_the_key_while_it_claims_its_slots_takes_none_over(tmp_path: Path) -> None:
    async with living(tmp_path, has_decided=False) as world:
        (tmp_path / "cell.yaml").write_text(signed_text(public(WRITERS), cell=CELL))
        world.key = WRITERS
        world.begin_cell(as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL)))
        log = ClaimedLog(world.broker, tmp_path)
        context = world.start("only", log=log)
        await eventually(lambda: log.is_slot_claimed)
        world.key = NEXT
        world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
        await eventually(lambda: f"no node joins cell {CELL}" in (context.health.waiting_for or ""))
        log.may_tell.set()
        await asyncio.sleep(1)
        assert (world.heard, context.health.is_ready) == ([], False)


class CountingHost(Host):
    """Counts how often it is asked for the time."""

    asked = 0

    def monotonic_ms(self) -> int:
        self.asked += 1
        return super().monotonic_ms()


async def test_an_executor_that_lacks_the_key_rests_though_a_slot_that_it_lost_could_be_asked_for_again(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, has_decided=False) as world:
        (tmp_path / "cell.yaml").write_text(signed_text(public(WRITERS), cell=CELL))
        world.key = WRITERS
        world.begin_cell(as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL)))
        host = CountingHost()
        context = world.start("only", host=host)
        await eventually(joined(world))
        for claim in (tmp_path / "reigns").iterdir():
            claim.write_text("9" * 20)
        fenced = "fallow_executor_fenced_total"
        await eventually(lambda: (context.registry.get_sample_value(fenced) or 0) > 0)
        world.key = NEXT
        world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
        await eventually(lambda: f"no node joins cell {CELL}" in (context.health.waiting_for or ""))
        await asyncio.sleep(FENCED_PAUSE_MS / 1000)
        before = host.asked
        await asyncio.sleep(0.5)
        assert host.asked - before < 200


async def test_in_stepped_time_runs_end_when_the_clock_is_told(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        context = world.start("only", ClockKind.STEPPED)
        await eventually(joined(world))
        world.order("a", "node-1", duration_ms=10**9)
        await eventually(lambda: context.health.progress.next_due_ms == 10**9)
        world.advance(10**9 - 1)
        world.advance(10**9)
        await eventually(lambda: world.finished() == ["a"])
        await eventually(lambda: context.health.progress.cursors["test.operations/0"] == 2)
        assert context.health.progress.next_due_ms is None
        assert world.offences() == []


async def test_what_the_log_did_not_take_is_said_when_it_is_back(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        context = world.start("only")
        await eventually(joined(world))
        world.order("a", "node-1", duration_ms=300, at_ms=context.clock.now_ms())
        await eventually(lambda: bool(world.writer.state.jobs) and world.writer.state.jobs["a"].status == "running")
        world.broker.is_away = True
        await asyncio.sleep(0.5)
        world.broker.is_away = False
        await eventually(lambda: "a" in world.finished())
        assert world.offences() == []


async def test_cursors_stand_behind_what_was_published(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        context = world.start("only", ClockKind.STEPPED)
        await eventually(joined(world))
        world.order("a", "node-1", duration_ms=0)
        await eventually(lambda: world.finished() == ["a"])
        end = world.broker.partition(("test.decisions", 0)).end
        await eventually(lambda: context.health.progress.cursors["test.decisions/0"] == end)
        assert not context.health.progress.busy


async def test_a_diary_that_has_grown_is_shortened_while_its_nodes_go_on(tmp_path: Path) -> None:
    begun = DiaryLine(node="node-1", job="ada/long-ago", attempt=1, event="started", devices=(0,), cell_ms=0, wall_ms=0)
    ended = replace(begun, event="ended", status=RunStatus.FINISHED)
    pair = encode(begun) + b"\n" + encode(ended) + b"\n"
    past = b"".join(pair.replace(b"long-ago", b"long-ago-%d" % number) for number in range(GROWN_BYTES // 200))
    async with living(tmp_path) as world:
        (tmp_path / "diaries").mkdir()
        path = tmp_path / "diaries" / f"{CELL}-{slot_of('node-1', SLOTS)}-of-{SLOTS}.jsonl"
        path.write_bytes(past)
        context = world.start("only")
        await eventually(joined(world))
        world.order("a", "node-1", duration_ms=100, at_ms=context.clock.now_ms())
        await eventually(lambda: world.finished() == ["a"])
        world.order("b", "node-1", duration_ms=100, at_ms=context.clock.now_ms())
        await eventually(lambda: world.finished() == ["a", "b"])
        assert path.stat().st_size < len(past) // 2
        assert [(line.job, line.event) for line in read_diaries(tmp_path) if line.job == "b"] == [
            ("b", "started"),
            ("b", "ended"),
        ]
