"""Nodes on which one job after another fails are taken out of use, visibly; jobs that fail everywhere take out few."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes.quarantine import FAILURES, RECENT_MS, TENANT_MAX, heard
from fallow.services.placement.lifecycle.runs.retry import FAULTS_MAX, RUNS_WELL_MS
from fallow.shared.cluster.model.config import Tenant
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeStatus, Resources, RetryPolicy
from fallow.shared.events.operations import Cordon, PlanMaintenance, RemoveNode, Uncordon
from fallow.shared.events.reasons import FailReason
from tests.cluster.worlds import examples
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import (
    CELL,
    FILE,
    Fate,
    World,
    admitted,
    cell_with,
    failed,
    finished,
    is_ready,
    joined,
    lost,
    report,
    spec_of,
    started,
)

HERE = ("here=yes",)
TENANTS = ("ada", "bob")
SMALL = Resources(gpu_milli=100)


def shared_cell(**options: Any) -> World:
    """Ten nodes; jobs that ask for its label go to n1."""
    others = (joined(f"o{number}") for number in range(2, 11))
    return cell_with(joined("n1", labels={"here": "yes"}), *others, **options)


def bad(job: str, **more: Any) -> JobSpec:
    """A job that goes to n1; those with even and odd numbers are of two tenants."""
    tenant = TENANTS[int(job.rpartition("-")[2]) % 2]
    return spec_of(job, **{"tenant": tenant, "node_labels": HERE, **more})


def end_badly(world: World, *jobs: str) -> list[e.AnyEffect]:
    """Each of these jobs runs on its node and fails there."""
    made: list[e.AnyEffect] = []
    for job in jobs:
        world.tell(admitted(bad(job)))
        made += world.tell(failed(job, world.nodes_of(job)[0]))
    return made


def names(first: int, end: int) -> list[str]:
    return [f"job-{number}" for number in range(first, end)]


def test_a_node_on_which_five_jobs_failed_in_a_row_is_cordoned_and_says_why() -> None:
    world = shared_cell()
    end_badly(world, *names(1, FAILURES))
    assert is_ready(world, "n1")
    (change,) = [x for x in end_badly(world, f"job-{FAILURES}") if isinstance(x, e.NodeChanged)]
    assert (change.status, change.spec.id) == (NodeStatus.CORDONED, "n1")
    assert change.reason == "quarantined: 5 different jobs in a row failed here: job-1, job-2, job-3, job-4, job-5"


def test_a_job_that_ends_well_begins_the_row_anew() -> None:
    world = shared_cell()
    end_badly(world, *names(1, FAILURES))
    world.run(bad("good-1"))
    world.tell(finished("good-1"))
    end_badly(world, *names(10, 9 + FAILURES))
    assert is_ready(world, "n1")
    end_badly(world, "job-99")
    assert not is_ready(world, "n1")


def test_one_job_that_fails_again_and_again_tells_nothing_of_its_node() -> None:
    world = shared_cell()
    world.tell(admitted(bad("stubborn-1", retry=RetryPolicy(budget=100, backoff_ms=1))))
    for attempt in range(1, 2 * FAILURES):
        world.pass_time(2_000)
        world.tell(failed("stubborn-1", attempt=attempt))
    assert world.job("stubborn-1").failures == 2 * FAILURES - 1
    assert is_ready(world, "n1")


def test_a_node_that_fails_one_job_after_another_by_its_own_fault_is_taken_out_and_no_job_pays_for_it() -> None:
    world = shared_cell()
    for number in range(1, 100):
        world.tell(admitted(spec_of(f"job-{number}", 8, tenant=TENANTS[number % 2], retry=RetryPolicy(budget=0))))
        for job in [job for job in world.state.jobs.values() if job.workers]:
            if job.workers[0].node != "n1":
                world.tell(finished(job.id, job.workers[0].node, job.attempt))
                continue
            world.tell(failed(job.id, "n1", job.attempt, infrastructure=True, text="No space left on device"))
            assert world.nodes_of(job.id) != ["n1"]
    assert not is_ready(world, "n1")
    assert len(world.state.nodes["n1"].failed_jobs) <= FAILURES
    assert "different jobs in a row failed here" in world.state.nodes["n1"].reason


def swallow(world: World, *jobs: str) -> None:
    """Each of these jobs, all of one tenant, is failed by n1 itself."""
    for job in jobs:
        world.run(bad(job, tenant="ada", retry=RetryPolicy(budget=0)))
        world.tell(failed(job, infrastructure=True, text="No space left on device"))


@pytest.mark.parametrize("is_new_writer", [False, True])
def test_what_a_node_names_its_own_fault_counts_whosever_job_it_was(is_new_writer: bool) -> None:
    """Five jobs of one tenant of several, also where another writer reads from the log what the first ones were."""
    world = shared_cell()
    swallow(world, *names(1, FAILURES))
    assert is_ready(world, "n1")
    if is_new_writer:
        world.restart()
    swallow(world, "job-5")
    told = "quarantined: 5 different jobs in a row failed here, 5 by the node's own fault: "
    assert world.state.nodes["n1"].reason == told + "job-1, job-2, job-3, job-4, job-5"


@pytest.mark.parametrize("is_new_writer", [False, True])
def test_a_tenants_own_failures_take_no_node_out_beside_one_fault_of_the_node(is_new_writer: bool) -> None:
    world = shared_cell()
    swallow(world, "job-1")
    for job in names(2, 4 * FAILURES):
        if is_new_writer:
            world.restart()
        world.run(bad(job, tenant="ada"))
        world.tell(failed(job))
    assert is_ready(world, "n1")
    assert len(world.state.nodes["n1"].failed_jobs) == 1 + TENANT_MAX
    swallow(world, "job-50")
    assert not is_ready(world, "n1")


@pytest.mark.parametrize("first", [False, True])
def test_a_job_that_failed_by_itself_and_by_its_nodes_fault_counts_once_as_the_nodes(first: bool) -> None:
    world = shared_cell()
    world.run(bad("both-1", tenant="ada", retry=RetryPolicy(budget=5, backoff_ms=1, backoff_max_ms=1)))
    for attempt, by_node in enumerate((first, not first), start=1):
        world.tell(failed("both-1", "n1", attempt, infrastructure=by_node))
        world.pass_time(2_000)
    node = world.state.nodes["n1"]
    assert (node.failed_jobs, node.failed_by_node) == (("both-1",), (True,))


def test_each_element_of_an_array_that_a_node_fails_by_its_own_fault_counts() -> None:
    world = shared_cell()
    world.tell(admitted(bad("broken-1", array=200, resources=SMALL)))
    for index in range(FAILURES):
        assert is_ready(world, "n1")
        world.tell(failed(f"broken-1.{index}", infrastructure=True))
    assert not is_ready(world, "n1")


@pytest.mark.parametrize("tenants", [("ada",), TENANTS])
def test_a_full_disk_swallows_no_more_jobs_than_make_a_row(tenants: tuple[str, ...]) -> None:
    world = shared_cell()
    swallowed = 0
    for number in range(1, 60):
        tenant = tenants[number % len(tenants)]
        world.tell(admitted(spec_of(f"job-{number}", 8, tenant=tenant, retry=RetryPolicy(budget=0))))
        for job in [job for job in world.state.jobs.values() if job.workers]:
            if (node := job.workers[0].node) == "n1":
                swallowed += 1
                world.tell(failed(job.id, node, job.attempt, infrastructure=True))
            else:
                world.tell(finished(job.id, node, job.attempt))
    assert swallowed == FAILURES


def test_replicas_that_fail_by_their_nodes_fault_count_against_the_node() -> None:
    world = shared_cell()
    world.run(*(bad(job, gang=False, tenant="ada") for job in names(1, FAILURES + 1)))
    world.tell(*(failed(job, rank=0, infrastructure=True) for job in names(1, FAILURES + 1)))
    assert not is_ready(world, "n1")


def test_what_fails_behind_a_good_end_of_the_same_record_begins_the_row_anew() -> None:
    world = shared_cell()
    end_badly(world, *names(1, FAILURES))
    world.run(bad("good-1"), bad("last-2"))
    world.tell(finished("good-1"), failed("last-2"))
    assert (is_ready(world, "n1"), world.state.nodes["n1"].failed_jobs) == (True, ("last-2",))


def test_runs_that_are_lost_with_their_node_are_no_failures_of_it() -> None:
    world = shared_cell()
    world.run(*(bad(job) for job in names(1, FAILURES + 1)))
    world.tell(lost("n1"))
    assert world.state.nodes["n1"].failed_jobs == ()


def test_a_job_that_nodes_fail_wherever_it_begins_comes_to_an_end_that_tells_why() -> None:
    world = cell_with(*(joined(f"o{number}") for number in range(3)))
    world.tell(admitted(spec_of("job", 8, retry=RetryPolicy(budget=0, backoff_ms=1, backoff_max_ms=1))))
    ends: list[e.JobFailed] = []
    for _ in range(4 * FAULTS_MAX):
        if "job" in world.state.jobs and world.nodes_of("job"):
            job = world.job("job")
            told = failed("job", job.workers[0].node, job.attempt, infrastructure=True, text="Input/output error")
            ends += [effect for effect in world.tell(told) if isinstance(effect, e.JobFailed)]
        world.pass_time(10_000)
    words = f"{FAULTS_MAX + 1} attempts in a row were lost, the last one: Input/output error"
    assert [(end.reason, end.text) for end in ends] == [(FailReason.NODE_FAULTS, words)]


def test_what_fails_because_its_gang_failed_elsewhere_is_not_held_against_its_node() -> None:
    world = cell_with(*(joined(f"n{number}", labels={"here": "yes"} if number < 2 else {}) for number in range(10)))
    for job in names(1, FAILURES + 1):
        world.run(bad(job, resources=Resources(gpu_milli=8_000), workers=2))
        world.tell(failed(job, "n0"))
        world.tell(failed(job, "n1"))
    assert not is_ready(world, "n0")
    assert is_ready(world, "n1")
    assert world.state.nodes["n1"].failed_jobs == ()


def test_an_uncordoned_node_begins_with_an_empty_row() -> None:
    world = shared_cell()
    end_badly(world, *names(1, FAILURES + 1))
    world.tell(Uncordon(cell=CELL, node="n1"))
    end_badly(world, *names(10, 9 + FAILURES))
    assert is_ready(world, "n1")
    end_badly(world, "job-99")
    assert not is_ready(world, "n1")


@pytest.mark.parametrize(("nodes", "shut"), [(1, 0), (2, 0), (9, 0), (10, 1), (20, 2), (39, 3)])
def test_jobs_that_fail_wherever_they_run_take_out_a_tenth_of_the_pool_at_most(nodes: int, shut: int) -> None:
    world = cell_with(*(joined(f"n{number}", gpus=1) for number in range(nodes)))
    for job in names(1, 10 * FAILURES):
        world.run(bad(job, node_labels=()))
        world.tell(failed(job, world.nodes_of(job)[0]))
    assert sum(not is_ready(world, f"n{number}") for number in range(nodes)) == shut


@pytest.mark.parametrize("nodes", [2, 9])
def test_in_a_small_pool_one_node_is_taken_out_while_work_runs_on_another(nodes: int) -> None:
    world = cell_with(joined("n0", labels={"here": "yes"}), *(joined(f"n{number}") for number in range(1, nodes)))
    world.run(spec_of("whole", 8), spec_of("good", 8))
    world.tell(*(started(job, world.nodes_of(job)[0]) for job in ("whole", "good")))
    on_it = next(job for job in ("whole", "good") if world.nodes_of(job) == ["n0"])
    world.tell(finished(on_it, "n0"))
    end_badly(world, *names(1, FAILURES + 1))
    assert not is_ready(world, "n0")
    assert all(is_ready(world, f"n{number}") for number in range(1, nodes))


@pytest.mark.parametrize("nodes", [1, 2, 10, 20])
def test_the_failures_of_one_tenant_take_no_node_from_others(nodes: int) -> None:
    world = cell_with(*(joined(f"n{number}", gpus=1) for number in range(nodes)))
    for job in names(1, 4 * FAILURES):
        world.run(spec_of(job, tenant="bob"))
        world.tell(failed(job, world.nodes_of(job)[0]))
    assert all(is_ready(world, node) for node in world.state.nodes)


def test_where_there_is_one_tenant_its_jobs_take_a_node_out() -> None:
    alone = FILE.model_copy(update={"tenants": (Tenant(name="ada", parent="all"), Tenant(name="all"))})
    world = shared_cell(file=alone)
    for job in names(1, FAILURES + 1):
        world.run(bad(job, tenant="ada"))
        world.tell(failed(job))
    assert not is_ready(world, "n1")


def test_what_failed_more_than_a_day_ago_does_not_count() -> None:
    world = shared_cell()
    end_badly(world, *names(1, FAILURES))
    world.listens = False
    world.pass_time(RECENT_MS)
    world.restart()
    end_badly(world, "job-20")
    assert world.state.nodes["n1"].failed_jobs == ("job-20",)


def test_work_that_has_run_for_an_hour_clears_the_failures_before_its_start() -> None:
    """Replicas never end well: that they run is what tells that the node is sound."""
    world = shared_cell()
    end_badly(world, *names(1, FAILURES))
    world.run(bad("long-1"))
    world.tell(started("long-1"))
    world.listens = False
    world.pass_time(RUNS_WELL_MS)
    end_badly(world, "job-20")
    assert world.state.nodes["n1"].failed_jobs == ("job-20",)
    end_badly(world, *names(21, 20 + FAILURES))
    assert not is_ready(world, "n1")


def test_a_lost_node_in_quarantine_does_not_keep_others_in_use() -> None:
    world = cell_with(*(joined(f"n{number}", labels={"at": str(number)}) for number in range(11)))
    for number in (0, 1):
        for job in names(10 * number, 10 * number + FAILURES):
            world.run(bad(job, node_labels=(f"at={number}",)))
            world.tell(failed(job, f"n{number}"))
        world.tell(lost(f"n{number}"))
    assert [world.state.nodes[node].quarantined for node in ("n0", "n1", "n2")] == [True, True, False]


@pytest.mark.parametrize("how", ["in a new boot", "as they were"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_no_more_than_a_tenth_is_out_when_nodes_that_failed_jobs_come_back_from_a_loss(
    how: str, order: tuple[int, ...]
) -> None:
    """In each other's place, one by one, they have come into quarantine and were switched off."""
    world = cell_with(*(joined(f"n{number}", labels={"at": str(number)}) for number in range(12)))
    for number in order:
        for job in names(10 * number, 10 * number + FAILURES):
            world.run(bad(job, node_labels=(f"at={number}",)))
            world.tell(failed(job, f"n{number}"))
        world.tell(lost(f"n{number}"))
    for number in order:
        is_new = how == "in a new boot"
        world.tell(joined(f"n{number}", boot="boot-2") if is_new else report(f"n{number}"))
        if number == order[1]:
            world.restart()
    assert [is_ready(world, f"n{number}") for number in order] == [False, True, True]


