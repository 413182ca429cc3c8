"""Planned starts in force: what is kept for them, for whom, and until when."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.decision.decision import BYTES_MAX, DecisionBuilder
from fallow.services.placement.queue.reservations import CONFIRMED_WALL_MS_LEAST, Reservations
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.capacity.gang_bytes import is_too_large
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.base import LATEST_MS, Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Resources, WorkerPlace
from fallow.shared.events.operations import CancelMaintenance, Cordon, HoldJob, PlanMaintenance, ReleaseJob, Uncordon
from fallow.shared.events.queue import PlannedStart, QueueOrder, StartsPlanned
from fallow.shared.events.reasons import ClearReason, PendingReason
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.planned import BACKFILL, NEVER_MS, Planned, file_of
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    joined,
    lost,
    quota,
    set_policy,
    set_quotas,
    spec_of,
    update,
)

BEST = Queue(name="best", aging_ms=0, aging_max_ms=0)


def job(name: str, gpus: int, run_ms: int | None, workers: int = 1, **more: Any) -> JobSpec:
    """A job of the queue that backfills."""
    return spec_of(name, gpus, workers, **{"queue": "day", "estimate_run_ms": run_ms, **more})


def kept_cell(until_ms: int = 100, **policy: Any) -> Planned:
    """Nodes n1 and n2, of which n1 is in use until then; job `big` needs both, and is planned for then."""
    planned = Planned(file_of(BACKFILL, BEST, **policy), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, until_ms))
    planned.submit(job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    return planned


def plan(planned: Planned, *starts: PlannedStart, version: int | None = None) -> StartsPlanned:
    """Some other plan."""
    planned.plans += 1
    return StartsPlanned(
        cell=CELL,
        writer="queueing-2",
        plan=planned.plans,
        version=planned.world.state.version if version is None else version,
        at_ms=planned.world.now_ms,
        starts=starts,
    )


def places(*nodes: str, gpus: int = 4) -> tuple[WorkerPlace, ...]:
    """A worker on each of these nodes, on its first devices."""
    return tuple(
        WorkerPlace(rank=rank, node=node, devices=tuple(range(gpus)), gpu_milli=gpus * 1_000)
        for rank, node in enumerate(nodes)
    )


def cleared(planned: Planned) -> list[tuple[str, ClearReason]]:
    """Which planned starts ended, and why."""
    return [(each.job, each.reason) for each in planned.effects if isinstance(each, e.ReservationCleared)]


def test_a_planned_start_is_in_force_and_its_nodes_are_kept() -> None:
    planned = kept_cell()
    assert planned.planned() == {"big": (100, ("n1", "n2"))}
    kept = planned.world.state.reservations["big"]
    assert (kept.first_ms, kept.until_ms) == (100, NEVER_MS)


@pytest.mark.parametrize(("ahead_ms", "is_taken"), [(30_000, True), (30_001, False)])
def test_a_plan_by_a_clock_that_is_too_far_ahead_is_passed_over(ahead_ms: int, *, is_taken: bool) -> None:
    """What it says of the future is as wrong as its clock."""
    planned = kept_cell()
    ahead = planned.plan()
    planned.tell(replace(ahead, at_ms=planned.world.now_ms + ahead_ms, starts=()))
    assert bool(planned.planned()) is not is_taken
    reservations = planned.world.service.reservations
    assert (reservations.plans_passed_over, bool(reservations.plan_ahead_ms)) == ((0, False) if is_taken else (1, True))
    planned.tell(planned.plan())
    assert planned.planned() == {"big": (100, ("n1", "n2"))}
    assert reservations.plan_ahead_ms == 0


@pytest.mark.parametrize(("run_ms", "starts"), [(99, True), (100, True), (101, False), (None, False)])
def test_a_job_behind_takes_kept_nodes_only_if_it_is_over_by_then(run_ms: int | None, *, starts: bool) -> None:
    planned = kept_cell()
    planned.submit(job("c", 4, run_ms))
    assert ("c" in planned.starts) is starts
    if not starts:
        assert planned.world.job("c").deferred is PendingReason.BEHIND_HEAD


@pytest.mark.parametrize("queue", ["day", "best"])
def test_a_longer_job_goes_to_other_nodes(queue: str) -> None:
    planned = kept_cell()
    planned.tell(joined("n3", 2))
    planned.submit(job("c", 2, 1_000, queue=queue), job("d", 2, 1_000, queue=queue))
    assert planned.world.nodes_of("c") == ["n3"]
    assert "d" not in planned.starts


def test_a_short_job_behind_a_longer_one_passes_it() -> None:
    planned = kept_cell()
    planned.submit(job("c", 4, 1_000), job("d", 4, 10))
    assert "c" not in planned.starts
    assert planned.starts["d"] == 0


def test_a_job_of_higher_priority_takes_kept_nodes() -> None:
    planned = kept_cell()
    planned.submit(job("urgent", 4, 1_000, priority=5))
    assert planned.world.nodes_of("urgent") == ["n2"]


def test_the_reserved_job_starts_as_soon_as_it_fits_and_names_no_reservation_any_more() -> None:
    planned = kept_cell()
    planned.tell(joined("n3", 4))
    assert planned.starts["big"] == 0
    assert planned.planned() == {}
    assert cleared(planned) == [("big", ClearReason.STARTED)]


def test_where_the_job_that_it_waits_for_ends_early_it_starts_at_once() -> None:
    planned = Planned(file_of(BACKFILL), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100), run_ms=60)
    planned.submit(job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    planned.pass_time(100)
    assert planned.starts["big"] == 60


def test_without_a_plan_all_pass_the_head_until_it_has_waited_long() -> None:
    planned = Planned(file_of(BACKFILL, backfill_wait_ms=50), joined("n1", 4), joined("n2", 4), joined("n3", 4))
    planned.submit(job("a", 4, 100), job("big", 4, 50, workers=3), job("c", 4, 1_000))
    assert "c" in planned.starts
    planned.pass_time(50, plans=False)
    planned.submit(job("d", 4, 1))
    assert "d" not in planned.starts


def test_until_its_first_planned_start_a_head_that_has_waited_long_is_passed_on_other_nodes_and_not_behind_that() -> (
    None
):
    planned = kept_cell(backfill_wait_ms=10)
    planned.tell(joined("n3", 2))
    planned.pass_time(50)
    planned.submit(job("c", 2, 1_000), job("d", 4, 50))
    assert planned.world.nodes_of("c") == ["n3"]
    assert planned.world.nodes_of("d") == ["n2"]
    late = kept_cell(backfill_wait_ms=10)
    late.tell(plan(late, PlannedStart(job="big", start_ms=5_000, places=places("n1", "n2"))))
    late.world.pass_time(150)
    late.submit(job("e", 4, 10))
    assert "e" not in late.starts


@pytest.mark.parametrize("end", ["nodes_gone", "replaced", "lapsed"])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_first_planned_start_stays_the_first_however_often_plans_end(end: str, *, restarts: bool) -> None:
    planned = kept_cell(backfill_wait_ms=10, reservation_ttl_ms=6_000)
    later = PlannedStart(job="big", start_ms=50_000, places=places("n1", "n2"))
    if end == "nodes_gone":
        planned.tell(Cordon(cell=CELL, node="n2"), Uncordon(cell=CELL, node="n2"))
        planned.tell(Cordon(cell=CELL, node="n2"))
        planned.tell(Uncordon(cell=CELL, node="n2"))
    elif end == "replaced":
        planned.tell(plan(planned))
    else:
        planned.world.pass_time(6_000)
    assert planned.planned() == {}
    if restarts:
        planned.world.restart()
    planned.tell(plan(planned, later))
    assert planned.world.state.reservations["big"].first_ms == 100
    planned.world.pass_time(200)
    planned.submit(job("c", 4, 10))
    assert "c" not in planned.starts


def test_a_job_that_was_held_meanwhile_has_another_first_planned_start() -> None:
    planned = kept_cell()
    planned.tell(HoldJob(cell=CELL, job="big"))
    planned.tell(ReleaseJob(cell=CELL, job="big"))
    planned.tell(plan(planned, PlannedStart(job="big", start_ms=500, places=places("n1", "n2"))))
    assert planned.world.state.reservations["big"].first_ms == 500


def test_a_plan_that_is_not_confirmed_lapses_and_the_log_says_so() -> None:
    planned = kept_cell(reservation_ttl_ms=6_000)
    assert planned.world.service.next_cell_ms() == 6_000
    planned.world.pass_time(5_999)
    assert "big" in planned.planned()
    planned._note(planned.world.pass_time(1))
    assert planned.planned() == {}
    assert cleared(planned) == [("big", ClearReason.LAPSED)]


def test_a_plan_that_is_confirmed_lasts_and_is_not_written_each_time() -> None:
    planned = kept_cell(100_000, reservation_ttl_ms=6_000)
    start = PlannedStart(job="big", start_ms=100_000, places=places("n1", "n2"))
    for _ in range(10):
        planned.world.pass_time(1_000)
        planned.tell(plan(planned, start))
    assert planned.planned() == {"big": (100_000, ("n1", "n2"))}
    assert 2 <= len([each for each in planned.effects if isinstance(each, e.ReservationSet)]) <= 5


def test_another_writer_goes_by_what_the_log_says_and_lets_it_lapse() -> None:
    planned = kept_cell(reservation_ttl_ms=6_000)
    planned.world.pass_time(3_000)
    planned.world.restart()
    assert "big" in planned.planned()
    planned.world.pass_time(3_000)
    assert planned.planned() == {}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (HoldJob(cell=CELL, job="big"), ClearReason.HELD),
        (Cordon(cell=CELL, node="n2"), ClearReason.NODES_GONE),
        (lost("n2"), ClearReason.NODES_GONE),
    ],
)
def test_what_ends_a_planned_start(event: Event, reason: ClearReason) -> None:
    planned = kept_cell()
    planned.tell(event)
    assert cleared(planned)[:1] == [("big", reason)]
    assert planned.planned() == {}


def before_maintenance() -> Planned:
    """Node n2 goes into maintenance from 40 to 60; job `big` needs both nodes, and is planned for 100."""
    planned = Planned(file_of(BACKFILL), joined("n1", 4), joined("n2", 4))
    planned.tell(PlanMaintenance(cell=CELL, node="n2", begin_ms=40, end_ms=60))
    planned.submit(job("a", 4, 100), job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    return planned


def test_a_planned_start_behind_a_maintenance_window_stays_when_the_window_begins_and_ends() -> None:
    planned = before_maintenance()
    for at_ms in (40, 50, 60, 70):
        planned.pass_time(at_ms)
        planned.tell(planned.plan())
        assert planned.planned()["big"] == (100, ("n1", "n2"))
        planned.submit(job(f"c{at_ms}", 4, 1_000))
    planned.pass_time(100)
    assert planned.starts["big"] == 100
    assert cleared(planned)[0] == ("big", ClearReason.STARTED)


@pytest.mark.parametrize("window", [(50, 101), (50, 5_000)])
def test_maintenance_that_comes_to_last_beyond_a_planned_start_ends_it_when_it_begins(window: tuple[int, int]) -> None:
    planned = before_maintenance()
    planned.tell(PlanMaintenance(cell=CELL, node="n2", begin_ms=window[0], end_ms=window[1]))
    planned.pass_time(50, plans=False)
    assert cleared(planned) == [("big", ClearReason.NODES_GONE)]


def test_a_node_that_is_cordoned_in_its_maintenance_is_kept_no_more() -> None:
    planned = before_maintenance()
    planned.pass_time(50)
    planned.tell(Cordon(cell=CELL, node="n2"))
    assert cleared(planned) == [("big", ClearReason.NODES_GONE)]


def test_maintenance_that_is_called_off_leaves_a_planned_start_as_it_was() -> None:
    planned = before_maintenance()
    planned.pass_time(50)
    planned.tell(CancelMaintenance(cell=CELL, node="n2"))
    assert cleared(planned) == []


def test_a_job_that_is_over_keeps_nothing() -> None:
    planned = kept_cell()
    planned.submit(job("c", 4, 1_000))
    planned.tell(cancel("big"))
    assert planned.planned() == {}
    assert "c" in planned.starts


def test_what_a_newer_plan_does_not_name_is_planned_no_more() -> None:
    planned = kept_cell()
    planned.submit(job("c", 4, 1_000))
    planned.tell(plan(planned))
    assert cleared(planned) == [("big", ClearReason.REPLACED)]
    assert "c" in planned.starts


def test_an_older_plan_than_the_newest_says_nothing() -> None:
    planned = kept_cell()
    planned.tell(plan(planned, version=1))
    assert "big" in planned.planned()


def test_a_plan_from_a_version_that_the_log_does_not_have_says_nothing() -> None:
    planned = kept_cell()
    planned.tell(plan(planned, version=10_000))
    assert "big" in planned.planned()


@pytest.mark.parametrize(
    "start",
    [
        PlannedStart(job="nobody", start_ms=100, places=places("n1")),
        PlannedStart(job="a", start_ms=100, places=places("n1")),
        PlannedStart(job="big", start_ms=100, places=places("n1")),
        PlannedStart(job="big", start_ms=100, places=places("n1", "n9")),
        PlannedStart(job="big", start_ms=100, places=places("n1", "n1")),
        PlannedStart(job="big", start_ms=100, places=places("n1", "n2", gpus=3)),
        PlannedStart(job="big", start_ms=100, places=places("n1", "n2", gpus=5)),
        PlannedStart(job="big", start_ms=100, places=places("n1", "n3")),
        PlannedStart(job="big", start_ms=99, places=places("n1", "n2")),
        PlannedStart(job="plain", start_ms=100, places=places("n2")),
    ],
    ids=["unknown", "running", "too few", "no node", "twice", "too small", "too large", "cordoned", "held", "queue"],
)
def test_a_plan_that_does_not_hold_on_the_newest_state_is_not_put_in_force(start: PlannedStart) -> None:
    planned = kept_cell()
    planned.tell(joined("n3", 4), Cordon(cell=CELL, node="n3"))
    planned.submit(job("plain", 4, 1_000, queue="best"))
    planned.tell(plan(planned))
    if start.job == "plain":
        planned.tell(update("plain", priority=1))
    before = len(planned.effects)
    planned.tell(plan(planned, start))
    assert not [each for each in planned.effects[before:] if isinstance(each, e.ReservationSet)]
    assert planned.planned() == {}


def test_of_two_plans_for_the_same_devices_at_one_time_the_first_holds() -> None:
    planned = kept_cell()
    planned.submit(job("fill", 4, 100), job("c", 4, 1_000), job("d", 4, 1_000))
    first = PlannedStart(job="c", start_ms=100, places=places("n1"))
    second = PlannedStart(job="d", start_ms=1_099, places=places("n1"))
    planned.tell(plan(planned, first, second))
    assert planned.planned() == {"c": (100, ("n1",))}
    planned.tell(plan(planned, first, PlannedStart(job="d", start_ms=1_100, places=places("n1"))))
    assert list(planned.planned()) == ["c", "d"]


def test_where_the_policy_says_none_nothing_is_planned() -> None:
    planned = kept_cell()
    start = PlannedStart(job="big", start_ms=100, places=places("n1", "n2"))
    planned.tell(set_policy(reservations_max=0), plan(planned, start))
    assert planned.planned() == {}


def test_where_the_policy_comes_to_say_none_nothing_is_kept_any_more() -> None:
    planned = kept_cell()
    planned.tell(set_policy(reservations_max=0))
    assert planned.planned() == {}
    planned.submit(job("c", 4, 1_000))
    assert planned.world.nodes_of("c") == ["n2"]


def test_where_a_queue_backfills_no_more_nothing_is_kept_any_more() -> None:
    planned = kept_cell()
    planned.world.service.reload(file_of(Queue(name="day", aging_ms=0, aging_max_ms=0), BEST))
    planned.world.rest()
    assert planned.planned() == {}


def test_a_stepped_cell_goes_by_no_plan() -> None:
    world = World(file_of(BACKFILL), stepped=True)
    world.tell(StartsPlanned(cell=CELL, writer="q", plan=1, version=1, at_ms=0, starts=()))
    assert world.state.reservations == {}


def test_a_plan_that_is_confirmed_never_lapses_in_between() -> None:
    planned = kept_cell(100_000, reservation_ttl_ms=6_000)
    start = PlannedStart(job="big", start_ms=100_000, places=places("n1", "n2"))
    for _ in range(10):
        planned._note(planned.world.pass_time(2_500))
        planned.tell(plan(planned, start))
    assert cleared(planned) == []


def test_an_older_plan_ends_no_reservation_of_a_newer_one_for_a_writer_that_heard_none() -> None:
    planned = kept_cell()
    version = planned.world.state.reservations["big"].version
    planned.world.restart()
    planned.tell(plan(planned, version=version - 1))
    assert "big" in planned.planned()


def test_a_start_that_is_planned_earlier_again_is_written() -> None:
    planned = kept_cell()
    for start_ms in (5_000, 200):
        planned.tell(plan(planned, PlannedStart(job="big", start_ms=start_ms, places=places("n1", "n2"))))
        assert planned.planned()["big"][0] == start_ms


def test_a_share_is_planned_beside_a_share_that_never_ends() -> None:
    planned = Planned(file_of(BACKFILL), joined("n1", 1))
    for name, milli, run_ms in (("for-ever", 600, None), ("a", 400, 100), ("own", 400, 50)):
        planned.submit(replace(job(name, 1, run_ms), resources=Resources(gpu_milli=milli)))
    planned.tell(planned.plan())
    assert planned.planned() == {"own": (100, ("n1",))}


def test_a_plan_that_is_over_before_another_one_begins_contradicts_it_not() -> None:
    planned = kept_cell()
    planned.submit(job("fill", 4, 100), job("c", 4, 1_000), job("d", 4, 900))
    first = PlannedStart(job="c", start_ms=1_000, places=places("n1"))
    planned.tell(plan(planned, first, PlannedStart(job="d", start_ms=100, places=places("n1"))))
    assert list(planned.planned()) == ["c", "d"]


def test_by_shares_all_others_stand_behind_a_planned_start() -> None:
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE, aging_ms=0, aging_max_ms=0)
    planned = Planned(file_of(fair), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100))
    planned.submit(job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    assert "big" in planned.planned()
    planned.submit(job("c", 4, 1_000, tenant="bob", priority=5))
    assert "c" not in planned.starts


def test_a_plan_behind_it_keeps_no_job_from_its_own_nodes_when_it_is_late() -> None:
    planned = Planned(file_of(BACKFILL), joined("n1", 4))
    planned.submit(job("a", 4, 100), run_ms=150)
    planned.submit(job("c", 4, 1_000), job("d", 4, 1_000))
    own = PlannedStart(job="c", start_ms=100, places=places("n1"))
    planned.tell(plan(planned, own, PlannedStart(job="d", start_ms=1_100, places=places("n1"))))
    assert list(planned.planned()) == ["c", "d"]
    planned.pass_time(150, plans=False)
    assert planned.starts["c"] == 150


def test_nor_does_it_when_the_late_job_has_stood_behind_a_head_until_then() -> None:
    planned = Planned(file_of(BACKFILL, backfill_wait_ms=10), joined("n1", 4), joined("n2", 4))
    planned.tell(set_quotas(quota("ada", 100)))
    planned.submit(job("a", 4, 100), job("b", 4, 100), run_ms=150)
    planned.submit(job("head", 4, 1_000))
    planned.pass_time(20, plans=False)
    planned.submit(*(job(each, 4, 1_000) for each in "cde"))
    at = {"head": (100, "n1"), "c": (100, "n2"), "d": (1_100, "n1"), "e": (1_100, "n2")}
    starts = (PlannedStart(job=each, start_ms=at_ms, places=places(node)) for each, (at_ms, node) in at.items())
    planned.tell(plan(planned, *starts))
    assert list(planned.planned()) == ["head", "c", "d", "e"]
    planned.pass_time(149, plans=False)
    assert planned.world.job("c").deferred is PendingReason.BEHIND_HEAD
    planned.pass_time(150, plans=False)
    assert (planned.starts["head"], planned.starts.get("c")) == (150, 150)


@pytest.mark.parametrize("more", [{}, {"kind": JobKind.INFERENCE}])
def test_by_shares_a_head_that_is_due_and_a_planned_start_do_not_wait_for_each_other(more: dict[str, Any]) -> None:
    """The head has no planned start, since it is no gang; the plan is made before the head is due."""
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE)
    planned = Planned(file_of(fair, backfill_wait_ms=50), joined("n1", 4))
    planned.submit(job("a", 4, 100, tenant="bob"))
    planned.submit(job("own", 1, None, tenant="ada", gang=False, **more))
    planned.submit(job("big", 4, 50, tenant="bob"))
    planned.tell(planned.plan())
    assert planned.planned() == {"big": (100, ("n1",))}
    planned.pass_time(100)
    assert planned.world.nodes_of("own") == ["n1"]


def with_an_owner(
    queue: str, reservations_max: int = 8, guaranteed: int = 4, run_ms: int | None = None, **own: Any
) -> Planned:
    """Two nodes in use; `big` of bob, who borrows, is planned on both, when ada's job comes for what is guaranteed."""
    cell = file_of(BACKFILL, BEST, reservations_max=reservations_max)
    planned = Planned(cell, joined("n1", 4), joined("n2", 4), set_quotas(share("ada", guaranteed), share("bob")))
    planned.submit(job("a", 4, 100, tenant="bob"), job("c", 4, 90, tenant="bob"))
    planned.submit(job("big", 4, 500, workers=2, tenant="bob"))
    planned.tell(planned.plan())
    planned.submit(job("own", 4, run_ms, tenant="ada", queue=queue, **own))
    planned.tell(planned.plan())
    return planned


