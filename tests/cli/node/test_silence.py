"""What a person is told of silent and lost nodes, and of the jobs that wait for them."""

from __future__ import annotations

import pytest

from fallow.cli.job.story.reason import as_object, lines, reason_in
from fallow.cli.log.why import DEFERRED
from fallow.cli.node.silence import silence, silence_lines
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Resources
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.reasons import PendingReason
from tests.cluster.worlds.examples import cell, enqueued, node, place, started, then

NOON_MS = 1_800_000_000_000
"""2027-01-15 08:00 UTC."""

POLICY = CellPolicy(node_lease_wall_ms=30_000, lease_margin_wall_ms=10_000, breaker_nodes_per_minute=7)
WHOLE = Resources(gpu_milli=8_000)


def silent(name: str, ms: int) -> e.NodeSilent:
    return e.NodeSilent(node=name, boot="boot-1", silent_wall_ms=ms)


def lost(name: str) -> e.LeaseExpired:
    return e.LeaseExpired(node=name, boot="boot-1")


def a_cell(nodes: int, *effects: e.Effect) -> CellState:
    return cell(e.PolicySet(policy=POLICY), *(node(f"n{number}") for number in range(nodes)), *effects)


def told(state: CellState) -> str:
    return "\n".join(silence_lines(state, [state.nodes[name] for name in sorted(state.nodes)]))


def why(state: CellState, job: str) -> str:
    found = reason_in(state, job, ())
    assert found is not None
    return "\n".join(lines(*found, list(silence_lines(state, found[0].away))))


def test_a_time_before_which_a_job_does_not_start_is_told_until_it_is_over() -> None:
    state = cell(node("n1"), enqueued("early", not_before_ms=5_000, resources=WHOLE))
    waits = why(state, "early")
    assert "not_before" in waits
    assert "  not before day 0 00:00:05.000" in waits
    assert "not before" not in why(then(state, node("n2"), at_ms=5_001), "early")


def test_of_a_silent_node_it_is_told_since_when_and_when_it_is_lost() -> None:
    state = then(a_cell(8), silent("n3", 15_000), at_ms=NOON_MS)
    line = (
        "Node n3 has been silent since 2027-01-15 07:59:45.000Z and gets no new work; it is declared lost at "
        "2027-01-15 08:00:25.000Z unless it reports before."
    )
    assert told(state) == line
    # The silence, noted again as it grows, began at the same time; and a snapshot keeps it.
    assert told(then(state, silent("n3", 22_500), at_ms=NOON_MS + 7_500)) == line
    assert told(state_from(rows_of(state))) == line
    assert told(then(state, e.NodeHeard(node="n3"), at_ms=NOON_MS + 8_000)) == ""


def test_in_a_cell_that_counts_its_own_time_durations_are_told() -> None:
    assert told(then(a_cell(8), silent("n3", 15_000), at_ms=60_000)) == (
        "Node n3 has been silent for 15.0 s or more and gets no new work; it is declared lost after 40.0 s of silence "
        "unless it reports before."
    )


def test_where_many_are_silent_the_breaker_is_told() -> None:
    state = then(a_cell(8), *(silent(f"n{number}", 15_000) for number in range(7)), at_ms=NOON_MS)
    found = told(state).splitlines()
    assert len(found) == 7
    assert found[0].endswith("it is declared lost at 2027-01-15 08:05:25.000Z at the earliest.")
    assert found[5] == "2 more nodes are silent."
    assert found[6] == (
        "7 nodes silent; node loss paused for 5 min, then limited to 7 nodes a minute. "
        "If a node is powered off, run: fallow node lost NODE"
    )


def test_where_the_breaker_holds_the_end_of_its_wait_is_told() -> None:
    fell = [silent(f"n{number}", 15_000) for number in range(7)]
    state = then(a_cell(8), *fell, at_ms=NOON_MS)
    held = then(state, e.EvictionsHeld(silent=7, held_wall_ms=240_000), at_ms=NOON_MS + 265_000)
    assert "it is declared lost at 2027-01-15 08:05:25.000Z at the earliest." in told(held)
    over = then(held, e.EvictionsHeld(silent=7, held_wall_ms=310_000), at_ms=NOON_MS + 335_000)
    assert told(over).count("it is declared lost as soon as the limit lets it be.") == 5
    assert "7 nodes silent; node loss limited to 7 nodes a minute." in told(over)
    few = then(over, *(e.NodeHeard(node=f"n{number}") for number in range(1, 7)), at_ms=NOON_MS + 340_000)
    assert "1 node silent; node loss limited to 7 nodes a minute." in told(few)


