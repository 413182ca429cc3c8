"""Nodes that are lost and back again and again rest in quarantine, for longer each time; a new writer knows of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.nodes.quarantine import (
    AGAIN_MS,
    FAILURES,
    FLAPS,
    NEAR_MS,
    REST_MS,
    flaps_after,
)
from fallow.shared.cluster.fold.due import ROOM_LEAST
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import Cordon, DeclareLost, Drain, PlanMaintenance, Uncordon
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    failed,
    finished,
    is_ready,
    joined,
    lost,
    report,
    set_policy,
    spec_of,
)

SILENCE_MS = 40_001
TEN_MINUTES_MS = 600_000
NODES = ("n1", "n2", "n3")


def pass_time(world: World, ms: int, *silent: str) -> list[e.AnyEffect]:
    """Time passes while all nodes but these report."""
    made: list[e.AnyEffect] = []
    while ms > 0:
        world.hand_over(*(report(node) for node in world.state.nodes if node not in silent))
        made += world.pass_time(min(ms, 10_000))
        ms -= 10_000
    return made


def flap(world: World, node: str = "n1", *, every_ms: int = TEN_MINUTES_MS) -> None:
    """The node is lost, and back, and then all is well for a while."""
    pass_time(world, SILENCE_MS, node)
    assert world.state.nodes[node].status is NodeStatus.LOST
    world.tell(report(node))
    pass_time(world, every_ms - SILENCE_MS)


def test_a_node_that_is_lost_and_back_every_ten_minutes_rests_for_longer_each_time() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    for _ in range(2):
        flap(world)
        assert is_ready(world, "n1")
    rests = []
    for _ in range(4):
        flap(world, every_ms=SILENCE_MS)
        node = world.state.nodes["n1"]
        assert node.status is NodeStatus.CORDONED
        assert node.reason.startswith("quarantined: it was lost")
        assert node.quarantined_until_ms is not None
        rests.append(node.quarantined_until_ms // REST_MS - world.now_ms // REST_MS)
        pass_time(world, node.quarantined_until_ms - world.now_ms + 1)
        assert is_ready(world, "n1")
    assert rests == [1, 2, 4, 8]


def test_a_node_in_quarantine_gets_no_work_until_it_is_uncordoned() -> None:
    world = cell_with(joined("n1"))
    for _ in range(3):
        flap(world, every_ms=SILENCE_MS)
    world.tell(admitted(spec_of("job")))
    assert not world.job("job").workers
    world.tell(Uncordon(cell=CELL, node="n1"))
    assert world.nodes_of("job") == ["n1"]
    pass_time(world, 2 * REST_MS)
    assert is_ready(world, "n1")


def test_a_rest_that_is_over_in_a_record_that_cannot_be_written_ends_with_the_next_one() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    for _ in range(3):
        flap(world, every_ms=SILENCE_MS)
    until_ms = world.state.nodes["n1"].quarantined_until_ms
    assert until_ms is not None
    world.hand_over(admitted(spec_of("far"), submit_ms=2**62))  # no reader takes this for a time
    world.now_ms = until_ms
    world.rest()
    assert world.unwritable
    assert is_ready(world, "n1")


def test_losses_that_lie_far_apart_do_not_count_together() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    for _ in range(5):
        flap(world, every_ms=NEAR_MS + 2 * SILENCE_MS)
        assert is_ready(world, "n1")


def test_neither_a_new_boot_nor_an_operators_word_counts_against_a_node() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    for number in range(5):
        world.tell(joined("n1", boot=f"boot-{number + 2}"))
        world.tell(DeclareLost(cell=CELL, node="n2"))
        world.tell(report("n2"))
        assert all(is_ready(world, node) for node in NODES)


def test_a_node_that_rested_and_was_opened_is_used_when_it_is_back_from_a_loss_for_a_stated_reason() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    for _ in range(3):
        flap(world, every_ms=SILENCE_MS)
    assert not is_ready(world, "n1")
    world.tell(Uncordon(cell=CELL, node="n1"))
    world.tell(DeclareLost(cell=CELL, node="n1"))
    world.tell(report("n1"))
    assert is_ready(world, "n1")


def test_what_an_operator_wants_of_a_node_is_not_lifted_with_time() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    world.tell(Cordon(cell=CELL, node="n1", reason="a fan"))
    for _ in range(4):
        flap(world)
    world.tell(Drain(cell=CELL, node="n2"))
    for _ in range(4):
        flap(world, "n2")
    pass_time(world, 4 * REST_MS)
    assert (world.state.nodes["n1"].status, world.state.nodes["n1"].reason) == (NodeStatus.CORDONED, "a fan")
    assert world.state.nodes["n2"].status is NodeStatus.DRAINING


def test_losses_of_a_node_that_a_person_has_closed_do_not_count() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    world.tell(Cordon(cell=CELL, node="n1"))
    for _ in range(4):
        flap(world, every_ms=SILENCE_MS)
    world.tell(Uncordon(cell=CELL, node="n1"))
    flap(world, every_ms=SILENCE_MS)
    assert is_ready(world, "n1")


def test_nodes_that_flap_together_take_out_a_tenth_of_the_pool_at_most() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    world = cell_with(*(joined(node) for node in nodes))
    for _ in range(4):
        pass_time(world, SILENCE_MS, *nodes[:4])
        world.tell(*(report(node) for node in nodes))
    assert sum(not is_ready(world, node) for node in nodes) == 2


def flap_together(world: World, *nodes: str) -> None:
    """So many nodes are silent beyond their leases that none that is in use is declared lost, and they are back."""
    used = [node for node in nodes if is_ready(world, node)]
    pass_time(world, SILENCE_MS, *nodes)
    assert world.service.leases_frozen
    assert all(is_ready(world, node) for node in used)
    world.tell(*(report(node) for node in nodes))


@pytest.mark.parametrize("restarts", [False, True])
def test_nodes_that_are_back_before_they_are_lost_flap_too_and_no_more_than_a_tenth_rests(*, restarts: bool) -> None:
    """Their own leases ran out, and with them the work on them, while many silent nodes were not declared lost."""
    nodes = [f"n{number:02}" for number in range(20)]
    world = cell_with(*(joined(node) for node in nodes))
    for _ in range(2):
        flap_together(world, *nodes[:8])
        assert all(is_ready(world, node) for node in nodes)
        if restarts:
            world.restart()
    flap_together(world, *nodes[:8])
    resting = [world.state.nodes[node] for node in nodes if not is_ready(world, node)]
    assert [node.id for node in resting] == nodes[:2]
    assert all(
        node.quarantined and "it was lost 3 times in a row, or silent beyond its lease" in node.reason
        for node in resting
    )
    flap_together(world, *nodes)
    assert [node for node in nodes if not is_ready(world, node)] == nodes[:2], "nor where all nodes are cut off"
    assert {world.state.nodes[node].quarantined_until_ms for node in nodes[:2]} == {world.now_ms + 2 * REST_MS}
    pass_time(world, 2 * REST_MS + 1)
    assert all(is_ready(world, node) for node in nodes)


@pytest.mark.parametrize("seed", range(3))
def test_no_more_than_a_tenth_rests_in_whatever_order_the_nodes_of_a_pool_are_lost_and_back(seed: int) -> None:
    """One that rested when it was lost gives its place to others meanwhile."""
    nodes, chance = [f"n{number:02}" for number in range(40)], random.Random(seed)
    world = cell_with(*(joined(node) for node in nodes))
    for _ in range(6):
        pass_time(world, SILENCE_MS, *nodes)
        for node in chance.sample(nodes, len(nodes)):
            world.tell(report(node))
        assert sum(world.state.nodes[node].quarantined for node in nodes) <= 4
    assert sum(world.state.nodes[node].quarantined for node in nodes) == 4


def test_nodes_that_are_reported_as_gone_do_not_flap_by_the_silence_before() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    world = cell_with(*(joined(node) for node in nodes))
    for _ in range(FLAPS):
        pass_time(world, SILENCE_MS, *nodes[:8])
        assert world.service.leases_frozen
        world.tell(*(lost(node) for node in nodes[:8]))
        world.tell(*(report(node) for node in nodes[:8]))
        assert all(is_ready(world, node) for node in nodes)


def test_a_node_that_has_flapped_does_not_rest_in_the_maintenance_that_begins_when_it_is_back() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    world = cell_with(*(joined(node) for node in nodes))
    for _ in range(3):
        flap_together(world, *nodes[:8])
    world.tell(Uncordon(cell=CELL, node="n00"))
    pass_time(world, SILENCE_MS, *nodes[:8])
    plan = PlanMaintenance(cell=CELL, node="n00", begin_ms=world.now_ms, end_ms=world.now_ms + 10_000_000)
    world.tell(plan, report("n00"))
    node = world.state.nodes["n00"]
    assert (node.status, node.in_maintenance, node.quarantined) == (NodeStatus.DRAINING, True, False)


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_of_nodes_that_come_into_a_pool_no_more_than_its_tenth_rest(boot: str) -> None:
    moved = {"n1": "train", "n2": "first", "n3": "second"}
    world = cell_with(*(joined(node, pool=pool) for node, pool in moved.items()))
    for _ in range(3):
        flap_together(world, *moved)
    assert all(world.state.nodes[node].quarantined for node in moved)
    world.tell(*(joined(node, pool="other", boot=boot) for node in moved))
    assert {node.pool for node in world.state.nodes.values()} == {"other"}
    assert [is_ready(world, node) for node in moved] == [False, True, True]


def test_a_node_that_rests_and_comes_into_another_pool_with_room_goes_on_to_rest() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    for _ in range(3):
        flap(world, every_ms=SILENCE_MS)
    until_ms = world.state.nodes["n1"].quarantined_until_ms
    world.tell(joined("n1", pool="other"))
    node = world.state.nodes["n1"]
    assert (node.pool, node.status, node.quarantined_until_ms) == ("other", NodeStatus.CORDONED, until_ms)


def test_a_short_silence_of_many_nodes_does_not_count() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    world = cell_with(*(joined(node) for node in nodes))
    for _ in range(5):
        pass_time(world, SILENCE_MS - 5_000, *nodes[:8])
        world.tell(*(report(node) for node in nodes))
    assert all(is_ready(world, node) and not world.state.nodes[node].flaps for node in nodes)


def test_what_an_operator_has_closed_does_not_rest_when_it_is_back_before_it_is_lost() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    world = cell_with(*(joined(node) for node in nodes))
    world.run(spec_of("job"))
    (used,) = world.nodes_of("job")
    world.tell(Cordon(cell=CELL, node=used, reason="a fan"))
    for _ in range(4):
        flap_together(world, used, *[node for node in nodes if node != used][:8])
    assert (world.state.nodes[used].reason, world.state.nodes[used].quarantined) == ("a fan", False)


def test_a_quarantine_that_ends_while_its_node_is_lost_is_over_when_it_comes_back() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    for _ in range(3):
        flap(world, every_ms=SILENCE_MS)
    world.tell(DeclareLost(cell=CELL, node="n1"))
    pass_time(world, REST_MS + 1, "n1")
    world.tell(report("n1"))
    assert is_ready(world, "n1")


class Step(NamedTuple):
    what: str
    node: str = "n1"


def take(world: World, step: Step, number: int) -> None:
    """One piece of a cell's life."""
    job = f"job-{number}"
    match step.what:
        case "flap":
            if world.state.nodes[step.node].status is not NodeStatus.LOST:
                flap(world, step.node, every_ms=SILENCE_MS)
        case "uncordon":
            world.tell(Uncordon(cell=CELL, node=step.node))
        case "time":
            pass_time(world, REST_MS)
        case _:
            world.tell(admitted(spec_of(job, tenant=("ada", "bob")[number % 2])))
            for node in world.nodes_of(job):
                world.tell(failed(job, node) if step.what == "fails" else finished(job, node))


