"""The agent process on a log: it runs real processes, leaves them to the next agent, and gives way to another."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallow.services.executor.app.agent import Agent, NodeTakenOver
from fallow.services.executor.app.own_machine import as_node
from fallow.services.executor.policy.records import Said
from fallow.services.executor.processes.driver import ProcessDriver
from fallow.services.executor.processes.folders.state_folder import StateFolder, StateFolderUnusable
from fallow.services.executor.processes.supervisor import marked, start_ticks
from fallow.services.executor.settings import AgentSettings
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import AnyEffect, LeaseExpired, PolicySet, WriterStarted
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import ProcessRun, RunStatus
from fallow.shared.events.nodes import LivingNode, NodeEvent, NodeJoined, NodeReport, RunStatusUpdate
from fallow.shared.events.operations import CellPolicy
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.keys.missing_keys import ALL_FORGED, NONE_YET, OLDER_COPY, TOO_EARLY
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.memory.reader import MemoryReader
from fallow.shared.log.port import Refusal, TopicPartition
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.errors.endings import ending_of
from fallow.shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually
from tests.executor.worlds.cells import CELL, Writer, each_said, node
from tests.signing import NEXT, STRANGERS, WRITERS, believing, public, signed, signed_file

LAYOUT = Layout("test", {CELL: 0})
SLEEPS = ProcessRun(argv=("sh", "-c", "echo up; exec sleep 600"))


@dataclass
class World:
    """A log, a writer that answers the node, and agents that come and go."""

    folder: Path
    has_decided: bool = True
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    writer: Writer = field(default_factory=Writer)
    chain: str = CHAIN_START
    key: SigningKey | None = None
    heard: list[Said] = field(default_factory=list)
    folders: list[StateFolder] = field(default_factory=list)
    drivers: list[ProcessDriver] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("decisions", "nodes", "snapshots"):
            self.broker.create_topic(f"test.{name}", 1)
        if self.has_decided:
            self.begin_cell()

    def begin_cell(self, *effects: AnyEffect) -> None:
        """The first decision of the cell."""
        self.append(self.writer.decide(WriterStarted(epoch=1, writer="w"), *effects))

    def start(
        self, state: str, log: MemoryLog | None = None, layout: Layout = LAYOUT
    ) -> tuple[Context[AgentSettings], asyncio.Task[None]]:
        """An agent of node-1 with this state folder."""
        settings = AgentSettings(
            node="node-1", node_gpus=8, node_pool="pool-a", state_dir=self.folder / state, report_every_wall_ms=200
        )
        context = make_context("agent", settings)
        folder = StateFolder(settings.state_dir, "node-1")
        machine = as_node(settings, CELL, node(1), folder)
        assert isinstance(machine.driver, ProcessDriver)
        self.drivers.append(machine.driver)
        agent = Agent(context, log or MemoryLog(self.broker), layout, machine)
        self.folders.append(folder)
        return context, asyncio.create_task(agent.run(), name=state)

    def append(self, decision: Decision) -> None:
        (message,) = signed(LAYOUT, [decision], self.key, self.chain)
        self.chain = next_chain(self.chain, encode(decision))
        self.broker.write(message)

    async def answer(self) -> None:
        reader = MemoryLog(self.broker).reader({LAYOUT.tp("nodes", CELL): 0})
        await reader.start()
        while True:
            for record in await reader.poll():
                event = event_of(record)
                assert isinstance(event, Event)
                self.heard.extend(each_said(event))
                for decision in self.writer.take_in(each_said(event)):
                    self.append(decision)

    def said(self, kind: type[NodeEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.heard)

    def is_running(self, job: str) -> bool:
        return job in self.writer.state.jobs and self.writer.state.jobs[job].status == "running"


@pytest.fixture
def has_decided() -> bool:
    """Whether the cell has its first decision."""
    return True


@pytest.fixture
async def world(tmp_path: Path, has_decided: bool) -> AsyncIterator[World]:
    world = World(tmp_path, has_decided)
    answering = asyncio.create_task(world.answer(), name="writer")
    yield world
    answering.cancel()
    for folder in world.folders:
        driver = ProcessDriver("node-1", folder.path, inherited={})
        await eventually(driver.stop_everything)
        driver.close()
        folder.close()


async def test_an_agent_that_is_stopped_leaves_its_workers_to_the_next(world: World) -> None:
    first, task = world.start("state")
    await eventually(lambda: world.said(NodeJoined) > 0 and "node-1" in world.writer.state.nodes)
    world.append(world.writer.start("job-1", "node-1", run=SLEEPS))
    await eventually(lambda: world.is_running("job-1"))
    first.stopping.set()
    await task
    world.folders.pop().close()
    worker = int((world.folder / "state/runs/job-1/1/0/worker").read_text())

    second, task = world.start("state")
    world.append(world.writer.stop("job-1"))
    await eventually(lambda: "job-1" in world.writer.state.finished)
    assert start_ticks(worker) is None
    assert world.said(NodeJoined) == 1
    assert {said.status for said in world.heard if isinstance(said, RunStatusUpdate)} == {
        RunStatus.RUNNING,
        RunStatus.STOPPED,
    }
    second.stopping.set()
    await task


async def begun_with_job(world: World) -> tuple[Context[AgentSettings], asyncio.Task[None]]:
    """An agent of node-1 on which job-1 runs."""
    context, task = world.start("state")
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    world.append(world.writer.start("job-1", "node-1", run=SLEEPS))
    await eventually(lambda: world.is_running("job-1"))
    return context, task


async def test_a_second_agent_of_a_name_waits_and_leaves_the_first_ones_jobs_alone(world: World) -> None:
    first, task = await begun_with_job(world)
    second, other = world.start("elsewhere")
    await eventually(lambda: "another state folder speaks for it" in (second.health.waiting_for or ""))
    reports = world.said(NodeReport)
    await eventually(lambda: world.said(NodeReport) >= reports + 3)
    assert (world.said(NodeJoined), world.is_running("job-1"), task.done()) == (1, True, False)
    for context, agent in ((second, other), (first, task)):
        context.stopping.set()
        await agent


async def test_a_second_agent_begins_when_the_cell_has_lost_the_first_which_gives_way(world: World) -> None:
    first, task = await begun_with_job(world)
    second, other = world.start("elsewhere")
    await eventually(lambda: "another state folder speaks for it" in (second.health.waiting_for or ""))
    world.append(world.writer.stop("job-1"))
    await eventually(lambda: "job-1" in world.writer.state.finished)
    boot = world.writer.state.nodes["node-1"].boot
    world.append(world.writer.decide(LeaseExpired(node="node-1", boot=boot)))
    with pytest.raises(NodeTakenOver, match="node node-1 has joined cell cell-a from elsewhere"):
        await asyncio.wait_for(task, 15)
    mark = ProcessDriver("node-1", world.folder / "state", inherited={})._mark
    assert marked(f"{mark}/") == []
    assert not other.done()
    second.stopping.set()
    await other
    assert not first.stopping.is_set()


@pytest.mark.parametrize(
    "run",
    [
        ProcessRun(argv=("sh", "-c", "kill -35 $$")),
        ProcessRun(argv=("true",), checkpoint_dir="/tmp/a\0b"),
    ],
)
async def test_no_job_of_a_tenant_ends_the_agent(world: World, run: ProcessRun) -> None:
    context, task = world.start("state")
    await eventually(lambda: world.said(NodeJoined) > 0 and "node-1" in world.writer.state.nodes)
    world.append(world.writer.start("job-1", "node-1", run=run))
    await eventually(lambda: task.done() or "job-1" in world.writer.state.finished)
    assert not task.done()
    assert [said.status for said in world.heard if isinstance(said, RunStatusUpdate)][-1] is RunStatus.FAILED
    context.stopping.set()
    await task


def unwritable(driver: ProcessDriver) -> Path:
    """From now on the lease cannot be written. Where it stands."""
    lease = driver.lease
    driver.lease = lease.parent / "no such folder" / "lease"
    return lease


def told_leases(world: World) -> set[int]:
    return {said.node_lease_wall_ms for said in world.heard if isinstance(said, LivingNode)}


@pytest.mark.parametrize("has_decided", [False])
async def test_an_agent_joins_once_the_cells_first_decision_says_by_which_lease(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it would tell before that stands nowhere in the log: a writer that has not heard it would wait for less."""
    context, task = world.start("state")
    await eventually(lambda: NONE_YET in (context.health.waiting_for or ""))
    assert world.heard == []
    assert "decisions are missing" not in capsys.readouterr().out
    short = CellPolicy(node_lease_wall_ms=5_000, lease_margin_wall_ms=1_500)
    world.begin_cell(PolicySet(policy=short))
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    assert told_leases(world) == {5_000}
    await eventually(lambda: context.health.waiting_for is None)
    context.stopping.set()
    await task


