"""Maintenance that is known ahead: who may still start, what stops when it begins, and how a node comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.search.gang import POLICIES
from fallow.services.placement.search.open_longest import AHEAD_MS
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import CancelMaintenance, Cordon, Drain, PlanMaintenance, Quota, Uncordon
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason, ProposalCode, StopReason
from tests.placement.worlds.replicas import all_start, leave, on_nodes, service
from tests.placement.worlds.world import (
    CELL,
    FILE,
    Fate,
    World,
    admitted,
    joined,
    kinds,
    lost,
    report,
    set_policy,
    set_quotas,
    spec_of,
    started,
    stopped,
)

PLAN = PlanMaintenance(cell=CELL, node="n1", begin_ms=10_000, end_ms=20_000, reason="new memory")


def cell() -> World:
    """One node of 8 GPUs."""
    world = World(FILE)
    world.tell(joined("n1"))
    world.listens = False  # no node reports here, and none is to be taken for silent
    return world


def planned() -> World:
    """The node with maintenance from 10 to 20 s."""
    world = cell()
    assert kinds(world.tell(PLAN)) == ["MaintenanceSet"]
    return world


def plan(node: str, begin_ms: int) -> PlanMaintenance:
    return PlanMaintenance(cell=CELL, node=node, begin_ms=begin_ms, end_ms=begin_ms + 1_000)


def rolling(policy: str, *begins_ms: int | None) -> World:
    """Nodes n1, n2, ... of 8 GPUs, with maintenance that begins at these times."""
    world = World(FILE)
    world.listens = False
    world.tell(set_policy(placement=policy))
    for number, begin_ms in enumerate(begins_ms, 1):
        world.tell(joined(f"n{number}"))
        if begin_ms is not None:
            world.tell(plan(f"n{number}", begin_ms))
    return world


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_says_nothing_of_its_run_goes_where_no_maintenance_is_planned_or_where_it_begins_last(
    policy: str,
) -> None:
    world = rolling(policy, 100_000, 300_000, None, 200_000)
    for job in "abcd":
        world.tell(admitted(spec_of(job, 8)))
    assert [world.nodes_of(job) for job in "abcd"] == [["n3"], ["n2"], ["n4"], ["n1"]]


def test_one_that_says_how_long_it_runs_goes_where_it_will_be_over_before() -> None:
    world = rolling("best-fit", 100_000, 300_000, None, 200_000)
    world.tell(admitted(spec_of("short", 8, max_run_ms=50_000)))
    assert world.nodes_of("short") == ["n1"]


def test_a_gang_goes_where_the_first_of_its_nodes_closes_last() -> None:
    world = rolling("e-spread", 100_000, 300_000, 400_000, 200_000)
    world.tell(admitted(spec_of("gang", 8, 2)))
    assert world.nodes_of("gang") == ["n2", "n3"]


def test_in_a_rolling_maintenance_a_gang_is_stopped_once() -> None:
    begins_ms = [100_000 * number for number in range(1, 9)]
    world = rolling("e-spread", *begins_ms)
    world.tell(admitted(spec_of("gang", 8, 2)))
    for begin_ms in begins_ms:
        world.pass_time(begin_ms - world.now_ms)
        job = world.job("gang")
        if job.status is JobStatus.STOPPING:
            world.tell(*(stopped("gang", place.node, attempt=job.attempt) for place in job.workers))
        world.pass_time(2_000)
    assert world.job("gang").attempt == 2


def test_maintenance_in_more_than_a_week_does_not_count() -> None:
    world = rolling("best-fit", AHEAD_MS + 1_000_000, None)
    world.tell(admitted(spec_of("job", 8)))
    assert world.nodes_of("job") == ["n1"]


def starts(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.job for effect in effects if isinstance(effect, e.JobStarted)]


def test_a_job_starts_that_will_be_over_before_and_one_that_may_not_be_does_not() -> None:
    world = planned()
    assert starts(world.tell(admitted(spec_of("long", 1, max_run_ms=10_001)))) == []
    assert world.job("long").deferred is PendingReason.MAINTENANCE
    assert starts(world.tell(admitted(spec_of("short", 1, max_run_ms=10_000)))) == ["short"]


def test_an_estimate_counts_where_there_is_no_limit() -> None:
    world = planned()
    assert starts(world.tell(admitted(spec_of("long", 1, estimate_run_ms=10_001)))) == []


def test_a_job_that_declares_nothing_starts_until_the_lead_time_of_the_cell() -> None:
    world = planned()
    assert starts(world.tell(admitted(spec_of("some", 1)))) == ["some"]
    world.tell(set_policy(default_run_estimate_ms=10_001))
    assert starts(world.tell(admitted(spec_of("more", 1)))) == []


def test_a_long_job_that_does_not_fit_hides_no_short_one() -> None:
    world = planned()
    jobs = [spec_of("a", 1, max_run_ms=90_000), spec_of("b", 1, max_run_ms=5_000), spec_of("c", 1, max_run_ms=90_000)]
    assert starts(world.tell(*(admitted(job) for job in jobs))) == ["b"]


@pytest.mark.parametrize("line", list(QueueDiscipline))
def test_what_is_guaranteed_to_an_owner_who_waits_for_the_end_of_maintenance_is_lent_meanwhile(
    line: QueueDiscipline,
) -> None:
    queues = (Queue(name="line", discipline=line), Queue(name="next"))
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=8),), queues=queues)
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    world.listens = False
    own, none = (Quota(tenant=who, gpu_type="gpu", guaranteed_milli=of) for who, of in (("ada", 8_000), ("bob", 0)))
    world.tell(joined("n1"), set_quotas(own, none), PLAN)
    world.tell(admitted(spec_of("long", 8, max_run_ms=60_000, queue="line")))
    world.tell(admitted(spec_of("behind", 8, max_run_ms=60_000, queue="line"), 1))
    effects = world.tell(admitted(spec_of("guest", 4, tenant="bob", queue="next", max_run_ms=1_000), 2))
    assert (world.job("long").deferred, starts(effects)) == (PendingReason.MAINTENANCE, ["guest"])


def test_a_long_job_goes_to_another_node() -> None:
    world = planned()
    world.tell(joined("n2"))
    world.tell(admitted(spec_of("long", 1, max_run_ms=90_000)))
    assert [place.node for place in world.job("long").workers] == ["n2"]


def test_when_it_begins_what_still_runs_is_stopped_and_queued_again() -> None:
    world = planned()
    world.tell(admitted(spec_of("some", 1)))
    world.tell(started("some"))
    effects = world.pass_time(10_000)
    assert kinds(effects) == ["MaintenanceBegan", "JobStopping"]
    assert world.job("some").stop_why is StopReason.DRAINED
    assert world.state.nodes["n1"].status is NodeStatus.DRAINING
    assert "JobRequeued" in kinds(world.tell(stopped("some")))


def test_what_stands_behind_a_head_that_could_only_be_on_its_node_starts_when_it_begins() -> None:
    """Then the head could be nowhere, and keeps no job back."""
    queue = Queue(name="strict", discipline=QueueDiscipline.STRICT_FIFO)
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=16),), queues=(queue,))
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"),)))
    world.listens = False
    world.tell(joined("n1"), joined("n2"), PLAN, plan("n2", 5 * 3_600_000))
    world.tell(admitted(spec_of("head", 8, workers=2, max_run_ms=20 * 3_600_000)))
    world.tell(admitted(spec_of("late", 1, max_run_ms=3_600_000)))
    assert [world.job(each).deferred for each in ("head", "late")] == [
        PendingReason.MAINTENANCE,
        PendingReason.BEHIND_HEAD,
    ]
    world.pass_time(10_000)
    assert [place.node for place in world.job("late").workers] == ["n2"]


def test_when_it_ends_the_node_is_used_again_by_itself() -> None:
    world = planned()
    world.tell(admitted(spec_of("long", 1, max_run_ms=90_000)))
    world.pass_time(19_999)
    assert kinds(world.pass_time(1)) == ["MaintenanceSet", "JobStarted"]
    node = world.state.nodes["n1"]
    assert (node.status, node.maintenance_ms, world.state.maintenance_starts) == (NodeStatus.READY, None, {})


@pytest.mark.parametrize("at_ms", [5_000, 15_000])
def test_a_plan_that_is_given_up_leaves_the_node_as_it_was(at_ms: int) -> None:
    world = planned()
    world.tell(admitted(spec_of("long", 1, max_run_ms=90_000)))
    world.pass_time(at_ms)
    assert starts(world.tell(CancelMaintenance(cell=CELL, node="n1"))) == ["long"]


def test_a_new_plan_takes_the_place_of_the_old_one() -> None:
    world = planned()
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=30_000, end_ms=40_000))
    assert world.pass_time(25_000) == []
    assert kinds(world.pass_time(5_000)) == ["MaintenanceBegan"]


def test_a_node_that_was_cordoned_is_so_afterwards() -> None:
    world = planned()
    world.tell(Cordon(cell=CELL, node="n1"))
    world.pass_time(20_000)
    assert world.state.nodes["n1"].status is NodeStatus.CORDONED


def test_an_operator_may_use_the_node_in_the_middle_of_it() -> None:
    world = planned()
    world.pass_time(10_000)
    world.tell(Uncordon(cell=CELL, node="n1"))
    assert starts(world.tell(admitted(spec_of("some", 1)))) == ["some"]
    assert kinds(world.pass_time(10_000)) == ["MaintenanceSet"]


def test_a_drain_outlives_it() -> None:
    world = planned()
    world.tell(Drain(cell=CELL, node="n1"))
    world.pass_time(20_000)
    assert world.state.nodes["n1"].status is NodeStatus.DRAINING


def test_a_node_that_comes_back_in_the_middle_of_it_stays_empty_until_its_end() -> None:
    world = planned()
    world.tell(lost("n1"), admitted(spec_of("some", 1)))
    world.pass_time(12_000)
    assert starts(world.tell(report("n1"))) == []
    assert world.state.nodes["n1"].status is NodeStatus.DRAINING
    assert starts(world.pass_time(8_000)) == ["some"]


def test_a_new_writer_begins_and_ends_it() -> None:
    world = planned()
    world.restart()
    assert kinds(world.pass_time(20_000)) == ["MaintenanceBegan", "MaintenanceSet"]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (PlanMaintenance(cell=CELL, node="n9", begin_ms=1, end_ms=2), "no such node"),
        (PlanMaintenance(cell=CELL, node="n1", begin_ms=5, end_ms=5), "ends before|end before"),
        (PlanMaintenance(cell=CELL, node="n1", begin_ms=0, end_ms=100), "would be over"),
        (CancelMaintenance(cell=CELL, node="n1"), "no maintenance"),
    ],
)
def test_what_cannot_be_is_refused_in_words(event: PlanMaintenance | CancelMaintenance, text: str) -> None:
    world = cell()
    world.pass_time(100)
    (refused,) = world.tell(event)
    assert isinstance(refused, e.ProposalRefused)
    assert refused.code is ProposalCode.NODE_CHANGED
    assert any(part in refused.text for part in text.split("|"))


def test_a_reader_is_told_that_maintenance_keeps_a_job() -> None:
    world = planned()
    world.tell(admitted(spec_of("long", 1, max_run_ms=90_000)))
    assert PendingReason.MAINTENANCE in why_not(world.state, world.job("long"), (), 0).codes


def test_a_job_that_ended_in_time_is_not_stopped() -> None:
    world = planned()
    world.tell(admitted(spec_of("short", 1, max_run_ms=5_000)))
    world.tell(started("short"))
    effects = world.pass_time(5_000)
    assert kinds(effects) == ["AttemptTimedOut", "JobStopping"]
    assert world.job("short").status is JobStatus.STOPPING


def in_maintenance_with(job_gpus: int) -> World:
    """Maintenance from 10 to 20 s has begun; a job of so many GPUs is to stop there."""
    world = planned()
    world.run(spec_of("some", job_gpus))
    world.pass_time(10_000)
    assert world.state.nodes["n1"].status is NodeStatus.DRAINING
    return world


def test_a_node_that_gets_other_labels_in_its_maintenance_is_used_again_after_it() -> None:
    world = in_maintenance_with(1)
    world.tell(joined("n1", labels={"fan": "new"}))
    node = world.state.nodes["n1"]
    assert (node.status, node.wanted) == (NodeStatus.DRAINING, NodeStatus.READY)
    world.pass_time(10_000)
    assert node.status is NodeStatus.READY


def test_a_node_that_gets_other_hardware_in_its_maintenance_is_used_again_after_it() -> None:
    world = in_maintenance_with(1)
    world.tell(joined("n1", 4))
    world.tell(stopped("some"))
    node = world.state.nodes["n1"]
    assert (node.status, node.wanted, node.spec.gpus) == (NodeStatus.DRAINING, NodeStatus.READY, 4)
    world.pass_time(10_000)
    assert node.status is NodeStatus.READY


def test_what_an_operator_wants_of_a_node_in_its_maintenance_outlives_new_labels() -> None:
    world = in_maintenance_with(1)
    world.tell(Cordon(cell=CELL, node="n1", reason="bad fan"))
    world.tell(joined("n1", labels={"fan": "new"}))
    world.pass_time(10_000)
    node = world.state.nodes["n1"]
    assert (node.status, node.reason) == (NodeStatus.CORDONED, "bad fan")


def test_the_replicas_of_a_service_leave_a_node_whose_maintenance_begins() -> None:
    world = planned()
    world.tell(admitted(service("web", 1)))
    all_start(world, "web")
    world.tell(joined("n2"))
    world.pass_time(10_000)
    all_start(world, "web")
    leave(world, "web")
    assert on_nodes(world, "web") == ["n2"]


def lose_an_answer(world: World) -> None:
    """A record gets into the log, and the writer learns that only by reading."""
    world.on_append = lambda: Fate.LATE
    world.hand_over(admitted(spec_of("other", 1)))
    world.decide()
    world.on_append = lambda: Fate.KEPT
    world.rest()


@pytest.mark.parametrize("is_gang", [True, False], ids=["a gang", "no gang"])
@pytest.mark.parametrize(
    "what", [World.restart, World.regain, lose_an_answer], ids=["restart", "regain", "lost answer"]
)
def test_a_job_on_a_node_that_an_operator_took_back_in_its_maintenance_outlives_a_new_writer(
    what: Callable[[World], None], is_gang: bool
) -> None:
    world = planned()
    world.pass_time(11_000)
    world.tell(Uncordon(cell=CELL, node="n1"))
    world.tell(admitted(spec_of("job", 1, gang=is_gang)))
    assert world.nodes_of("job") == ["n1"]
    what(world)
    assert world.job("job").status is JobStatus.STARTING
    assert not world.job("job").leaving


def test_so_it_does_where_the_node_is_cordoned_afterwards() -> None:
    world = planned()
    world.pass_time(11_000)
    world.tell(Uncordon(cell=CELL, node="n1"))
    world.tell(admitted(spec_of("job", 1)))
    world.tell(Cordon(cell=CELL, node="n1"))
    world.restart()
    assert world.job("job").status is JobStatus.STARTING
