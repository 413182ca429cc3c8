"""What the checker finds where workers of a job that is no gang come and go."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobKind, NodeStatus, Setback, WorkerPlace
from fallow.shared.events.reasons import RequeueReason
from tests.cluster.worlds.examples import enqueued, node, place, started
from tests.simulator.history.story import Story, two_nodes


def entering(rank: int, on: str, device: int, turn: int = 1) -> WorkerPlace:
    return WorkerPlace(rank=rank, node=on, devices=(device,), gpu_milli=1000, turn=turn)


def resizing(*add: WorkerPlace, remove: tuple[int, ...] = ()) -> e.JobResizing:
    return e.JobResizing(job="web", attempt=1, add=add, remove=remove)


def settled(joined: tuple[int, ...] = (), gone: tuple[int, ...] = ()) -> e.WorkersSettled:
    return e.WorkersSettled(job="web", attempt=1, joined=joined, gone=gone)


def service(workers: int = 2, **more: Any) -> Story:
    """A service of two replicas that run, one on each node."""
    spec = {"workers": workers, "gang": False, "kind": JobKind.INFERENCE, **more}
    story = two_nodes().decide(enqueued("web", **spec), started("web", place(0, "n1", 0), place(1, "n2", 0)))
    story.worker_begins("web", "n1", 0, 0).worker_begins("web", "n2", 1, 0)
    return story.decide(e.JobRunning(job="web", attempt=1), settled(joined=(0, 1)))


def test_a_replica_that_leaves_when_it_has_stopped_breaks_nothing() -> None:
    story = service(3).decide(resizing(entering(2, "n1", 1))).worker_begins("web", "n1", 2, 1, turn=1)
    story.decide(settled(joined=(2,))).decide(resizing(remove=(0,))).worker_ends("web", "n1", 0, 0)
    assert story.decide(settled(gone=(0,))).broken() == []


def test_a_place_that_is_free_before_its_worker_has_stopped_is_found() -> None:
    story = service().decide(resizing(remove=(0,)), settled(gone=(0,)))
    assert story.worker_ends("web", "n1", 0, 0).broken() == ["I6"]


def test_another_job_beside_a_worker_that_has_not_stopped_is_found() -> None:
    story = service().decide(resizing(remove=(0,)), settled(gone=(0,)))
    story.decide(enqueued("next"), started("next", place(0, "n1", 0))).begins("next", "n1", 0)
    assert "I1" in story.broken()


def test_a_worker_that_is_confirmed_and_was_never_begun_is_found() -> None:
    story = service(3).decide(resizing(entering(2, "n1", 1))).decide(settled(joined=(2,)))
    assert story.broken() == ["I6"]


@pytest.mark.parametrize(
    "effects",
    [
        [resizing(entering(1, "n1", 1))],
        [resizing(entering(2, "n1", 1), entering(3, "n2", 1))],
        [resizing(remove=(7,))],
        [resizing(remove=(0, 1))],
        [resizing(remove=(0,)), resizing(remove=(1,))],
        [settled(joined=(0,))],
        [settled(gone=(5,))],
        [resizing(entering(2, "n1", 1, turn=0))],
    ],
    ids=[
        "a rank that has a worker",
        "more than are wanted",
        "no replica leaves",
        "two replicas stop at once",
        "a second one stops while the first does",
        "one starts twice",
        "one ends that was not there",
        "one enters without a turn",
    ],
)
def test_a_wrong_change_of_workers_is_found(effects: list[Any]) -> None:
    assert "I3" in service().decide(*effects).broken()


def test_one_replica_more_than_wanted_may_enter_while_its_node_is_emptied() -> None:
    draining = e.NodeChanged(spec=node("n1", gpus=2).spec, boot="boot-1", status=NodeStatus.DRAINING)
    story = service().decide(draining).decide(resizing(entering(2, "n2", 1)))
    assert story.worker_begins("web", "n2", 2, 1, turn=1).broken() == []


FAILED_ONCE = (Setback(rank=0, until_ms=10**12, failures=1),)
PAUSE = e.WorkersSettled(job="web", attempt=1, gone=(0,), failures=1, setbacks=FAILED_ONCE)
REST = e.WorkersSettled(job="web", attempt=1, gone=(1,), failures=1)
AGAIN = e.JobRequeued(job="web", reason=RequeueReason.NO_WORKER_LEFT, not_before_ms=0, failures=1)


def test_a_worker_that_enters_before_the_pause_of_its_rank_is_over_is_found() -> None:
    story = service().worker_ends("web", "n1", 0, 0).decide(PAUSE)
    assert "I3" in story.decide(resizing(entering(0, "n1", 0))).broken()


@pytest.mark.parametrize(("rank", "found"), [(0, ["I3"]), (1, [])])
def test_a_pause_that_is_cut_short_by_the_end_of_the_attempt_is_found(rank: int, found: list[str]) -> None:
    story = service().worker_ends("web", "n1", 0, 0).decide(PAUSE).worker_ends("web", "n2", 1, 0).decide(REST, AGAIN)
    again = e.JobStarted(job="web", attempt=2, workers=(place(rank, "n1", 0),))
    assert story.decide(again).broken() == found


def test_a_gang_may_not_lose_a_worker_and_go_on() -> None:
    story = two_nodes().decide(enqueued("web", workers=2), started("web", place(0, "n1", 0), place(1, "n2", 0)))
    assert "I3" in story.decide(settled(gone=(1,))).broken()