async def test_an_agent_whose_key_proves_no_decision_of_the_cell_says_so(world: World) -> None:
    """Placement works there: a reader who is told that it has decided nothing looks in the wrong place."""
    context, task = world.start("state", layout=believing(LAYOUT, public(STRANGERS), cell=CELL))
    why = f"{context.settings.cell_file} {ALL_FORGED.format(cell=CELL)}"
    await eventually(lambda: why in (context.health.waiting_for or ""))
    assert (world.heard, NONE_YET in (context.health.waiting_for or "")) == ([], False)
    context.stopping.set()
    await task


async def test_an_agent_whose_cell_file_asks_for_signatures_that_the_one_in_force_does_not_keeps_its_node_out(
    world: World,
) -> None:
    """It believes what comes before its `from_version`, and passes over all that is decided since: a node that joined
    would be given work, and never run it.
    """
    world.append(world.writer.decide(as_effect(signed_file(cell=CELL))))
    from_version = world.writer.state.version + 1
    world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
    layout = believing(LAYOUT, public(STRANGERS), cell=CELL, from_version=from_version)
    context, task = world.start("state", layout=layout)
    await eventually(lambda: f"{context.settings.cell_file} {TOO_EARLY}" in (context.health.waiting_for or ""))
    assert (world.heard, context.health.is_ready) == ([], False)
    context.stopping.set()
    await task