def told(world: World) -> list[tuple[object, ...]]:
    nodes = world.state.nodes.values()
    return [(x.id, x.status, x.reason, x.quarantined_until_ms, x.failed_jobs, x.flaps) for x in nodes]


STEPS = st.one_of(
    st.just(Step("fails")),
    st.just(Step("fails")),
    st.builds(Step, st.sampled_from(["flap", "flap", "uncordon"]), st.sampled_from(NODES[:2])),
    st.sampled_from([Step("ends well"), Step("time")]),
)


@given(st.lists(STEPS, min_size=1, max_size=14) | st.lists(STEPS, min_size=9, max_size=14))
def test_writers_that_take_turns_quarantine_the_same_nodes_as_one_writer(steps: list[Step]) -> None:
    one, many = (cell_with(joined("n1"), joined("n2")) for _ in range(2))
    is_out = False
    for number, step in enumerate(steps):
        for world in (one, many):
            world.checks = False
            world.tell(*(report(node) for node in world.state.nodes))
            take(world, step, number)
        many.restart()
        is_out |= any(node.quarantined for node in many.state.nodes.values())
        assert told(many) == told(one)
    reaches("a node is in quarantine when another writer takes over", is_out)
    many.check()


def test_a_row_of_failures_goes_on_with_a_new_writer() -> None:
    world = cell_with(joined("n1"), *(joined(f"o{number}") for number in range(9)))
    for number in range(FAILURES):
        assert is_ready(world, "n1")
        take(world, Step("fails"), number)
        world.restart()
    assert not is_ready(world, "n1")


