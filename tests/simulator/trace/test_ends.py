"""A simulation ends, whichever jobs wait for good: these are unfinished."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import ENDLESS, GPU, Dependency, JobSpec, NodeSpec, Resources, VirtualRun
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.trace.cell import VirtualCell
from fallow.simulator.trace.run import Arrival, TraceRun, run_trace
from tests.hypothesis_profile import reaches

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
NODES = [NodeSpec(id=f"n{number}", pool="train", gpus=8) for number in range(2)]
TENANTS = ("ada", "bob", "eve")
STRICT, BACKFILL = QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL


def file_of(
    *queues: Queue, limits: tuple[int | None, ...] = (None, None, None), half_life_ms: int = WEEK_MS, **policy: Any
) -> CellFile:
    part = CellPart(
        name="c",
        ordinal=0,
        pools=(Pool(name="train", gpus=64),),
        queues=queues,
        policy=CellPolicy(fair_half_life_ms=half_life_ms, **policy),
    )
    tenants = tuple(
        Tenant(name=name, quotas=() if limit is None else (TenantQuota(limit=limit),))
        for name, limit in zip(TENANTS, limits, strict=True)
    )
    return CellFile(cells=(part,), tenants=tenants)


def by_shares(discipline: QueueDiscipline) -> Queue:
    return Queue(name="q", discipline=discipline, order=QueueOrder.FAIR_SHARE)


def arrival(name: str, tenant: str, nodes: int = 1, at_ms: int = 0, **spec: Any) -> Arrival:
    wants: dict[str, Any] = {"resources": Resources(gpu_milli=8 * GPU), "run": VirtualRun(duration_ms=10_000)}
    job = JobSpec(id=name, tenant=tenant, workers=nodes, **wants | spec)
    return Arrival(at_ms, SubmitJob(job=job, submit_ms=at_ms))


def as_told(run: TraceRun) -> dict[str, object]:
    """All figures but the number of records, some of which only say how far the inputs were read."""
    return {name: value for name, value in run.figures.as_json().items() if name != "decisions"}


@pytest.mark.parametrize("discipline", [STRICT, BACKFILL])
@pytest.mark.parametrize("other", ["bob", "ada"])
def test_jobs_that_no_tick_of_the_half_life_helps_are_unfinished_as_without_a_half_life(
    discipline: QueueDiscipline, other: str
) -> None:
    jobs = (arrival("x", "ada"), arrival("w", "bob", 4, at_ms=1_000), arrival("v", other, 4, at_ms=2_000))
    runs = [run_trace(file_of(by_shares(discipline), half_life_ms=ms), NODES, jobs) for ms in (0, WEEK_MS)]
    assert as_told(runs[1]) == as_told(runs[0])
    assert (runs[1].figures.unfinished, runs[1].figures.makespan_ms) == (2, 10_000)


class Woken(VirtualCell):
    """A cell in which something is due each second, for far longer than any job runs."""

    moments_in_vain_max = 50

    def next_due_ms(self) -> int | None:
        due_ms = super().next_due_ms()
        wakes_ms = self.now_ms + 1_000 if self.now_ms < 600_000 else None
        return min((at_ms for at_ms in (wakes_ms, due_ms) if at_ms is not None), default=None)


def test_a_cell_that_is_woken_for_ever_rests_once_no_job_moves_any_more() -> None:
    cell = Woken(file_of(by_shares(STRICT)), NODES)
    cell.begin()
    jobs = (arrival("x", "ada"), arrival("w", "bob", 4), arrival("y", "eve", run=VirtualRun(duration_ms=45_000)))
    for job in jobs:
        cell.submit(job.command)
    cell.settle()
    cell.advance(None)
    assert [job.id for job in cell.state.jobs.values() if job.status is JobStatus.QUEUED] == ["bob/w"]
    assert cell.state.over_next == 2
    assert 45_000 < cell.now_ms < 120_000


SECONDS = st.integers(0, 60).map(lambda seconds: seconds * 1_000)


@st.composite
def files(draw: st.DrawFn) -> CellFile:
    queues = [
        Queue(
            name=name,
            discipline=draw(st.sampled_from(list(QueueDiscipline))),
            order=draw(st.sampled_from(list(QueueOrder))),
        )
        for name in ("p", "q")[: draw(st.integers(1, 2))]
    ]
    return file_of(
        *queues,
        limits=draw(st.tuples(*[st.sampled_from((None, None, 0, 4, 8))] * 3)),
        half_life_ms=draw(st.sampled_from((0, 1, 640, 60_000, WEEK_MS, 90 * DAY_MS))),
        placement=draw(st.sampled_from(sorted(POLICIES))),
        backfill_wait_ms=draw(st.sampled_from((0, 1_000, DAY_MS))),
    )


@st.composite
def jobs_of(draw: st.DrawFn, queues: tuple[str, ...]) -> list[Arrival]:
    """Many of them can never start: they are too large, held, or behind one that never ends."""
    found: list[Arrival] = []
    for number, at_ms in enumerate(sorted(draw(st.lists(SECONDS, min_size=1, max_size=8)))):
        tenant = draw(st.sampled_from(TENANTS))
        spec: dict[str, Any] = {
            "queue": draw(st.sampled_from(queues)),
            "hold": draw(st.sampled_from((False, False, False, True))),
            "gang": draw(st.booleans()),
            "exclusive": draw(st.booleans()),
            "priority": draw(st.integers(0, 2)),
            "run": draw(st.sampled_from((VirtualRun(duration_ms=10_000), VirtualRun(duration_ms=50_000), ENDLESS))),
            "not_before_ms": draw(st.sampled_from((None, None, 90_000, 20 * DAY_MS))),
            "after": (Dependency(job=f"{tenant}/{draw(st.integers(0, 9))}"),) if draw(st.booleans()) else (),
        }
        found.append(arrival(f"{number}", tenant, draw(st.integers(1, 4)), at_ms, **spec))
    return found


@given(st.data())
def test_every_simulation_ends_and_each_job_is_over_or_unfinished(data: st.DataObject) -> None:
    file = data.draw(files())
    jobs = data.draw(jobs_of(tuple(queue.name for queue in file.cells[0].queues)))
    told = run_trace(file, NODES, jobs).measures.summary.result()
    reaches("a simulation in which a job waits for good", told.unfinished)
    over = told.completed + told.failed + told.cancelled + told.rejected
    assert told.submitted == over + told.unfinished == len(jobs)
