"""The policy's lease changes while nodes work: whatever is cut off meanwhile, no work goes on whose node is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.policy.lease import KeptLease, Lease, gone_on_with
from fallow.services.executor.policy.machine_agent import OwnNode
from fallow.services.executor.policy.turn import Now, Turn
from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import NodeSpec, NodeStatus
from fallow.shared.events.nodes import LivingNode, NodeEvent
from fallow.shared.events.operations import CellPolicy, SetPolicy
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World

NODE = NodeSpec(id="n1", pool="train", gpus=8)
STEP_MS = 250
LONG, SHORT = (20_000, 1_500), (1_000, 200)
LEASES = (LONG, (8_000, 4_000), (3_000, 200), SHORT)


class Cell:
    """A cell and the agent of its node, each of whose ways to the log may be cut."""

    def __init__(self, lease: tuple[int, int] = LONG) -> None:
        self.world, self.seen = World(), CellState(CELL)
        self.world.numbers_words = False
        self.reads = self.speaks = self.learns = self.answers_come = True
        self.late: list[tuple[int, list[NodeEvent]]] = []
        self.change(lease)
        self.own = self._agent(Lease(0), 100)

    def change(self, lease: tuple[int, int]) -> list[e.AnyEffect]:
        policy = CellPolicy(node_lease_wall_ms=lease[0], lease_margin_wall_ms=lease[1])
        fields = ("node_lease_wall_ms", "lease_margin_wall_ms")
        return self.world.tell(SetPolicy(cell=CELL, policy=policy, fields=fields))

    def _agent(self, lease: Lease, seq: int) -> OwnNode:
        self._read()
        self.own = OwnNode(CELL, NODE, "boot-a", seq=seq, lease=lease, report_every_wall_ms=5_000)
        self._say(self.own.begin(self.seen, (), self.now))
        return self.own

    @property
    def now(self) -> Now:
        return Now(self.world.now_ms, 1_000_000 + self.world.wall_ms, self.world.wall_ms)

    @property
    def until_ms(self) -> int:
        """Until when the node's processes may work."""
        return self.own.lease_until_ms(self.seen)

    @property
    def is_lost(self) -> bool:
        return self.world.state.nodes["n1"].status is NodeStatus.LOST

    def restart_agent(self) -> None:
        """The agent is killed; the next one reads the log to its end and goes on with the lease that was kept."""
        kept = KeptLease(self.own.agent.renewed_ms, self.until_ms)
        if self.reads:
            self._read()
            self.late.clear()
            self._agent(gone_on_with(kept, self.seen), self.own.agent.seq + 1_000)

    def _read(self) -> list[Decision]:
        new = [record for record in self.world.log if record.offset > self.seen.offset]
        for record in new:
            fold(self.seen, record)
        return [record.decision for record in new if isinstance(record.decision, Decision)]

    def _say(self, turn: Turn) -> None:
        said = [event for event in turn.events if isinstance(event, NodeEvent)]
        if said and self.speaks:
            self.world.tell(*said)
            if self.learns:
                self.late.append((self.now.monotonic_ms, said))
        while self.answers_come and self.late:
            self.answer(0)

    def answer(self, number: int) -> None:
        """One of the answers that are under way comes."""
        made_ms, said = self.late.pop(number)
        self.own.confirmed(said, made_ms)

    def step(self) -> None:
        self.world.pass_time(STEP_MS)
        if self.reads:
            self._say(self.own.decided(self.seen, self._read(), self.now))
        self._say(self.own.tick(self.seen, self.now))
        if self.own.asks_since_ms is not None:
            self.own.caught_up(self.own.asks_since_ms)

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.step()


def both_agree(cell: Cell) -> bool:
    return not (cell.is_lost and cell.world.wall_ms <= cell.until_ms)


def test_a_node_that_is_cut_off_while_the_lease_is_lowered_is_lost_by_the_lease_that_it_was_told() -> None:
    cell = Cell(LONG)
    cell.pass_ms(5_000)
    cell.reads = cell.speaks = False
    cell.change(SHORT)
    cell.pass_ms(15_000)
    assert not cell.is_lost
    cell.pass_ms(8_000)
    assert cell.is_lost


def test_a_new_writer_knows_of_the_longer_lease() -> None:
    cell = Cell(LONG)
    cell.pass_ms(5_000)
    cell.reads = cell.speaks = False
    cell.change(SHORT)
    cell.world.restart()
    cell.pass_ms(15_000)
    assert not cell.is_lost
    cell.pass_ms(8_000)
    assert cell.is_lost


def test_a_node_that_reports_but_does_not_read_is_lost_by_the_lease_by_which_it_goes() -> None:
    cell = Cell(LONG)
    cell.reads = False
    cell.change(SHORT)
    cell.pass_ms(40_000)
    assert not cell.is_lost
    cell.speaks = False
    cell.pass_ms(12_000)
    assert not cell.is_lost