def in_quarantine(*nodes: str) -> World:
    """A world in which the first node has just begun its first quarantine."""
    world = cell_with(*(joined(node) for node in nodes or NODES))
    for _ in range(3):
        flap(world, every_ms=SILENCE_MS)
    assert world.state.nodes["n1"].quarantined
    return world


def test_a_quarantine_that_ends_during_maintenance_is_lifted_behind_it() -> None:
    world = in_quarantine()
    end_ms = world.now_ms + 2 * REST_MS
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=world.now_ms, end_ms=end_ms))
    pass_time(world, end_ms - world.now_ms - 1)
    assert world.state.nodes["n1"].in_maintenance
    pass_time(world, 2 * AGAIN_MS)
    assert is_ready(world, "n1")
    assert not world.state.nodes["n1"].quarantined


def test_a_quarantine_that_ends_during_maintenance_is_looked_at_once_in_a_while_however_often_it_changes() -> None:
    world = in_quarantine()
    world.listens = world.checks = False
    end_ms = world.now_ms + 3 * REST_MS
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=world.now_ms, end_ms=end_ms))
    world.pass_time(2 * REST_MS)
    for number in range(4 * ROOM_LEAST):
        world.tell(joined("n1", labels={"fan": str(number)}))
        world.pass_time(10)
    assert len(world.service._deadlines._by_cell) <= ROOM_LEAST + 2 * 3
    world.pass_time(end_ms - world.now_ms + AGAIN_MS)
    assert is_ready(world, "n1")