def test_a_decision_that_did_not_get_into_the_log_counts_nothing() -> None:
    world = shared_cell()
    world.run(*(bad(job) for job in names(1, FAILURES)))
    fates = iter([Fate.LOST, Fate.LATE, Fate.LOST])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(*(failed(job) for job in names(1, FAILURES)))
    assert is_ready(world, "n1")
    end_badly(world, "job-9")
    world.check()


def test_a_stepped_cell_shuts_no_node() -> None:
    world = shared_cell(stepped=True)
    end_badly(world, *names(1, 3 * FAILURES))
    assert is_ready(world, "n1")


def test_the_first_words_about_a_gangs_failure_outlive_the_record_in_which_they_came() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(admitted(spec_of("gang", 8, workers=2)))
    world.tell(started("gang", "n1"), started("gang", "n2"))
    world.tell(failed("gang", "n1", text="out of memory"))
    (end,) = [x for x in world.tell(failed("gang", "n2", text="lost n1")) if isinstance(x, e.JobFailed)]
    assert end.text == "out of memory"


def test_a_node_that_was_removed_out_of_quarantine_takes_the_place_of_no_other() -> None:
    world = shared_cell()
    end_badly(world, *names(0, FAILURES))
    assert not is_ready(world, "n1")
    world.tell(lost("n1"), RemoveNode(cell=CELL, node="n1", by="operator"))
    world.tell(joined("n2", labels={"here": "yes"}))
    end_badly(world, *names(10, 10 + FAILURES))
    assert world.state.nodes["n2"].status is NodeStatus.CORDONED


