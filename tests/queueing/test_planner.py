"""Queueing's process for one cell: when it says who is next, and what it does where Kafka is away."""

from __future__ import annotations

import asyncio

import pytest

from fallow.shared.events.effects import JobEnqueued, JobStarted, NodeChanged, ReservationSet
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, WorkerPlace
from fallow.shared.runtime.clocks import wall_ms
from tests.contract.eventually import eventually
from tests.queueing.queueing_world import Cell, HandHost, SmallLog, starts_planned


async def test_each_plan_says_who_is_next_as_of_the_newest_decision() -> None:
    cell = Cell()
    cell.enqueue("a", "b")
    async with cell.planned() as context:
        await eventually(lambda: cell.newest() == [("default", 2, ("a", "b"))])
        cell.enqueue("c")
        await eventually(lambda: cell.newest() == [("default", 3, ("a", "b", "c"))])
        assert cell.plans()[-1].version == 2
        assert context.registry.get_sample_value("fallow_queue_jobs", {"cell": "main", "queue": "default"}) == 3
    numbers = [plan.plan for plan in cell.plans()]
    assert numbers == sorted(set(numbers))


async def test_a_plan_is_made_beside_the_loop_however_long_that_takes() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned():
        await eventually(lambda: cell.newest() == [("default", 1, ("a",))])
    assert "plan of main" in cell.host.beside_the_loop


async def test_while_nothing_is_decided_no_plan_follows() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned():
        await eventually(lambda: len(cell.plans()) == 1)
        await asyncio.sleep(0.3)
        assert len(cell.plans()) == 1


async def test_a_process_that_does_not_own_the_cell_follows_it_and_says_nothing() -> None:
    cell = Cell()
    cell.tenure.holds = False
    cell.enqueue("a")
    async with cell.planned() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        await asyncio.sleep(0.1)
        assert cell.plans() == []


async def test_a_plan_that_kafka_does_not_take_is_made_anew_and_the_process_is_not_ready_meanwhile() -> None:
    cell = Cell()
    cell.log.refusals = 1
    cell.enqueue("a")
    async with cell.planned() as context:
        await eventually(lambda: "no broker" in (context.health.waiting_for or ""))
        assert cell.plans() == []
        await eventually(lambda: cell.newest() == [("default", 1, ("a",))])
        await eventually(lambda: context.health.waiting_for is None)


async def test_behind_a_plan_that_was_not_taken_the_process_is_not_ready_before_the_next_one_is_due() -> None:
    """It reads decisions meanwhile, which says nothing of whether it can write."""
    cell, host = Cell(), HandHost()
    cell.host, cell.log.refusals = host, 1
    cell.enqueue("a")
    async with cell.planned() as context:
        await eventually(lambda: "no broker" in (context.health.waiting_for or ""))
        cell.enqueue("b")
        await eventually(lambda: context.health.progress.version.get("main") == 2)
        cell.enqueue("c")
        await eventually(lambda: context.health.progress.version.get("main") == 3)
        assert "no broker" in (context.health.waiting_for or "")
        host.now_ms += 60_000
        cell.enqueue("d")
        await eventually(lambda: cell.newest() == [("default", 4, ("a", "b", "c", "d"))])
        await eventually(lambda: context.health.waiting_for is None)


async def test_the_first_plan_of_a_process_ends_what_one_before_it_planned() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned():
        await eventually(lambda: [each.starts for each in starts_planned(cell)] == [()])
        cell.enqueue("b")
        await eventually(lambda: len(cell.plans()) == 2)
        assert len(starts_planned(cell)) == 1, "where nothing is planned nothing more is said"


async def test_while_starts_are_planned_they_are_confirmed_though_nothing_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.services.queueing.app.cell.CONFIRMED_WALL_MS", 100)
    cell, far_ms = Cell(), wall_ms() + 10**8
    node = NodeSpec(id="n1", pool="training", gpus=1)
    place = WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=1_000)
    cell.decide(
        NodeChanged(spec=node, boot="boot-1", status=NodeStatus.READY),
        *(
            JobEnqueued(spec=JobSpec(id=job, tenant="vision", estimate_run_ms=far_ms), submit_ms=0, digest="0" * 32)
            for job in "ab"
        ),
        JobStarted(job="a", attempt=1, workers=(place,)),
        ReservationSet(job="b", start_ms=far_ms),
    )
    async with cell.planned():
        await eventually(lambda: len(starts_planned(cell)) >= 3)
    assert {plan.version for plan in starts_planned(cell)} == {1}


@pytest.mark.parametrize(("bytes_max", "is_said"), [(10**6, True), (350, False)])
async def test_planned_starts_that_topic_queue_never_takes_keep_no_order_back(bytes_max: int, *, is_said: bool) -> None:
    cell, jobs = Cell(), tuple(f"wait-{number}" for number in range(8))
    cell.log, cell.host = SmallLog(cell.broker, bytes_max), HandHost()  # one plan: no time comes for a second one
    cell.fill(*jobs)
    async with cell.planned() as context:
        await eventually(lambda: context.registry.get_sample_value("fallow_queue_plans_total", {"cell": "main"}) == 1)
        assert cell.newest() == [("default", 8, jobs)]
        unsaid = "" if is_said else "part of the plan is left unsaid: topic t.queue refuses a record for its size"
        assert (context.health.waiting_for or "").startswith(unsaid)
        assert (context.health.waiting_for is None) is is_said
        left_unsaid = context.registry.get_sample_value("fallow_queue_too_large_total", {"cell": "main"})
    assert [start.job for start in cell.starts()] == list(jobs if is_said else ())
    assert (left_unsaid or 0) == (not is_said)


LEFT_UNSAID = "part of the plan is left unsaid: topic t.queue refuses a record for its size"


def with_a_plan_that_is_too_large() -> tuple[Cell, SmallLog, HandHost]:
    """Of the two records of its plan the first one is, which says who is next. The second one is small."""
    cell = Cell()
    cell.log, cell.host = log, host = SmallLog(cell.broker, 350), HandHost()
    cell.enqueue(*(f"a-job-of-a-long-name-{number}" for number in range(40)))
    return cell, log, host


async def test_once_topic_queue_takes_the_whole_plan_the_process_is_ready_again() -> None:
    cell, log, host = with_a_plan_that_is_too_large()
    async with cell.planned() as context:
        await eventually(lambda: LEFT_UNSAID in (context.health.waiting_for or ""))
        log.record_bytes_max, host.now_ms = 10**6, 10_000
        cell.enqueue("one-more")
        await eventually(lambda: context.health.waiting_for is None)
        assert [waiting for _, waiting, _ in cell.newest()] == [41]


async def test_a_plan_that_is_left_unsaid_is_no_matter_of_a_process_that_owns_the_cell_no_more() -> None:
    cell, _, _ = with_a_plan_that_is_too_large()
    async with cell.planned() as context:
        await eventually(lambda: LEFT_UNSAID in (context.health.waiting_for or ""))
        cell.tenure.holds = False
        cell.enqueue("one-more")
        await eventually(lambda: context.health.waiting_for is None)
