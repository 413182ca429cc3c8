"""Nodes that are gone for good: an operator says that they are lost, they are removed, or they go after a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes.quarantine import FAILURES
from fallow.services.placement.lifecycle.nodes.removal import AGAIN_MS
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.fold.due import ROOM_LEAST
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import RetryPolicy, RunStatus
from fallow.shared.events.nodes import NodeLost
from fallow.shared.events.operations import Cordon, DeclareLost, Drain, PlanMaintenance, RemoveNode, Uncordon
from fallow.shared.events.reasons import ProposalCode
from tests.placement.worlds.world import (
    CELL,
    Fate,
    World,
    cell_with,
    codes,
    failed,
    is_ready,
    joined,
    kinds,
    lost,
    report,
    seen,
    set_policy,
    spec_of,
    stopped,
)

HOUR_MS = 3_600_000


def texts(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, e.ProposalRefused)]


def with_gang() -> World:
    world = cell_with(joined("n1"), joined("n2"))
    world.run(spec_of("gang", 8, workers=2))
    return world


def test_an_operator_says_that_a_node_is_lost_and_its_work_is_queued_again() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    assert kinds(world.tell(DeclareLost(cell=CELL, node="n1")))[:2] == ["LeaseExpired", "JobRequeued"]
    assert world.job("job").status is JobStatus.QUEUED


def test_a_node_that_was_said_to_be_lost_and_lives_comes_back() -> None:
    world = cell_with(joined("n1"))
    world.tell(DeclareLost(cell=CELL, node="n1"))
    world.tell(report("n1"))
    assert is_ready(world, "n1")


def test_a_lost_node_is_removed() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(DeclareLost(cell=CELL, node="n1"))
    assert kinds(world.tell(RemoveNode(cell=CELL, node="n1"))) == ["NodeRemoved"]
    assert list(world.state.nodes) == ["n2"]


def test_what_cannot_be_said_to_be_lost_or_removed_is_refused_with_the_reason() -> None:
    world = with_gang()
    assert codes(world.tell(RemoveNode(cell=CELL, node="n9"))) == [ProposalCode.NODE_CHANGED]
    stop_it = (
        "Stop its agent (of a virtual node: docs/operations.md, Take a node out), "
        "wait until it is lost, then try again."
    )
    assert texts(world.tell(RemoveNode(cell=CELL, node="n1"))) == [
        f"not removed: it is ready and still reports. {stop_it}"
    ]
    world.tell(DeclareLost(cell=CELL, node="n1"))
    assert texts(world.tell(DeclareLost(cell=CELL, node="n1"))) == ["the node is lost"]
    assert "job gang still holds places there" in texts(world.tell(RemoveNode(cell=CELL, node="n1")))[0]


def test_the_removal_of_a_silent_node_has_only_to_wait_for_its_loss() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(Drain(cell=CELL, node="n1"))
    world.pass_time(20_000)
    assert texts(world.tell(RemoveNode(cell=CELL, node="n1"))) == [
        "not removed: it is draining and silent, but not lost yet. Wait until it is lost, then try again."
    ]


def test_a_removed_node_that_comes_back_is_a_new_one() -> None:
    world = cell_with(joined("n1", boot="boot-7"))
    world.tell(Cordon(cell=CELL, node="n1"))
    world.tell(DeclareLost(cell=CELL, node="n1"), RemoveNode(cell=CELL, node="n1"))
    world.tell(joined("n1", boot="boot-7"))
    assert is_ready(world, "n1")
    world.tell(DeclareLost(cell=CELL, node="n1"), RemoveNode(cell=CELL, node="n1"))
    world.tell(joined("n1", boot="boot-1"))
    assert is_ready(world, "n1")
    assert "LeaseExpired" in kinds(world.pass_time(40_001))


def test_what_a_removed_node_still_says_is_set_aside() -> None:
    world = cell_with(joined("n1"))
    world.tell(DeclareLost(cell=CELL, node="n1"), RemoveNode(cell=CELL, node="n1"))
    assert world.tell(report("n1")) == []
    assert [stray.reason for _, stray in world.service.take_strays()] == ["unknown_node"]


def test_a_lost_node_is_forgotten_after_the_set_time() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(set_policy(remove_lost_ms=HOUR_MS))
    world.tell(lost("n1"))
    world.restart()
    assert _passes(world, HOUR_MS - 1) == []
    assert _passes(world, 1) == ["NodeRemoved"]
    assert list(world.state.nodes) == ["n2"]


def test_a_node_that_is_back_in_time_is_not_forgotten() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_policy(remove_lost_ms=HOUR_MS))
    world.tell(lost("n1"))
    _passes(world, HOUR_MS // 2)
    world.tell(report("n1"))
    assert _passes(world, HOUR_MS // 2) == []


def test_a_lost_node_on_which_places_are_held_is_forgotten_when_these_are_free() -> None:
    world = with_gang()
    world.tell(set_policy(remove_lost_ms=HOUR_MS))
    world.tell(lost("n1"))
    assert "NodeRemoved" not in _passes(world, HOUR_MS + 1)
    world.tell(stopped("gang", "n2"))
    assert _passes(world, 60_000) == ["NodeRemoved"]


def test_no_node_is_forgotten_where_the_policy_says_never() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_policy(remove_lost_ms=0))
    world.tell(lost("n1"))
    assert _passes(world, 1_000 * HOUR_MS) == []


def test_a_time_that_is_set_later_counts_for_nodes_that_are_lost_already() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_policy(remove_lost_ms=0))
    world.tell(lost("n1"))
    _passes(world, 2 * HOUR_MS)
    assert kinds(world.tell(set_policy(remove_lost_ms=HOUR_MS))) == ["PolicySet"]
    assert _passes(world, 1) == ["NodeRemoved"]


def test_a_removal_that_does_not_get_into_the_log_is_tried_again() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(lost("n1"))
    fates = iter([Fate.LOST, Fate.BEATEN, Fate.LATE])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(RemoveNode(cell=CELL, node="n1"))
    assert list(world.state.nodes) == ["n2"]
    world.check()


@pytest.mark.parametrize("fate", [Fate.KEPT, Fate.LATE])
def test_a_removed_node_comes_back_in_any_boot_however_its_removal_got_into_the_log(fate: Fate) -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(joined("n1", boot="boot-2"))
    world.tell(lost("n1", boot="boot-2"))
    fates = iter([fate])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(RemoveNode(cell=CELL, node="n1"))
    world.tell(joined("n1"))
    assert is_ready(world, "n1")
    assert "LeaseExpired" in kinds(world.pass_time(40_001))


def test_a_stepped_cell_forgets_no_node() -> None:
    world = cell_with(joined("n1"), stepped=True)
    world.tell(lost("n1"))
    assert world.service.next_cell_ms() is None


def _passes(world: World, ms: int) -> list[str]:
    """Cell time alone passes: the nodes go on speaking."""
    world.now_ms += ms
    return kinds(world.rest())


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (
            DeclareLost(cell=CELL, node="n1", by="ada", reason="ticket 4711"),
            "declared lost by ada (claimed): ticket 4711",
        ),
        (DeclareLost(cell=CELL, node="n1"), "declared lost"),
        (
            DeclareLost(cell=CELL, node="n1", by="a" * 500, reason="b" * 500),
            ("declared lost by " + "a" * 100 + "... (claimed): " + "b" * 500)[:500],
        ),
        (
            DeclareLost(cell=CELL, node="n1", by="ada (vouched)", voucher="sworn"),
            "declared lost by ada (vouched) (claimed)",
        ),
        (NodeLost(cell=CELL, node="n1", boot="boot-1", seq=1, reason="no power"), "reported as gone: no power"),
        (joined("n1", boot="boot-2"), "it joined again in boot boot-2"),
    ],
)
def test_the_log_keeps_why_a_node_was_lost(event: Event, reason: str) -> None:
    world = cell_with(joined("n1"))
    assert [effect.reason for effect in world.tell(event) if isinstance(effect, e.LeaseExpired)] == [reason]


def test_a_node_that_was_silent_for_too_long_is_lost_for_no_other_reason() -> None:
    world = cell_with(joined("n1"))
    assert [effect.reason for effect in world.pass_time(40_001) if isinstance(effect, e.LeaseExpired)] == [""]


DAY_MS = 24 * HOUR_MS


def ordered(world: World, order: str) -> None:
    """What is wanted of n1 before it is lost."""
    match order:
        case "maintenance":
            world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=3 * DAY_MS, end_ms=4 * DAY_MS))
        case "maintenance that goes on":
            world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=0, end_ms=4 * DAY_MS))
        case "cordon":
            world.tell(Cordon(cell=CELL, node="n1", reason="bad fan"))
        case "drain":
            world.tell(Drain(cell=CELL, node="n1"))
        case "quarantine":
            for number in range(FAILURES):
                world.run(spec_of(f"bad-{number}", retry=RetryPolicy(budget=0)))
                world.tell(failed(f"bad-{number}"))


@pytest.mark.parametrize("order", ["maintenance", "maintenance that goes on", "cordon", "drain", "quarantine"])
def test_time_alone_does_not_remove_a_node_of_which_anything_but_work_is_wanted(order: str) -> None:
    world = cell_with(joined("n1"))
    world.listens = False
    world.tell(set_policy(remove_lost_ms=HOUR_MS))
    ordered(world, order)
    before = replace(world.state.nodes["n1"])
    world.tell(lost("n1"))
    world.pass_time(2 * DAY_MS)
    world.restart()
    world.pass_time(HOUR_MS)
    world.tell(joined("n1", boot="boot-2"))
    node = world.state.nodes["n1"]
    assert (node.status, node.reason, node.maintenance_ms) == (before.status, before.reason, before.maintenance_ms)
    assert node.quarantined == before.quarantined


def test_the_command_removes_such_a_node() -> None:
    world = cell_with(joined("n1"))
    ordered(world, "cordon")
    world.tell(DeclareLost(cell=CELL, node="n1"))
    assert kinds(world.tell(RemoveNode(cell=CELL, node="n1"))) == ["NodeRemoved"]


def test_a_lost_node_is_forgotten_once_its_maintenance_is_over() -> None:
    world = cell_with(joined("n1"))
    world.listens = False
    world.tell(set_policy(remove_lost_ms=HOUR_MS))
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=HOUR_MS, end_ms=3 * HOUR_MS), lost("n1"))
    world.pass_time(3 * HOUR_MS - 1)
    assert list(world.state.nodes) == ["n1"]
    world.pass_time(2 * AGAIN_MS)
    assert list(world.state.nodes) == []


def waits_of_nodes(world: World) -> int:
    """How many times of nodes the writer has in mind, pointless ones included."""
    return len(world.service._deadlines._by_cell)


@pytest.mark.parametrize("wanted", ["cordon", "nothing"])
def test_a_lost_node_is_looked_at_once_in_a_while_however_often_the_policy_was_changed(wanted: str) -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.listens = world.checks = False
    ordered(world, wanted)
    world.tell(DeclareLost(cell=CELL, node="n1"))
    for number in range(4 * ROOM_LEAST):
        world.tell(set_policy(remove_lost_ms=HOUR_MS + number % 7 * AGAIN_MS + number))
    assert waits_of_nodes(world) <= ROOM_LEAST + 2
    world.pass_time(HOUR_MS + 8 * AGAIN_MS)
    assert waits_of_nodes(world) == (1 if wanted == "cordon" else 0)
    assert ("n1" in world.state.nodes) == (wanted == "cordon")
    world.tell(report("n1") if wanted == "cordon" else joined("n1", boot="boot-2"))
    world.tell(Uncordon(cell=CELL, node="n1"), DeclareLost(cell=CELL, node="n1"))
    assert _passes(world, 2 * HOUR_MS) == ["NodeRemoved"]


@pytest.mark.parametrize("fates", [(Fate.LOST,), (Fate.BEATEN,), (Fate.LATE,), (Fate.LOST, Fate.LOST, Fate.LATE)])
def test_a_removal_that_is_due_and_does_not_get_into_the_log_is_due_again(fates: tuple[Fate, ...]) -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(set_policy(remove_lost_ms=HOUR_MS), lost("n1"))
    left = iter(fates)
    world.on_append = lambda: next(left, Fate.KEPT)
    _passes(world, HOUR_MS)
    assert list(world.state.nodes) == ["n2"]
    assert waits_of_nodes(world) == 0


@pytest.mark.parametrize("removed_by", ["this writer", "another one"])
def test_nothing_is_kept_in_mind_of_the_looks_at_nodes_that_are_gone(removed_by: str) -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(set_policy(remove_lost_ms=HOUR_MS), lost("n1"))
    assert ("forget", "n1") in world.service._deadlines._looks
    if removed_by == "this writer":
        world.tell(RemoveNode(cell=CELL, node="n1"))
    else:
        world.written_by_another(e.NodeRemoved(node="n1"))
        world.regain()
    assert world.service._deadlines._looks == {}


class Narrow(PlacementService):
    """A writer whose records have little room."""

    room = 1 << 20

    def _turn(self, now_ms: int) -> DecisionBuilder:
        turn = super()._turn(now_ms)
        turn.room = self.room
        return turn


class NarrowWorld(World):
    placement = Narrow


@pytest.mark.parametrize("room", [300, 600, 900, 1_200])
@pytest.mark.parametrize("how", ["said", "by time", "said, and it is back"])
def test_a_node_is_removed_whose_last_runs_ended_in_a_record_without_room_to_lose_it(how: str, room: int) -> None:
    world = NarrowWorld()
    world.tell(set_policy(remove_lost_ms=HOUR_MS), joined("n1"))
    jobs = [f"job-{number}" for number in range(8)]
    world.run(*(spec_of(job) for job in jobs))
    world.service.room = room  # type: ignore[attr-defined]  # it is a Narrow
    world.hand_over(lost("n1"))
    world.decide()
    world.hand_over(report("n1", *(seen(job, RunStatus.FINISHED) for job in jobs)))
    world.now_ms += HOUR_MS if how == "by time" else 0
    world.decide()
    if how != "by time":
        world.hand_over(RemoveNode(cell=CELL, node="n1"))
    if how == "said, and it is back":
        world.hand_over(joined("n1", boot="boot-2"))
    world.rest()
    assert list(world.state.nodes) == (["n1"] if how == "said, and it is back" else [])
    assert not world.service.has_pending
