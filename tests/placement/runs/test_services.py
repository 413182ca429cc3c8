"""Inference services: replicas that come and go one by one, while the others go on."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.cli.job.story.reason import as_object, lines, reason_in
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.fields.values import Level, ObservedRun, Position, RunStatus
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.replicas import all_start, leave, on_nodes, ranks, service, word
from tests.placement.worlds.world import (
    CELL,
    DIGEST,
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
    report,
    set_policy,
    set_quotas,
    spec_of,
    started,
    update,
)


def cell(*gpus: int) -> World:
    """Nodes n1, n2, ... with so many GPUs each; placement walks all that wait."""
    return cell_with(*(joined(f"n{number + 1}", many) for number, many in enumerate(gpus)))


def drain(node: str, deadline_ms: int | None = None) -> o.Drain:
    return o.Drain(cell=CELL, node=node, deadline_ms=deadline_ms, by="operator")


def test_a_service_starts_with_as_many_replicas_as_fit() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 4, workers_min=2)))
    assert ranks(world, "web") == [0, 1]


def test_a_service_does_not_start_with_fewer_than_its_fewest() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 4, workers_min=3)))
    assert world.job("web").workers == ()


def test_a_service_runs_as_soon_as_one_replica_does() -> None:
    world = cell(4)
    world.tell(admitted(service("web", 2)))
    world.tell(word(n.RunStarted, world, "web", 1))
    assert (world.job("web").status, world.job("web").runs) == ("running", {"0": "starting", "1": "running"})


def test_a_service_is_scaled_up_and_down_by_an_update() -> None:
    world = cell(4)
    world.tell(admitted(service("web", 2, workers_min=1)))
    all_start(world, "web")
    world.tell(update("web", workers=4))
    assert ranks(world, "web") == [0, 1, 2, 3]
    all_start(world, "web")
    world.tell(update("web", workers=1))
    assert world.job("web").leaving == (1, 2, 3)
    assert ranks(world, "web") == [0, 1, 2, 3]
    leave(world, "web")
    assert (ranks(world, "web"), world.job("web").attempt) == ([0], 1)


def test_what_a_leaving_replica_holds_is_free_when_it_has_left() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 2, workers_min=1)))
    all_start(world, "web")
    world.tell(admitted(spec_of("job")), update("web", workers=1))
    assert world.job("job").workers == ()
    leave(world, "web")
    assert world.nodes_of("job") == ["n1"]


def test_an_update_below_the_fewest_replicas_is_refused() -> None:
    world = cell(4)
    world.tell(admitted(service("web", 4, workers_min=2)))
    assert codes(world.tell(update("web", workers=1))) == ["wrong_state"]
    assert codes(world.tell(update("web", workers=1, workers_min=1))) == []


def test_a_service_that_waits_can_be_made_smaller_so_that_it_starts() -> None:
    world = cell(1)
    world.tell(admitted(service("web", 2, workers_min=2)))
    world.tell(update("web", workers=1, workers_min=1))
    assert ranks(world, "web") == [0]


def test_a_replica_that_fails_is_replaced_alone_after_a_pause() -> None:
    world = cell(4)
    world.tell(admitted(service("web", 2)))
    all_start(world, "web")
    made = world.tell(word(n.RunFailed, world, "web", 0, exit_code=1))
    assert kinds(made) == ["WorkersSettled", "NodeFailures"]
    assert ranks(world, "web") == [1]
    made = world.pass_time(10_000)
    assert kinds(made) == ["JobResizing"]
    assert [(place.rank, place.turn) for place in world.job("web").workers] == [(1, 0), (0, 1)]
    assert world.job("web").attempt == 1


def test_a_replica_that_ends_well_is_replaced_like_one_that_fails() -> None:
    world = cell(4)
    world.tell(admitted(service("web", 1)))
    all_start(world, "web")
    world.tell(word(n.RunFinished, world, "web", 0))
    assert (world.job("web").status, world.job("web").failures) == ("queued", 1)
    world.pass_time(10_000)
    assert ranks(world, "web") == [0]


def test_the_failures_of_a_service_are_forgotten_when_it_went_well_for_long() -> None:
    world = cell(4)
    world.tell(admitted(service("web", 2)))
    all_start(world, "web")
    world.tell(word(n.RunFailed, world, "web", 0))
    world.pass_time(10_000)
    all_start(world, "web")
    world.now_ms += 700_000
    world.tell(word(n.RunFailed, world, "web", 1))
    assert world.job("web").failures == 1


def test_the_replicas_of_a_lost_node_come_back_elsewhere_and_the_others_stay() -> None:
    world = cell(1, 1, 1)
    world.tell(admitted(service("web", 2)))
    all_start(world, "web")
    before = dict(zip(ranks(world, "web"), world.nodes_of("web"), strict=True))
    world.tell(lost(before[0]))
    after = {place.rank: place.node for place in world.job("web").workers}
    assert after[1] == before[1]
    assert after[0] not in (before[0], before[1])


def test_words_of_a_replica_before_its_replacement_are_past() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 2)))
    all_start(world, "web")
    late = word(n.RunFailed, world, "web", 0)
    world.tell(late)
    world.pass_time(10_000)
    assert world.tell(late) == []
    assert ranks(world, "web") == [0, 1]


def test_a_report_tells_of_each_replica() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 2)))
    runs = [ObservedRun(job="web", attempt=1, status=RunStatus.RUNNING, rank=rank) for rank in (0, 1)]
    world.tell(report("n1", *runs))
    assert world.job("web").runs == {"0": "running", "1": "running"}


def test_a_growing_service_does_not_pass_a_waiting_job_before_it() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("first", priority=5)), admitted(service("web", 2)))
    assert ranks(world, "web") == [0]
    world.tell(admitted(spec_of("before", priority=1), submit_ms=0))
    world.tell(started("first"), finished("first"))
    assert world.nodes_of("before") == ["n1"]
    assert ranks(world, "web") == [0]


def test_a_growing_service_comes_before_a_waiting_job_behind_it() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("first", priority=5)), admitted(service("web", 2)))
    world.tell(admitted(spec_of("behind"), submit_ms=9))
    world.tell(started("first"), finished("first"))
    assert ranks(world, "web") == [0, 1]
    assert world.job("behind").workers == ()


def test_a_service_grows_as_far_as_its_tenant_may() -> None:
    world = cell(4)
    world.tell(set_quotas(quota("ada", 2)))
    world.tell(admitted(service("web", 4)))
    assert ranks(world, "web") == [0, 1]
    world.tell(set_quotas(quota("ada", 3)))
    assert ranks(world, "web") == [0, 1, 2]


def two_types(*nodes: n.NodeJoined, limit: int) -> World:
    """A cell with GPUs of type x and of type y; tenant ada may use so many of type x."""
    world = cell_with(*nodes)
    world.tell(set_quotas(quota("ada", limit, gpu_type="x")))
    return world


def test_a_service_whose_limit_of_one_gpu_type_is_used_up_starts_in_a_pool_of_another() -> None:
    world = two_types(joined("x1", pool="first", gpu_type="x"), joined("y1", pool="second", gpu_type="y"), limit=4)
    world.tell(admitted(spec_of("full", gpus=4, gpu_type="x")), admitted(service("web", 2, workers_min=1)))
    assert on_nodes(world, "web") == ["y1", "y1"]


def test_a_service_takes_what_its_limit_of_one_gpu_type_allows_and_the_rest_of_another() -> None:
    world = two_types(joined("x1", pool="first", gpu_type="x"), joined("y1", pool="second", gpu_type="y"), limit=1)
    world.tell(admitted(service("web", 3, workers_min=3)))
    assert on_nodes(world, "web") == ["x1", "y1", "y1"]


def test_a_limit_of_one_gpu_type_keeps_a_service_from_no_other_type_in_the_same_pool() -> None:
    world = two_types(joined("x1", gpu_type="x"), joined("y1", gpu_type="y"), limit=1)
    world.tell(admitted(service("web", 3, workers_min=3)))
    assert on_nodes(world, "web") == ["x1", "y1", "y1"]


@pytest.mark.parametrize(
    ("rule", "preemptible", "other"),
    [
        (share("ada", limit=1), True, {"tenant": "bob"}),
        (share("ada", guaranteed=1), False, {"preemptible": True}),
    ],
    ids=["another tenant", "one that may be preempted"],
)
def test_what_quotas_keep_from_a_service_they_keep_from_no_other_that_needs_the_same_room(
    rule: o.Quota, preemptible: bool, other: dict[str, Any]
) -> None:
    """The first one may have three of the four GPUs: one of the first pool, and both of the second."""
    world = cell_with(joined("n1", 2, pool="first"), joined("n2", 2, pool="second", gpu_type="big"))
    world.tell(set_quotas(rule))
    first = service("refused", 4, workers_min=4, preemptible=preemptible)
    world.tell(admitted(first), admitted(service("other", 4, workers_min=4, **other)))
    assert (on_nodes(world, "refused"), on_nodes(world, "other")) == ([], ["n1", "n1", "n2", "n2"])


def test_replicas_are_spread_over_the_failure_domains_that_the_service_names() -> None:
    world = cell_with(
        *(joined(f"n{at}", 4, position=Position(leaf=f"leaf-{at % 3}")) for at in range(6)),
    )
    world.tell(admitted(service("web", 7, spread=Level.LEAF)))
    by_leaf = [world.state.nodes[node].spec.position.leaf for node in on_nodes(world, "web")]
    assert sorted(by_leaf.count(f"leaf-{leaf}") for leaf in range(3)) == [2, 2, 3]


def test_the_fullest_failure_domain_gives_a_replica_up_first() -> None:
    world = cell_with(
        joined("a1", 3, position=Position(leaf="a")),
        joined("b1", 1, position=Position(leaf="b")),
    )
    world.tell(admitted(service("web", 4, spread=Level.LEAF)))
    all_start(world, "web")
    world.tell(update("web", workers=2))
    leave(world, "web")
    assert on_nodes(world, "web") == ["a1", "b1"]


def test_a_drain_moves_replicas_one_by_one_each_before_it_stops() -> None:
    world = cell(2, 2)
    world.tell(admitted(service("web", 2, gpus=1)))
    all_start(world, "web")
    (node,) = set(on_nodes(world, "web"))
    made = world.tell(drain(node, deadline_ms=1_000_000))
    assert kinds(made) == ["NodeChanged", "JobResizing"]
    assert len(world.job("web").workers) == 3
    all_start(world, "web")
    assert len(world.job("web").leaving) == 1
    leave(world, "web")
    all_start(world, "web")
    leave(world, "web")
    assert node not in on_nodes(world, "web")
    assert len(on_nodes(world, "web")) == 2


def test_a_drain_without_room_elsewhere_stops_one_replica_at_its_deadline() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 2)))
    all_start(world, "web")
    world.tell(drain("n1", deadline_ms=5_000))
    assert world.job("web").leaving == ()
    world.pass_time(5_000)
    assert len(world.job("web").leaving) == 1
    leave(world, "web")
    assert len(world.job("web").leaving) == 1


def test_a_drain_takes_no_replica_away_while_another_one_is_only_starting() -> None:
    world = cell(1, 1)
    world.tell(admitted(service("web", 2)))
    all_start(world, "web")
    (failing,) = (place.rank for place in world.job("web").workers if place.node == "n2")
    world.tell(word(n.RunFailed, world, "web", failing, exit_code=1))
    world.pass_time(10_000)
    assert on_nodes(world, "web") == ["n1", "n2"]
    world.tell(drain("n1"))
    assert world.job("web").leaving == ()
    all_start(world, "web")
    assert world.job("web").leaving == (1 - failing,)


def test_a_node_that_has_become_another_is_emptied_of_replicas_and_taken_for_what_it_is() -> None:
    world = cell(2, 2)
    world.tell(admitted(service("web", 1)))
    all_start(world, "web")
    (node,) = on_nodes(world, "web")
    assert kinds(world.tell(joined(node, 2, memory_mib=1_000))) == ["NodeChanged", "JobResizing"]
    all_start(world, "web")
    leave(world, "web")
    assert on_nodes(world, "web") != [node]
    assert (world.state.nodes[node].spec.memory_mib, world.state.nodes[node].is_schedulable) == (1_000, True)


def test_a_node_that_has_become_another_is_emptied_where_there_is_no_room_elsewhere() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 1)))
    all_start(world, "web")
    world.tell(joined("n1", 4))
    leave(world, "web")
    assert (on_nodes(world, "web"), world.state.nodes["n1"].spec.gpus) == (["n1"], 4)


def test_a_cordoned_node_that_has_become_another_keeps_its_replicas_until_it_is_wanted_again() -> None:
    world = cell(2, 2)
    world.tell(admitted(service("web", 1)))
    all_start(world, "web")
    (node,) = on_nodes(world, "web")
    world.tell(o.Cordon(cell=CELL, node=node), joined(node, 4))
    assert len(world.job("web").workers) == 1
    world.tell(o.Uncordon(cell=CELL, node=node))
    assert len(world.job("web").workers) == 2


def test_a_job_that_waits_is_told_of_the_node_that_has_become_another() -> None:
    world = cell(8)
    world.tell(admitted(service("web", 1)))
    all_start(world, "web")
    world.tell(joined("n1", 8, memory_mib=1_000), admitted(spec_of("job", 4)))
    found = reason_in(world.state, "job", ())
    assert found is not None
    assert (found[0].changed, as_object(found[0])["changed"]) == (("n1",), ["n1"])
    text = "  node n1 has other hardware than before and takes nothing until what runs there has left"
    assert text in [*lines(*found)]


def test_a_replica_that_does_not_start_in_time_is_given_up_alone() -> None:
    world = cell(4)
    world.tell(set_policy(start_timeout_wall_ms=5_000), admitted(service("web", 2)))
    world.tell(word(n.RunStarted, world, "web", 0))
    made = world.pass_time(5_000)
    assert kinds(made) == ["AttemptTimedOut", "WorkersSettled", "JobResizing"]
    assert (world.job("web").status, world.job("web").leaving) == ("running", (1,))


def test_another_writer_goes_on_with_replicas_that_are_on_their_way() -> None:
    world = cell(4)
    world.tell(set_policy(start_timeout_wall_ms=5_000), admitted(service("web", 2)))
    world.tell(word(n.RunStarted, world, "web", 0))
    world.restart()
    world.pass_time(5_000)
    assert world.job("web").leaving == (1,)


def test_a_cancelled_service_ends_when_its_last_replica_has_stopped() -> None:
    world = cell(4)
    world.tell(admitted(service("web", 2), digest=DIGEST))
    all_start(world, "web")
    world.tell(cancel("web"))
    world.tell(word(n.RunStopped, world, "web", 0))
    assert ranks(world, "web") == [1]
    made = world.tell(word(n.RunStopped, world, "web", 1))
    assert [type(effect) for effect in made] == [e.WorkersSettled, e.JobCancelled]


def test_a_replica_that_is_still_stopping_holds_its_devices_though_nobody_heard_it_start() -> None:
    world = cell(2)
    world.tell(admitted(service("web", 2), digest=DIGEST))
    world.tell(cancel("web"))
    runs = [ObservedRun(job="web", attempt=1, status=RunStatus.STOPPING, rank=rank) for rank in (0, 1)]
    world.tell(report("n1", *runs))
    assert ranks(world, "web") == [0, 1]
    made = world.tell(*(word(n.RunStopped, world, "web", rank) for rank in (0, 1)))
    assert [type(effect) for effect in made] == [e.WorkersSettled, e.JobCancelled]


def with_two_pools() -> World:
    return cell_with(joined("n1", 8, pool="first"), joined("n2", 8, pool="second"))


def test_a_service_larger_than_any_pool_waits_for_gpus_where_one_replica_alone_would_fit() -> None:
    world = with_two_pools()
    world.tell(admitted(spec_of("busy", 8, pools=("first",))))
    world.tell(admitted(service("web", 2, 8, workers_min=2, exclusive=True, pools=("first", "second"))))
    assert world.job("web").deferred is PendingReason.NO_FREE_GPUS


def test_a_service_larger_than_any_pool_is_told_of_pieces_where_its_gpus_are_free() -> None:
    world = with_two_pools()
    world.tell(admitted(spec_of("busy", 3, pools=("first",))))
    world.tell(admitted(service("web", 4, 3, workers_min=4, pools=("first", "second"))))
    assert world.job("web").deferred is PendingReason.FRAGMENTED
