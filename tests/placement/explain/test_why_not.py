"""Every code for which a job may wait: a cell that gives it, and what is told of it when somebody reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fallow.services.placement.explain.explain import WhyNot, why_not
from fallow.services.placement.search.gang import place_gang
from fallow.services.placement.search.reason_precedence import PRECEDENCE, ReasonKind
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.effects import JobDeferred
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Dependency, Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.operations import Cordon, HoldJob
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.networks import indices_of
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    failed,
    joined,
    quota,
    set_quotas,
    spec_of,
    started,
)

NOT_GIVEN_YET = {
    PendingReason.BEHIND_HEAD,
    PendingReason.BACKOFF,
    PendingReason.HELD,
    PendingReason.RESERVED_FOR_OTHER,
    PendingReason.MAINTENANCE,
    PendingReason.NOT_BEFORE,
    PendingReason.AFTER,
    PendingReason.ARRAY_LIMIT,
    PendingReason.UNACKNOWLEDGED,
    PendingReason.NODES_SILENT,
    PendingReason.RECORD_TOO_LARGE,
    PendingReason.MAKING_ROOM,
}
"""Codes that no walk over the heads finds. The first three are told when somebody reads, others have a test of their
own.
"""


def two_leaves() -> World:
    """Two leaf groups of two nodes with 8 GPUs each."""
    spots = {"n1": "leaf-1", "n2": "leaf-1", "n3": "leaf-2", "n4": "leaf-2"}
    return cell_with(*(joined(node, position=Position(leaf=leaf)) for node, leaf in spots.items()))


def no_such_nodes() -> World:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("late", 8, workers=3)))
    return world


def no_free_gpus() -> World:
    world = cell_with(joined("n1"))
    world.run(spec_of("first", 8))
    world.tell(admitted(spec_of("late", 8)))
    return world


def fragmented() -> World:
    world = cell_with(joined("n1"), joined("n2"))
    world.run(spec_of("first", 5))
    world.run(spec_of("second", 5))
    world.tell(admitted(spec_of("late", 6)))
    return world


def quota_reached() -> World:
    world = cell_with(joined("n1"))
    world.tell(set_quotas(quota("ada", 4)))
    world.run(spec_of("first", 3))
    world.tell(admitted(spec_of("late", 2)))
    return world


def too_far_apart() -> World:
    world = two_leaves()
    world.run(spec_of("first", 8))
    world.tell(joined("n5", position=Position(leaf="leaf-1")))
    wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    world.tell(admitted(spec_of("late", 8, workers=3, topology=wish)))
    return world


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        (no_such_nodes, PendingReason.NO_SUCH_NODES),
        (no_free_gpus, PendingReason.NO_FREE_GPUS),
        (fragmented, PendingReason.FRAGMENTED),
        (quota_reached, PendingReason.QUOTA_REACHED),
        (too_far_apart, PendingReason.TOPOLOGY),
    ],
)
def test_placement_records_each_reason_and_reading_tells_the_same(
    cell: Callable[[], World], code: PendingReason
) -> None:
    world = cell()
    recorded = [x.code for decision in world.decisions for x in decision.effects if isinstance(x, JobDeferred)]
    assert recorded == [code]
    assert told(world).recorded is code
    assert told(world).codes == (code,)


def test_a_job_that_waits_for_a_time_of_its_own_or_for_others_is_told_so() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(replace(spec_of("late", 8), not_before_ms=500)))
    assert (told(world).codes, told(world).recorded) == ((PendingReason.NOT_BEFORE,), PendingReason.NOT_BEFORE)
    world = cell_with(joined("n1"))
    world.tell(admitted(replace(spec_of("late", 8), after=(Dependency(job="first"),))))
    assert (told(world).codes, told(world).recorded) == ((PendingReason.AFTER,), PendingReason.AFTER)
    assert told(world).waits_for == ("first",)


def told(world: World, discipline: QueueDiscipline = QueueDiscipline.BEST_EFFORT_FIFO) -> WhyNot:
    return why_not(world.state, world.job("late"), (Queue(name="default", discipline=discipline),), world.state.at_ms)


def test_each_code_that_placement_gives_has_a_row_here() -> None:
    marks = test_placement_records_each_reason_and_reading_tells_the_same.pytestmark  # type: ignore[attr-defined]
    rows = {code for _, code in marks[0].args[1]}
    assert rows == set(PendingReason) - NOT_GIVEN_YET


def test_every_code_has_a_kind_and_kinds_stand_in_their_order() -> None:
    assert set(PRECEDENCE) == set(PendingReason)
    assert list(dict.fromkeys(PRECEDENCE.values())) == list(ReasonKind)


def test_a_held_job_is_told_to_be_held() -> None:
    world = cell_with()
    world.tell(admitted(spec_of("late", 8)))
    world.tell(HoldJob(cell=CELL, job="late"), joined("n1"))
    assert told(world).codes == (PendingReason.HELD,)


def test_a_job_that_waits_for_its_next_attempt_is_told_until_when() -> None:
    world = cell_with(joined("n1"))
    spec = spec_of("late", 8)
    world.run(replace(spec, retry=replace(spec.retry, budget=1)))
    world.tell(started("late"))
    world.tell(failed("late"))
    found = told(world)
    assert found.codes == (PendingReason.BACKOFF,)
    assert found.not_before_ms == world.job("late").not_before_ms


def test_in_a_strict_queue_a_job_is_told_that_it_stands_behind_the_head() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("first", 2))
    world.tell(admitted(spec_of("ahead", 8)), admitted(spec_of("late", 1), submit_ms=1))
    assert told(world, QueueDiscipline.STRICT_FIFO).codes == (PendingReason.BEHIND_HEAD,)
    assert told(world).codes == ()


def test_of_several_reasons_the_limit_comes_before_the_room() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_quotas(quota("ada", 8)))
    world.run(spec_of("first", 8))
    world.tell(admitted(spec_of("late", 2)))
    assert told(world).codes == (PendingReason.QUOTA_REACHED, PendingReason.NO_FREE_GPUS)
    use = told(world).accounts[0]
    assert (use.used_milli, use.limit_milli, use.wanted_milli, use.is_over) == (8_000, 8_000, 2_000, True)


def test_the_room_of_each_leaf_group_is_told_the_roomiest_first() -> None:
    room = told(too_far_apart()).pools[0]
    assert (room.nodes_whole, room.nodes, room.workers_now, room.workers_ever) == (4, 5, 4, 5)
    leaves = [(unit.unit, unit.nodes_whole, unit.nodes, unit.workers_now) for unit in room.units]
    assert leaves == [("leaf-1", 2, 3, 2), ("leaf-2", 2, 2, 2)]
    assert [unit.workers_ever for unit in room.units] == [3, 2]


def test_who_is_ahead_is_told_in_the_order_of_the_queue() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("first", 8))
    waiting = [admitted(spec_of(f"job-{n}", 8), submit_ms=n) for n in range(7)]
    world.tell(*waiting, admitted(spec_of("late", 8), submit_ms=9), admitted(spec_of("later", 8), submit_ms=10))
    ahead = told(world).ahead
    assert (ahead.jobs, ahead.gpus_milli, ahead.stuck_jobs) == (7, 56_000, 0)
    assert ahead.first == ("job-0", "job-1", "job-2", "job-3", "job-4")


def test_jobs_ahead_that_no_node_could_take_are_counted_apart() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("first", 8))
    world.tell(admitted(spec_of("huge", 800)), admitted(spec_of("able", 4), submit_ms=1))
    world.tell(admitted(spec_of("late", 8), submit_ms=2))
    ahead = told(world).ahead
    assert (ahead.jobs, ahead.gpus_milli, ahead.first) == (1, 4_000, ("able",))
    assert (ahead.stuck_jobs, ahead.stuck_gpus_milli) == (1, 800_000)


def test_a_share_finds_room_on_devices_that_are_shared_already() -> None:
    world = cell_with(joined("n1", 1))
    world.run(spec_of("first", resources=Resources(gpu_milli=600)))
    world.tell(admitted(spec_of("late", resources=Resources(gpu_milli=500))))
    room = told(world).pools[0]
    assert (room.gpus_free_milli, room.workers_now, room.workers_ever) == (400, 0, 2)


@pytest.mark.parametrize("used_milli", [900, 300], ids=["too little everywhere", "enough on a node of another label"])
def test_to_find_out_that_shared_devices_have_too_little_left_for_shares_no_index_of_the_network_is_made(
    used_milli: int,
) -> None:
    leaf = Position(leaf="leaf")
    world = cell_with(*(joined(node, 1, labels={"zone": node[0]}, position=leaf) for node in ("a1", "a2", "b1")))
    for zone, workers, milli in (("a", 2, 600), ("b", 1, used_milli)):
        used = Resources(gpu_milli=milli)
        world.run(spec_of(f"first-{zone}", workers=workers, resources=used, node_labels=(f"zone={zone}",)))
    together = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    late = spec_of("late", workers=2, resources=Resources(gpu_milli=500), topology=together, node_labels=("zone=a",))
    assert place_gang(world.state, late) is PendingReason.NO_FREE_GPUS
    assert indices_of(world.state.pools["train"]) == []


def test_gpus_that_are_idle_on_nodes_that_take_nothing_are_told_by_why() -> None:
    world = cell_with(joined("n1"), joined("n2"), joined("n3"), joined("n4", labels={"zone": "b"}))
    world.run(spec_of("first", 3))
    world.tell(Cordon(cell=CELL, node="n1"), Cordon(cell=CELL, node="n2"), admitted(spec_of("full", 8)))
    world.tell(admitted(spec_of("late", 8, node_labels=("zone=a",))))
    (room,) = told(world).pools
    assert room.closed == (("cordoned", 2), ("whose labels do not keep zone=a", 2))
    assert room.closed_gpus == (("cordoned", 13), ("whose labels do not keep zone=a", 8))


def test_labels_and_taints_are_told_by_how_many_nodes_they_leave() -> None:
    world = cell_with(
        joined("n1", labels={"zone": "a"}),
        joined("n2", labels={"zone": "b"}),
        joined("n3", labels={"zone": "b"}),
        joined("n4", labels={"zone": "a"}, taints=("hot",)),
    )
    world.tell(admitted(spec_of("alone", 1, exclusive=True, node_labels=("zone=a",))))
    world.tell(admitted(spec_of("late", 8, node_labels=("zone=a",))))
    (room,) = told(world).pools
    assert (room.nodes_right, room.nodes, room.workers_now, room.workers_ever) == (1, 4, 0, 1)
    assert room.closed == (
        ("which another job holds alone", 1),
        ("whose labels do not keep zone=a", 2),
        ("whose taint hot it does not tolerate", 1),
    )