async def test_an_agent_that_comes_to_lack_a_key_of_the_cell_file_in_force_is_not_ready(world: World) -> None:
    """It passes over what is decided from then on, so nothing starts on its node."""
    world.key = WRITERS
    context, task = world.start("state", layout=believing(LAYOUT, public(WRITERS), cell=CELL, from_version=2))
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    await eventually(lambda: context.health.is_ready)
    world.append(world.writer.decide(as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL))))
    world.key = NEXT
    world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
    await eventually(lambda: context.health.waiting_for == f"cell {CELL}: {context.settings.cell_file} {OLDER_COPY}")
    context.stopping.set()
    await task


async def test_an_agent_whose_cell_file_comes_into_force_again_is_ready_and_speaks_for_its_node(world: World) -> None:
    world.key = WRITERS
    context, task = world.start("state", layout=believing(LAYOUT, public(WRITERS), cell=CELL, from_version=2))
    await eventually(lambda: "node-1" in world.writer.state.nodes and context.health.is_ready)
    world.append(world.writer.decide(as_effect(signed_file(cell=CELL))))
    await eventually(lambda: TOO_EARLY in (context.health.waiting_for or ""))
    await asyncio.sleep(0.3)  # what was on its way goes out
    heard = len(world.heard)
    await asyncio.sleep(0.5)
    assert len(world.heard) == heard
    world.append(world.writer.decide(as_effect(signed_file(public(WRITERS), cell=CELL, from_version=2))))
    await eventually(lambda: context.health.is_ready and len(world.heard) > heard)
    context.stopping.set()
    await task