def test_a_node_whose_word_of_a_shorter_lease_is_not_confirmed_stops_when_that_one_is_over() -> None:
    cell = Cell(LONG)
    cell.pass_ms(5_000)
    cell.learns = False
    cell.change(SHORT)
    cell.pass_ms(5_250)
    cell.speaks = False
    for _ in range(20):
        cell.step()
        assert both_agree(cell)
    assert cell.is_lost


def test_a_snapshot_tells_of_the_longer_lease() -> None:
    cell = Cell(LONG)
    cell.change(SHORT)
    again = state_from(rows_of(cell.world.state))
    assert (again.policy.node_lease_wall_ms, again.longest_patience_ms) == (SHORT[0], sum(LONG))


def test_once_all_nodes_go_by_the_shorter_lease_a_new_writer_goes_by_it_too() -> None:
    cell = Cell(LONG)
    cell.change(SHORT)
    assert cell.world.state.longest_patience_ms == sum(LONG)
    cell.pass_ms(8_000)
    assert cell.world.state.longest_patience_ms == 0
    cell.reads = cell.speaks = False
    cell.world.restart()
    cell.pass_ms(2_000)
    assert cell.is_lost


def test_a_node_that_tells_a_longer_lease_than_is_known_is_in_the_log() -> None:
    cell = Cell(LONG)
    cell.pass_ms(5_000)
    cell.reads = cell.speaks = False
    cell.change(SHORT)
    cell.pass_ms(23_000)
    assert (cell.is_lost, cell.world.state.longest_patience_ms) == (True, 0)
    cell.speaks = True
    cell.pass_ms(5_500)
    assert (cell.is_lost, cell.world.state.longest_patience_ms) == (False, sum(LONG))


@pytest.mark.parametrize("before", LEASES)
@pytest.mark.parametrize("after", LEASES)
def test_no_node_that_is_heard_in_time_is_lost_by_a_change(before: tuple[int, int], after: tuple[int, int]) -> None:
    cell = Cell(before)
    for lease in (after, before, after):
        cell.pass_ms(4_500)
        cell.change(lease)
        for _ in range(40):
            cell.step()
            assert not cell.is_lost
            assert not cell.own.agent.has_lapsed


def test_a_longer_lease_whose_answer_comes_late_does_not_lift_a_shorter_one_that_was_told_since() -> None:
    cell = Cell(SHORT)
    cell.pass_ms(5_000)
    cell.answers_come = False
    cell.change(LONG)
    cell.pass_ms(250)
    cell.change(SHORT)
    cell.pass_ms(5_500)
    told = [word.node_lease_wall_ms for _, said in cell.late for word in said if isinstance(word, LivingNode)]
    assert list(dict.fromkeys(told)) == [LONG[0], SHORT[0]]
    for _ in range(told.count(LONG[0])):
        cell.answer(0)
    cell.reads = cell.speaks = False
    for _ in range(20):
        cell.step()
        assert both_agree(cell)
    assert cell.is_lost


CHANGES = st.one_of(
    st.sampled_from(LEASES),
    st.sampled_from(["reads", "speaks", "learns", "answers_come", "answer", "answer", "writer", "agent"]),
    st.integers(1, 40),
)


SILENT = st.lists(st.sampled_from(["speaks", "writer"]) | CHANGES | st.integers(30, 60), min_size=5, max_size=14)


@given(before=st.sampled_from(LEASES), changes=st.lists(CHANGES, max_size=14) | SILENT)
def test_no_node_is_lost_that_may_still_work(
    before: tuple[int, int], changes: list[tuple[int, int] | str | int]
) -> None:
    cell = Cell(before)
    is_lost = False
    for change in [*changes, 20]:
        if isinstance(change, tuple):
            cell.change(change)
        elif change == "writer":
            cell.world.restart()
        elif change == "agent":
            cell.restart_agent()
        elif change == "answer":
            if cell.late:
                cell.answer(0)
        elif isinstance(change, str):
            setattr(cell, change, not getattr(cell, change))
        else:
            for _ in range(change):
                cell.step()
                assert both_agree(cell), f"lost at {cell.world.wall_ms}, works until {cell.until_ms}"
                is_lost |= cell.is_lost
    reaches("a node is lost", is_lost)


def test_a_word_that_may_have_arrived_shortens_the_lease_and_one_that_may_not_does_not_lengthen_it() -> None:
    lease = Lease(0, 20_000)
    lease.tell(1_000, 800)
    assert lease.until_ms(0) == 1_800
    lease.tell(1_200, 60_000)
    assert lease.until_ms(0) == 1_800
    lease.renew(1_000, 800)
    assert lease.until_ms(0) == 1_800
    lease.renew(1_200, 60_000)
    assert lease.until_ms(0) == 61_200
