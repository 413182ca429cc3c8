"""Labels, taints and exclusive nodes: where a job may run at all, whatever room there is."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.search.gang import POLICIES, place_gang
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import build_valid
from fallow.shared.events.fields.values import JobKind, JobSpec, Level, NodeRole, NodeStatus, TopologyRequest, Wish
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.networks import Machine, gang, network, node_spec, nodes_of, place, start

POLICY = pytest.mark.parametrize("policy", sorted(POLICIES))
ZONES = [Machine("a"), Machine("a", zone="z1"), Machine("b", zone="z2"), Machine("b", zone="z3")]


def run(state: CellState, spec: JobSpec) -> list[str]:
    """Place and start a job."""
    found = place_gang(state, spec)
    assert not isinstance(found, PendingReason), found
    start(state, spec, found)
    return nodes_of(found)


def becomes(state: CellState, number: int, machine: Machine, status: NodeStatus = NodeStatus.READY) -> None:
    """The node tells that it is another one now."""
    apply(state, e.NodeChanged(spec=node_spec(number, machine), boot="boot-1", status=status), 0)


@POLICY
@pytest.mark.parametrize(
    ("rule", "nodes"),
    [
        ("zone=z1", {"n001"}),
        ("zone=z1|z3", {"n001", "n003"}),
        ("zone!=z1", {"n000", "n002", "n003"}),
        ("zone!=z1|z2", {"n000", "n003"}),
        ("zone", {"n001", "n002", "n003"}),
        ("!zone", {"n000"}),
    ],
)
def test_a_job_runs_on_nodes_that_keep_its_rule_and_on_no_others(policy: str, rule: str, nodes: set[str]) -> None:
    state = network(ZONES, policy)
    assert set(run(state, gang("job", 4, len(nodes), node_labels=(rule,)))) == nodes
    assert place_gang(state, gang("more", 1, node_labels=(rule,))) is PendingReason.NO_FREE_GPUS


@POLICY
def test_all_rules_bind(policy: str) -> None:
    state = network(ZONES, policy)
    assert run(state, gang("job", 1, node_labels=("zone", "zone!=z1", "zone!=z3"))) == ["n002"]


@pytest.mark.parametrize("rule", ["", "=a", "zone=", "zone=a|", "!zone=a", "zone==a", "zo ne", "zone=a,b"])
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="node_labels"):
        build_valid(JobSpec, id="job", tenant="ada", node_labels=(rule,))


@POLICY
def test_a_tainted_node_takes_only_what_tolerates_all_of_its_taints(policy: str) -> None:
    state = network([Machine("a", taints=("hot", "slow")), Machine("a", taints=("hot",))], policy)
    assert place_gang(state, gang("job")) is PendingReason.NO_SUCH_NODES
    assert run(state, gang("tolerant", 4, tolerations=("hot",))) == ["n001"]
    assert place_gang(state, gang("next", 4, tolerations=("hot",))) is PendingReason.NO_FREE_GPUS
    assert run(state, gang("hardy", 4, tolerations=("slow", "hot"))) == ["n000"]


@POLICY
def test_a_taint_keeps_new_work_off_and_leaves_alone_what_runs(policy: str) -> None:
    state = network([Machine("a")], policy)
    run(state, gang("job"))
    becomes(state, 0, Machine("a", taints=("hot",)))
    assert state.jobs["job"].workers
    assert place_gang(state, gang("next")) is PendingReason.NO_SUCH_NODES
    becomes(state, 0, Machine("a"))
    assert run(state, gang("next")) == ["n000"]


@POLICY
def test_a_node_that_gets_another_label_is_found_by_it(policy: str) -> None:
    state = network(ZONES, policy)
    job = gang("job", 4, 2, node_labels=("zone=z1",))
    assert place_gang(state, job) is PendingReason.NO_SUCH_NODES
    becomes(state, 3, Machine("b", zone="z1"))
    assert set(run(state, job)) == {"n001", "n003"}
    becomes(state, 2, Machine("b"))
    assert place_gang(state, gang("late", 1, node_labels=("zone=z2",))) is PendingReason.NO_SUCH_NODES


@POLICY
def test_a_job_with_rules_waits_for_gpus_where_its_nodes_are_in_use(policy: str) -> None:
    state = network([Machine("a"), Machine("b", zone="z1", used=2), Machine("b", zone="z1", used=2)], policy)
    assert place_gang(state, gang("job", 4, node_labels=("zone=z1",))) is PendingReason.FRAGMENTED
    assert place_gang(state, gang("wide", 4, 2, node_labels=("zone=z1",))) is PendingReason.NO_FREE_GPUS
    assert place_gang(state, gang("wider", 4, 3, node_labels=("zone=z1",))) is PendingReason.NO_SUCH_NODES


@POLICY
@pytest.mark.parametrize("status", [NodeStatus.CORDONED, NodeStatus.DRAINING])
def test_a_node_that_takes_nothing_new_takes_nothing_with_the_right_label(policy: str, status: NodeStatus) -> None:
    state = network([Machine("a", zone="z1"), Machine("a", zone="z1"), Machine("a")], policy)
    job = gang("job", 2, 2, node_labels=("zone=z1",))
    assert not isinstance(place_gang(state, job), PendingReason)
    becomes(state, 0, Machine("a", zone="z1"), status)
    assert run(state, job) == ["n001", "n001"]
    becomes(state, 0, Machine("a", zone="z1", taints=("hot",)), status)
    becomes(state, 0, Machine("a", zone="z1"))
    assert run(state, gang("next", 4, node_labels=("zone=z1",))) == ["n000"]


@POLICY
def test_an_exclusive_job_takes_wholly_empty_nodes_and_keeps_others_off(policy: str) -> None:
    state = network([Machine("a", used=1), Machine("a"), Machine("a")], policy)
    used = run(state, gang("alone", 1, exclusive=True))
    assert used != ["n000"]
    assert place_gang(state, gang("wide", 4, 2)) is PendingReason.NO_FREE_GPUS
    run(state, gang("other", 4))
    assert place_gang(state, gang("late", 1, exclusive=True)) is PendingReason.FRAGMENTED
    assert run(state, gang("small", 3)) == ["n000"]
    apply(state, e.JobFinished(job="alone", attempt=1), 0)
    assert run(state, gang("next", 4)) == used
    assert check_state(state) == []


@POLICY
def test_the_workers_of_an_exclusive_job_may_share_its_nodes(policy: str) -> None:
    state = network([Machine("a"), Machine("a", used=1)], policy)
    assert run(state, gang("alone", 2, 2, exclusive=True)) == ["n000", "n000"]


@POLICY
def test_exclusive_jobs_that_are_alike_get_nodes_of_their_own(policy: str) -> None:
    state = network([Machine("a"), Machine("a")], policy)
    assert {run(state, gang(f"alone-{number}", 1, exclusive=True))[0] for number in range(2)} == {"n000", "n001"}
    assert place_gang(state, gang("late", 1, exclusive=True)) is PendingReason.NO_FREE_GPUS


@POLICY
def test_an_exclusive_share_of_a_device_keeps_the_whole_node(policy: str) -> None:
    state = network([Machine("a")], policy)
    run(state, gang("alone", milli=500, exclusive=True))
    assert isinstance(place_gang(state, gang("half", milli=500)), PendingReason)


@POLICY
def test_a_required_unit_is_one_of_nodes_that_the_job_may_use(policy: str) -> None:
    wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    state = network([Machine("a"), Machine("a"), Machine("b", zone="z1"), Machine("b", zone="z1")], policy)
    assert set(run(state, gang("job", 4, 2, topology=wish, node_labels=("zone=z1",)))) == {"n002", "n003"}
    becomes(state, 0, Machine("a", taints=("hot",)))
    assert isinstance(place_gang(state, gang("next", 4, 2, topology=wish)), PendingReason)


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (gang("job", 2, node_labels=("zone=z2",), tolerations=("hot",)), "node n000, whose labels do not keep zone=z2"),
        (gang("job", 2, node_labels=("zone=z1",)), "whose taint hot it does not tolerate"),
        (gang("job", 2, tolerations=("hot",), exclusive=True), "on which it would not be alone"),
    ],
)
def test_the_fold_refuses_a_start_where_the_job_may_not_run(job: JobSpec, text: str) -> None:
    state = network([Machine("a", zone="z1", taints=("hot",), used=1)])
    apply(state, e.JobEnqueued(spec=job, submit_ms=0, digest="0" * 32), 0)
    with pytest.raises(IllegalEffect, match=text):
        apply(state, e.JobStarted(job="job", attempt=1, workers=(place(0, 2),)), 0)


def test_the_fold_refuses_a_start_on_a_node_that_another_job_holds_alone() -> None:
    state = network([Machine("a", used=1, is_held_alone=True)])
    apply(state, e.JobEnqueued(spec=gang("job"), submit_ms=0, digest="0" * 32), 0)
    with pytest.raises(IllegalEffect, match="which another job holds alone"):
        apply(state, e.JobStarted(job="job", attempt=1, workers=(place(0, 1),)), 0)


def test_an_undone_start_leaves_an_exclusive_node_as_it_was() -> None:
    state = network([Machine("a")])
    mark = state.checkpoint()
    run(state, gang("alone", 1, exclusive=True))
    state.rollback(mark)
    assert run(state, gang("other", 2)) == ["n000"]
    mark = state.checkpoint()
    apply(state, e.JobFinished(job="other", attempt=1), 0)
    run(state, gang("alone", 1, exclusive=True))
    state.rollback(mark)
    assert run(state, gang("third", 2)) == ["n000"]
    assert check_state(state) == []


def served(state: CellState, job: str, replicas: int, **more: Any) -> list[str]:
    return run(state, gang(job, 1, replicas, kind=JobKind.INFERENCE, **more))


def test_in_the_inference_zone_labels_and_taints_hold_too_and_so_they_do_where_it_overflows() -> None:
    zone = {"role": NodeRole.INFERENCE}
    state = network([Machine("a", gpus=2), Machine("a", gpus=2, taints=("hot",))], "e-spread")
    for number, machine in enumerate([Machine("b", gpus=2), Machine("b", gpus=2, taints=("hot",))], start=2):
        apply(state, e.NodeChanged(spec=node_spec(number, machine, **zone), boot="b", status=NodeStatus.READY), 0)
    assert served(state, "first", 2) == ["n002", "n002"]
    assert served(state, "hardy", 1, tolerations=("hot",)) == ["n003"]
    assert served(state, "over", 1) == ["n000"]
    assert served(state, "more", 3, tolerations=("hot",), spread=Level.NODE) == ["n003", "n001", "n001"]