def test_a_broken_array_is_one_cause_however_many_of_its_elements_fail() -> None:
    world = cell_with(*(joined(f"n{number:02}") for number in range(20)))
    world.tell(admitted(spec_of("broken", array=200)))
    while living := list(world.state.jobs.values()):
        world.tell(*(failed(job.id, job.workers[0].node) for job in living if job.workers))
    assert all(is_ready(world, node) for node in world.state.nodes)
    assert world.state.nodes["n00"].failed_jobs == ("broken",)


@given(causes=st.lists(st.integers(0, 2 * FAILURES), min_size=1, max_size=16))
def test_a_node_is_out_when_so_many_different_causes_of_both_tenants_failed_on_it(causes: list[int]) -> None:
    """Each number is a job of its own, or (the even ones) an array with further elements to fail. Of each tenant, two
    numbers in four, three causes count.
    """
    world = shared_cell()
    arrays = {cause: 0 for cause in causes if cause % 2 == 0}
    world.tell(
        *(
            admitted(bad(f"c-{cause}", array=causes.count(cause), resources=SMALL, tenant=TENANTS[cause // 2 % 2]))
            for cause in arrays
        )
    )
    for cause in causes:
        if cause in arrays:
            job, arrays[cause] = f"c-{cause}.{arrays[cause]}", arrays[cause] + 1
        else:
            job = f"c-{cause}"
            if job in world.state.finished:
                continue
            world.tell(admitted(bad(job, resources=SMALL, tenant=TENANTS[cause // 2 % 2])))
        if not world.nodes_of(job):
            break  # the node is out already
        world.tell(failed(job))
    of_each = [len({cause for cause in causes if cause // 2 % 2 == tenant}) for tenant in (0, 1)]
    reaches("a node is out after causes of both tenants", not is_ready(world, "n1"))
    assert is_ready(world, "n1") is (sum(min(count, TENANT_MAX) for count in of_each) < FAILURES)


def test_the_fifth_failure_on_a_node_that_has_become_another_ends_its_job_and_takes_the_node_out() -> None:
    world = shared_cell()
    world.run(*(bad(job, retry=RetryPolicy(budget=0)) for job in names(1, FAILURES + 1)))
    world.tell(joined("n1", 4))
    for job in names(1, FAILURES + 1):
        world.tell(failed(job))
    node = world.state.nodes["n1"]
    assert (world.unwritable, list(world.state.jobs)) == ([], [])
    assert (node.status, node.quarantined, node.spec.gpus, node.offered) == (NodeStatus.CORDONED, True, 4, None)


@pytest.mark.parametrize("change", ["labels", "taints", "nothing"])
def test_a_node_that_says_other_things_of_itself_between_failures_is_taken_out_as_any(change: str) -> None:
    """A node may label itself by what it measures, however often: its row goes on."""
    world = shared_cell()
    for number in range(1, FAILURES + 1):
        assert is_ready(world, "n1"), number
        end_badly(world, f"job-{number}")
        labels = {"here": "yes", **({"heat": str(number % 2)} if change == "labels" else {})}
        if change == "taints":
            world.tell(joined("n1", labels=labels, taints=("warm",)))
            assert world.state.nodes["n1"].spec.taints == ("warm",)
        world.tell(joined("n1", labels=labels))
    assert not is_ready(world, "n1")


def test_a_node_that_labels_itself_while_it_is_emptied_for_its_maintenance_keeps_its_row() -> None:
    world = shared_cell()
    end_badly(world, *names(1, 2))
    row = world.state.nodes["n1"].failed_jobs
    begin_ms = world.now_ms
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=begin_ms, end_ms=begin_ms + 3_600_000))
    world.tell(joined("n1", labels={"here": "yes", "heat": "1"}))
    node = world.state.nodes["n1"]
    assert (node.status, node.in_maintenance, node.spec.labels["heat"]) == (NodeStatus.DRAINING, True, "1")
    assert node.failed_jobs == row != ()


@pytest.mark.parametrize(
    "other",
    [
        {"boot": "b2"},
        {"gpus": 4},
        {"gpu_type": "h100"},
        {"cpu_milli": 1_000},
        {"pool": "other"},
        {"memory_mib": 1_000},
    ],
    ids=repr,
)
def test_a_node_that_is_another_machine_or_has_booted_begins_with_an_empty_row(other: dict[str, Any]) -> None:
    world = shared_cell()
    end_badly(world, *names(1, FAILURES))
    assert len(world.state.nodes["n1"].failed_jobs) == FAILURES - 1
    boot = other.pop("boot", None)
    world.tell(joined("n1", labels={"here": "yes"}, **({} if boot is None else {"boot": boot}), **other))
    assert world.state.nodes["n1"].failed_jobs == ()


def test_an_uncordon_of_a_node_that_was_not_closed_begins_its_row_anew_if_it_changes_anything() -> None:
    world = shared_cell()
    end_badly(world, *names(1, FAILURES))
    world.tell(Cordon(cell=CELL, node="n1"), Uncordon(cell=CELL, node="n1"))
    assert world.state.nodes["n1"].failed_jobs == ()


def two_pools(out: str) -> World:
    """Ten nodes in each of the pools `train` and `other`; in `out` one node is out already. Five jobs run on n1, which
    says meanwhile that it is of `other`, and fail there: the last one frees it.
    """
    world = shared_cell()
    world.tell(*(joined(f"p{n}", pool="other", labels={"there": "yes"} if n == 0 else {}) for n in range(10)))
    if out == "train":
        world.tell(joined("o2", labels={"there": "yes"}))
    node = "o2" if out == "train" else "p0"
    for number in range(1, FAILURES + 1) if out != "nothing" else ():
        there: dict[str, Any] = {"tenant": TENANTS[number % 2], "node_labels": ("there=yes",), "pools": (out,)}
        world.tell(admitted(spec_of(f"of-other-{number}", **there)))
        world.tell(failed(f"of-other-{number}", node))
    world.tell(*(admitted(bad(f"job-{number}")) for number in range(1, FAILURES + 1)))
    world.tell(joined("n1", pool="other", labels={"here": "yes"}))
    world.tell(*(failed(f"job-{number}", "n1") for number in range(1, FAILURES + 1)))
    assert world.state.nodes["n1"].spec.pool == "other"
    return world


@pytest.mark.parametrize(("out", "is_used"), [("nothing", False), ("other", True), ("train", False)])
def test_a_node_that_comes_into_another_pool_as_it_fails_its_fifth_job_is_taken_out_as_that_pool_can_do_without_it(
    out: str, is_used: bool
) -> None:
    world = two_pools(out)
    assert is_ready(world, "n1") == is_used
    shut = [node.id for node in world.state.nodes.values() if node.quarantined]
    assert len(shut) == (1 if out in ("nothing", "other") else 2)


@pytest.mark.parametrize("out", ["nobody", "train", "other"])
def test_a_node_that_has_flapped_rests_as_the_pool_can_do_without_it_into_which_it_comes_then(out: str) -> None:
    """What it offers to be is not taken in yet, though nothing is held on it any more."""
    pools = {"n1": "train", "n2": "train", "o1": "other", "o2": "other"}
    nodes = {name: examples.node(name, pool=pool) for name, pool in pools.items()}
    offers = replace(nodes["n1"], offered=replace(nodes["o1"].spec, id="n1"))
    silent = e.NodeSilent(node="n1", boot="boot-1", silent_wall_ms=60_000)
    shut = [replace(nodes[name], status=NodeStatus.CORDONED, quarantined=True) for name in nodes if pools[name] == out]
    held = [
        examples.enqueued("job"),
        examples.started("job", examples.place(0, "n1", 0)),
        offers,
        e.JobFinished(job="job", attempt=1),
    ]
    flapped = [silent, e.NodeHeard(node="n1", flaps=2, rests_until_ms=1_000)]
    decision = DecisionBuilder(examples.cell(*nodes.values(), *shut[-1:], *held, *flapped, silent), 0)
    heard(decision, decision.state.nodes["n1"], has_lapsed=True)
    rests = decision.state.nodes["n1"]
    assert (rests.flaps, rests.quarantined, rests.pool) == (3, out != "other", "train" if out == "other" else "other")
