"""The rows of `fallow jobs` and `fallow nodes`: what is held beside what is wanted, and what is planned."""

from __future__ import annotations

import pytest

from fallow.cli.job import jobs
from fallow.cli.job.job import Told, never_was
from fallow.cli.job.jobs import by_number
from fallow.cli.log import diff as log_diff
from fallow.cli.log.at import _job, _job_row
from fallow.cli.node import nodes
from fallow.shared.client.port import News
from fallow.shared.cluster.model.job import FinishedJob, Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import JobRefused
from fallow.shared.events.fields.values import JobSpec, LoanStatus, NodeRole, NodeStatus
from fallow.shared.events.reasons import PendingReason, RefuseCode
from fallow.shared.view.row_text import job_row, job_text, over_text
from fallow.shared.view.rows import JobRow, NodeRow, Place

GPUS, WORKERS = jobs.COLUMNS.index(">GPUS"), jobs.COLUMNS.index(">WORKERS")
REMARK = nodes.COLUMNS.index("REMARK")


def job(held: int, wanted: int, status: JobStatus = JobStatus.RUNNING) -> JobRow:
    """A job of workers of 2 GPUs."""
    places = tuple(Place(rank, f"n{rank}", (0, 1), 2_000) for rank in range(held))
    return JobRow("j", "ada", status, gpus_milli=2_000 * wanted, workers=wanted, places=places)


def told(row: JobRow) -> tuple[object, object]:
    cells = jobs._row(row)
    return cells[GPUS], cells[WORKERS]


def test_a_job_that_lacks_workers_is_told_with_what_it_holds_and_wants() -> None:
    assert told(job(1, 4)) == ("2 of 8", "1 of 4")
    assert told(job(4, 4)) == ("8", "4")


def test_a_job_that_waits_or_is_over_is_told_with_what_it_wants() -> None:
    assert told(job(0, 4, JobStatus.QUEUED)) == ("8", "4")
    assert told(JobRow("j", "ada", JobStatus.FINISHED)) == ("", "")


def test_of_a_job_that_is_over_nothing_is_told_that_the_view_does_not_know() -> None:
    """Its row in the view holds zeros there."""
    over = job_row(over_text(FinishedJob("j", "ada", "", JobStatus.FINISHED, 7, 0)))
    told = jobs.job_object(over)
    known = {name: value for name, value in told.items() if value is not None}
    assert known == {"job": "ada/j", "id": "j", "tenant": "ada", "status": "finished", "over_ms": 7, "places": ()}
    assert jobs._row(over)[jobs.COLUMNS.index(">PRIORITY")] == ""
    assert jobs.job_object(job(0, 4, JobStatus.QUEUED))["priority"] == 0


@pytest.mark.parametrize("before", [None, PendingReason.QUOTA_REACHED, PendingReason.NO_FREE_GPUS])
@pytest.mark.parametrize(
    ("status", "held_why", "told"),
    [
        (JobStatus.HELD, "", "held"),
        (JobStatus.HELD, "its tenant is not in the cell file", "its tenant is not in the cell file"),
        (JobStatus.AWAITING, "", "after"),
    ],
)
def test_a_job_that_is_held_or_awaits_others_is_not_told_with_the_reason_of_before(
    status: JobStatus, held_why: str, told: str, before: PendingReason | None
) -> None:
    job, state = Job(JobSpec(id="j", tenant="ada"), 0, ""), CellState("main")
    job.status, job.held_why, job.deferred = status, held_why, before
    row = job_row(job_text(state, job))
    assert jobs.where_or_why(row) == told
    assert row.deferred is (PendingReason.HELD if status is JobStatus.HELD else PendingReason.AFTER)
    assert _job_row(_job(job))[-1] == row.deferred
    assert log_diff._job(job).startswith(f"{status} ({told}): ")


def test_a_job_that_awaits_others_is_told_with_those_that_it_still_waits_for() -> None:
    job, state = Job(JobSpec(id="ada/j", tenant="ada"), 0, "", JobStatus.AWAITING), CellState("main")
    job.waits_for = ("ada/a", "ada/b")
    row = job_row(job_text(state, job))
    assert jobs.where_or_why(row) == "after ada/a, ada/b"
    assert _job_row(_job(job))[-1] == "after ada/a, ada/b"
    assert log_diff._job(job).startswith("awaiting (after ada/a, ada/b): ")
    job.waits_for = ("ada/a", "ada/b", "ada/c", "ada/d", "ada/e")
    assert jobs.where_or_why(job_row(job_text(state, job))) == "after ada/a, ada/b, ada/c and 2 more"
    assert _job_row(_job(job))[-1] == "after ada/a, ada/b, ada/c and 2 more"
    told = jobs.job_object(job_row(job_text(state, job)))
    assert (told["waits_for"], told["waits_for_more"]) == (("ada/a", "ada/b", "ada/c"), 2)
    job.status = JobStatus.HELD
    assert jobs.where_or_why(job_row(job_text(state, job))) == "held"


def test_one_that_leaves_places_holds_more_than_it_wants() -> None:
    assert told(job(4, 3)) == ("8 of 6", "4 of 3")


def test_numbers_in_ids_go_by_their_value() -> None:
    ids = ["run-10", "run-9", "run", "a2b10", "a2b9", "a10", "9", "", "run-09"]
    rows = sorted((JobRow(each, "ada", JobStatus.QUEUED) for each in ids), key=by_number)
    assert [row.id for row in rows] == ["", "9", "a2b9", "a2b10", "a10", "run", "run-09", "run-9", "run-10"]


def test_an_id_of_which_only_refused_requests_tell_was_never_a_job() -> None:
    refused = News("c", JobRefused(job="ghost", request="r", code=RefuseCode.UNKNOWN_JOB), 1, 0)
    over = News("c", JobRefused(job="ghost", request="r", code=RefuseCode.ALREADY_OVER), 1, 0)
    row = JobRow("ghost", "ada", JobStatus.FINISHED)
    assert never_was(Told("c", [refused]))
    assert not never_was(Told("c", [refused, over]))
    assert not never_was(Told("c", [refused], row))
    assert not never_was(Told("c"))


def node(**more: object) -> NodeRow:
    fields: dict[str, object] = {
        "id": "n",
        "pool": "p",
        "home_pool": "p",
        "gpu_type": "gpu",
        "role": NodeRole.TRAINING,
        "status": NodeStatus.READY,
        "gpus": 8,
        "gpus_free": 8,
        "gpus_failed": (),
        "allocated_milli": 0,
        "cpu_milli": 0,
        "cpu_used_milli": 0,
        "memory_mib": 0,
        "memory_used_mib": 0,
        "jobs": (),
        "loan": None,
        "loan_status": LoanStatus.HOME,
        "loan_deadline_ms": None,
        "drain_deadline_ms": None,
        "reason": "",
        **more,
    }
    return NodeRow(**fields)  # type: ignore[arg-type]


def test_planned_maintenance_stands_beside_the_node() -> None:
    planned = node(maintenance_ms=(60_000, 3_660_000), maintenance_why="new fans", reason="slow")
    assert nodes._row(planned, "")[REMARK] == ("slow, maintenance from day 0 00:01:00 to day 0 01:01:00 (new fans)")
    assert nodes._row(node(), "")[REMARK] == ""
