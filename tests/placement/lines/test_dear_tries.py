"""A tenant whose jobs are dear to look for places for: each decision looks at few nodes, all come to their turn, and
no other tenant's job waits for that.
"""

from __future__ import annotations

from typing import Any

from fallow.services.placement.queue.scheduling_cycle import LOOKS_OF_A_TRY, TRIES_MAX
from fallow.services.placement.service import TRIES_AT_REST_MAX
from fallow.shared.cluster.capacity.topology import LOOKS_TO_INDEX_NODE
from fallow.shared.events.fields.values import JobSpec, Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.lines.test_many_kinds import bob, cell_of, running
from tests.placement.worlds.replicas import service
from tests.placement.worlds.world import World, admitted, finished, joined, set_policy, spec_of

NODES, KINDS = 200, 400
BOUND = (TRIES_AT_REST_MAX + TRIES_MAX) * LOOKS_OF_A_TRY
"""So many nodes at most are looked at in one decision, but for the last try."""
ONE_TRY = 3 * NODES


def filled(
    nodes: int, discipline: QueueDiscipline = QueueDiscipline.BEST_EFFORT_FIFO, order: QueueOrder = QueueOrder.FIFO
) -> World:
    """A cell on each of whose nodes one GPU is in use, and all CPUs are."""
    world = cell_of(discipline=discipline, order=order)
    for number in range(nodes):
        at = Position(domain=f"d{number // 8}", leaf=f"l{number // 32}", spine=f"s{number // 256}", superspine="x")
        labels = {"own": f"o{number}", "half": "ab"[number % 2]}
        world.hand_over(joined(f"n{number:04}", 2, cpu_milli=1_000, position=at, labels=labels))
    world.rest()
    uses = Resources(gpu_milli=1_000, cpu_milli=1_000)
    world.tell(*(admitted(spec_of(f"bob-{k:04}", tenant="bob", queue="default", resources=uses)) for k in range(nodes)))
    assert len(running(world, "bob")) == nodes
    return world


def dear(number: int, **more: Any) -> JobSpec:
    """A job of its own kind that finds enough free GPUs, and no free CPUs beside them."""
    wants = Resources(gpu_milli=1_000, cpu_milli=1 + number)
    return spec_of(f"dear-{number:04}", tenant="crowd", queue="default", **{"resources": wants, **more})


def looks(world: World) -> list[int]:
    """Decide until nothing is left to decide, and count how many nodes each decision looked at."""
    found = []
    while True:
        begun = world.state.capacity.effort.looks
        goes_on = world.decide()
        found.append(world.state.capacity.effort.looks - begun)
        due_ms = world.service.next_cell_ms()
        if not goes_on and (due_ms is None or due_ms > world.now_ms):
            return found


def told(world: World, tenant: str) -> set[PendingReason | None]:
    return {job.deferred for job in world.state.jobs.values() if job.spec.tenant == tenant}


def test_no_decision_looks_at_more_nodes_than_it_may_and_all_are_told_why_they_wait() -> None:
    world = filled(NODES)
    world.hand_over(*(admitted(dear(number)) for number in range(KINDS)))
    assert max(looks(world)) <= BOUND + ONE_TRY
    assert told(world, "crowd") == {PendingReason.FRAGMENTED}
    world.hand_over(joined("later", 1))
    assert max(looks(world)) <= BOUND + ONE_TRY


def test_the_last_of_the_dear_kinds_starts_where_it_alone_fits() -> None:
    world = filled(NODES)
    world.hand_over(*(admitted(dear(number)) for number in range(KINDS)))
    looks(world)
    world.hand_over(admitted(dear(KINDS, resources=Resources(gpu_milli=2_000))))
    looks(world)
    world.hand_over(joined("later", 2))
    looks(world)
    assert running(world, "crowd") == [f"dear-{KINDS:04}"]


def test_another_tenants_job_starts_at_once_however_many_dear_kinds_stand_before_it() -> None:
    world = filled(NODES)
    world.hand_over(*(admitted(dear(number)) for number in range(KINDS)))
    looks(world)
    world.hand_over(joined("later", 1), admitted(bob("next")))
    world.decide()
    assert "next" in running(world, "bob")