async def test_an_agent_that_comes_to_lack_a_key_while_it_waits_for_its_node_says_so(world: World) -> None:
    world.key = WRITERS
    layout = believing(LAYOUT, public(WRITERS), cell=CELL, from_version=2)
    first, task = world.start(
        "state", layout=believing(LAYOUT, public(WRITERS), public(NEXT), cell=CELL, from_version=2)
    )
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    second, other = world.start("elsewhere", layout=layout)
    await eventually(lambda: "another state folder speaks for it" in (second.health.waiting_for or ""))
    world.append(world.writer.decide(as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL))))
    world.key = NEXT
    world.append(world.writer.decide(PolicySet(policy=CellPolicy())))
    await eventually(lambda: OLDER_COPY in (second.health.waiting_for or ""))
    for context, agent in ((second, other), (first, task)):
        context.stopping.set()
        await agent


async def test_work_ends_with_the_lease_where_the_agent_comes_to_lack_the_key_that_signs(world: World) -> None:
    """It goes by a picture that is old: for as long as it renewed its lease, the cell would count on its node."""
    world.key = WRITERS
    context, task = world.start("state", layout=believing(LAYOUT, public(WRITERS), cell=CELL, from_version=2))
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    short = replace(world.writer.state.policy, node_lease_wall_ms=2_000, lease_margin_wall_ms=500)
    in_force = as_effect(signed_file(public(WRITERS), public(NEXT), cell=CELL))
    world.append(world.writer.decide(PolicySet(policy=short), in_force))
    world.append(world.writer.start("job-1", "node-1", run=SLEEPS))
    await eventually(lambda: world.is_running("job-1") and 2_000 in told_leases(world))
    worker = int(next((world.folder / "state/runs/job-1/1/0").glob("worker")).read_text())
    world.key = NEXT
    world.append(world.writer.start("job-2", "node-1", run=SLEEPS))
    await eventually(lambda: OLDER_COPY in (context.health.waiting_for or ""))
    await asyncio.sleep(0.3)  # what was on its way goes out
    heard = len(world.heard)
    await eventually(lambda: not Path(f"/proc/{worker}").exists())
    assert (len(world.heard), context.health.is_ready) == (heard, False)
    context.stopping.set()
    await task


