"""A node that an operator removes while its agent lives on joins anew by itself and works again: the real placement and
the real agent over one log.
"""

from __future__ import annotations

from typing import Protocol

import pytest

from fallow.services.executor.policy.lease import Lease
from fallow.services.executor.policy.machine_agent import OwnNode
from fallow.services.executor.policy.records import Said
from fallow.services.executor.policy.turn import Now, Observation, Start, Turn
from fallow.services.executor.service import ExecutorService
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import NodeSpec, RunStatus
from fallow.shared.events.nodes import NodeJoined, RunsReported, RunStatusUpdate
from fallow.shared.events.operations import DeclareLost, RemoveNode
from tests.placement.worlds.world import CELL, World, admitted, is_ready, spec_of

NODE = NodeSpec(id="n1", pool="train", gpus=8)
REPORT_MS = 1_000


class Agents(Protocol):
    """What an agent of one node and the executor of many have alike."""

    def decided(self, state: CellState, decisions: list[Decision], now: Now) -> Turn: ...

    def tick(self, state: CellState, now: Now) -> Turn: ...

    def confirmed(self, events: list[Said], made_ms: int) -> None: ...


class Cell:
    """A cell, and the executor of its node. What the node says is read at once, what is ordered is done at once;
    what comes `between` the first word of an executor and the log stands before that word.
    """

    def __init__(self, kind: str, between: NodeJoined | None = None) -> None:
        self.world = World()
        self.world.numbers_words = False
        self.read = 0
        self.said: list[Said] = []
        if kind == "agent":
            own = OwnNode(CELL, NODE, "boot-a", seq=100, lease=Lease(0), report_every_wall_ms=REPORT_MS)
            self.agents: Agents = own
            self._hear(own.begin(self.world.twin, (), self.now))
        else:
            many = ExecutorService(CELL, [NODE], slots=1, report_every_wall_ms=REPORT_MS)
            self.agents = many
            first = many.take_over(0, self.world.twin, 100, lambda _: (), self.now)
            if between is not None:
                self.world.tell(between)
                self.follow()
            self._hear(first)

    @property
    def now(self) -> Now:
        return Now(self.world.now_ms, 1_000_000 + self.world.wall_ms, self.world.wall_ms)

    def _hear(self, turn: Turn) -> None:
        """The node's words are in the log; it learns what follows from them."""
        if turn.events:
            self.said += turn.events
            self.world.tell(*(_record(event) for event in turn.events))
            self.agents.confirmed(turn.events, self.now.monotonic_ms)
        if isinstance(self.agents, OwnNode):
            own = self.agents
            for action in turn.actions:
                status = RunStatus.RUNNING if isinstance(action, Start) else RunStatus.STOPPED
                seen = Observation(NODE.id, action.job, action.attempt, status)
                self._hear(own.observed([seen], self.now))
        self.follow()

    def follow(self) -> None:
        """The node reads the log to its end."""
        decisions = self.world.decisions[self.read :]
        self.read += len(decisions)
        if decisions:
            self._hear(self.agents.decided(self.world.twin, decisions, self.now))

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.pass_time(1_000)
            self._hear(self.agents.tick(self.world.twin, self.now))
            if isinstance(self.agents, OwnNode):
                if self.agents.asks_since_ms is not None:
                    self.agents.caught_up(self.agents.asks_since_ms)
            elif isinstance(self.agents, ExecutorService):
                self.agents.caught_up(self.agents.asking)

    def tell(self, *events: DeclareLost | RemoveNode) -> None:
        self.world.tell(*events)
        self.follow()


def _record(event: Said) -> Event:
    if isinstance(event, RunStatusUpdate):
        return RunsReported(cell=CELL, words=(event,))
    return event


@pytest.mark.parametrize("kind", ["agent", "executor"])
@pytest.mark.parametrize("between_s", [0, 1, 30])
def test_a_removed_node_whose_agent_lives_joins_anew_and_works_again(kind: str, between_s: int) -> None:
    cell = Cell(kind)
    cell.world.tell(admitted(spec_of("job", 8)))
    cell.follow()
    cell.pass_seconds(3)
    assert cell.world.job("job").status is JobStatus.RUNNING
    lost, removed = DeclareLost(cell=CELL, node="n1"), RemoveNode(cell=CELL, node="n1")
    if between_s:
        cell.tell(lost)
        cell.pass_seconds(between_s)
    cell.world.tell(lost)
    cell.world.tell(removed)
    assert "n1" not in cell.world.state.nodes
    cell.follow()
    cell.pass_seconds(20)
    assert is_ready(cell.world, "n1")
    assert cell.world.job("job").status is JobStatus.RUNNING
    assert cell.world.job("job").attempt >= 2


@pytest.mark.parametrize("seq", [1, 99])
def test_a_node_that_a_former_executor_booted_last_belongs_to_the_one_that_took_over(seq: int) -> None:
    late = NodeJoined(cell=CELL, node="n1", boot="boot-2", seq=seq, at_ms=0, spec=NODE)
    cell = Cell("executor", between=late)
    cell.world.tell(admitted(spec_of("job", 8)))
    cell.follow()
    cell.pass_seconds(60)
    assert is_ready(cell.world, "n1")
    assert cell.world.job("job").status is JobStatus.RUNNING


def test_an_executor_says_nothing_more_of_a_node_that_a_later_one_has_booted() -> None:
    cell = Cell("executor")
    said = len(cell.said)
    cell.world.tell(NodeJoined(cell=CELL, node="n1", boot="boot-2", seq=1_000, at_ms=0, spec=NODE))
    cell.follow()
    cell.pass_seconds(10)
    assert len(cell.said) == said