@pytest.mark.parametrize("queue", ["day", "best"])
@pytest.mark.parametrize("run_ms", [None, 1_000])
@pytest.mark.parametrize("own", [{}, {"workers": 2, "gang": False}])
def test_an_owner_takes_what_is_guaranteed_to_it_of_nodes_that_are_kept_for_a_borrower(
    queue: str, run_ms: int | None, own: dict[str, Any]
) -> None:
    planned = with_an_owner(queue, run_ms=run_ms, **own)
    for until_ms in range(100, 2_000, 100):
        planned.submit(job(f"more-{until_ms}", 4, 500, workers=2, tenant="bob"))
        planned.pass_time(until_ms)
    assert planned.starts["own"] == 90


@pytest.mark.parametrize("reservations_max", [0, 8])
def test_an_owner_whose_job_is_larger_than_its_guarantee_and_a_planned_start_do_not_wait_for_each_other(
    reservations_max: int,
) -> None:
    planned = with_an_owner("day", reservations_max, guaranteed=3, run_ms=1_000)
    planned.pass_time(3_000)
    assert {"own", "big"} <= planned.starts.keys()


def test_by_shares_what_is_planned_for_a_tenants_later_job_keeps_its_earlier_one_off_nothing() -> None:
    """The later one would wait for the earlier one, which is like it and comes first, and each plan for the next."""
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE)
    planned = Planned(file_of(fair), joined("n1", 4))
    planned.submit(job("a", 4, 100, tenant="ada"))
    planned.pass_time(50)
    planned.submit(job("second", 4, 80, tenant="bob"))
    planned.tell(planned.plan())
    assert planned.planned() == {"second": (100, ("n1",))}
    planned.run_ms["first"] = 80
    planned.tell(admitted(job("first", 4, 80, tenant="bob"), 10))
    planned.pass_time(2_000)
    assert (planned.starts["first"], planned.starts["second"]) == (100, 180)


