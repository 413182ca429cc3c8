"""A job whose workers come singly may be told to start with more than it has: only a gang keeps its shape."""

from __future__ import annotations

from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from tests.cluster.worlds.examples import cell, enqueued, node, place, started, then


def test_a_running_job_that_is_no_gang_may_need_more_workers_than_it_has() -> None:
    state = cell(node("n1"), enqueued("job", gang=False, workers=3, workers_min=1))
    then(state, started("job", place(0, "n1", 0)))
    then(state, e.JobUpdated.of(replace(state.jobs["job"].spec, workers_min=2)))
    assert (len(state.jobs["job"].workers), state.jobs["job"].spec.workers_min) == (1, 2)