def test_nodes_that_were_lost_of_late_count_for_people_as_they_do_for_placement() -> None:
    fell = [lost(name) for name in ("n0", "n1")]
    state = then(a_cell(8), *fell, at_ms=NOON_MS)
    state = then(state, silent("n2", 15_000), at_ms=NOON_MS + 60_000)
    assert "1 node silent; node loss paused for 5 min" in told(state)
    later = then(state, e.NodeHeard(node="n2"), at_ms=NOON_MS + 400_000)
    later = then(later, silent("n2", 15_000), at_ms=NOON_MS + 500_000)
    assert "node loss" not in told(later)


def test_the_silence_of_a_node_grows_while_nothing_more_is_noted() -> None:
    state = then(a_cell(8), silent("n3", 15_000), at_ms=NOON_MS)
    assert silence(state.nodes["n3"], NOON_MS + 105_000) == "silent 2 min"
    assert silence(state.nodes["n2"], NOON_MS + 105_000) == ""
    own_time = then(a_cell(8), silent("n3", 15_000), at_ms=60_000)
    assert silence(own_time.nodes["n3"], NOON_MS) == "silent 15.0 s or more"


def test_a_job_that_waits_because_nodes_are_lost_is_told_which() -> None:
    gang = enqueued("gang", workers=3, resources=WHOLE)
    state = then(
        a_cell(3, gang, e.JobDeferred(job="gang", code=PendingReason.NO_SUCH_NODES)), lost("n1"), at_ms=NOON_MS
    )
    assert "why it waits: no_such_nodes" in why(state, "gang")
    assert "Node n1 has been lost since 2027-01-15 08:00:00.000Z." in why(state, "gang")
    found = reason_in(state, "gang", ())
    assert found is not None
    assert as_object(found[0])["away"] == [
        {"node": "n1", "status": "lost", "lost_ms": NOON_MS, "silent_wall_ms": 0},
    ]


def test_what_is_recorded_names_the_nodes_too_where_nothing_keeps_the_job_now() -> None:
    gang = enqueued("gang", workers=2, resources=WHOLE)
    state = then(
        a_cell(3, gang, e.JobDeferred(job="gang", code=PendingReason.NO_SUCH_NODES)), lost("n1"), at_ms=NOON_MS
    )
    assert "nothing keeps it now" in why(state, "gang")
    assert "it was no_such_nodes" in why(state, "gang")
    assert "Node n1 has been lost since" in why(state, "gang")


def test_a_job_that_waits_for_silent_nodes_is_told_which() -> None:
    state = then(a_cell(2, enqueued("job", resources=WHOLE)), silent("n0", 15_000), silent("n1", 15_000), at_ms=NOON_MS)
    assert "why it waits: nodes_silent" in why(state, "job")
    assert why(state, "job").count("has been silent since 2027-01-15 07:59:45.000Z") == 2


@pytest.mark.parametrize("spec", [{"gpu_type": "other"}, {"pools": ("elsewhere",)}])
def test_nodes_that_the_job_could_not_use_are_not_named(spec: dict[str, object]) -> None:
    state = then(a_cell(2, enqueued("job", resources=WHOLE, **spec)), lost("n0"), at_ms=NOON_MS)
    assert "n0" not in why(state, "job")


def test_a_job_that_waits_for_something_else_is_not_told_of_nodes() -> None:
    state = then(a_cell(2, enqueued("job", resources=WHOLE), e.JobHeld(job="job")), lost("n0"), at_ms=NOON_MS)
    assert "n0" not in why(state, "job")


def test_a_running_job_is_told_of_its_own_silent_node() -> None:
    state = then(
        a_cell(8, enqueued("job", resources=WHOLE), started("job", place(0, "n2", *range(8)))),
        silent("n2", 15_000), silent("n3", 15_000), at_ms=NOON_MS,
    )  # fmt: skip
    held = [state.nodes[each.node] for each in state.jobs["job"].workers]
    assert [line.split()[1] for line in silence_lines(state, held)] == ["n2"]


def test_the_words_of_no_such_nodes_allow_for_lost_ones() -> None:
    assert "not lost" in DEFERRED[PendingReason.NO_SUCH_NODES]