def test_by_shares_those_that_a_planned_start_kept_off_come_before_a_queue_behind_when_it_starts() -> None:
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE)
    planned = Planned(file_of(fair, Queue(name="late")), joined("n1", 5))
    planned.submit(job("a", 1, 1_000, tenant="ada"))
    planned.submit(job("b", 4, 100, tenant="bob"))
    planned.submit(job("planned", 2, 80, tenant="ada"))
    planned.tell(planned.plan())
    assert planned.planned() == {"planned": (100, ("n1",))}
    planned.submit(job("kept-off", 2, 80, tenant="bob"))
    planned.submit(job("late", 2, 80, queue="late", tenant="bob"))
    planned.pass_time(2_000)
    assert (planned.starts["planned"], planned.starts["kept-off"], planned.starts["late"]) == (100, 100, 180)


def test_so_they_do_where_they_were_tried_on_other_nodes_and_another_planned_start_keeps_them_off_some() -> None:
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE)
    nodes = joined("n1", 5), joined("n2", 2), joined("n3", 4, pool="extra")
    planned = Planned(file_of(fair, Queue(name="late"), pools=("train", "extra")), *nodes)
    train: dict[str, Any] = {"pools": ("train",)}
    extra: dict[str, Any] = {"pools": ("extra",)}
    planned.submit(job("in-use", 2, 1_000, **train))
    planned.submit(job("a", 1, 1_000, **train), job("b", 4, 100, tenant="bob", **train), job("c", 4, 150, **extra))
    planned.submit(job("planned", 2, 80, **train), job("stays", 4, 80, **extra))
    planned.tell(planned.plan())
    assert planned.planned() == {"planned": (100, ("n1",)), "stays": (150, ("n3",))}
    planned.submit(job("kept-off", 2, 80, tenant="bob"))
    planned.submit(job("late", 2, 80, queue="late", tenant="bob"))
    planned.pass_time(2_000)
    assert (planned.starts["planned"], planned.starts["kept-off"], planned.starts["late"]) == (100, 100, 180)