def test_a_node_whose_rest_is_over_while_work_holds_it_is_what_it_offers_to_be_once_that_has_ended() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    world = cell_with(*(joined(node) for node in nodes))
    world.run(spec_of("job"))
    (used,) = world.nodes_of("job")
    for _ in range(3):
        flap_together(world, used, *[node for node in nodes if node != used][:8])
    until_ms = world.state.nodes[used].quarantined_until_ms
    assert until_ms is not None
    world.tell(joined(used, 4))
    pass_time(world, until_ms - world.now_ms + 1)
    node = world.state.nodes[used]
    assert (node.quarantined, node.spec.gpus, node.offered and node.offered.gpus) == (False, 8, 4)
    world.tell(finished("job", used))
    assert (is_ready(world, used), world.state.nodes[used].spec.gpus) == (True, 4)


@pytest.mark.parametrize("flaps", [2, 3, 9, 10, 11, 100])
def test_a_rest_doubles_with_each_loss_up_to_a_day(flaps: int) -> None:
    node = replace(cell_with(joined("n1")).state.nodes["n1"], flaps=flaps, rests_until_ms=1_000)
    found = flaps_after(node, 1_000)
    assert found == (flaps + 1, 1_000 + min(600_000 * 2 ** (flaps - 2), 86_400_000))


def test_a_node_that_is_lost_in_its_quarantine_rests_anew_and_for_longer() -> None:
    world = in_quarantine()
    first_ms = world.state.nodes["n1"].quarantined_until_ms
    flap(world, every_ms=SILENCE_MS)
    node = world.state.nodes["n1"]
    assert (node.status, node.quarantined, node.flaps) == (NodeStatus.CORDONED, True, 4)
    assert "it was lost 4 times in a row" in node.reason
    assert first_ms is not None
    assert node.quarantined_until_ms == node.rests_until_ms > first_ms + REST_MS


