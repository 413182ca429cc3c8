"""What the loss or the damage of an input permits, and what it does not."""

from __future__ import annotations

from typing import Any

from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import Decision, next_chain
from fallow.shared.events.jobs import JobCancelRequested
from fallow.simulator.history.evidence import Wish
from tests.cluster.worlds.examples import enqueued
from tests.simulator.history.story import CELL, Story, admitted, finished_gang, two_nodes, with_gang

DRAINED: dict[str, Any] = {"is_drained": True, "diary": (), "happened": ()}


def test_an_answer_that_was_lost_with_the_tail_of_its_topic_was_given() -> None:
    story = finished_gang()
    story.wishes = [Wish("submit", "lost")]
    assert story.broken(**DRAINED) == ["I2"]
    assert story.broken(**DRAINED, lost_answers=[admitted("lost")]) == []


def test_what_fills_a_topic_that_was_cut_is_not_what_was_read_at_its_place_before() -> None:
    read = finished_gang().decide(inputs={"jobs-0": 1})
    ends = (enqueued("late"), e.JobCancelled(job="late"))
    assert read.answered(admitted("late")).decide(*ends).broken() == ["I2"]
    assert read.broken(**DRAINED, cut={"jobs-0": 0}) == []


def test_what_fills_a_topic_that_was_cut_must_be_settled_all_the_same() -> None:
    story = finished_gang().decide(inputs={"jobs-0": 1}).answered(admitted("late"))
    assert story.broken(**DRAINED, cut={"jobs-0": 0}) == ["I2"]


def test_a_cancel_that_fills_a_topic_that_was_cut_is_settled_by_any_end_of_its_job() -> None:
    """A job that ends by itself in the record that has read its cancel is finished, and not cancelled."""
    story = finished_gang().answered(JobCancelRequested(cell=CELL, job="gang", tenant="acme")).decide(at_ms=1)
    assert story.broken(**DRAINED, cut={"jobs-0": 0}) == []
    unknown = two_nodes().answered(JobCancelRequested(cell=CELL, job="gang", tenant="acme"))
    assert unknown.broken(**DRAINED, cut={"jobs-0": 0}) == ["I2"]


def test_what_stands_before_the_cut_is_settled_by_the_record_that_has_read_it() -> None:
    story = finished_gang().answered(admitted("early")).decide(inputs={"jobs-0": 1})
    assert story.broken(cut={"jobs-0": 1}) == ["I2"]


def test_a_job_that_may_be_set_aside_need_not_be_settled_and_others_of_its_record_must() -> None:
    story = with_gang().answered(admitted("one")).decide(inputs={"jobs-0": 1})
    assert story.broken(dead=frozenset({("jobs-0", 0, "one")})) == []
    assert story.broken(dead=frozenset({("jobs-0", 0, "other")})) == ["I2"]
    assert story.broken(dead=frozenset({("jobs-0", 1, "one")})) == ["I2"]


def test_only_the_writer_whose_record_was_damaged_may_go_on_behind_it() -> None:
    value = encode(Decision(cell=CELL, version=4, epoch=1, at_ms=0))
    story = with_gang()
    story.record(value[:-1] + b"\xff", next_chain(story.chain, value[:-1] + b"\xff"))
    for epoch, broken in ((1, []), (2, ["LOG"])):
        behind = encode(Decision(cell=CELL, version=5, epoch=epoch, at_ms=0))
        told = Story(log=[*story.log], moment=story.moment)
        told.record(behind, next_chain("0" * 32, behind))
        assert told.broken(is_damaged=True, deaf=1) == broken