def test_by_shares_a_head_that_is_due_takes_its_planned_places_also_where_a_look_has_found_none() -> None:
    """What is kept there for an owner whose job is guaranteed in part only stops no planned start, and the owner waits
    for that start.
    """
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE)
    cell = file_of(fair, BEST, backfill_wait_ms=50)
    planned = Planned(cell, joined("n1", 4), set_quotas(share("ada", 2)))
    planned.submit(job("a", 4, 100, tenant="bob"))
    planned.submit(job("big", 4, 50, tenant="bob"), job("own", 4, 50, tenant="ada", queue="best"))
    planned.tell(planned.plan())
    planned.pass_time(1_000)
    assert (planned.starts["big"], planned.starts["own"]) == (100, 150)


def test_a_planned_start_that_waits_for_owners_alone_keeps_nobody_off() -> None:
    """Else the owner's large job would wait for it, the small one for that, and the planned start for the small one."""
    cell = file_of(BACKFILL, BEST, reservations_max=2)
    planned = Planned(cell, joined("n1", 4), set_quotas(share("ada", 3), share("bob")))
    planned.submit(job("a", 4, 100, tenant="bob"))
    planned.submit(job("big", 4, 500, tenant="bob"), job("large", 4, 500, tenant="ada"))
    planned.submit(job("small", 3, None, tenant="ada", queue="best"))
    planned.tell(planned.plan())
    assert list(planned.planned()) == ["big", "large"]
    planned.pass_time(100)
    assert planned.starts["large"] == 100


