"""One node's agent: what it does with any order and repetition of desired states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.policy.agent import NodeAgent
from fallow.services.executor.policy.desired import Action, DesiredRun
from fallow.services.executor.policy.turn import Observation, Start, Stop, Turn
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.fields.values import GPU, RunStatus, VirtualRun, WorkerPlace
from fallow.shared.events.nodes import SEQ_PER_MS, NodeReport, NodeReturned, seq_max
from fallow.shared.events.operations import CellPolicy
from tests.executor.worlds.cells import CELL, node, now, said
from tests.hypothesis_profile import reaches

BROKER_MS = 1_700_000_000_000
"""The wall time of the broker."""


def agent() -> NodeAgent:
    return NodeAgent(CELL, node(1), "boot-1", seq=0, now_ms=0)


def informed() -> NodeAgent:
    made = agent()
    made.desire_all(turn(), "boot-1", 1, [])
    return made


def turn(monotonic_ms: int = 0) -> Turn:
    return Turn(now(0, monotonic_ms))


def wanted(job: str, attempt: int = 1, action: Action = Action.RUN, device: int = 0, milli: int = GPU) -> DesiredRun:
    place = WorkerPlace(rank=0, node="node-1", devices=(device,), gpu_milli=milli)
    return DesiredRun(job, attempt, action, (place,), VirtualRun(), 0)


def orders(made: Turn) -> list[str]:
    return [f"{order.__class__.__name__} {order.job}/{order.attempt}" for order in made.actions]


def seen(job: str, status: RunStatus, attempt: int = 1) -> Observation:
    return Observation("node-1", job, attempt, status)


@pytest.mark.parametrize("seq", [seq_max(BROKER_MS), LARGEST_INTEGER - 1])
def test_an_agent_whose_numbers_no_reader_takes_begins_above_all_that_readers_have_taken(seq: int) -> None:
    made, told = NodeAgent(CELL, node(1), "boot-1", seq=seq, now_ms=0), turn()
    assert not made.number_by(made.next_seq(), BROKER_MS)
    made.report(told, CellPolicy())
    assert [event.seq for event in told.events] == [seq_max(BROKER_MS) + 1]
    assert made.has_said(told.events[0])


def test_an_agent_of_a_clock_that_was_behind_goes_on_at_the_stamp_of_its_first_words() -> None:
    made = NodeAgent(CELL, node(1), "boot-1", seq=1_000, now_ms=0)
    assert not made.number_by(made.next_seq(), BROKER_MS)
    assert made.next_seq() == BROKER_MS * SEQ_PER_MS + 1
    assert made.number_by(BROKER_MS * SEQ_PER_MS + 1, BROKER_MS + 60_000), "later words may be behind their stamps"


@pytest.mark.parametrize("hours", [0, 12, 23])
def test_numbers_that_readers_take_go_on_as_they_are(hours: int) -> None:
    begun = (BROKER_MS + hours * 3_600_000) * SEQ_PER_MS
    made = NodeAgent(CELL, node(1), "boot-1", seq=begun, now_ms=0)
    assert made.number_by(made.next_seq(), BROKER_MS)
    assert made.next_seq() == begun + 2


def test_nothing_starts_before_the_first_full_desired_state() -> None:
    made, first, second = agent(), turn(), turn()
    made.desire(first, 5, "a", wanted("a"))
    made.desire_all(second, "boot-1", 5, [wanted("a")])
    assert (orders(first), orders(second)) == ([], ["Start a/1"])


def test_a_repeated_desired_state_does_nothing() -> None:
    made, again = agent(), turn()
    made.desire_all(turn(), "boot-1", 5, [wanted("a")])
    made.desire_all(again, "boot-1", 5, [wanted("a")])
    made.desire(again, 5, "a", wanted("a"))
    assert (orders(again), again.events) == ([], [])


def test_a_lower_attempt_is_refused() -> None:
    made, late = informed(), turn()
    made.desire(turn(), 2, "a", wanted("a", attempt=2))
    made.desire(late, 2, "a", wanted("a", attempt=1, device=3))
    assert orders(late) == []


def test_an_older_desired_state_is_refused() -> None:
    made, late = informed(), turn()
    made.desire(turn(), 7, "a", None)
    made.desire_all(late, "boot-1", 6, [wanted("a")])
    assert orders(late) == []


def test_what_was_ordered_of_another_boot_never_starts() -> None:
    made, first, second = agent(), turn(), turn()
    made.desire_all(first, "boot-0", 5, [wanted("a")])
    made.desire_all(second, "boot-1", 6, [wanted("a"), wanted("b", device=1)])
    assert (orders(first), orders(second)) == ([], ["Start b/1"])
    assert made.runs["a"].status is RunStatus.STOPPED


def test_a_run_that_was_told_to_stop_before_it_started_never_starts() -> None:
    made, stop, late = informed(), turn(), turn()
    made.desire(stop, 2, "a", wanted("a", action=Action.STOP))
    made.desire(late, 2, "a", wanted("a"))
    assert (orders(stop), orders(late)) == ([], [])
    assert said(stop) == ["node-1 RunStopped a/1"]
    assert stop.lines == []


def test_a_run_waits_for_a_device_that_is_still_in_use() -> None:
    made, crowded, freed = informed(), turn(), turn()
    made.desire(turn(), 2, "a", wanted("a"))
    made.observe(turn(), seen("a", RunStatus.RUNNING))
    made.desire(crowded, 3, "a", None)
    made.desire(crowded, 3, "b", wanted("b"))
    made.observe(freed, seen("a", RunStatus.STOPPED))
    assert (orders(crowded), orders(freed)) == (["Stop a/1"], ["Start b/1"])
    assert [line.event for line in freed.lines] == ["ended", "started"]


def test_shares_of_one_device_run_side_by_side() -> None:
    made, both = informed(), turn()
    made.desire(both, 2, "a", wanted("a", milli=400))
    made.desire(both, 2, "b", wanted("b", milli=600))
    made.desire(both, 2, "c", wanted("c", milli=100))
    assert orders(both) == ["Start a/1", "Start b/1"]


def test_a_share_that_is_ordered_again_waits_for_its_own_end_though_its_device_has_room_for_both() -> None:
    made, again, freed = informed(), turn(), turn()
    made.desire(turn(), 2, "a", wanted("a", milli=400))
    made.observe(turn(), seen("a", RunStatus.RUNNING))
    made.desire(turn(), 3, "a", None)
    made.desire(again, 4, "a", wanted("a", milli=400))
    made.observe(freed, seen("a", RunStatus.STOPPED))
    assert (orders(again), orders(freed)) == ([], ["Start a/1"])


def test_a_new_attempt_begins_when_nothing_is_left_of_the_one_before() -> None:
    made, again, freed = informed(), turn(), turn()
    made.desire(turn(), 2, "a", wanted("a"))
    made.desire(again, 3, "a", wanted("a", attempt=2))
    made.observe(freed, seen("a", RunStatus.STOPPED, attempt=1))
    assert (orders(again), orders(freed)) == (["Stop a/1"], ["Start a/2"])


def test_news_of_a_run_that_is_over_is_no_news() -> None:
    made, again = informed(), turn()
    made.desire(turn(), 2, "a", wanted("a"))
    made.observe(turn(), seen("a", RunStatus.FINISHED))
    made.observe(again, seen("a", RunStatus.FAILED))
    assert (again.events, made.runs["a"].status) == ([], RunStatus.FINISHED)


def test_an_agent_whose_lease_cannot_be_renewed_stops_its_own_work() -> None:
    made, in_time, late = informed(), turn(20_000), turn(20_001)
    made.desire(turn(), 2, "a", wanted("a"))
    made.keep_lease(in_time, 20_000)
    made.keep_lease(late, 20_000)
    assert (orders(in_time), orders(late)) == ([], ["Stop a/1"])


def test_an_agent_that_is_never_heard_stops_what_it_took_up_when_that_ones_lease_is_over() -> None:
    made, late = informed(), turn(20_001)
    made.is_heard, made.has_lapsed = False, True
    made.adopt(turn(), wanted("a"), is_new_to_log=False)
    made.keep_lease(late, 20_000)
    assert orders(late) == ["Stop a/1"]


def test_an_agent_without_a_lease_starts_nothing_until_it_is_renewed() -> None:
    made, without, renewed = informed(), turn(), turn(21_000)
    made.keep_lease(turn(20_001), 20_000)
    made.desire(without, 2, "a", wanted("a"))
    made.renew(20_500)
    made.keep_lease(renewed, 20_000)
    assert (orders(without), orders(renewed), made.asks_since_ms) == ([], [], 21_000)
    made.caught_up(21_000)
    made.keep_lease(renewed, 20_000)
    assert (orders(renewed), made.asks_since_ms) == (["Start a/1"], None)


def test_an_agent_that_is_back_starts_nothing_while_the_log_takes_its_node_for_silent() -> None:
    """Its new words lie unread behind others. As of an earlier moment the node may still be lost."""
    made, silent, heard = informed(), turn(21_000), turn(22_000)
    made.keep_lease(turn(20_001), 20_000)
    made.desire(turn(), 2, "a", wanted("a"))
    made.renew(20_500)
    made.keep_lease(silent, 20_000, is_silent=True)
    made.caught_up(21_000)
    made.keep_lease(silent, 20_000, is_silent=True)
    made.keep_lease(heard, 20_000)
    assert (orders(silent), orders(heard)) == ([], ["Start a/1"])


def test_a_report_tells_every_run_until_the_log_has_taken_it_as_over() -> None:
    made, first, second = informed(), turn(), turn()
    made.desire(turn(), 2, "a", wanted("a"))
    made.observe(turn(), seen("a", RunStatus.FINISHED))
    made.report(first, CellPolicy())
    made.desire(turn(), 3, "a", None)
    made.report(second, CellPolicy())
    assert isinstance(first.events[0], NodeReport)
    assert isinstance(second.events[0], NodeReport)
    assert [run.status for run in first.events[0].observed] == [RunStatus.FINISHED]
    assert second.events[0].observed == ()


JOBS = ("a", "b", "c")
full_states = st.tuples(
    st.integers(0, 30),
    st.sampled_from(("boot-1", "boot-1", "boot-1", "boot-0")),
    st.dictionaries(
        st.sampled_from(JOBS), st.tuples(st.integers(1, 3), st.sampled_from(list(Action)), st.integers(0, 1))
    ),
)
observations = st.tuples(st.sampled_from(JOBS), st.integers(1, 3), st.sampled_from(list(RunStatus)))


class Watch:
    """Follows an agent's orders and holds it to its promises."""

    def __init__(self) -> None:
        self.agent = agent()
        self.begun: list[tuple[str, int]] = []
        self.live: dict[tuple[str, int], int] = {}

    def desire(self, version: int, boot: str, runs: dict[str, tuple[int, Action, int]]) -> None:
        made = turn()
        states = [wanted(job, attempt, action, device) for job, (attempt, action, device) in runs.items()]
        self.agent.desire_all(made, boot, version, states)
        self.follow(made)

    def observe(self, job: str, attempt: int, status: RunStatus) -> None:
        if (job, attempt) in self.live:
            made = turn()
            if status in (RunStatus.STOPPED, RunStatus.FINISHED, RunStatus.FAILED):
                del self.live[job, attempt]
            self.agent.observe(made, seen(job, status, attempt))
            self.follow(made)

    def follow(self, made: Turn) -> None:
        for order in made.actions:
            if isinstance(order, Start):
                assert order.places[0].devices[0] not in self.live.values()
                self.begun.append((order.job, order.attempt))
                self.live[order.job, order.attempt] = order.places[0].devices[0]
            else:
                assert isinstance(order, Stop)
                assert (order.job, order.attempt) in self.live


