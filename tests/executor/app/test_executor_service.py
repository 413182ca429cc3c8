"""The nodes of one cell in one process, and what happens when another process takes them over."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.executor.policy.lease import SETTLE_MS_MAX
from fallow.services.executor.policy.records import Said
from fallow.services.executor.policy.turn import Turn
from fallow.services.executor.service import ExecutorService
from fallow.shared.cluster.checks.run_journal import DiaryLine, Orders, check_diaries
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RunStatus, VirtualRun
from fallow.shared.events.nodes import RunStatusUpdate, seq_least
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.reasons import RequeueReason
from tests.executor.worlds.cells import CELL, Writer, node, now, said, written
from tests.hypothesis_profile import reaches

BACK_IN_THE_QUEUE = e.JobRequeued(job="a", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0)

BRIEF = VirtualRun(duration_ms=100)
NODES = [node(1), node(2)]
STAMPED_MS = 1_790_000_000_000


@dataclass
class Site:
    """A writer, nodes with diaries on disk, and one executor after the other."""

    writer: Writer
    diaries: dict[str, list[DiaryLine]] = field(default_factory=dict)
    heard: list[Said] = field(default_factory=list)
    seq: int = 0

    def executor(self, cell_ms: int = 0) -> tuple[ExecutorService, Turn]:
        service = ExecutorService(CELL, NODES, 1)
        self.seq += 1_000
        made = service.take_over(0, self.writer.state, self.seq, self.diary, now(cell_ms))
        service.confirmed(made.events, 0)
        self.keep(made)
        for monotonic_ms in (0, SETTLE_MS_MAX, SETTLE_MS_MAX):  # it had time to read what was decided before that
            self.keep(service.tick(self.writer.state, now(cell_ms, monotonic_ms)))
            service.caught_up(service.asking)
        return service, made

    def diary(self, name: str) -> list[DiaryLine]:
        return self.diaries.get(name, [])

    def keep(self, made: Turn) -> Turn:
        for line in made.lines:
            self.diaries.setdefault(line.node, []).append(line)
        self.heard.extend(made.events)
        return made

    def answer(self, service: ExecutorService, made: Turn, at_ms: int = 0) -> Turn:
        """The writer hears these words, and the executor follows what it decides."""
        decisions = self.writer.take_in(made.events, at_ms)
        return self.keep(service.decided(self.writer.state, decisions, now(at_ms)))

    def offences(self) -> list[str]:
        orders = Orders()
        for decision in self.writer.log:
            orders.take(decision)
        lines = [line for name in sorted(self.diaries) for line in self.diaries[name]]
        return [offence.text for offence in check_diaries(orders, lines)]


def test_nodes_that_the_log_does_not_know_join_in_their_first_boot() -> None:
    _, made = Site(Writer()).executor()
    assert said(made) == ["node-1 NodeJoined boot-1", "node-2 NodeJoined boot-1"]


def test_nodes_that_are_ready_return_in_the_same_boot() -> None:
    _, made = Site(Writer(NODES)).executor()
    assert said(made) == ["node-1 NodeReturned boot-1", "node-2 NodeReturned boot-1"]


def test_a_node_that_was_given_up_comes_back_in_a_new_boot_and_with_nothing_left() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1")], now()))
    site.writer.decide(e.LeaseExpired(node="node-1", boot="boot-1"))
    _, made = site.executor()
    assert "node-1 NodeJoined boot-2" in said(made)
    assert written(made) == ["node-1 ended a/1"]


def test_a_node_that_the_log_has_forgotten_joins_again() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1")], now()))
    gone = [
        site.writer.decide(e.LeaseExpired(node="node-1", boot="boot-1"), BACK_IN_THE_QUEUE),
        site.writer.decide(e.NodeRemoved(node="node-1")),
    ]
    service.decided(site.writer.state, gone, now())
    made = service.tick(site.writer.state, now(0, 60_000))
    assert "node-1 NodeJoined boot-1" in said(made)


def test_a_node_that_is_given_up_while_it_works_stops_and_boots_anew() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1")], now()))
    made = service.decided(site.writer.state, [site.writer.decide(e.LeaseExpired(node="node-1", boot="boot-1"))], now())
    again = site.answer(service, site.keep(made))
    assert said(made) == ["node-1 NodeJoined boot-2"]
    assert written(made) == ["node-1 ended a/1"]
    assert (said(again), written(again), site.offences()) == ([], [], [])


def test_a_node_whose_shape_changed_boots_anew() -> None:
    _, made = Site(Writer([node(1, gpus=4), node(2)])).executor()
    assert said(made) == ["node-1 NodeJoined boot-2", "node-2 NodeReturned boot-1"]


def test_a_run_starts_at_once_and_ends_when_its_time_is_over() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    begun = service.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF, at_ms=5)], now(5))
    early, ended = service.tick(site.writer.state, now(104)), service.tick(site.writer.state, now(105))
    assert (said(begun), written(begun)) == (["node-1 RunStarted a/1"], ["node-1 started a/1"])
    assert said(early) == []
    assert (said(ended), written(ended)) == (["node-1 RunFinished a/1"], ["node-1 ended a/1"])


def test_a_run_whose_time_is_over_when_it_starts_ends_in_the_same_turn() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    made = service.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF)], now(100))
    assert said(made) == ["node-1 RunStarted a/1", "node-1 RunFinished a/1"]


def test_a_gang_starts_on_each_of_its_nodes() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    made = service.decided(site.writer.state, [site.writer.start("a", "node-1", "node-2")], now())
    assert said(made) == ["node-1 RunStarted a/1", "node-2 RunStarted a/1"]


def test_a_stop_is_confirmed_at_once() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1")], now()))
    made = service.decided(site.writer.state, [site.writer.stop("a")], now())
    assert (said(made), written(made)) == (["node-1 RunStopped a/1"], ["node-1 ended a/1"])


def test_who_takes_over_adopts_what_runs_and_ends_it_at_the_same_time() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF, at_ms=5)], now(5)))
    other, made = site.executor(cell_ms=50)
    assert [line.event for line in site.diaries["node-1"]] == ["started", "adopted"]
    assert said(made) == ["node-1 NodeReturned boot-1", "node-1 RunStarted a/1", "node-2 NodeReturned boot-1"]
    assert other.next_due_ms() == service.next_due_ms() == 105


def test_who_takes_over_says_again_what_ended_and_was_not_heard() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF)], now(100)))
    _, made = site.executor(cell_ms=200)
    assert "node-1 RunFinished a/1" in said(made)
    assert written(made) == []


def test_who_takes_over_begins_what_nobody_began_some_time_after_its_first_word_has_arrived() -> None:
    site = Site(Writer(NODES))
    site.writer.start("a", "node-1")
    service = ExecutorService(CELL, NODES, 1)
    made = service.take_over(0, site.writer.state, 1_000, site.diary, now())
    assert written(made) == []
    assert written(service.tick(site.writer.state, now(0, 500))) == []
    service.confirmed(made.events, 500)
    assert written(service.tick(site.writer.state, now(0, 510))) == []
    assert written(service.tick(site.writer.state, now(0, 510 + SETTLE_MS_MAX - 1))) == []
    assert written(service.tick(site.writer.state, now(0, 510 + SETTLE_MS_MAX + 1_000))) == []
    service.caught_up(service.asking)
    begun = service.tick(site.writer.state, now(0, 510 + SETTLE_MS_MAX + 1_001))
    assert (said(begun), written(begun)) == (["node-1 RunStarted a/1"], ["node-1 started a/1"])


def test_what_was_ordered_of_a_node_that_the_log_has_forgotten_since_is_not_begun() -> None:
    site = Site(Writer(NODES))
    service = ExecutorService(CELL, NODES, 1)
    made = service.take_over(0, site.writer.state, 1_000, site.diary, now())
    lines = service.decided(site.writer.state, [site.writer.start("a", "node-1")], now()).lines
    gone = site.writer.decide(
        e.LeaseExpired(node="node-1", boot="boot-1"),
        e.JobRequeued(job="a", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0),
        e.NodeRemoved(node="node-1"),
    )
    lines += service.decided(site.writer.state, [gone], now()).lines
    service.confirmed(made.events, 0)
    for look_ms in (0, SETTLE_MS_MAX, SETTLE_MS_MAX + 1, 2 * SETTLE_MS_MAX):
        lines += service.tick(site.writer.state, now(0, look_ms)).lines
        service.caught_up(service.asking)
    assert lines == []


def test_an_executor_that_has_read_the_log_to_an_earlier_end_only_begins_nothing() -> None:
    """Its nodes lost their lease again meanwhile: the log may have given them up behind that end."""
    site = Site(Writer(NODES))
    service, _ = site.executor()
    service.tick(site.writer.state, now(0, 60_000))  # the lease is over
    report = service.tick(site.writer.state, now(0, 70_000))
    service.confirmed(report.events, 70_000)
    for look_ms in (71_000, 71_000 + SETTLE_MS_MAX):
        service.tick(site.writer.state, now(0, look_ms))
    asked = dict(service.asking)
    assert set(asked) == {"node-1", "node-2"}
    again = service.tick(site.writer.state, now(0, 200_000))  # and once more
    service.confirmed(again.events, 200_000)
    service.caught_up(asked)
    site.writer.start("a", "node-1")
    lines = service.decided(site.writer.state, [site.writer.log[-1]], now(0, 200_001)).lines
    for look_ms in (201_000, 201_000 + SETTLE_MS_MAX, 202_000 + SETTLE_MS_MAX):
        lines += service.tick(site.writer.state, now(0, look_ms)).lines
    assert lines == []
    service.caught_up(service.asking)
    begun = service.tick(site.writer.state, now(0, 203_000 + SETTLE_MS_MAX))
    assert written(begun) == ["node-1 started a/1"]


def test_an_executor_that_is_back_begins_nothing_on_a_node_that_the_log_takes_for_silent() -> None:
    """The words with which it came back lie unread: the log may give the node up for its silence before them."""
    site = Site(Writer(NODES))
    service, _ = site.executor()
    service.tick(site.writer.state, now(0, 60_000))  # the lease is over
    ordered = [site.writer.start("a", "node-1")]
    ordered.append(site.writer.decide(e.NodeSilent(node="node-1", boot="boot-1", silent_wall_ms=25_000)))
    service.decided(site.writer.state, ordered, now(0, 60_001))
    report = service.tick(site.writer.state, now(0, 70_000))
    service.confirmed(report.events, 70_000)
    lines = []
    for look_ms in (71_000, 71_000 + SETTLE_MS_MAX, 72_000 + SETTLE_MS_MAX):
        lines += service.tick(site.writer.state, now(0, look_ms)).lines
        service.caught_up(service.asking)
    assert lines == []
    service.decided(site.writer.state, [site.writer.decide(e.NodeHeard(node="node-1"))], now(0, 75_000))
    assert written(service.tick(site.writer.state, now(0, 75_001))) == ["node-1 started a/1"]


WAITS_MS = st.lists(st.integers(0, 3 * SETTLE_MS_MAX), max_size=6).map(sorted)


@given(WAITS_MS, st.one_of(st.none(), st.integers(0, 3 * SETTLE_MS_MAX)), st.integers(0, 200))
def test_a_run_whose_node_the_log_may_have_given_up_stands_still_under_the_executor_that_takes_it_over(
    looks_ms: list[int], arrived_ms: int | None, cell_ms: int
) -> None:
    """Only its first word shows that the log has not, and only once what was decided before that word could be read."""
    site = Site(Writer(NODES))
    first, _ = site.executor()
    site.keep(first.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF)], now()))
    service = ExecutorService(CELL, NODES, 1)
    made = service.take_over(0, site.writer.state, 9_000, site.diary, now(cell_ms))
    lines, heard_ms = [*made.lines], None
    for look_ms in looks_ms:
        if arrived_ms is not None and arrived_ms <= look_ms and heard_ms is None:
            service.confirmed(made.events, look_ms)
            heard_ms = look_ms
        tick = service.tick(site.writer.state, now(cell_ms, look_ms))
        if heard_ms is None or look_ms < heard_ms + SETTLE_MS_MAX:
            lines += tick.lines
    reaches("an executor looks after its first word has arrived", heard_ms is not None)
    assert lines == []


def test_a_run_that_is_told_to_stop_before_the_first_word_of_its_new_executor_has_arrived_is_not_taken_up() -> None:
    site = Site(Writer(NODES))
    first, _ = site.executor()
    site.keep(first.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF)], now()))
    service = ExecutorService(CELL, NODES, 1)
    taken = site.keep(service.take_over(0, site.writer.state, 9_000, site.diary, now(10)))
    site.keep(service.decided(site.writer.state, [site.writer.stop("a")], now(20)))
    service.confirmed(taken.events, 0)
    for look_ms in (0, SETTLE_MS_MAX, 2 * SETTLE_MS_MAX):
        site.keep(service.tick(site.writer.state, now(200, look_ms)))
        service.caught_up(service.asking)
    assert [line.event for line in site.diaries["node-1"]] == ["started", "ended"]
    assert site.offences() == []


def test_who_takes_over_speaks_with_higher_numbers() -> None:
    site = Site(Writer(NODES))
    service, first = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1")], now()))
    _, second = site.executor()
    assert min(event.seq for event in second.events) > max(event.seq for event in first.events)


def test_who_lost_a_slot_says_and_does_nothing_more() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    begun = service.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF)], now())
    service.lose([0])
    late = service.tick(site.writer.state, now(1_000, 60_000))
    ordered = service.decided(site.writer.state, [site.writer.start("b", "node-1")], now(1_000))
    assert (said(late), said(ordered), service.still_ours(begun.events), service.next_due_ms()) == ([], [], [], None)


def test_who_lost_a_slot_and_took_it_again_says_nothing_of_what_its_diary_did_not_take() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    refused = service.decided(site.writer.state, [site.writer.start("a", "node-1", run=BRIEF)], now())
    service.lose([0])  # the reign was another's: no line was written
    site.seq += 1_000
    taken = service.take_over(0, site.writer.state, site.seq, site.diary, now())
    assert said(refused) == ["node-1 RunStarted a/1"]
    assert (service.still_ours(refused.events), service.renumber(refused.events)) == ([], [])
    assert service.still_ours(taken.events) == taken.events


def test_each_node_reports_once_in_its_interval_and_renews_its_lease() -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    made = service.tick(site.writer.state, now(0, 10_000))
    service.confirmed(made.events, 10_000)
    again = service.tick(site.writer.state, now(0, 10_001))
    assert sorted(said(made)) == ["node-1 NodeReport boot-1", "node-2 NodeReport boot-1"]
    assert said(again) == []
    assert [agent.renewed_ms for agent in service.agents.values()] == [10_000, 10_000]


def test_a_node_that_cannot_be_heard_stops_its_work_before_its_lease_is_over() -> None:
    site = Site(Writer(NODES))
    site.writer.decide(e.PolicySet(policy=CellPolicy(node_lease_wall_ms=30_000, lease_margin_wall_ms=10_000)))
    service, _ = site.executor()
    site.keep(service.decided(site.writer.state, [site.writer.start("a", "node-1")], now()))
    made = service.tick(site.writer.state, now(0, 20_001))
    assert "node-1 RunStopped a/1" in said(made)
    assert written(made) == ["node-1 ended a/1"]


def test_a_stepped_cell_rests_between_its_steps() -> None:
    writer = Writer(NODES)
    service = ExecutorService(CELL, NODES, 1, says_by_itself=False)
    service.take_over(0, writer.state, 0, lambda _: [], now())
    assert said(service.tick(writer.state, now(0, 10**9))) == []


def test_each_node_of_a_record_learns_its_stamp_also_behind_one_whose_number_was_refused() -> None:
    service, made = Site(Writer(NODES)).executor()
    assert [event.node for event in made.events] == ["node-1", "node-2"]
    assert not service.stamped(made.events, STAMPED_MS), "a clock that was behind gave these numbers"
    least = seq_least(STAMPED_MS)
    assert [agent.seq for agent in service.agents.values()] == [least, least]


def test_a_node_that_boots_anew_under_its_agent_has_its_numbers_already() -> None:
    """The stamps that they go on at were those of the boot before: its first word may be behind a later stamp."""
    site = Site(Writer(NODES))
    service, made = site.executor()
    service.stamped(made.events, STAMPED_MS)
    lost = site.writer.decide(e.LeaseExpired(node="node-1", boot="boot-1"))
    again = service.decided(site.writer.state, [lost], now())
    assert said(again) == ["node-1 NodeJoined boot-2"]
    assert service.stamped(again.events, STAMPED_MS + 60_000)


def test_words_that_may_not_have_arrived_are_said_again_with_new_numbers() -> None:
    site = Site(Writer(NODES))
    service, made = site.executor()
    again = service.renumber(made.events)
    assert min(event.seq for event in again) > max(event.seq for event in made.events)
    assert [event.node for event in again] == [event.node for event in made.events]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("start", "start", "stop", "answer", "answer", "time", "take over", "expire", "lose words")),
        st.integers(0, 5),
    ),
    max_size=40,
)


def _starts(site: Site, number: int) -> None:
    job = f"job-{number}"
    places = [name for name in ("node-1", "node-2") if site.writer.state.nodes[name].is_schedulable]
    places = [name for name in places if site.writer.state.nodes[name].gpus_free]
    if job not in site.writer.state.jobs and job not in site.writer.state.finished and places:
        site.writer.start(job, places[number % len(places)], run=VirtualRun(duration_ms=100 * number))


@given(STEPS)
def test_whatever_happens_each_run_begins_once_and_the_diaries_agree_with_the_log(steps: list[tuple[str, int]]) -> None:
    site = Site(Writer(NODES))
    service, _ = site.executor()
    at_ms, folded, unheard = 0, len(site.writer.log), 0
    is_taken = False
    for what, number in steps:
        state = site.writer.state
        if what == "start":
            _starts(site, number)
        elif what == "stop":
            running = [job.id for job in state.jobs.values() if job.status in ("starting", "running")]
            _ = [site.writer.stop(job) for job in running[:1]]
        elif what == "answer":
            site.writer.take_in(site.heard[unheard:], at_ms)
            unheard = len(site.heard)
        elif what == "lose words":
            unheard = len(site.heard)
        elif what == "time":
            at_ms += 70 * number
        elif what == "expire" and state.nodes["node-1"].status == "ready" and not state.nodes["node-1"].jobs:
            site.writer.decide(e.LeaseExpired(node="node-1", boot=state.nodes["node-1"].boot))
        elif what == "take over":
            service, _ = site.executor(at_ms)
            is_taken |= bool(site.diaries)
            folded = len(site.writer.log)
        site.keep(service.decided(site.writer.state, site.writer.log[folded:], now(at_ms)))
        folded = len(site.writer.log)
        site.keep(service.tick(site.writer.state, now(at_ms)))
    begun = [
        (line.node, line.job, line.attempt)
        for lines in site.diaries.values()
        for line in lines
        if line.event == "started"
    ]
    reaches("an executor takes over nodes that have begun runs", is_taken)
    assert len(begun) == len(set(begun))
    assert site.offences() == []


@given(st.integers(1, 500), st.integers(0, 600), st.integers(0, 600))
def test_a_run_ends_at_the_same_time_whoever_looks_after_it(duration_ms: int, first_ms: int, second_ms: int) -> None:
    site = Site(Writer(NODES))
    site.writer.start("a", "node-1", run=VirtualRun(duration_ms=duration_ms), at_ms=7)
    for at_ms in (0, *sorted((first_ms, second_ms))):
        service, _ = site.executor(7 + at_ms)
        site.keep(service.tick(site.writer.state, now(7 + at_ms)))
    over = [event for event in site.heard if isinstance(event, RunStatusUpdate) and event.status is RunStatus.FINISHED]
    reaches("a run is over when it is looked at", over)
    due = 7 + duration_ms
    assert service.next_due_ms() == (None if over else due)
    assert not over or 7 + max(first_ms, second_ms) >= due