def test_what_one_before_the_planned_job_may_use_one_behind_it_may_not_in_the_same_walk() -> None:
    planned = kept_cell()
    planned.submit(job("urgent", 1, 1_000, priority=5), job("c", 2, 1_000))
    assert planned.world.nodes_of("urgent") == ["n2"]
    assert "c" not in planned.starts


def test_by_shares_what_a_tenant_may_use_before_its_own_later_plan_another_tenant_may_not_in_the_same_walk() -> None:
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE, aging_ms=0, aging_max_ms=0)
    planned = Planned(file_of(fair), *(joined(f"n{each}", 4, labels={"at": each}) for each in "12"))
    planned.submit(*(job(f"run-{each}", 2, 100, tenant="bob", node_labels=(f"at={each}",)) for each in "12"))
    planned.submit(job("ada-big", 4, 50, tenant="ada"), job("bob-big", 4, 50, tenant="bob"))
    kept = {"ada-big": "n1", "bob-big": "n2"}
    planned.tell(plan(planned, *(PlannedStart(job=each, start_ms=100, places=places(at)) for each, at in kept.items())))
    first = job("ada-first", 1, 1_000, tenant="ada", priority=5)
    planned.submit(first, replace(first, id="bob-first", tenant="bob", node_labels=("at=1",)))
    assert planned.world.nodes_of("ada-first") == ["n1"]
    assert "bob-first" not in planned.starts


