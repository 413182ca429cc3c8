"""When jobs that do not fit will start: the table of what a plan says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fallow.services.queueing.policy.planner import HORIZON_MS, KEPT_BYTES_MAX
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.base import LARGEST_INTEGER, LATEST_MS, Event
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, Level, Position, Resources, RetryPolicy, TopologyRequest, Wish
from fallow.shared.events.operations import CellPolicy, Drain, EstimatorKind, PlanMaintenance, Quota, SetQuota
from fallow.shared.events.queue import QueueDiscipline
from tests.placement.worlds.planned import BACKFILL, Planned, file_of
from tests.placement.worlds.world import CELL, failed, joined, lost, set_policy, spec_of

BEST = Queue(name="best", aging_ms=0, aging_max_ms=0)
STRICT = Queue(name="strict", discipline=QueueDiscipline.STRICT_FIFO, aging_ms=0, aging_max_ms=0)
RACK = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)


def job(name: str, gpus: int, run_ms: int | None, workers: int = 1, **more: Any) -> JobSpec:
    """A job that says how long it runs, or does not."""
    return spec_of(name, gpus, workers, **{"queue": "day", "estimate_run_ms": run_ms, **more})


def cell(*nodes: Event, queues: tuple[Queue, ...] = (BACKFILL, BEST, STRICT), **policy: Any) -> Planned:
    """A cell with these queues."""
    return Planned(file_of(*queues, pools=("train", "other"), **policy), *nodes)


def plan_of(planned: Planned) -> dict[str, tuple[int, tuple[str, ...]]]:
    """What is planned now: when each job starts, and on which nodes that are kept for it."""
    return {
        start.job: (start.start_ms, tuple(dict.fromkeys(place.node for place in start.places)))
        for start in planned.plan().starts
    }


def two_nodes() -> list[Event]:
    return [joined("n1", 4), joined("n2", 4)]


def test_a_job_starts_when_the_first_node_that_holds_it_is_free_by_estimates() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 100), job("b", 4, 60), job("c", 4, 10))
    assert plan_of(planned) == {"c": (60, ("n2",))}


def test_jobs_behind_each_other_are_planned_one_after_the_other() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 100), job("b", 4, 60), job("c", 4, 10), job("d", 4, 50), job("e", 4, 5, workers=2))
    assert plan_of(planned) == {"c": (60, ("n2",)), "d": (70, ("n2",)), "e": (120, ("n1", "n2"))}


def test_a_gang_starts_when_all_of_its_workers_find_room() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 100), job("b", 4, 60), job("c", 4, 10, workers=2))
    assert plan_of(planned) == {"c": (100, ("n1", "n2"))}


def test_a_job_that_is_expected_to_run_for_ever_frees_nothing_and_what_waits_for_it_has_no_planned_start() -> None:
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, None), job("b", 4, 10), job("c", 4, 10))
    assert plan_of(planned) == {}


def test_what_tells_nothing_of_its_run_is_taken_to_run_for_as_long_as_the_cell_assumes() -> None:
    planned = cell(joined("n1", 4), default_run_estimate_ms=70)
    planned.submit(job("a", 4, None), job("b", 4, 10))
    assert plan_of(planned) == {"b": (70, ("n1",))}


@pytest.mark.parametrize(
    ("estimate_ms", "limit_ms", "start_ms"), [(50, None, 50), (None, 90, 90), (50, 90, 50), (120, 90, 90)]
)
def test_a_guess_counts_before_a_limit_and_never_beyond_it(
    estimate_ms: int | None, limit_ms: int | None, start_ms: int
) -> None:
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, estimate_ms, max_run_ms=limit_ms), job("b", 4, 10))
    assert plan_of(planned) == {"b": (start_ms, ("n1",))}


def test_an_outlived_estimate_is_extended_by_half_of_what_has_run() -> None:
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, 100), run_ms=10**6)
    planned.submit(job("b", 4, 10))
    planned.pass_time(400)
    assert plan_of(planned) == {"b": (601, ("n1",))}


def test_an_extended_estimate_ends_at_the_jobs_limit() -> None:
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, 100, max_run_ms=450), run_ms=10**6)
    planned.submit(job("b", 4, 10))
    planned.pass_time(400)
    assert plan_of(planned) == {"b": (450, ("n1",))}


def taught(runs_ms: tuple[int, ...]) -> Planned:
    """A cell that has seen jobs of one kind run for so long, none of which told it."""
    planned = cell(joined("n1", 4), estimator=EstimatorKind.LEARNED)
    for number, run_ms in enumerate(runs_ms):
        planned.submit(job(f"run-{number}", 4, None), run_ms=run_ms)
        planned.pass_time(planned.world.now_ms + run_ms)
    return planned


def test_a_start_is_planned_and_kept_by_how_long_jobs_of_the_kind_have_run() -> None:
    planned = taught((7_000,) * 5)
    begun_ms = planned.world.now_ms
    planned.submit(job("run-5", 4, None), run_ms=10**6)
    planned.submit(job("b", 4, 10))
    assert plan_of(planned) == {"b": (begun_ms + 7_168, ("n1",))}
    planned.tell(planned.plan())
    assert planned.planned() == {"b": (begun_ms + 7_168, ("n1",))}


def test_a_run_that_outlasts_most_of_its_kind_is_planned_to_be_over_later() -> None:
    planned = taught((*[2_000] * 4, *[60_000] * 3))
    begun_ms = planned.world.now_ms
    planned.submit(job("run-9", 4, None), run_ms=10**6)
    planned.submit(job("b", 4, 10))
    assert plan_of(planned) == {"b": (begun_ms + 2_048, ("n1",))}
    planned.pass_time(begun_ms + 5_000)
    assert plan_of(planned) == {"b": (begun_ms + 65_536, ("n1",))}


def test_without_an_estimator_nothing_is_planned_whatever_jobs_tell() -> None:
    planned = cell(joined("n1", 4), estimator=EstimatorKind.NONE)
    planned.submit(job("a", 4, 100, max_run_ms=200), job("b", 4, 10))
    assert plan_of(planned) == {}


def test_a_job_waits_for_its_gpu_type_and_its_pool_alone() -> None:
    planned = cell(joined("n1", 4, gpu_type="new"), joined("n2", 4, pool="other"))
    planned.submit(job("a", 4, 100, pools=("train",)), job("b", 4, 60, pools=("other",)))
    planned.submit(job("c", 4, 10, gpu_type="new"), job("d", 4, 10, pools=("other",)))
    assert plan_of(planned) == {"c": (100, ("n1",)), "d": (60, ("n2",))}


def test_a_required_rack_is_waited_for() -> None:
    at = {"n1": "a", "n2": "a", "n3": "b", "n4": "b"}
    planned = cell(*(joined(node, 4, position=Position(leaf=leaf)) for node, leaf in at.items()))
    spread = [job("a", 4, 100), job("b", 4, 40), job("c", 4, 50), job("d", 4, 200)]
    planned.submit(*spread)
    planned.submit(job("g", 4, 10, workers=2, topology=RACK))
    assert plan_of(planned) == {"g": (100, ("n1", "n2"))}


def test_a_limit_is_waited_for_as_nodes_are() -> None:
    planned = cell(joined("n1", 8))
    planned.tell(SetQuota(cell=CELL, quotas=(Quota(tenant="ada", gpu_type="gpu", limit_milli=4_000),)))
    planned.submit(job("a", 3, 70), job("b", 2, 10))
    assert plan_of(planned) == {"b": (70, ("n1",))}


def test_a_node_with_planned_maintenance_is_used_again_behind_it() -> None:
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, 50))
    planned.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=60, end_ms=200))
    planned.submit(job("b", 4, 30))
    assert plan_of(planned) == {"b": (200, ("n1",))}


def test_a_node_that_drains_is_not_planned_with() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 50), job("b", 4, 90))
    planned.tell(Drain(cell=CELL, node="n1"))
    planned.submit(job("c", 4, 30))
    assert plan_of(planned) == {"c": (90, ("n2",))}


def test_a_best_effort_queue_is_planned_in_any_order_and_nothing_is_kept_for_it() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 100), job("b", 3, 60))
    planned.submit(job("c", 4, 10, workers=2, queue="best"), job("d", 4, 10, queue="best"))
    assert plan_of(planned) == {"c": (100, ()), "d": (60, ())}


def test_behind_the_head_of_a_strict_queue_nobody_is_planned_before_it() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 100), job("b", 4, 60))
    planned.submit(job("c", 4, 10, workers=2, queue="strict"), job("d", 4, 10, queue="strict"))
    assert plan_of(planned) == {"c": (100, ()), "d": (110, ())}


def test_as_many_are_planned_as_the_policy_says_and_with_none_nobody_is() -> None:
    planned = cell(joined("n1", 4), reservations_max=2)
    planned.submit(*(job(f"j{number}", 4, 10) for number in range(5)))
    assert plan_of(planned) == {"j1": (10, ("n1",)), "j2": (20, ("n1",))}
    planned.tell(set_policy(reservations_max=0))
    assert plan_of(planned) == {}


def test_of_places_that_are_as_early_those_that_are_kept_already_stay() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 60), job("b", 4, 60), job("c", 4, 10))
    first = plan_of(planned)["c"]
    planned.tell(planned.plan())
    assert planned.planned() == {"c": first}
    assert plan_of(planned) == {"c": first}


def test_a_job_whose_own_time_has_not_come_is_not_planned() -> None:
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, 100), job("early", 4, 10, not_before_ms=10_000), job("c", 4, 10))
    assert plan_of(planned) == {"c": (100, ("n1",))}


def test_a_tenants_limit_keeps_no_other_tenants_job_from_the_same_room() -> None:
    planned = cell(*two_nodes())
    planned.tell(SetQuota(cell=CELL, quotas=(Quota(tenant="ada", gpu_type="gpu", limit_milli=4_000),)))
    planned.submit(job("a", 4, 100, queue="best"), job("b", 4, 60, queue="best", tenant="bob"))
    planned.submit(job("c", 4, 10, queue="best"), job("d", 4, 10, queue="best", tenant="bob"))
    assert plan_of(planned) == {"c": (100, ()), "d": (60, ())}


def test_a_lost_node_is_not_planned_with_behind_its_maintenance() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 100))
    planned.tell(PlanMaintenance(cell=CELL, node="n2", begin_ms=10, end_ms=50), lost("n2"))
    planned.submit(job("c", 4, 10))
    assert plan_of(planned) == {"c": (100, ("n1",))}


def test_no_more_than_256_planned_starts_can_be_asked_for() -> None:
    assert msgspec.convert({"reservations_max": 256}, CellPolicy).reservations_max == 256
    with pytest.raises(msgspec.ValidationError, match=r"<= 256 - at `\$.reservations_max`"):
        msgspec.convert({"reservations_max": 257}, CellPolicy)


@pytest.mark.parametrize(("nodes", "places"), [(200, 200), (201, 0)])
def test_on_no_more_than_200_nodes_places_are_kept(nodes: int, places: int) -> None:
    planned = cell(*(joined(f"n{number:03}", 1) for number in range(nodes)))
    planned.submit(job("a", 1, 100, workers=nodes), job("b", 1, 10, workers=nodes))
    (start,) = planned.plan().starts
    assert (start.job, start.start_ms, len(start.places)) == ("b", 100, places)


@pytest.mark.parametrize(("workers", "places"), [(2_000, 2_000), (2_001, 0)])
def test_no_more_than_2000_places_are_kept(workers: int, places: int) -> None:
    planned = cell(*(joined(f"n{number:03}", 8) for number in range(26)))
    wants = Resources(gpu_milli=100)
    planned.submit(job("a", 8, 100, workers=26), replace(job("b", 1, 10, workers=workers), resources=wants))
    (start,) = planned.plan().starts
    assert (start.job, len(start.places)) == ("b", places)


def test_of_what_would_start_in_more_than_a_year_nothing_is_said() -> None:
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, HORIZON_MS + 1), job("b", 4, 10))
    assert plan_of(planned) == {}
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, HORIZON_MS), job("b", 4, 10))
    assert plan_of(planned) == {"b": (HORIZON_MS, ("n1",))}


def test_where_very_many_runs_end_those_that_follow_each_other_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.services.queueing.policy.planner.STEPS_MAX", 2)
    planned = cell(joined("n1", 4))
    planned.submit(*(job(f"a{number}", 1, 10 * number) for number in range(1, 5)), job("b", 1, 10))
    assert plan_of(planned) == {"b": (20, ("n1",))}


def test_an_element_whose_array_may_have_no_more_is_not_planned() -> None:
    planned = cell(joined("n1", 4))
    planned.run_ms |= {f"a.{number}": 100 for number in range(2)}
    array = replace(job("a", 4, 100), array=2, array_max_running=1)
    planned.submit(array, job("b", 4, 10))
    assert plan_of(planned) == {"b": (100, ("n1",))}


def test_a_job_that_failed_is_planned_on_other_nodes_than_those_of_its_failure() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("b", 4, 10, retry=RetryPolicy(budget=3)))
    (avoided,) = planned.world.nodes_of("b")
    planned.tell(failed("b", avoided))
    assert planned.world.job("b").avoid == (avoided,)
    planned.submit(job("x", 4, 60), job("y", 4, 60))
    planned.world.pass_time(planned.world.job("b").not_before_ms)
    (node,) = {"n1", "n2"} - {avoided}
    (start,) = [start for start in planned.plan().starts if start.job == "b"]
    assert [place.node for place in start.places] == [node]


def test_when_places_were_looked_for_often_enough_nothing_more_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.services.queueing.policy.planner.TRIES_MAX", 2)
    planned = cell(joined("n1", 4))
    planned.submit(job("a", 4, 100), job("b", 2, 10), job("c", 1, 10))
    assert list(plan_of(planned)) == ["b"]


@pytest.mark.parametrize(("nodes", "devices"), [(41, 4_096), (200, 2_048), (200, 800)])
def test_a_plan_is_one_record_however_many_devices_nodes_have(nodes: int, devices: int) -> None:
    file = file_of(BACKFILL, gpus_per_node=devices)
    planned = Planned(file, *(joined(f"n{number}", devices) for number in range(nodes)))
    workers = max(1, nodes // 8)
    for name in ("runs", "waits"):
        planned.submit(*(job(f"{name}-{number}", devices, 10**6, workers) for number in range(nodes // workers)))
    plan = planned.plan()
    assert len(plan.starts) == nodes // workers
    assert any(start.places for start in plan.starts)
    assert len(encode(plan)) <= KEPT_BYTES_MAX + 1_000


@pytest.mark.parametrize("left_ms", [1, 60, 100, 10**6])
def test_near_the_end_of_cell_time_a_planned_start_is_never_later_than_the_latest_time(left_ms: int) -> None:
    planned = cell(joined("n1", 4), joined("n2", 2))
    planned.world.now_ms = LATEST_MS - left_ms
    planned.submit(job("a", 4, 100), job("b", 2, None), job("c", 4, LARGEST_INTEGER), job("d", 4, 10))
    plan = planned.plan()
    assert [start.start_ms for start in plan.starts][:1] == [LATEST_MS - left_ms + min(left_ms, 100)]
    assert decode(plan.type, encode(plan)) == plan
    planned.tell(plan)
    assert list(planned.planned())[:1] == ["c"]
    assert planned.world.unwritable == []


def test_of_an_array_no_more_elements_are_planned_than_may_run() -> None:
    planned = cell(*two_nodes())
    planned.submit(job("a", 4, 100), job("b", 4, 100))
    planned.run_ms |= {f"array.{number}": 10 for number in range(8)}
    planned.submit(replace(job("array", 4, 10), array=8, array_max_running=1), job("last", 4, 10, tenant="bob"))
    assert plan_of(planned) == {"array.0": (100, ("n1",)), "last": (100, ("n2",))}


@pytest.mark.parametrize(
    "never",
    [{"node_labels": ("zone=mars",)}, {"node_labels": ("zone=closed",)}, {"tenant": "ada", "preemptible": False}],
)
def test_jobs_that_no_room_helps_keep_no_others_from_being_planned(never: dict[str, Any]) -> None:
    closed = joined("n3", 4, labels={"zone": "closed"})
    planned = cell(*two_nodes(), closed, Drain(cell=CELL, node="n3"), reservations_max=1)
    sure = Quota(tenant="ada", gpu_type="gpu", guaranteed_milli=1_000)
    planned.tell(SetQuota(cell=CELL, quotas=(sure,)))
    planned.submit(job("a", 4, 100, tenant="bob"), job("b", 4, 100, tenant="bob"))
    planned.submit(*(job(f"never-{number}", 4, 10, **never) for number in range(8)))
    planned.submit(job("gang", 4, 10, workers=2, tenant="bob"))
    assert plan_of(planned) == {"gang": (100, ("n1", "n2"))}


def test_jobs_at_a_limit_keep_no_others_from_being_planned() -> None:
    planned = cell(*two_nodes(), reservations_max=2)
    planned.tell(SetQuota(cell=CELL, quotas=(Quota(tenant="ada", gpu_type="gpu", limit_milli=4_000),)))
    planned.submit(job("a", 4, 100), job("b", 4, 60, tenant="bob"))
    planned.submit(*(job(f"more-{number}", 4, 10) for number in range(16)), job("last", 4, 10, tenant="bob"))
    assert plan_of(planned)["last"] == (60, ("n2",))


def test_a_job_at_a_limit_of_one_gpu_type_waits_for_room_of_another_before_all_who_want_that() -> None:
    nodes = [joined(f"n{number}", 4, gpu_type="gpu" if number < 2 else "big") for number in range(4)]
    planned = cell(*nodes)
    planned.tell(SetQuota(cell=CELL, quotas=(Quota(tenant="ada", gpu_type="gpu", limit_milli=8_000),)))
    planned.submit(job("a", 4, 1_000, gpu_type="gpu"))
    for name, run_ms in (("b", 60), ("c", 90)):
        planned.submit(job(name, 4, run_ms, tenant="bob", gpu_type="big"))
    planned.submit(job("both", 4, 10, workers=2), job("last", 4, 10, tenant="bob", gpu_type="big"))
    assert {name: plan_of(planned)[name][0] for name in ("both", "last")} == {"both": 90, "last": 100}
