"""Training jobs that are no gangs: worker by worker they enter, end, and are tried again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.lifecycle.runs.retry import RUNS_WELL_MS
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.fields.values import JobSpec, RetryPolicy
from fallow.shared.events.queue import QueueDiscipline
from tests.placement.worlds.replicas import all_start, leave, loose, ranks, service, word
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    cell_with,
    codes,
    finished,
    joined,
    kinds,
    lost,
    quota,
    set_quotas,
    spec_of,
    started,
    update,
)

STRICT = CellPart(
    name=CELL,
    ordinal=0,
    pools=(Pool(name="train", gpus=8),),
    queues=(Queue(name="default", discipline=QueueDiscipline.STRICT_FIFO),),
)


def cell(*gpus: int) -> World:
    """Nodes n1, n2, ... with so many GPUs each; placement walks all that wait."""
    return cell_with(*(joined(f"n{number + 1}", many) for number, many in enumerate(gpus)))


def test_workers_enter_one_by_one_as_room_comes() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("before", priority=1)), admitted(loose("job", 3)))
    assert ranks(world, "job") == [0]
    world.tell(started("before"), finished("before"))
    assert ranks(world, "job") == [0, 1]


def test_a_worker_that_ended_well_frees_its_place_for_the_next_one() -> None:
    world = cell(1)
    world.tell(admitted(loose("job", 2)))
    all_start(world, "job")
    world.tell(word(n.RunFinished, world, "job", 0))
    assert ranks(world, "job") == [1]
    assert world.job("job").done == (0,)


def test_the_job_is_over_when_each_of_its_workers_has_ended_well() -> None:
    world = cell(2)
    world.tell(admitted(loose("job", 2)))
    all_start(world, "job")
    assert kinds(world.tell(word(n.RunFinished, world, "job", 1))) == ["WorkersSettled"]
    assert kinds(world.tell(word(n.RunFinished, world, "job", 0))) == ["JobFinished"]


def test_what_is_done_is_not_done_again_in_a_later_attempt() -> None:
    world = cell(1, 1)
    world.tell(admitted(loose("job", 2)))
    all_start(world, "job")
    world.tell(word(n.RunFinished, world, "job", 0))
    world.tell(lost(world.nodes_of("job")[0]))
    assert (world.job("job").attempt, ranks(world, "job")) == (2, [1])
    assert kinds(world.tell(word(n.RunFinished, world, "job", 1))) == ["JobFinished"]


def test_a_worker_that_fails_is_tried_again_alone() -> None:
    world = cell(2)
    world.tell(admitted(loose("job", 2, retry=RetryPolicy(budget=1, backoff_ms=1_000))))
    all_start(world, "job")
    world.tell(word(n.RunFailed, world, "job", 0, exit_code=1))
    assert ranks(world, "job") == [1]
    world.pass_time(1_000)
    assert (ranks(world, "job"), world.job("job").failures, world.job("job").attempt) == ([0, 1], 1, 1)


def test_a_failure_beyond_the_budget_fails_the_job_when_its_other_workers_have_stopped() -> None:
    world = cell(2)
    world.tell(admitted(loose("job", 2)))
    all_start(world, "job")
    assert kinds(world.tell(word(n.RunFailed, world, "job", 0, text="bad"))) == [
        "WorkersSettled",
        "JobStopping",
        "NodeFailures",
    ]
    made = world.tell(word(n.RunStopped, world, "job", 1))
    assert kinds(made) == ["WorkersSettled", "JobFailed"]


def test_the_loss_of_a_node_does_not_count_against_the_budget() -> None:
    world = cell(1, 1, 1)
    world.tell(admitted(loose("job", 2)))
    all_start(world, "job")
    world.tell(lost(world.nodes_of("job")[0]))
    assert (world.job("job").failures, len(ranks(world, "job"))) == (0, 2)


def test_a_job_starts_with_its_fewest_workers_at_least() -> None:
    world = cell(2, 2)
    world.tell(admitted(spec_of("before", workers=2, priority=1)), admitted(loose("job", 4, workers_min=3)))
    assert ranks(world, "job") == []
    assert world.job("job").deferred == "no_free_gpus"


def test_why_it_waits_is_told_of_its_fewest_workers() -> None:
    world = cell(2, 2)
    world.tell(admitted(spec_of("before", workers=2, priority=1)), admitted(loose("job", 4, workers_min=3)))
    told = why_not(world.state, world.job("job"), (), 0)
    assert [(room.workers_now, room.workers_ever) for room in told.pools] == [(2, 4)]
    assert told.codes == ("no_free_gpus",)


def test_workers_enter_several_pools() -> None:
    world = cell_with(joined("n1", 1, pool="first"), joined("n2", 1, pool="second"))
    world.tell(admitted(loose("job", 2, pools=("first", "second"))))
    assert sorted(world.nodes_of("job")) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("used", "to_free"),
    [((2, 0), "room for 1 more worker in first and second together"), ((2, 1), "room for 2 more workers in first and")],
)
def test_why_a_service_waits_that_only_several_pools_could_hold(used: tuple[int, int], to_free: str) -> None:
    world = cell_with(joined("n1", 2, pool="first"), joined("n2", 2, pool="second"))
    for pool, gpus in zip(("first", "second"), used, strict=True):
        if gpus:
            world.tell(admitted(spec_of(f"in-{pool}", gpus=gpus, pools=(pool,))))
    world.tell(admitted(service("job", 4, workers_min=3, pools=("first", "second"))))
    told = why_not(world.state, world.job("job"), (), 0)
    assert world.job("job").deferred == "no_free_gpus"
    assert told.codes == ("no_free_gpus",)
    assert [text[: len(to_free)] for text in told.to_free] == [to_free]


def test_a_service_that_all_pools_together_could_not_hold_is_told_so() -> None:
    world = cell_with(joined("n1", 2, pool="first"), joined("n2", 2, pool="second"))
    world.tell(admitted(service("job", 5, workers_min=5, pools=("first", "second"))))
    assert world.job("job").deferred == "no_such_nodes"
    assert why_not(world.state, world.job("job"), (), 0).codes == ("no_such_nodes",)


def test_a_job_enters_as_far_as_its_tenant_may() -> None:
    world = cell(4)
    world.tell(set_quotas(quota("ada", 1)), admitted(loose("job", 3)))
    assert ranks(world, "job") == [0]
    world.tell(set_quotas(quota("ada", 2)))
    assert ranks(world, "job") == [0, 1]


def test_the_workers_on_a_node_that_is_emptied_go_elsewhere_at_the_deadline() -> None:
    world = cell(2)
    world.tell(admitted(loose("job", 2)))
    all_start(world, "job")
    world.tell(joined("n2", 1), o.Drain(cell=CELL, node="n1", by="operator"))
    assert world.job("job").leaving == (0, 1)
    leave(world, "job")
    assert world.nodes_of("job") == ["n2"]


def test_the_number_of_workers_of_a_training_job_stays() -> None:
    world = cell(2)
    world.tell(admitted(loose("job", 2)))
    assert codes(world.tell(update("job", workers=1))) == ["unsupported"]


def test_a_cancelled_job_frees_each_place_when_its_worker_has_stopped() -> None:
    world = cell(2)
    world.tell(admitted(loose("job", 2)))
    all_start(world, "job")
    world.tell(cancel("job"))
    world.tell(word(n.RunStopped, world, "job", 0), admitted(spec_of("next")))
    assert world.nodes_of("next") == ["n1"]


def test_a_job_that_lacks_workers_keeps_others_back_in_a_strict_queue() -> None:
    world = World(CellFile(cells=(STRICT,), tenants=(Tenant(name="ada"),)))
    world.tell(joined("n1", 2), joined("n2", 2), admitted(spec_of("before")))
    world.tell(admitted(loose("job", 2, gpus=2), submit_ms=1), admitted(spec_of("small"), submit_ms=5))
    assert (ranks(world, "job"), world.nodes_of("small")) == ([0], [])
    (node,) = world.nodes_of("before")
    world.tell(started("before", node), finished("before", node))
    assert (ranks(world, "job"), world.nodes_of("small")) == ([0, 1], [])
    world.tell(joined("n3", 1))
    assert world.nodes_of("small") == ["n3"]


PATIENT = RetryPolicy(budget=1, backoff_ms=1_000, backoff_max_ms=12_000)


def loses(world: World, rank: int) -> int:
    """The node of a worker is lost and joins again. How long the job waits before another worker enters."""
    (node,) = (place.node for place in world.job("job").workers if place.rank == rank)
    boot = world.state.nodes[node].boot
    world.tell(lost(node, boot))
    world.tell(joined(node, 1, boot=f"{boot}+"))
    return max(0, world.job("job").not_before_ms - world.now_ms)


@pytest.mark.parametrize("make", [loose, service])
def test_a_job_whose_workers_are_lost_again_and_again_waits_for_longer_each_time(make: Callable[..., JobSpec]) -> None:
    world = cell(1, 1)
    world.tell(admitted(make("job", 2, retry=PATIENT)))
    all_start(world, "job")
    waits = []
    for _ in range(6):
        waits.append(loses(world, 1))
        world.pass_time(waits[-1])
        assert ranks(world, "job") == [0, 1]
        all_start(world, "job")
    assert waits == [0, 1_000, 2_000, 4_000, 8_000, 12_000]
    assert (world.job("job").attempt, world.job("job").failures) == (1, 0)


def test_a_new_writer_knows_how_often_workers_were_lost() -> None:
    world = cell(1, 1)
    world.tell(admitted(loose("job", 2, retry=PATIENT)))
    all_start(world, "job")
    loses(world, 1)
    all_start(world, "job")
    world.restart()
    assert loses(world, 1) == 1_000


def test_workers_that_ran_well_for_an_hour_come_back_at_once() -> None:
    world = cell(1, 1)
    world.tell(admitted(loose("job", 2, retry=PATIENT)))
    all_start(world, "job")
    world.listens = False
    for _ in range(3):
        assert loses(world, 1) == 0
        all_start(world, "job")
        world.pass_time(RUNS_WELL_MS)


def test_a_node_with_many_of_a_jobs_workers_is_lost_once() -> None:
    world = cell_with(joined("n1", 4), joined("n2", 1))
    world.tell(admitted(loose("job", 5, retry=PATIENT)))
    all_start(world, "job")
    world.tell(lost("n1"))
    assert (world.job("job").losses, world.job("job").not_before_ms) == (1, 0)


def test_the_pause_of_a_job_that_lost_its_last_worker_stays() -> None:
    world = cell(1, 1)
    world.tell(admitted(loose("job", 1, retry=PATIENT)))
    for number in range(3):
        all_start(world, "job")
        loses(world, 0)
        assert world.job("job").losses == number + 1
        world.pass_time(3_000)
    assert world.job("job").attempt == 4
