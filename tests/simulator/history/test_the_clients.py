"""I2, I7 and I8 towards clients: who was told what, and is it so."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.jobs import JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import RefuseCode, RejectCode, StopReason
from fallow.shared.events.submissions import JobChanges
from fallow.shared.view.compare import job_rows_of, tenant_rows_of
from fallow.shared.view.row_text import node_row, node_text
from fallow.simulator.history.evidence import Reading, View, Wish
from tests.cluster.worlds.examples import DIGEST, cell, enqueued, node, place, quota, started, stopping
from tests.simulator.history.story import CELL, Story, admitted, finished_gang, two_nodes, with_gang

READ: dict[str, Any] = {"inputs": {"jobs-0": 1}}
CANCEL = JobCancelRequested(cell=CELL, job="gang", tenant="ada")
UPDATE = JobUpdateRequested(cell=CELL, job="gang", tenant="ada", changes=JobChanges(priority=3))


def refused(request: str) -> e.JobRefused:
    return e.JobRefused(job="gang", request=request, code=RefuseCode.UNSUPPORTED)


SETTLED: dict[str, tuple[Any, list[Any]]] = {
    "accepted": (admitted("new"), [enqueued("new")]),
    "known by its content": (admitted("gang", workers=2), []),
    "refused": (admitted("gang"), [refused("submit")]),
    "stopped": (CANCEL, [stopping("gang", StopReason.CANCELLED)]),
    "finished in the same moment": (CANCEL, [e.JobFinished(job="gang", attempt=1)]),
    "cancel refused": (CANCEL, [refused("cancel")]),
    "updated": (UPDATE, [e.JobUpdated.of(enqueued("gang", workers=2, priority=3).spec)]),
    "update refused": (UPDATE, [refused("update")]),
}


@pytest.mark.parametrize(("answer", "effects"), SETTLED.values(), ids=list(SETTLED))
def test_what_is_read_and_settled_breaks_nothing(answer: Any, effects: list[Any]) -> None:
    story = with_gang().answered(answer).decide(*effects, **READ)
    assert story.broken(diary=(), happened=()) == []


@pytest.mark.parametrize("answer", [admitted("new"), CANCEL, UPDATE], ids=lambda answer: type(answer).__name__)
def test_what_is_read_and_forgotten_is_found(answer: Any) -> None:
    assert with_gang().answered(answer).decide(**READ).broken() == ["I2"]


@pytest.mark.parametrize(("answer", "request_"), [(CANCEL, "cancel"), (UPDATE, "update")])
def test_what_an_earlier_record_said_is_no_answer_to_a_later_command(answer: Any, request_: str) -> None:
    story = with_gang().answered(answer).decide(refused(request_), **READ)
    assert story.answered(answer).decide(inputs={"jobs-0": 2}).broken(diary=(), happened=()) == ["I2"]


def test_the_update_of_an_array_that_ends_in_the_same_record_was_answered() -> None:
    spec = enqueued("pair.0", array=1, array_of="pair", array_index=0).spec
    update = replace(UPDATE, job="pair")
    ends = (e.JobUpdated.of(replace(spec, priority=3)), e.JobCancelled(job="pair.0"))
    cancel = replace(CANCEL, job="pair")
    story = two_nodes().decide(e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST))
    assert story.answered(update).answered(cancel).decide(*ends, inputs={"jobs-0": 2}).broken() == []


def array_updates(*, is_last_answered: bool) -> Story:
    """Two updates of an array are read in one record, between which its first element ends."""
    specs = [enqueued(f"pair.{n}", array=2, array_of="pair", array_index=n).spec for n in range(2)]
    update, cancel = replace(UPDATE, job="pair"), replace(CANCEL, job="pair.0")
    story = two_nodes().decide(*(e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST) for spec in specs))
    told = [e.JobUpdated.of(replace(specs[0], priority=3)), e.JobCancelled(job="pair.0")]
    told += [e.JobUpdated.of(replace(specs[1], priority=4))] if is_last_answered else []
    return story.answered(update).answered(cancel).answered(update).decide(*told, inputs={"jobs-0": 3})


def test_each_update_of_an_array_is_answered_by_its_first_element_then() -> None:
    assert array_updates(is_last_answered=True).broken() == []
    assert array_updates(is_last_answered=False).broken() == ["I2"]


def test_what_is_never_read_is_found_at_the_end() -> None:
    story = finished_gang().answered(admitted("new"))
    assert story.broken() == []
    assert story.broken(is_drained=True) == ["I2"]


def test_another_cells_job_is_none_of_this_cells_business() -> None:
    foreign = JobCancelRequested(cell="cell-b", job="gang", tenant="ada")
    assert with_gang().answered(foreign).decide(**READ).broken() == []


def test_an_acknowledged_submission_without_an_answer_is_found() -> None:
    story = finished_gang()
    story.wishes.append(Wish("submit", "new"))
    assert story.broken() == []
    assert story.broken(is_drained=True) == ["I2"]


def test_a_rejection_and_a_dead_letter_are_answers() -> None:
    story = finished_gang()
    story.wishes += [Wish("submit", "new"), Wish("submit", "odd", is_dead=True)]
    story.answered(JobRejected(job="new", command="submit", code=RejectCode.UNKNOWN_TENANT)).decide(**READ)
    assert story.broken(is_drained=True) == []


def test_each_submission_has_an_answer_of_its_own() -> None:
    story = finished_gang()
    story.wishes += [Wish("submit", "gang")] * 2
    story.answered(admitted("gang", workers=2)).decide(**READ)
    assert story.broken(is_drained=True) == ["I2"]


def test_a_client_that_is_shown_less_than_it_has_seen_is_found() -> None:
    readings = [Reading("ann", 2, at_least=0), Reading("ann", 1, at_least=2)]
    assert with_gang().broken(readings=readings) == ["I8"]


def test_a_client_that_takes_any_answer_may_be_shown_an_old_one() -> None:
    readings = [Reading("ann", 2, at_least=2), Reading("ann", 1), Reading("bob", 1, at_least=1)]
    assert with_gang().broken(readings=readings) == []


@pytest.mark.parametrize(
    ("version", "shown", "broken"),
    [
        (1, None, []),
        (1, ("starting", 1), ["I7"]),
        (2, ("starting", 1), []),
        (2, ("starting", 2), ["I7"]),
        (2, None, ["I7"]),
        (4, ("finished", 0), []),
        (4, ("failed", 0), ["I7"]),
        (4, None, ["I7"]),
        (9, None, ["I7"]),
    ],
)
def test_what_a_client_reads_of_a_job_is_so_at_that_version(version: int, shown: Any, broken: list[str]) -> None:
    assert finished_gang().broken(readings=[Reading("ann", version, jobs={"gang": shown})]) == broken


def view_of(state: CellState, version: int) -> View:
    used = {(row.tenant, a.gpu_type): a.used_milli for row in tenant_rows_of(state).values() for a in row.accounts}
    nodes = {name: node_row(node_text(node)) for name, node in state.nodes.items()}
    return View(version, version - 1, job_rows_of(state), nodes, used)


def told() -> tuple[Story, list[Any]]:
    """A cell with jobs in several states, as a story and as effects."""
    effects: list[Any] = [
        node("n1", gpus=2),
        node("n2", gpus=2),
        quota("ada", limit=None, parent="house"),
        quota("house", limit=9),
        enqueued("gang", workers=2),
        started("gang", place(0, "n1", 0), place(1, "n2", 0)),
        enqueued("first", priority=2),
        enqueued("second", priority=2),
        enqueued("gone"),
        e.JobCancelled(job="gone"),
        e.DeviceChanged(node="n2", device=1, healthy=False),
    ]
    return Story().decide(*effects), effects


def test_a_view_that_shows_what_the_log_gives_breaks_nothing() -> None:
    story, effects = told()
    assert story.broken(views=[view_of(cell(*effects), 1)]) == []


VIEWS: dict[str, list[Any]] = {
    "a job is missing": [e.JobCancelled(job="first")],
    "a job waits for something else": [e.JobHeld(job="first")],
    "a job is shown that is not there": [enqueued("third")],
    "a node is shown that is not there": [node("n3")],
    "a node is shown in another state": [e.LeaseExpired(node="n1", boot="boot-1")],
    "a device is shown as failed": [e.DeviceChanged(node="n1", device=1, healthy=False)],
    "the order is another": [e.JobUpdated.of(enqueued("second", priority=3).spec)],
}


@pytest.mark.parametrize("more", VIEWS.values(), ids=list(VIEWS))
def test_a_view_that_shows_something_else_is_found(more: list[Any]) -> None:
    story, effects = told()
    broken = story.broken(views=[view_of(cell(*effects, *more), 1)])
    assert broken
    assert dict.fromkeys(broken) == {"I7": None}


def test_a_view_that_shows_another_use_is_found() -> None:
    story, effects = told()
    shown = view_of(cell(*effects), 1)
    wrong = View(1, 0, shown.jobs, shown.nodes, {**(shown.used or {}), ("house", "gpu"): 1})
    assert story.texts(views=[wrong]) == ["house is shown with 1 milli-GPUs of gpu, it uses 2000"]


def test_what_was_shown_of_a_lost_part_of_the_log_is_not_judged() -> None:
    readings = [Reading("ann", 9, jobs={"gang": None})]
    assert two_nodes().broken(readings=readings, is_damaged=True) == []
