"""I1 and I6 on the nodes, and the leases: what truly ran, against what was decided by then."""

from __future__ import annotations

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus, RunStatus
from fallow.shared.events.reasons import RequeueReason
from fallow.simulator.history.evidence import What
from tests.cluster.worlds.examples import enqueued, node, place, started
from tests.simulator.history.story import Story, finished_gang, two_nodes, with_gang

LOST = e.LeaseExpired(node="n1", boot="boot-1")
AGAIN = e.JobRequeued(job="one", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0)


def one_on_n1() -> Story:
    return two_nodes().decide(enqueued("one"), started("one", place(0, "n1", 0)))


def test_a_run_that_begins_before_it_is_decided_is_found() -> None:
    story = two_nodes().decide(enqueued("one")).begins("one", "n1", 0)
    assert story.decide(started("one", place(0, "n1", 0))).broken() == ["I6"]


def test_a_run_that_nobody_decided_is_found() -> None:
    assert two_nodes().begins("one", "n1", 0).broken() == ["I6", "I6"]


def test_a_run_that_begins_after_its_end_was_confirmed_is_found() -> None:
    assert one_on_n1().decide(LOST, AGAIN).begins("one", "n1", 0).broken() == ["I6"]


def test_a_run_that_goes_on_after_its_end_was_confirmed_is_found() -> None:
    story = one_on_n1().begins("one", "n1", 0).decide(LOST, AGAIN)
    assert story.ends("one", "n1", 0).broken() == ["I6"]


def test_a_run_that_goes_on_for_ever_is_found() -> None:
    assert one_on_n1().begins("one", "n1", 0).decide(LOST, AGAIN).broken() == ["I6"]


def test_a_run_may_end_as_late_as_is_allowed() -> None:
    story = one_on_n1().begins("one", "n1", 0).decide(LOST, AGAIN)
    assert story.ends("one", "n1", 0, status=RunStatus.STOPPED).broken(late=1) == []


def test_what_went_with_its_machine_runs_no_more() -> None:
    story = one_on_n1().begins("one", "n1", 0).happens(What.DIED, "", "n1")
    assert story.decide(LOST, AGAIN).broken() == []


def test_a_node_that_lies_is_not_held_against_the_log() -> None:
    story = one_on_n1().begins("one", "n1", 0).decide(e.JobFinished(job="one", attempt=1))
    assert story.broken(liars=frozenset({"n1"})) == []
    assert story.broken() == ["I6", "I6"]


def test_two_runs_on_one_device_at_a_time_are_found() -> None:
    story = one_on_n1().begins("one", "n1", 0).decide(enqueued("two"), started("two", place(0, "n1", 1)))
    assert story.begins("two", "n1", 0).broken() == ["I6", "I1"]


def test_a_run_that_runs_twice_at_a_time_is_found() -> None:
    story = one_on_n1().begins("one", "n1", 0)
    assert story.happens(What.BEGAN, "one", "n1", 0).broken() == ["I6"]


def test_a_run_that_is_written_down_twice_is_found() -> None:
    assert one_on_n1().begins("one", "n1", 0).writes("started", "one", "n1", 0).broken() == ["I6"]


def test_an_end_without_a_beginning_is_found() -> None:
    assert one_on_n1().writes("ended", "one", "n1", 0, status=RunStatus.STOPPED).broken() == ["I6"]


def test_a_second_end_is_found() -> None:
    story = finished_gang().writes("ended", "gang", "n1", 0, status=RunStatus.FINISHED)
    assert story.broken() == ["I6"]


def test_a_run_may_be_adopted_while_it_is_there() -> None:
    assert one_on_n1().begins("one", "n1", 0).writes("adopted", "one", "n1", 0).broken() == []
    assert finished_gang().writes("adopted", "gang", "n1", 0).broken() == ["I6"]


def test_a_confirmed_run_that_its_node_never_began_is_found() -> None:
    gang = started("gang", place(0, "n1", 0), place(1, "n2", 0))
    story = two_nodes().decide(enqueued("gang", workers=2), gang).begins("gang", "n1", 0)
    assert story.decide(e.JobRunning(job="gang", attempt=1)).broken() == ["I6"]


def test_a_job_that_finished_in_the_log_and_stopped_on_its_node_is_found() -> None:
    story = one_on_n1().begins("one", "n1", 0).ends("one", "n1", 0, status=RunStatus.STOPPED)
    assert story.decide(e.JobFinished(job="one", attempt=1)).broken() == ["I6"]


def test_a_run_on_devices_that_were_not_decided_is_found() -> None:
    assert one_on_n1().begins("one", "n1", 1).broken() == ["I6"]


def test_a_node_that_leaves_a_gang_in_a_resize_lets_go() -> None:
    elastic = enqueued("wide", workers=2, workers_min=1)
    begin = started("wide", place(0, "n1", 0), place(1, "n2", 0))
    story = two_nodes().decide(elastic, begin).begins("wide", "n1", 0).begins("wide", "n2", 0)
    story.decide(e.JobRunning(job="wide", attempt=1), e.JobResizing(job="wide", attempt=1, remove=(1,)))
    story.decide(e.JobResized(job="wide", attempt=1, workers=(place(0, "n1", 0),)))
    assert story.broken() == ["I6"]


def many_nodes() -> Story:
    return with_gang().decide(*(node(f"m{number}") for number in range(10)))


def lost(*nodes: str) -> list[e.LeaseExpired]:
    return [e.LeaseExpired(node=name, boot="boot-1") for name in nodes]


def test_many_living_nodes_are_not_declared_lost_at_once() -> None:
    assert many_nodes().decide(*lost("m1", "m2", "m3")).broken() == ["LEASE"]


def test_few_nodes_may_be_declared_lost_at_once() -> None:
    assert many_nodes().decide(*lost("m1", "m2")).decide(*lost("m3")).broken() == []


def test_many_dead_nodes_may_be_declared_lost_at_once() -> None:
    story = many_nodes()
    for name in ("m1", "m2", "m3"):
        story.happens(What.DIED, "", name)
    assert story.decide(*lost("m1", "m2", "m3")).broken() == []


def test_nodes_that_have_booted_may_be_many() -> None:
    boots = [e.NodeChanged(spec=node(name).spec, boot="boot-2", status=NodeStatus.READY) for name in ("m1", "m2", "m3")]
    assert many_nodes().decide(*lost("m1", "m2", "m3"), *boots).broken() == []


def test_with_gang_breaks_nothing_by_itself() -> None:
    assert with_gang().broken() == []


def test_a_shortened_diary_may_tell_nothing_of_runs_that_were_ordered_before() -> None:
    story = finished_gang()
    ordered = story.version
    story.decide(enqueued("late"), started("late", place(0, "n1", 0))).decide(e.JobRunning(job="late", attempt=1))
    story.begins("late", "n1", 0)
    only_late = [line for line in story.diary if line.job == "late"]
    assert "I6" not in story.broken(diary=only_late, forgotten_version=ordered)
    assert "I6" in story.broken(diary=only_late, forgotten_version=0)
    only_early = [line for line in story.diary if line.job == "gang"]
    assert "I6" in story.broken(diary=only_early, forgotten_version=ordered), "what came later stands in it"
