"""The words of many runs in one record mean the same as a record for each of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.nodes.event_dedup import StaleReason
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events.fields.values import NodeStatus, RetryPolicy, RunStatus
from fallow.shared.events.reasons import DeadLetterReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, Fate, World, cell_with, joined, kinds, spec_of

CLASSES: dict[RunStatus, type[n.RunEvent]] = {
    RunStatus.RUNNING: n.RunStarted,
    RunStatus.FINISHED: n.RunFinished,
    RunStatus.STOPPED: n.RunStopped,
    RunStatus.FAILED: n.RunFailed,
}


def word(
    job: str, status: RunStatus = RunStatus.FINISHED, node: str = "n1", seq: int = 10, boot: str = "boot-1", **more: Any
) -> n.RunStatusUpdate:
    """What a node says of a run."""
    fields: dict[str, Any] = {"attempt": 1, **more}
    return n.RunStatusUpdate(node=node, boot=boot, seq=seq, job=job, status=status, **fields)


def together(*words: n.RunStatusUpdate) -> n.RunsReported:
    """One record for all of them."""
    return n.RunsReported(cell=CELL, words=words)


def alone(said: n.RunStatusUpdate) -> n.RunEvent:
    """A record of its own."""
    more: dict[str, Any] = {}
    if said.status is RunStatus.FAILED:
        more = {"exit_code": said.exit_code, "infrastructure": said.infrastructure, "text": said.text}
    return CLASSES[said.status](
        cell=CELL, node=said.node, boot=said.boot, seq=said.seq, job=said.job, attempt=said.attempt, **more
    )


def busy() -> World:
    """Two jobs and a gang run on two nodes, a third node is idle."""
    world = cell_with(joined("n1"), joined("n2"), joined("n3"))
    tries = RetryPolicy(budget=1, backoff_ms=1_000, backoff_max_ms=1_000)
    world.run(spec_of("gang", 6, workers=2, retry=tries), spec_of("one", 2), spec_of("two", 2, retry=tries))
    world.numbers_words = False
    return world


def made_of(
    world: World, *inputs: n.NodeEvent | n.RunsReported
) -> tuple[list[e.AnyEffect], dict[StaleReason, int], list[str]]:
    """What came of them: effects, how many words were past, what was set aside."""
    effects = world.tell(*inputs)
    return effects, world.service.take_past(), [stray.text for _, stray in world.service.take_strays()]


def test_words_of_several_nodes_and_jobs_count_each() -> None:
    world = busy()
    made = world.tell(together(word("one"), word("gang", seq=11), word("gang", node="n2", seq=11)))
    assert kinds(made) == ["JobFinished", "JobFinished"]
    assert sorted(world.state.jobs) == ["two"]


def test_a_word_of_an_unknown_node_is_set_aside_once_with_its_record_and_the_others_count() -> None:
    world = busy()
    made = world.tell(together(word("one", node="n8"), word("one"), word("two", node="n9")))
    assert kinds(made) == ["JobFinished"]
    ((item, stray),) = world.service.take_strays()
    assert stray.reason is DeadLetterReason.UNKNOWN_NODE
    assert stray.text == f"node: n8 has not joined cell {CELL}"
    assert isinstance(item.event, n.RunsReported)


def test_words_renew_the_leases_of_their_nodes_and_of_no_other() -> None:
    world = busy()
    for seq in range(11, 17):
        world.pass_time(8_000)
        world.tell(together(word("one", RunStatus.RUNNING, seq=seq), word("gang", RunStatus.RUNNING, "n2", seq)))
    assert [world.state.nodes[node].status is NodeStatus.LOST for node in ("n1", "n2", "n3")] == [False, False, True]


def test_words_of_a_decision_that_did_not_get_into_the_log_are_news_again() -> None:
    fates = iter([Fate.LOST])
    world = busy()
    world.on_append = lambda: next(fates, Fate.KEPT)
    assert kinds(world.tell(together(word("one"), word("two", node="n2")))) == ["JobFinished", "JobFinished"]


def test_a_stepped_clock_goes_by_the_latest_word() -> None:
    world = cell_with(joined("n1"), stepped=True)
    world.run(spec_of("one"))
    world.numbers_words = False
    world.tell(together(word("one", RunStatus.RUNNING, at_ms=20), word("one", seq=11, at_ms=30)))
    assert world.state.at_ms == 30


WORDS = st.builds(
    word,
    st.sampled_from(["one", "two", "gang", "nobody"]),
    st.sampled_from(list(CLASSES)),
    st.sampled_from(["n1", "n2", "n3"]),
    st.integers(1, 40),
    st.sampled_from(["boot-1", "boot-1", "boot-1", "boot-0"]),
    attempt=st.integers(1, 2),
    infrastructure=st.booleans(),
)
NEWS = st.builds(word, st.sampled_from(["one", "two", "gang"]), st.sampled_from(list(CLASSES)), seq=st.integers(11, 40))
"""Words of attempts that run, which are on two of the nodes at most."""


@given(st.lists(st.lists(WORDS | NEWS, min_size=1, max_size=8), min_size=1, max_size=3))
def test_one_record_of_many_words_comes_to_the_same_as_many_records_of_one(
    batches: list[list[n.RunStatusUpdate]],
) -> None:
    first, second = busy(), busy()
    before = dict(first.state.jobs)
    for words in batches:
        assert made_of(first, together(*words)) == made_of(second, *map(alone, words))
    held = [job.id for job in first.state.jobs.values() if job.workers]
    reaches("words of one record end attempts", len(held) < len(before))
    assert (first.state.jobs, first.state.nodes, first.state.finished) == (
        second.state.jobs,
        second.state.nodes,
        second.state.finished,
    )