async def test_a_shorter_lease_that_cannot_be_written_is_not_told_until_it_can(
    world: World,
) -> None:
    """Else the workers of an agent that dies would live on by the longer one, while others have their devices."""
    context, task = world.start("state")
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    world.append(world.writer.start("job-1", "node-1", run=ProcessRun(argv=("sleep", "0.5"))))
    await eventually(lambda: world.is_running("job-1"))
    lease, before = unwritable(world.drivers[0]), world.writer.state.policy
    shorter = replace(before, node_lease_wall_ms=before.node_lease_wall_ms // 2)
    world.append(world.writer.decide(PolicySet(policy=shorter)))
    await eventually(lambda: "lease" in (context.health.waiting_for or ""))
    kept_until_ms = int(lease.read_text().split()[1])
    await asyncio.sleep(1)
    assert told_leases(world) == {before.node_lease_wall_ms}
    assert world.is_running("job-1")
    assert int(lease.read_text().split()[1]) == kept_until_ms
    assert "nothing is said of this node" in (context.health.waiting_for or "")
    world.drivers[0].lease = lease
    await eventually(lambda: told_leases(world) == {before.node_lease_wall_ms, shorter.node_lease_wall_ms})
    await eventually(lambda: "job-1" in world.writer.state.finished)
    assert int(lease.read_text().split()[1]) < kept_until_ms
    assert context.health.waiting_for is None
    context.stopping.set()
    await task


async def test_a_lease_that_cannot_be_renewed_is_told_to_people_and_the_node_goes_on(world: World) -> None:
    context, task = world.start("state")
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    lease = unwritable(world.drivers[0])
    await eventually(lambda: "lease" in (context.health.waiting_for or ""))
    heard = len(world.heard)
    await eventually(lambda: len(world.heard) > heard + 2)
    assert "workers end with the one that was written last" in (context.health.waiting_for or "")
    world.drivers[0].lease = lease
    await eventually(lambda: context.health.waiting_for is None)
    context.stopping.set()
    await task


@pytest.mark.parametrize("code", [Refusal.TOO_LARGE, Refusal.NOT_ALLOWED])
async def test_work_ends_with_the_lease_where_the_log_refuses_all_words_and_the_agent_is_not_ready(
    world: World, code: Refusal
) -> None:
    context, task = world.start("state")
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    short = replace(world.writer.state.policy, node_lease_wall_ms=2_000, lease_margin_wall_ms=500)
    world.append(world.writer.decide(PolicySet(policy=short)))
    world.append(world.writer.start("job-1", "node-1", run=SLEEPS))
    await eventually(lambda: world.is_running("job-1"))
    worker = int(next((world.folder / "state/runs/job-1/1/0").glob("worker")).read_text())
    heard = len(world.heard)
    await eventually(lambda: len(world.heard) > heard + 2)  # the shorter lease is told
    world.broker.refuses["test.nodes"] = code
    await eventually(lambda: not Path(f"/proc/{worker}").exists())
    assert code in (context.health.waiting_for or "")
    del world.broker.refuses["test.nodes"]
    await eventually(lambda: context.health.waiting_for is None)
    context.stopping.set()
    await task


async def test_a_node_whose_first_lease_cannot_be_written_does_not_join(world: World) -> None:
    """There may be one of an earlier boot, which its workers would go by."""
    context, task = world.start("state")
    lease = unwritable(world.drivers[0])
    await eventually(lambda: "lease" in (context.health.waiting_for or ""))
    await asyncio.sleep(0.5)
    assert not world.heard
    world.drivers[0].lease = lease
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    context.stopping.set()
    await task


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_socket(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFSOCK)


def odd_lines(path: Path) -> None:
    path.write_bytes(b"junk\n")


NAMES = (f"diaries/{CELL}-0-of-1.jsonl", f"reigns/{CELL}-0-of-1")
ODD = [(name, make) for name in NAMES for make in (a_pipe, a_folder, a_link_to_itself, a_socket)]


@pytest.mark.parametrize(("name", "make"), [*ODD, ("diaries", a_pipe), ("reigns", a_pipe), (NAMES[0], odd_lines)])
async def test_what_a_worker_puts_in_place_of_a_file_ends_the_agent_in_words(
    world: World, name: str, make: Callable[[Path], None]
) -> None:
    path = world.folder / "state" / name
    path.parent.mkdir(parents=True)
    make(path)
    for _ in range(2):  # the next start meets it again
        _, task = world.start("state")
        with pytest.raises(StateFolderUnusable) as ended:
            await task
        known = ending_of(ended.value)
        assert known is not None
        assert known[0].exit_code == 2
        assert name in known[1]
        assert "end the workers of the node, move" in known[1]
        assert "and start again" in known[1]
        assert len(known[1].splitlines()) == 1
        world.folders.pop().close()
    path.rename(path.with_name("away"))
    _, task = world.start("state")
    await eventually(lambda: world.said(NodeJoined) > 0)
    assert not task.done()


class NotingReader(MemoryReader):
    """Knows whether it was let go of."""

    is_open = False

    async def start(self) -> None:
        await super().start()
        self.is_open = True

    async def stop(self) -> None:
        self.is_open = False
        await super().stop()


class NotingLog(MemoryLog):
    """Keeps its readers."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.readers: list[NotingReader] = []

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> NotingReader:
        self.readers.append(NotingReader(self._broker, positions))
        return self.readers[-1]


async def test_an_agent_that_finds_an_odd_file_lets_go_of_the_log(world: World) -> None:
    path = world.folder / "state" / NAMES[0]
    path.parent.mkdir(parents=True)
    a_pipe(path)
    log = NotingLog(world.broker)
    _, task = world.start("state", log)
    with pytest.raises(StateFolderUnusable):
        await task
    world.folders.pop().close()
    assert [reader.is_open for reader in log.readers] == [False]