def test_what_a_job_of_an_earlier_queue_may_use_one_of_a_later_queue_may_not_in_the_same_walk() -> None:
    first = Queue(name="first", aging_ms=0, aging_max_ms=0)
    planned = Planned(file_of(first, BACKFILL, BEST), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100), job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    assert planned.planned() == {"big": (100, ("n1", "n2"))}
    planned.submit(job("x", 1, 1_000, queue="first"), job("c", 2, 1_000, queue="best"))
    assert planned.world.nodes_of("x") == ["n2"]
    assert "c" not in planned.starts


def test_by_shares_a_due_head_with_a_plan_of_its_own_does_not_wait_for_an_earlier_plan_that_waits_for_it() -> None:
    fair = Queue(name="day", discipline=BACKFILL.discipline, order=QueueOrder.FAIR_SHARE)
    planned = Planned(file_of(fair, backfill_wait_ms=10), joined("n1", 4))
    planned.submit(job("a", 4, 100, tenant="bob"), run_ms=150)
    planned.submit(job("big", 4, 50, tenant="ada"))
    planned.tell(planned.plan())
    assert planned.planned() == {"big": (100, ("n1",))}
    planned.submit(job("small", 4, 50, tenant="bob"))
    small = PlannedStart(job="small", start_ms=160, places=places("n1"))
    planned.tell(plan(planned, small, PlannedStart(job="big", start_ms=5_000, places=places("n1"))))
    assert list(planned.planned()) == ["big", "small"]
    planned.pass_time(150, plans=False)
    assert planned.starts.get("big") == 150


def test_at_its_first_planned_start_itself_a_head_that_has_waited_long_is_passed_no_more() -> None:
    planned = kept_cell(backfill_wait_ms=10)
    planned.tell(plan(planned, PlannedStart(job="big", start_ms=5_000, places=places("n1", "n2"))))
    planned.world.pass_time(100)
    planned.submit(job("e", 4, 10))
    assert "e" not in planned.starts


@pytest.mark.parametrize("order", list(QueueOrder))
@pytest.mark.parametrize("gpus", [4, 3], ids=["a like job", "another one"])
def test_a_due_head_without_a_plan_is_passed_by_none_behind_it_though_one_before_it_is_planned(
    gpus: int, order: QueueOrder
) -> None:
    queue = Queue(name="day", discipline=BACKFILL.discipline, order=order, aging_ms=0)
    planned = Planned(file_of(queue, backfill_wait_ms=10), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100))
    planned.submit(job("older", gpus, 50, workers=2))
    planned.submit(job("newer", 4, 50, workers=2, priority=1))
    planned.tell(plan(planned, PlannedStart(job="newer", start_ms=100, places=places("n1", "n2"))))
    planned.pass_time(9, plans=False)
    planned.submit(job("short", 1, 20))
    planned.pass_time(50, plans=False)
    planned.submit(job("late", 1, 20))
    assert ("short" in planned.starts, "late" in planned.starts) == (True, False)
    assert planned.world.job("late").deferred is PendingReason.BEHIND_HEAD
    planned.pass_time(100, plans=False)
    assert planned.starts["newer"] == 100


