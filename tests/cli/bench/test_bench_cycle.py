"""What is timed of a cycle is what it says: a cell whose GPUs are in use, and a backlog that stays as it is."""

from __future__ import annotations

import pytest

from fallow.bench.cycle import GPUS_PER_NODE, Busy, row_of
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.model.job import JobStatus

NODES = 20


@pytest.mark.parametrize(("tenants", "priorities"), [(1, 1), (5, 4)])
def test_all_gpus_are_in_use_and_the_backlog_stays(tenants: int, priorities: int) -> None:
    cell = Busy(NODES, tenants, priorities)
    cell.fill(100)
    found = cell.run(100, 4)
    state = cell.service.state
    assert state.waiting in range(80, 101)
    assert sum(bool(job.workers) for job in state.jobs.values()) == NODES * GPUS_PER_NODE
    assert found.starts == len(found.waits_ms) > 0
    assert check_state(state) == []


def test_jobs_are_of_as_many_classes_as_are_told() -> None:
    cell = Busy(2, 3, 2)
    cell.fill(200)
    waiting = [job.spec for job in cell.service.state.jobs.values() if job.status is JobStatus.QUEUED]
    assert len({(spec.tenant, spec.priority) for spec in waiting}) == 6


def test_a_row_tells_what_the_backlog_was_and_what_came_of_it() -> None:
    row = row_of(4, 50, 2, 2, 2)
    assert (row["waiting"], row["classes"]) == (50, 4)
    assert row.keys() >= {"gpus_in_use_pct", "start_us", "release_to_start_ms_p99", "bytes_per_waiting_job"}
