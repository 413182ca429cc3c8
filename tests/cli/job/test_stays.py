"""Of each place of a job it is told whether its worker is there still."""

from __future__ import annotations

import pytest

from fallow.cli.job.story.stays import stays_of
from fallow.shared.events import effects as e
from fallow.shared.events.reasons import RequeueReason
from tests.cluster.worlds.examples import place

STARTED = e.JobStarted(job="web", attempt=1, workers=(place(0, "n1", 0), place(1, "n2", 0)))
OUT = e.JobResizing(job="web", attempt=1, remove=(1,))
LEFT = e.WorkersSettled(job="web", attempt=1, gone=(1,))
IN = e.JobResizing(job="web", attempt=1, add=(place(1, "n3", 0),))


@pytest.mark.parametrize(
    ("story", "states"),
    [
        ((STARTED,), ["n1 held", "n2 held"]),
        ((STARTED, OUT), ["n1 held", "n2 leaving"]),
        ((STARTED, OUT, LEFT), ["n1 held", "n2 taken out"]),
        ((STARTED, LEFT), ["n1 held", "n2 gone"]),
        ((STARTED, e.WorkersSettled(job="web", attempt=1, done=(1,))), ["n1 held", "n2 finished"]),
        ((STARTED, LEFT, IN), ["n1 held", "n2 gone", "n3 held"]),
        ((STARTED, OUT, LEFT, IN, e.JobFinished(job="web", attempt=1)), ["n1 over", "n2 taken out", "n3 over"]),
        ((STARTED, OUT, e.JobResized(job="web", attempt=1, workers=(place(0, "n1", 0),))), ["n1 held", "n2 taken out"]),
        (
            (
                STARTED,
                e.JobRequeued(job="web", reason=RequeueReason.WORKER_FAILED, not_before_ms=9, failures=1),
                e.JobStarted(job="web", attempt=2, workers=(place(0, "n4", 0),)),
            ),
            ["n1 over", "n2 over", "n4 held"],
        ),
    ],
)
def test_a_place_that_was_left_is_told_to_be_left(story: tuple[e.Effect, ...], states: list[str]) -> None:
    assert [f"{stay.place.node} {stay.state}" for stay in stays_of(story)] == states