@pytest.mark.parametrize(("at_ms", "starts"), [(239, True), (240, False)])
def test_a_planned_start_that_is_far_away_puts_a_due_head_off_for_some_waits_only(at_ms: int, *, starts: bool) -> None:
    """Nobody knows when the job beside which the next one would start is over: no plan reckons with its node."""
    nodes = [joined(f"n{number}", 4) for number in range(3)]
    planned = Planned(file_of(BACKFILL, backfill_wait_ms=10), *nodes)
    planned.submit(job("a", 4, 10_000), job("b", 2, None), job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    assert planned.planned()["big"][0] == 10_000
    planned.pass_time(at_ms)
    planned.submit(job("c", 2, None))
    assert ("c" in planned.starts) is starts


@pytest.mark.parametrize(("at_ms", "starts"), [(50, False), (150, True)])
def test_what_only_a_limit_keeps_beyond_its_first_planned_start_keeps_no_nodes(at_ms: int, *, starts: bool) -> None:
    planned = Planned(file_of(BACKFILL), *(joined(f"n{number}", 4) for number in range(3)))
    planned.tell(set_quotas(quota("ada", 8)))
    planned.submit(job("a", 4, 100), run_ms=10_000)
    planned.submit(job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    assert planned.planned()["big"][0] == 100
    planned.pass_time(at_ms)
    planned.tell(planned.plan())
    planned.submit(*(job(f"c{number}", 4, None, tenant="bob") for number in range(2)))
    assert planned.planned()["big"][1]
    assert ({"c0", "c1"} <= planned.starts.keys()) is starts


def test_what_a_head_at_a_limit_keeps_back_beyond_its_first_planned_start_keeps_no_nodes() -> None:
    nodes = [joined(f"n{number}", 4, labels={} if number else {"old": ""}) for number in range(4)]
    planned = Planned(file_of(BACKFILL, backfill_wait_ms=10), *nodes)
    planned.tell(set_quotas(quota("ada", 8)))
    planned.submit(job("a", 4, 100, node_labels=("old",)), run_ms=10_000)
    planned.submit(job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    planned.pass_time(110)
    planned.submit(job("too", 4, 50, node_labels=("!old",)))
    assert planned.world.job("too").deferred is PendingReason.BEHIND_HEAD
    planned.tell(planned.plan())
    planned.pass_time(1_000)
    planned.tell(planned.plan())
    assert planned.planned()["too"][1]
    planned.submit(*(job(f"c{number}", 4, None, tenant="bob") for number in range(3)))
    assert {"c0", "c1", "c2"} <= planned.starts.keys()


def test_a_late_job_that_a_limit_keeps_from_one_gpu_type_alone_keeps_its_nodes_of_another() -> None:
    nodes = [joined(f"n{number}", 4, gpu_type="gpu" if number < 2 else "big") for number in range(4)]
    planned = Planned(file_of(BACKFILL), *nodes)
    planned.tell(set_quotas(quota("ada", 8)))
    planned.submit(job("a", 4, 9_000, gpu_type="gpu"))
    planned.submit(job("b", 4, 100, tenant="bob", gpu_type="big"), run_ms=10_000)
    planned.submit(job("too", 4, 50, workers=2))
    planned.tell(planned.plan())
    assert planned.planned()["too"][0] == 100
    planned.pass_time(110)
    planned.tell(planned.plan())
    planned.submit(job("c", 4, None, tenant="bob", gpu_type="big"))
    assert "c" not in planned.starts


def test_a_planned_start_for_which_no_places_are_kept_puts_no_due_head_off() -> None:
    """Too many nodes to keep: then it is the wait alone that protects the job."""
    planned = Planned(file_of(BACKFILL, BEST, backfill_wait_ms=10), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100), job("big", 4, 50, workers=2))
    planned.tell(plan(planned, PlannedStart(job="big", start_ms=100)))
    assert planned.planned() == {"big": (100, ())}
    planned.world.pass_time(50)
    planned.submit(job("c", 4, 10))
    assert "c" not in planned.starts


def test_of_like_jobs_that_find_places_together_only_those_that_are_over_by_then_take_kept_nodes() -> None:
    planned = kept_cell()
    shorts = [job(f"s{number}", 1, 10, queue="best") for number in range(2)]
    planned.submit(*shorts, job("long", 1, 1_000, queue="best"))
    assert {"s0", "s1"} <= planned.starts.keys()
    assert "long" not in planned.starts


def test_a_planned_start_takes_no_place_that_was_found_for_a_like_job_before() -> None:
    """The first finds places for all that are like it; the second starts in its own, of which one was found too."""
    planned = Planned(file_of(BACKFILL), joined("n1", 4))
    planned.submit(job("a", 4, 100))
    planned.submit(*(job(f"j{number}", 1, 50) for number in range(4)))
    kept = replace(places("n1", gpus=1)[0], devices=(1,))
    planned.tell(plan(planned, PlannedStart(job="j1", start_ms=100, places=(kept,))))
    planned.pass_time(100, plans=False)
    assert [planned.starts.get(f"j{number}") for number in range(4)] == [100] * 4


def test_a_planned_job_that_starts_past_a_head_names_it() -> None:
    planned = Planned(file_of(BACKFILL), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100), job("b", 4, 60))
    planned.submit(job("head", 4, 50, workers=2), job("c", 4, 20))
    planned.tell(plan(planned, PlannedStart(job="c", start_ms=60, places=places("n2"))))
    planned.pass_time(60, plans=False)
    (start,) = [each for each in planned.effects if isinstance(each, e.JobStarted) and each.job == "c"]
    assert start.backfilled_over == "head"


def test_the_first_planned_start_is_the_earliest_that_was_ever_planned() -> None:
    planned = Planned(file_of(BACKFILL), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100), job("big", 4, 50, workers=2))
    for start_ms in (5_000, 100):
        planned.tell(plan(planned, PlannedStart(job="big", start_ms=start_ms, places=places("n1", "n2"))))
    assert planned.world.state.reservations["big"].first_ms == 100


def test_a_plan_is_looked_at_with_the_estimates_that_it_could_know() -> None:
    """What it waits for has outlived its estimate while the plan was on its way."""
    planned = Planned(file_of(BACKFILL), joined("n1", 4), joined("n2", 4))
    planned.submit(job("a", 4, 100), run_ms=150)
    planned.submit(job("big", 4, 50, workers=2))
    told = planned.plan()
    planned.world.pass_time(101)
    planned.tell(joined("n3", 1))
    planned.tell(told)
    assert planned.planned() == {"big": (100, ("n1", "n2"))}


def test_two_shares_of_one_device_are_planned_for_one_time() -> None:
    planned = Planned(file_of(BACKFILL), joined("n1", 1))
    planned.submit(replace(job("a", 1, 100), resources=Resources(gpu_milli=1_000)))
    planned.submit(*(replace(job(name, 1, 50), resources=Resources(gpu_milli=400)) for name in ("b", "c")))
    planned.tell(planned.plan())
    assert planned.planned() == {"b": (100, ("n1",)), "c": (100, ("n1",))}


def test_no_more_is_put_in_force_than_the_policy_says() -> None:
    planned = kept_cell(reservations_max=1)
    planned.submit(job("fill", 4, 100), job("c", 4, 10))
    named = [PlannedStart(job="big", start_ms=100, places=places("n1", "n2"))]
    planned.tell(plan(planned, *named, PlannedStart(job="c", start_ms=150, places=places("n1"))))
    assert list(planned.planned()) == ["big"]


class FastPlacement(PlacementService):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, speed=1_000.0, **named)


class Fast(World):
    """A cell whose time goes by a thousand times as fast as that of walls."""

    placement = FastPlacement


def test_where_cell_time_runs_fast_a_plan_holds_for_some_seconds_of_wall_time() -> None:
    world = Fast(file_of(BACKFILL, reservation_ttl_ms=6_000))
    world.tell(joined("n1", 4), admitted(job("a", 4, 100_000)), admitted(job("c", 4, 10)))
    start = PlannedStart(job="c", start_ms=100_000, places=places("n1"))
    world.tell(StartsPlanned(cell=CELL, writer="q", plan=1, version=world.state.version, at_ms=0, starts=(start,)))
    assert world.state.reservations["c"].until_ms == CONFIRMED_WALL_MS_LEAST * 1_000