def test_each_pool_has_room_of_its_own() -> None:
    """Neither do the nodes of another pool make it larger, nor do those that rest there take its place."""
    large, small = [f"a{number}" for number in range(19)], [f"b{number}" for number in range(11)]
    world = cell_with(*(joined(node) for node in large), *(joined(node, pool="other") for node in small))
    flapping = [*large[:3], *small[:2]]
    for _ in range(4):
        pass_time(world, SILENCE_MS, *flapping)
        world.tell(*(report(node) for node in flapping))
    out = [node for node in world.state.nodes if not is_ready(world, node)]
    assert [sum(node.startswith(pool) for node in out) for pool in ("a", "b")] == [1, 1]


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_a_lost_node_is_not_forgotten_while_its_next_loss_would_count_together_with_this_one(losses: int) -> None:
    """It would come back as a new one, ready for work."""
    world = cell_with(*(joined(node) for node in NODES))
    world.tell(set_policy(remove_lost_ms=60_000))
    for _ in range(losses - 1):
        flap(world, every_ms=SILENCE_MS)
    pass_time(world, SILENCE_MS, "n1")
    assert not world.state.nodes["n1"].quarantined
    pass_time(world, NEAR_MS + (REST_MS if losses == 3 else 0) - 10_000, "n1")
    assert "n1" in world.state.nodes
    pass_time(world, 3 * AGAIN_MS, "n1")
    assert "n1" not in world.state.nodes


@pytest.mark.parametrize("remove_lost_ms", [0, 1, 60_000, 300_000, 86_400_000])
def test_a_node_that_flaps_is_taken_out_however_soon_lost_nodes_are_forgotten(remove_lost_ms: int) -> None:
    world = cell_with(*(joined(node) for node in NODES))
    world.tell(set_policy(remove_lost_ms=remove_lost_ms))
    for _ in range(3):
        pass_time(world, SILENCE_MS + 7 * AGAIN_MS, "n1")
        world.tell(report("n1") if "n1" in world.state.nodes else joined("n1", boot="boot-2"))
    assert world.state.nodes["n1"].quarantined


def test_a_node_that_an_operator_declared_lost_is_forgotten_at_its_time() -> None:
    world = cell_with(*(joined(node) for node in NODES))
    world.tell(set_policy(remove_lost_ms=60_000), DeclareLost(cell=CELL, node="n1"))
    pass_time(world, 60_000, "n1")
    assert "n1" not in world.state.nodes


def test_a_node_that_rests_is_not_forgotten_while_it_has_maintenance_before_it() -> None:
    world = in_quarantine()
    world.tell(set_policy(remove_lost_ms=60_000))
    begin_ms = world.now_ms + NEAR_MS + 3 * REST_MS
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=begin_ms, end_ms=begin_ms + REST_MS))
    world.tell(DeclareLost(cell=CELL, node="n1"))
    pass_time(world, NEAR_MS + 2 * REST_MS, "n1")
    assert world.state.nodes["n1"].maintenance_ms == (begin_ms, begin_ms + REST_MS)
    pass_time(world, 2 * REST_MS + 3 * AGAIN_MS, "n1")
    assert "n1" not in world.state.nodes


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_is_due_is_kept_when_many_times_that_have_become_pointless_are_let_go(*, is_lost: bool) -> None:
    """Also in the pile of those that never come true: each drain of a node replaces the time of the one before."""
    world = in_quarantine()
    world.checks = False
    if is_lost:
        world.tell(set_policy(remove_lost_ms=2 * REST_MS), DeclareLost(cell=CELL, node="n1"))
    for number in range(2 * ROOM_LEAST):
        world.tell(Drain(cell=CELL, node="n2", deadline_ms=10**9 + number))
    silent = ("n1",) if is_lost else ()
    pass_time(world, 2 * REST_MS + 3 * AGAIN_MS + is_lost * NEAR_MS, *silent)
    assert ("n1" not in world.state.nodes) if is_lost else is_ready(world, "n1")
