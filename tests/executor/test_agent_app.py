"""The agent process on a log: it runs real processes, leaves them to the next agent, and gives way to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.executor.app.agent import Agent, NodeTakenOver
from services.executor.app.own_machine import as_node
from services.executor.policy.records import Said
from services.executor.processes.driver import ProcessDriver
from services.executor.processes.state_folder import StateFolder
from services.executor.processes.supervisor import marked, start_ticks
from services.executor.settings import AgentSettings
from shared.events.base import Event
from shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from shared.events.encoding import encode
from shared.events.nodes import NodeEvent, NodeJoined, RunWord
from shared.events.values import ProcessRun, RunStatus
from shared.log.layout import Layout
from shared.log.memory import MemoryBroker, MemoryLog
from shared.log.reading import event_of
from shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually
from tests.executor.cells import CELL, Writer, each_said, node

LAYOUT = Layout("test", {CELL: 0})
SLEEPS = ProcessRun(argv=("sh", "-c", "echo up; exec sleep 600"))


@dataclass
class World:
    """A log, a writer that answers the node, and agents that come and go."""

    folder: Path
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    writer: Writer = field(default_factory=Writer)
    chain: str = CHAIN_START
    heard: list[Said] = field(default_factory=list)
    folders: list[StateFolder] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("decisions", "nodes", "snapshots"):
            self.broker.create_topic(f"test.{name}", 1)

    def start(self, state: str) -> tuple[Context[AgentSettings], asyncio.Task[None]]:
        """An agent of node-1 with this state folder."""
        settings = AgentSettings(
            node="node-1", node_gpus=8, node_pool="pool-a", state_dir=self.folder / state, report_every_wall_ms=200
        )
        context = make_context("agent", settings)
        folder = StateFolder(settings.state_dir, "node-1")
        agent = Agent(context, MemoryLog(self.broker), LAYOUT, as_node(settings, CELL, node(1), folder))
        self.folders.append(folder)
        return context, asyncio.create_task(agent.run(), name=state)

    def append(self, decision: Decision) -> None:
        self.chain = next_chain(self.chain, encode(decision))
        more = ((CHAIN_HEADER, self.chain.encode()),)
        self.broker.write(LAYOUT.outgoing(decision, id=str(decision.version), source="w", wall_ms=0, more=more))

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
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
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
    await eventually(lambda: "job-1" in world.writer.state.over)
    assert start_ticks(worker) is None
    assert world.said(NodeJoined) == 1
    assert {said.status for said in world.heard if isinstance(said, RunWord)} == {RunStatus.RUNNING, RunStatus.STOPPED}
    second.stopping.set()
    await task


async def test_an_agent_gives_way_to_another_that_joins_under_its_name(world: World) -> None:
    first, task = world.start("state")
    await eventually(lambda: "node-1" in world.writer.state.nodes)
    world.append(world.writer.start("job-1", "node-1", run=SLEEPS))
    await eventually(lambda: world.is_running("job-1"))
    world.append(world.writer.stop("job-1"))
    await eventually(lambda: "job-1" in world.writer.state.over)

    second, other = world.start("elsewhere")
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
    await eventually(lambda: task.done() or "job-1" in world.writer.state.over)
    assert not task.done()
    assert [said.status for said in world.heard if isinstance(said, RunWord)][-1] is RunStatus.FAILED
    context.stopping.set()
    await task