def test_another_tenants_job_starts_though_one_try_is_all_that_a_walk_has_and_it_is_tried_again_each_time() -> None:
    world = filled(6_000)
    wish = TopologyRequest(level=Level.NODE, wish=Wish.PREFERRED)
    world.hand_over(admitted(dear(1, workers=2, topology=wish)))
    assert max(looks(world)) > TRIES_MAX * LOOKS_OF_A_TRY
    world.hand_over(admitted(bob("next")))
    for number in range(3):
        world.hand_over(joined(f"later-{number}", 1))
        world.decide()
    assert "next" in running(world, "bob")


def test_jobs_with_rules_of_their_own_that_find_too_few_free_gpus_need_no_index() -> None:
    world = filled(NODES)
    wants = Resources(gpu_milli=1_000)
    for k in range(100):
        rule = "own=" + "|".join(f"o{k + number}" for number in range(8))
        world.hand_over(admitted(dear(k, workers=10, resources=wants, node_labels=(rule,))))
    world.rest()
    assert told(world, "crowd") == {PendingReason.NO_FREE_GPUS}
    world.hand_over(finished("bob-0050", node=world.job("bob-0050").workers[0].node))
    assert sum(looks(world)) < 100 * LOOKS_TO_INDEX_NODE
    assert told(world, "crowd") == {PendingReason.NO_FREE_GPUS}


def test_a_service_for_which_there_is_too_little_room_is_counted_and_not_placed() -> None:
    world = filled(NODES)
    more: dict[str, Any] = {"tenant": "crowd", "queue": "default", "resources": Resources(gpu_milli=100, cpu_milli=1)}
    world.tell(*(joined(f"open-{number}", 8, cpu_milli=1_000) for number in range(50)))
    world.hand_over(admitted(service("web", 5_000, workers_min=4_500, spread=Level.LEAF, **more)))
    assert sum(looks(world)) <= 20 * NODES
    assert told(world, "crowd") == {PendingReason.FRAGMENTED}


def test_no_decision_looks_at_more_nodes_than_it_may_for_jobs_that_a_head_keeps_back() -> None:
    """The head waits for the only node with eight GPUs; each of the others is tried on all nodes beside that one."""
    nodes = 3_000
    world = filled(nodes, QueueDiscipline.BACKFILL)
    world.tell(joined("large", 8, cpu_milli=1_000), set_policy(backfill_wait_ms=1_000), admitted(bob("busy", 8)))
    world.tell(admitted(bob("head", 8)))
    world.pass_time(1_000)
    world.hand_over(*(admitted(dear(number)) for number in range(12)))
    assert max(looks(world)) <= TRIES_MAX * LOOKS_OF_A_TRY + nodes
    assert set(world.state.heads) == {"head", *(f"dear-{number:04}" for number in range(12))}


def test_by_shares_a_due_head_starts_though_one_look_for_its_places_is_all_that_a_walk_has() -> None:
    """It is looked for before the first turn, since it comes before all of them, and again when its turn comes."""
    world = filled(6_000, QueueDiscipline.BACKFILL, QueueOrder.FAIR_SHARE)
    world.tell(set_policy(backfill_wait_ms=1_000))
    wish = TopologyRequest(level=Level.NODE, wish=Wish.PREFERRED)
    world.hand_over(admitted(dear(1, workers=2, topology=wish)))
    assert max(looks(world)) > TRIES_MAX * LOOKS_OF_A_TRY
    world.pass_time(1_000)
    world.hand_over(*(joined(f"later-{number}", 1, cpu_milli=1_000) for number in range(2)))
    for _ in range(3):
        world.decide()
    assert running(world, "crowd") == ["dear-0001"]


def test_by_shares_the_looks_for_due_heads_before_the_first_turn_count_among_those_of_the_walk() -> None:
    """The head is looked for on one half of the nodes; those that come later are tried on the other half."""
    nodes = 3_000
    world = filled(nodes, QueueDiscipline.BACKFILL, QueueOrder.FAIR_SHARE)
    world.tell(set_policy(backfill_wait_ms=1_000))
    wish = TopologyRequest(level=Level.NODE, wish=Wish.PREFERRED)
    world.hand_over(admitted(dear(0, workers=2, topology=wish, node_labels=("half=a",))))
    assert max(looks(world)) > TRIES_MAX * LOOKS_OF_A_TRY / 2
    world.pass_time(1_000)
    world.hand_over(*(admitted(dear(number, node_labels=("half=b",))) for number in range(1, 30)))
    world.hand_over(joined("later", 1))
    assert max(looks(world)) <= TRIES_MAX * LOOKS_OF_A_TRY + 3 * nodes
    assert {"dear-0000"} < set(world.state.heads)