AgentSteps = list[tuple[int, str, dict[str, tuple[int, Action, int]]] | tuple[str, int, RunStatus]]


def in_order(steps: AgentSteps) -> AgentSteps:
    """These steps where each desired state is newer than the one before it."""
    return [(at, *step[1:]) if isinstance(step[2], dict) else step for at, step in enumerate(steps, 1)]


agent_steps = st.lists(st.one_of(full_states, observations), max_size=40)
newer_steps = st.lists(st.one_of(full_states, observations, observations), min_size=6, max_size=40).map(in_order)


@given(agent_steps | newer_steps)
def test_desired_states_and_observations_in_any_order_keep_one_run_per_device_and_no_run_without_a_start(
    steps: AgentSteps,
) -> None:
    watch = Watch()
    for step in steps:
        if isinstance(step[2], dict):
            watch.desire(*step)
        else:
            watch.observe(*step)
    reaches("several runs begin on a node, and one is over", len(watch.begun) > max(1, len(watch.live)))
    assert all(key in watch.begun for key in watch.live)


def test_a_node_with_more_runs_than_a_record_holds_reports_them_in_parts_under_numbers_of_their_own() -> None:
    made, told = agent(), turn()
    runs = [wanted(f"job-{number}", milli=1) for number in range(5_000)]
    made.desire_all(turn(), "boot-1", 1, runs)
    made.report(told, CellPolicy())
    made.come_back(told, CellPolicy())
    reports = [event for event in told.events if isinstance(event, NodeReport | NodeReturned)]
    assert all(each.partial for each in reports)
    assert len({each.seq for each in reports}) == len(reports)
    seen_first = [run.job for each in reports[: len(reports) // 2] for run in each.observed]
    seen_again = [run.job for each in reports[len(reports) // 2 :] for run in each.observed]
    assert seen_first == seen_again == [run.job for run in runs]


def test_a_report_of_few_runs_is_whole() -> None:
    made, told = informed(), turn()
    made.desire(turn(), 2, "a", wanted("a"))
    made.report(told, CellPolicy())
    assert [each.partial for each in told.events if isinstance(each, NodeReport)] == [False]


@given(st.lists(st.sampled_from(("order", "order the same device", "late", "renew", "caught up", "adopt")), max_size=8))
def test_at_rest_there_is_nothing_to_do_when_leases_are_looked_at(steps: list[str]) -> None:
    made, now_ms, allowed_ms = informed(), 0, 20_000
    rests = set[bool]()
    made.is_heard = "adopt" not in steps
    for number, step in enumerate(steps):
        now_ms += 1_000
        if step.startswith("order"):
            made.desire(
                turn(now_ms), 2 + number, f"{number}", wanted(f"{number}", device=0 if "same" in step else number)
            )
        elif step == "late":
            now_ms += allowed_ms + 1
        elif step == "renew":
            made.renew(now_ms)
        elif step == "caught up" and made.asks_since_ms is not None:
            made.caught_up(made.asks_since_ms)
        was_at_rest, looked = made.is_at_rest(now_ms, allowed_ms), turn(now_ms)
        rests.add(was_at_rest)
        made.keep_lease(looked, allowed_ms)
        if was_at_rest:
            assert (looked.actions, looked.lines, looked.events, made.asks_since_ms) == ([], [], [], None)
            assert made.is_at_rest(now_ms, allowed_ms)

    reaches("an agent is at rest at one time, and not at another one", len(rests) > 1)