def test_of_two_plans_that_come_together_the_newer_one_counts() -> None:
    planned = kept_cell()
    older = plan(planned, version=planned.world.state.version - 1)
    planned.tell(plan(planned, PlannedStart(job="big", start_ms=5_000, places=places("n1", "n2"))), older)
    assert planned.planned() == {"big": (5_000, ("n1", "n2"))}


def test_a_node_that_is_to_become_another_is_kept_no_more_and_not_planned_with() -> None:
    planned = kept_cell()
    planned.tell(joined("n1", 8))
    assert planned.world.state.nodes["n1"].offered is not None
    assert cleared(planned) == [("big", ClearReason.NODES_GONE)]
    before = len(planned.effects)
    planned.tell(plan(planned, PlannedStart(job="big", start_ms=100, places=places("n1", "n2"))))
    assert planned.effects[before:] == []


DEVICES, MANY = 4_096, 70


def with_a_plan_of_many_bytes() -> Planned:
    """Nodes in use until 100, and as many jobs that wait, each for a node of so many devices that it takes 20 kB."""
    nodes = [joined(f"n{number}", DEVICES) for number in range(MANY)]
    planned = Planned(file_of(BACKFILL, gpus_per_node=DEVICES, reservations_max=MANY), *nodes)
    planned.submit(*(job(f"runs-{number}", DEVICES, 100) for number in range(MANY)))
    planned.submit(*(job(f"waits-{number}", DEVICES, 100) for number in range(MANY)))
    return planned


@pytest.mark.parametrize("jobs", [0, 1_000])
def test_a_plan_that_one_record_cannot_hold_is_put_in_force_with_several(jobs: int) -> None:
    planned = with_a_plan_of_many_bytes()
    new_jobs = [admitted(job(f"new-{number}", 1, 10)) for number in range(jobs)]
    planned.world.hand_over(*new_jobs, size_bytes=500)
    begun = len(planned.world.decisions)
    numbers = range(MANY)
    kept = [places(f"n{number}", gpus=DEVICES) for number in numbers]
    planned.tell(plan(planned, *(PlannedStart(job=f"waits-{n}", start_ms=100 + n, places=kept[n]) for n in numbers)))
    assert planned.planned() == {f"waits-{n}": (100 + n, (f"n{n}",)) for n in numbers}
    assert planned.world.unwritable == []
    records = planned.world.decisions[begun:]
    assert max(len(encode(record)) for record in records) <= BYTES_MAX + 150_000


def test_a_plan_that_makes_its_record_unwritable_is_forgotten_and_the_cell_goes_on() -> None:
    planned = with_a_plan_of_many_bytes()
    far = LATEST_MS + 1
    planned.tell(plan(planned, PlannedStart(job="waits-0", start_ms=far, places=places("n0", gpus=DEVICES))))
    planned.submit(job("later", 1, 10))
    assert planned.planned() == {}
    assert planned.world.job("later").status is JobStatus.QUEUED


def test_so_is_one_of_which_the_record_had_no_room_for_all() -> None:
    planned = with_a_plan_of_many_bytes()
    far, numbers = LATEST_MS + 1, range(1, MANY)
    kept = [places(f"n{number}", gpus=DEVICES) for number in range(MANY)]
    rest = [PlannedStart(job=f"waits-{n}", start_ms=100 + n, places=kept[n]) for n in numbers]
    planned.tell(plan(planned, PlannedStart(job="waits-0", start_ms=far, places=kept[0]), *rest))
    planned.submit(job("later", 1, 10))
    assert planned.planned() == {}
    assert planned.world.job("later").status is JobStatus.QUEUED


def test_a_planned_start_that_no_record_can_hold_is_passed_over_and_keeps_no_other_from_being_in_force() -> None:
    planned = with_a_plan_of_many_bytes()
    planned.submit(job("huge", DEVICES, 100, workers=MANY - 1))
    huge = places(*(f"n{number}" for number in range(MANY - 1)), gpus=DEVICES)
    assert is_too_large(planned.world.job("huge").spec, huge)
    last = places(f"n{MANY - 1}", gpus=DEVICES)
    named = [PlannedStart(job="huge", start_ms=100, places=huge)]
    planned.tell(plan(planned, *named, PlannedStart(job="waits-0", start_ms=100, places=last)))
    assert planned.planned() == {"waits-0": (100, (f"n{MANY - 1}",))}


def test_where_a_record_has_no_room_for_all_that_is_planned_no_more_the_next_one_goes_on() -> None:
    planned = kept_cell()
    planned.submit(job("c", 4, 1_000))
    planned.tell(planned.plan())
    state, heard = planned.world.state, Reservations(1.0)
    assert list(state.reservations) == ["big", "c"]
    other, told = plan(planned), list[list[str]]()
    while state.reservations:
        turn = DecisionBuilder(state, planned.world.now_ms, room=1)
        is_whole = heard.take(turn, other, lambda _: True)
        told.append([effect.job for effect in turn.effects if isinstance(effect, e.ReservationCleared)])
        assert is_whole is not bool(state.reservations)
    assert told == [["big"], ["c"]]


def test_jobs_that_wait_for_the_same_are_told_the_same_beside_a_planned_start() -> None:
    """The first one is looked for, and finds that its limit keeps it; the others are like it."""
    planned = Planned(file_of(BACKFILL), joined("n1", 4), joined("n2", 4), joined("n3", 4))
    planned.tell(set_quotas(quota("bob", 4)))
    planned.submit(job("a", 4, 100), job("b", 4, NEVER_MS, tenant="bob"), job("big", 4, 50, workers=2))
    planned.tell(planned.plan())
    assert planned.planned() == {"big": (100, ("n1", "n3"))}
    planned.submit(*(job(f"like-{number}", 4, NEVER_MS, tenant="bob") for number in range(3)))
    assert [planned.world.job(f"like-{number}").deferred for number in range(3)] == [PendingReason.QUOTA_REACHED] * 3
