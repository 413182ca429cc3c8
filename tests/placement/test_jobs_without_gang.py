"""Training jobs that are no gangs: worker by worker they enter, end, and are tried again."""

from __future__ import annotations

from services.placement.policy.why_not import why_not
from shared.events import nodes as n
from shared.events import operations as o
from shared.events.queue import QueueDiscipline
from shared.events.values import RetryPolicy
from tests.placement.replicas import all_start, leave, loose, ranks, word
from tests.placement.world import (
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

FEW = 1_000


def cell(*gpus: int, few: int = FEW) -> World:
    """Nodes n1, n2, ... with so many GPUs each; placement walks all that wait."""
    return cell_with(*(joined(f"n{number + 1}", many) for number, many in enumerate(gpus)), few=few)


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
    world = cell_with(joined("n1", 1, pool="first"), joined("n2", 1, pool="second"), few=FEW)
    world.tell(admitted(loose("job", 2, pools=("first", "second"))))
    assert sorted(world.nodes_of("job")) == ["n1", "n2"]


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
    world = cell(1, few=-1)
    world.tell(admitted(loose("job", 2)), admitted(spec_of("small", gpus=1), submit_ms=5))
    world.tell(world.queue(QueueDiscipline.STRICT_FIFO))
    world.tell(joined("n2", 1))
    assert (ranks(world, "job"), world.nodes_of("small")) == ([0, 1], [])
