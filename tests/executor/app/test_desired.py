"""What the log wants of nodes: all at once and by changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.policy.desired import Action, DesiredRun, DesiredStates, desired_of, touched
from fallow.shared.events import effects as e
from tests.executor.worlds.cells import Writer, node
from tests.histories import History
from tests.hypothesis_profile import reaches


def test_a_started_job_is_wanted_on_its_nodes() -> None:
    writer = Writer([node(1), node(2)])
    writer.start("a", "node-1", "node-2", gpus=2, at_ms=7)
    (run,) = desired_of(writer.state, "node-2")
    assert (run.job, run.attempt, run.action, run.started_ms) == ("a", 1, Action.RUN, 7)
    assert [place.rank for place in run.places] == [1]


def test_a_job_that_was_started_and_stopped_in_one_batch_is_wanted_stopped() -> None:
    writer, wanted = Writer([node(1)]), DesiredStates()
    wanted.own(writer.state, "node-1")
    batch = [writer.start("a", "node-1"), writer.stop("a")]
    assert [change.run and change.run.action for change in wanted.changes(writer.state, touched(batch).jobs)] == [
        Action.STOP
    ]


def test_a_job_that_is_over_is_wanted_nowhere() -> None:
    writer, wanted = Writer([node(1)]), DesiredStates()
    wanted.own(writer.state, "node-1")
    wanted.changes(writer.state, touched([writer.start("a", "node-1")]).jobs)
    over = writer.decide(e.JobFinished(job="a", attempt=1))
    changes = wanted.changes(writer.state, touched([over]).jobs)
    assert [(change.node, change.name, change.run) for change in changes] == [("node-1", "a", None)]


def test_nodes_of_others_are_left_alone() -> None:
    writer, wanted = Writer([node(1), node(2)]), DesiredStates()
    wanted.own(writer.state, "node-1")
    assert wanted.changes(writer.state, touched([writer.start("a", "node-2")]).jobs) == []


def test_a_node_that_the_log_does_not_know_shall_do_nothing() -> None:
    assert desired_of(Writer().state, "node-1") == ()


@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_the_changes_add_up_to_the_full_desired_state(seed: int, batches: list[int]) -> None:
    history, wanted = History(seed), DesiredStates()
    is_gone = False
    known: dict[str, dict[str, DesiredRun]] = {}
    for size in batches:
        decisions = history.decisions(size)
        for name, job, run in wanted.changes(history.state, touched(decisions).jobs):
            known[name].pop(job, None)
            is_gone |= run is None
            known[name].update({job: run} if run is not None else {})
        for name in history.state.nodes:
            if name not in known:
                known[name] = {run.job: run for run in wanted.own(history.state, name)}
    reaches("a run is wanted no longer", is_gone)
    assert known == {name: {run.job: run for run in desired_of(history.state, name)} for name in known}
