"""The next jobs in each queue: what a plan says is what placement does, as long as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.queueing.policy.plan import JOBS_PER_PART, in_parts, plan_of
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import Dependency
from fallow.shared.events.operations import Cordon, Uncordon
from fallow.shared.events.queue import QueueOrder, QueuePlan, QueuePlanned
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World, admitted, joined, spec_of

FAIR = QueueOrder.FAIR_SHARE
QUEUES = (Queue(name="day"), Queue(name="night", order=FAIR), Queue(name="aged", aging_ms=2_000, aging_max_ms=9_000))
NODES = [f"n{number}" for number in range(8)]
RECORD_BYTES_MAX = 1_048_576
TENANTS = (Tenant(name="ada", quotas=(TenantQuota(weight=2),)), Tenant(name="bob"), Tenant(name="eve"))


def cell_of(queues: Sequence[Queue] = QUEUES) -> World:
    """A cell whose nodes take nothing new for now."""
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=64),), queues=tuple(queues))
    world = World(CellFile(cells=(part,), tenants=TENANTS))
    world.tell(*(joined(node) for node in NODES), *(Cordon(cell=CELL, node=node) for node in NODES))
    return world


def wait(world: World, job: str, submit_ms: int = 0, gpus: int = 1, **fields: Any) -> None:
    """A job that finds no room."""
    world.tell(admitted(spec_of(job, gpus, **{"queue": "day", **fields}), submit_ms))


def plan(world: World, most: int = 100) -> dict[str, QueuePlan]:
    """What is planned now, by queue."""
    return {each.queue: each for each in plan_of(world.state, QUEUES, world.now_ms, most)}


WAITING = st.lists(
    st.tuples(
        st.sampled_from([tenant.name for tenant in TENANTS]),
        st.integers(-1, 1),
        st.integers(0, 4_000),
        st.integers(1, 3),
    ),
    max_size=12,
)


@given(st.sampled_from(QUEUES), WAITING)
@example(QUEUES[1], [("bob", 0, 0, 3), ("eve", 0, 1, 1), ("eve", 0, 2, 1), ("ada", 0, 3, 1)])
def test_jobs_of_a_queue_that_all_find_room_start_in_the_order_of_its_plan(
    queue: Queue, jobs: list[tuple[str, int, int, int]]
) -> None:
    world = cell_of()
    for number, (tenant, priority, submit_ms, gpus) in enumerate(jobs):
        wait(world, f"j{number}", submit_ms, gpus, queue=queue.name, tenant=tenant, priority=priority)
    planned = [job for each in plan(world).values() for job in each.next]
    reaches("a plan is in another order than that in which jobs came", planned != [f"j{n}" for n in range(len(jobs))])
    effects = world.tell(*(Uncordon(cell=CELL, node=node) for node in NODES))
    started = [effect.job for effect in effects if isinstance(effect, e.JobStarted)]
    assert planned == started
    assert len(started) == len(jobs)


def test_what_waits_for_more_than_its_turn_is_counted_and_not_named() -> None:
    world = cell_of()
    wait(world, "ready")
    wait(world, "held", hold=True)
    wait(world, "later", not_before_ms=world.now_ms + 60_000)
    wait(world, "behind", after=(Dependency(job="ready"),))
    planned = plan(world)["day"]
    assert (planned.waiting, planned.ready, planned.next) == (4, 1, ("ready",))


def test_of_an_array_with_a_limit_no_more_elements_are_next_than_may_run() -> None:
    world = cell_of()
    wait(world, "sweep", array=5, array_max_running=2)
    wait(world, "other", submit_ms=1)
    planned = plan(world)["day"]
    assert (planned.waiting, planned.ready, planned.next) == (6, 3, ("sweep.0", "sweep.1", "other"))


def test_of_an_array_of_which_more_elements_run_than_may_none_is_next() -> None:
    world = cell_of()
    wait(world, "sweep", array=5, array_max_running=2)
    world.tell(Uncordon(cell=CELL, node=NODES[0]))
    array = world.state.arrays["sweep"]
    assert array.holding == 2
    array.max_running = 1
    planned = plan(world)["day"]
    assert (planned.waiting, planned.ready, planned.next) == (3, 0, ())


def test_only_the_first_are_named_and_all_are_counted() -> None:
    world = cell_of()
    for number in range(5):
        wait(world, f"j{number}", number)
    planned = plan(world, most=2)["day"]
    assert (planned.waiting, planned.ready, planned.next) == (5, 5, ("j0", "j1"))


def test_jobs_of_a_queue_that_the_cell_file_no_longer_has_stand_behind_all_others() -> None:
    world = cell_of([*QUEUES, Queue(name="gone")])
    wait(world, "old", queue="gone")
    wait(world, "new")
    assert [each.queue for each in plan_of(world.state, QUEUES, world.now_ms)] == ["day", "gone"]


def test_a_queue_in_which_nobody_waits_is_left_out() -> None:
    assert plan_of(cell_of().state, QUEUES, 0) == []


LENGTHS = st.integers(0, 100)


@given(st.lists(LENGTHS, max_size=300) | st.lists(LENGTHS | st.just(100), min_size=50, max_size=100))
def test_all_queues_stand_in_parts_that_each_fit_a_record(lengths: list[int]) -> None:
    longest = f"{'t' * 63}/{'x' * 128}"
    plans = [
        QueuePlan(queue=f"{number:063}", waiting=length, ready=length, next=(longest,) * length)
        for number, length in enumerate(lengths)
    ]
    parts = in_parts(plans)
    reaches("queues stand in several parts", len(parts) > 1)
    assert [each for part in parts for each in part] == plans
    assert all(sum(1 + len(each.next) for each in part) <= JOBS_PER_PART for part in parts)
    for number, part in enumerate(parts):
        event = QueuePlanned(
            cell=CELL, writer="q" * 64, plan=1, part=number, parts=len(parts), version=1, at_ms=1, queues=part
        )
        assert len(encode(event)) < RECORD_BYTES_MAX
