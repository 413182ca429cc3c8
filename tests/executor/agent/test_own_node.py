"""The node on which the agent runs: it joins, comes back with what runs, is lost, is replaced, and keeps its lease."""

from __future__ import annotations

import pytest

from fallow.services.executor.policy.journal_recovery import ended_runs, open_runs
from fallow.services.executor.policy.lease import Lease
from fallow.services.executor.policy.machine_agent import OwnNode, keeps_boot
from fallow.services.executor.policy.turn import Observation, Start, Stop, Turn
from fallow.shared.cluster.checks.run_journal import DiaryLine
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import build_valid, replace
from fallow.shared.events.fields.values import NodeSpec, NodeStatus, ObservedRun, ProcessRun, RunStatus
from fallow.shared.events.nodes import NodeReport, seq_max
from fallow.shared.events.reasons import RequeueReason
from tests.executor.worlds.cells import CELL, Writer, node, now, said, written

NODE = node(1)
RUN = ProcessRun(argv=("train",))
BACK_IN_THE_QUEUE = e.JobRequeued(job="job-1", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0)


def in_boot(boot: str, renewed_ms: int = 0) -> OwnNode:
    return OwnNode(CELL, NODE, boot, seq=100, lease=Lease(renewed_ms), report_every_wall_ms=1_000)


def changed(boot: str, status: NodeStatus = NodeStatus.READY, spec: NodeSpec = NODE) -> e.NodeChanged:
    return e.NodeChanged(spec=spec, boot=boot, status=status)


def joined(writer: Writer, own: OwnNode) -> OwnNode:
    """The node has begun and the log knows it."""
    own.begin(writer.state, (), now())
    own.decided(writer.state, [writer.decide(changed(own.agent.boot))], now())
    return own


def with_a_job(writer: Writer) -> OwnNode:
    own = joined(writer, in_boot("boot-a"))
    own.decided(writer.state, [writer.start("job-1", "node-1", run=RUN)], now())
    own.observed([seen(RunStatus.RUNNING)], now())
    return own


def seen(status: RunStatus, job: str = "job-1", attempt: int = 1) -> Observation:
    return Observation("node-1", job, attempt, status)


def line(event: str, job: str = "job-1", status: RunStatus | None = None) -> DiaryLine:
    fields = {"node": "node-1", "job": job, "attempt": 1, "event": event, "devices": (0,), "gpu_milli": 1000}
    return build_valid(DiaryLine, **fields, status=status, cell_ms=0, wall_ms=0)


def did(turn: Turn) -> list[str]:
    return [f"{type(action).__name__} {action.job}/{action.attempt}" for action in turn.actions]


def test_a_boot_is_kept_only_where_the_log_knows_this_node_in_it() -> None:
    writer = Writer([NODE])
    assert keeps_boot(writer.state, NODE, "boot-1")
    assert not keeps_boot(writer.state, NODE, "boot-2")
    assert not keeps_boot(writer.state, node(1, gpus=4), "boot-1")
    assert not keeps_boot(Writer().state, NODE, "boot-1")


def test_a_node_in_a_new_boot_joins_and_closes_what_its_diary_left_open() -> None:
    turn = in_boot("boot-a").begin(Writer().state, [line("started")], now())
    assert said(turn) == ["node-1 NodeJoined boot-a"]
    assert (written(turn), did(turn)) == (["node-1 ended job-1/1"], [])


def test_each_word_of_a_record_is_held_against_its_stamp_also_behind_one_that_was_refused() -> None:
    own, stamped_ms = in_boot("boot-a"), 1_790_000_000_000
    first, *_ = own.begin(Writer().state, (), now()).events
    last = replace(first, seq=seq_max(stamped_ms) + 1)
    own.agent.seq = last.seq
    assert not own.stamped([first, last], stamped_ms), "the first is behind the stamp, the last too far ahead of it"
    assert own.agent.seq == seq_max(stamped_ms)


def test_it_starts_what_is_placed_on_it_and_tells_what_becomes_of_it() -> None:
    writer = Writer()
    own = joined(writer, in_boot("boot-a"))
    turn = own.decided(writer.state, [writer.start("job-1", "node-1", run=RUN)], now())
    assert (did(turn), written(turn)) == (["Start job-1/1"], ["node-1 started job-1/1"])
    assert said(own.observed([seen(RunStatus.RUNNING)], now())) == ["node-1 RunStarted job-1/1"]
    turn = own.observed([seen(RunStatus.FINISHED)], now())
    assert (said(turn), written(turn)) == (["node-1 RunFinished job-1/1"], ["node-1 ended job-1/1"])


def test_a_restarted_agent_goes_on_with_what_the_log_wants_and_stops_the_rest() -> None:
    writer = Writer()
    with_a_job(writer)
    own = in_boot("boot-a")
    turn = own.begin(writer.state, [line("started"), line("started", "gone")], now())
    assert did(turn) == ["Stop gone/1", "Start job-1/1"]
    assert written(turn) == ["node-1 adopted job-1/1"]
    assert said(turn) == ["node-1 NodeReturned boot-a", "node-1 RunStarted job-1/1"]
    assert written(own.observed([seen(RunStatus.STOPPED, "gone")], now())) == ["node-1 ended gone/1"]


def test_an_end_that_stands_in_the_diary_is_said_again_and_nothing_is_begun_again() -> None:
    writer = Writer()
    with_a_job(writer)
    turn = in_boot("boot-a").begin(writer.state, [line("started"), line("ended", status=RunStatus.FINISHED)], now())
    assert (did(turn), said(turn)[1:]) == ([], ["node-1 RunFinished job-1/1"])


def test_a_run_that_the_log_saw_running_and_the_diary_does_not_know_is_over() -> None:
    writer = Writer()
    with_a_job(writer)
    writer.decide(e.JobRunning(job="job-1", attempt=1))
    turn = in_boot("boot-a").begin(writer.state, [], now())
    assert (did(turn), said(turn)[1:]) == ([], ["node-1 RunStopped job-1/1"])


def test_a_node_that_was_given_up_stops_everything_and_tells_of_it_until_nothing_is_left() -> None:
    writer = Writer()
    own = with_a_job(writer)
    lost = writer.decide(
        e.LeaseExpired(node="node-1", boot="boot-a"),
        BACK_IN_THE_QUEUE,
    )
    turn = own.decided(writer.state, [lost], now())
    assert turn.actions == [Stop("node-1", "job-1", 1, 0)]
    assert observed_in(own.tick(writer.state, now(0, 2_000))) == ["job-1/1 stopping"]
    own.observed([seen(RunStatus.STOPPED)], now(0, 2_001))
    assert observed_in(own.tick(writer.state, now(0, 2_002))) == []


def test_a_node_that_the_log_has_forgotten_joins_again() -> None:
    writer = Writer()
    own = with_a_job(writer)
    gone = writer.decide(e.LeaseExpired(node="node-1", boot="boot-a"), BACK_IN_THE_QUEUE, e.NodeRemoved(node="node-1"))
    turn = own.decided(writer.state, [gone], now())
    assert turn.actions == [Stop("node-1", "job-1", 1, 0)]
    assert not own.is_replaced
    assert said(own.tick(writer.state, now(0, 2_000)))[0] == "node-1 NodeJoined boot-a"


def observed_in(turn: Turn) -> list[str]:
    (report,) = [event for event in turn.events if isinstance(event, NodeReport)]
    return [named(run) for run in report.observed]


def named(run: ObservedRun) -> str:
    return f"{run.job}/{run.attempt} {run.status.value}"


def test_a_node_that_somebody_else_speaks_for_stops_its_work_and_says_no_more() -> None:
    writer = Writer()
    own = with_a_job(writer)
    taken = writer.decide(
        BACK_IN_THE_QUEUE,
        changed("boot-b"),
    )
    turn = own.decided(writer.state, [taken], now())
    assert own.is_replaced
    assert did(turn) == ["Stop job-1/1"]
    assert own.tick(writer.state, now(0, 100_000)).events == []
    assert own.renumber([NodeReport(cell=CELL, node="node-1", boot="boot-a", seq=1)]) == []


def test_a_boot_of_which_the_log_does_not_know_yet_is_not_replaced() -> None:
    writer = Writer([NODE])
    own = in_boot("boot-a")
    own.begin(writer.state, (), now())
    own.decided(writer.state, [writer.decide(changed("boot-1", NodeStatus.CORDONED))], now())
    assert not own.is_replaced


def test_the_lease_counts_from_before_its_report_was_sent() -> None:
    writer = Writer()
    own = with_a_job(writer)
    turn = own.tick(writer.state, now(0, 5_000))
    own.confirmed(turn.events, 5_000)
    allowed_ms = 20_000
    assert own.lease_until_ms(writer.state) == 5_000 + allowed_ms
    assert did(own.tick(writer.state, now(0, 5_000 + allowed_ms))) == []
    assert did(own.tick(writer.state, now(0, 5_001 + allowed_ms))) == ["Stop job-1/1"]


def test_a_lease_that_is_lost_cuts_short_a_stop_that_is_under_way() -> None:
    writer = Writer()
    own = with_a_job(writer)
    assert own.decided(writer.state, [writer.stop("job-1")], now()).actions == [Stop("node-1", "job-1", 1, 1_000)]
    assert own.tick(writer.state, now(0, 60_000)).actions == [Stop("node-1", "job-1", 1, 0)]


def test_a_restarted_agent_does_not_live_longer_by_its_restart() -> None:
    writer = Writer()
    with_a_job(writer)
    own = in_boot("boot-a", renewed_ms=1_000)
    turn = own.begin(writer.state, [line("started")], now(0, 15_000))
    assert isinstance(turn.actions[0], Start)
    assert did(own.tick(writer.state, now(0, 30_001))) == ["Stop job-1/1"]


def test_an_agent_that_was_dead_for_longer_than_its_lease_takes_nothing_up() -> None:
    writer = Writer()
    with_a_job(writer)
    own = in_boot("boot-a", renewed_ms=1_000)
    assert did(own.begin(writer.state, [line("started")], now(0, 30_000))) == []
    assert did(own.tick(writer.state, now(0, 30_001))) == ["Stop job-1/1"]


@pytest.mark.parametrize("is_heard_at_once", [True, False])
def test_an_agent_that_was_dead_for_longer_than_its_lease_begins_nothing_before_the_log_can_have_given_it_up(
    is_heard_at_once: bool,
) -> None:
    writer = Writer()
    joined(writer, in_boot("boot-a"))
    writer.start("job-1", "node-1", run=RUN)
    own = in_boot("boot-a", renewed_ms=1_000)
    begun = own.begin(writer.state, (), now(0, 30_000))
    assert (said(begun), did(begun)) == (["node-1 NodeReturned boot-a"], [])
    if not is_heard_at_once:
        assert did(own.tick(writer.state, now(0, 30_001))) == []
    own.confirmed(begun.events, 30_000)
    assert did(own.tick(writer.state, now(0, 30_002))) == []
    assert did(own.tick(writer.state, now(0, 32_002))) == []
    assert own.asks_since_ms == 30_002
    own.caught_up(30_002)
    assert did(own.tick(writer.state, now(0, 32_003))) == ["Start job-1/1"]


def test_an_agent_that_is_back_begins_nothing_while_the_log_takes_its_node_for_silent() -> None:
    """The words with which it came back lie unread: the log may give the node up for its silence before them."""
    writer = Writer()
    joined(writer, in_boot("boot-a"))
    writer.start("job-1", "node-1", run=RUN)
    writer.decide(e.NodeSilent(node="node-1", boot="boot-a", silent_wall_ms=25_000))
    own = in_boot("boot-a", renewed_ms=1_000)
    own.confirmed(own.begin(writer.state, (), now(0, 30_000)).events, 30_000)
    for look_ms in (30_001, 32_001):
        assert did(own.tick(writer.state, now(0, look_ms))) == []
    own.caught_up(30_001)
    assert did(own.tick(writer.state, now(0, 32_002))) == []
    own.decided(writer.state, [writer.decide(e.NodeHeard(node="node-1"))], now(0, 32_003))
    assert did(own.tick(writer.state, now(0, 32_004))) == ["Start job-1/1"]


def test_an_agent_that_stood_still_for_longer_than_its_lease_begins_nothing_of_what_was_ordered_before() -> None:
    writer = Writer()
    own = joined(writer, in_boot("boot-a"))
    turn = own.decided(writer.state, [writer.start("job-1", "node-1", run=RUN)], now(0, 60_000))
    assert (did(turn), written(turn)) == ([], [])


def used_again(writer: Writer, at_ms: int = 5_000) -> OwnNode:
    """A node that ran job-1, which the log has forgotten, and is to run another one of that id."""
    writer.decide(e.PolicySet(policy=replace(writer.state.policy, finished_jobs_max=1)))
    own = with_a_job(writer)
    writer.decide(e.JobRunning(job="job-1", attempt=1))
    writer.decide(e.JobFinished(job="job-1", attempt=1))
    own.observed([seen(RunStatus.FINISHED)], now())
    for other in ("job-2", "job-3"):
        writer.start(other, "node-1", run=RUN)
        writer.decide(e.JobFinished(job=other, attempt=1))
    assert "job-1" not in writer.state.finished
    writer.start("job-1", "node-1", run=RUN, at_ms=at_ms)
    return own


def lines_of(ordered_ms: int, *events: str) -> list[DiaryLine]:
    ends = {"ended": RunStatus.FINISHED}
    return [replace(line(event, status=ends.get(event)), ordered_ms=ordered_ms) for event in events]


def test_a_run_of_an_id_that_was_used_before_is_another_one() -> None:
    writer = Writer()
    own = used_again(writer)
    turn = own.decided(writer.state, writer.log[-6:], now(5_000))
    assert did(turn) == ["Start job-1/1"]
    assert [line.ordered_ms for line in turn.lines] == [5_000]


def test_an_agent_that_comes_back_tells_no_end_of_an_earlier_job_for_the_one_that_runs() -> None:
    writer = Writer()
    used_again(writer)
    diary = [*lines_of(0, "started", "ended"), *lines_of(5_000, "started")]
    turn = in_boot("boot-a").begin(writer.state, diary, now(5_000))
    assert (did(turn), said(turn)[1:]) == (["Start job-1/1"], ["node-1 RunStarted job-1/1"])


def test_an_agent_that_comes_back_begins_what_only_an_earlier_job_of_that_id_has_run() -> None:
    writer = Writer()
    used_again(writer)
    turn = in_boot("boot-a").begin(writer.state, lines_of(0, "started", "ended"), now(5_000))
    assert (did(turn), said(turn)[1:]) == (["Start job-1/1"], [])


DAY_MS = 86_400_000


def of_an_older_release(cell_ms: int, *events: str) -> list[DiaryLine]:
    return [replace(each, ordered_ms=None, cell_ms=cell_ms) for each in lines_of(0, *events)]


def test_lines_of_an_older_release_from_long_before_the_order_are_of_an_earlier_job() -> None:
    writer = Writer()
    used_again(writer, at_ms=DAY_MS)
    turn = in_boot("boot-a").begin(writer.state, of_an_older_release(0, "started", "ended"), now(DAY_MS))
    assert (did(turn), said(turn)[1:]) == (["Start job-1/1"], [])


def test_lines_of_an_older_release_are_of_the_run_whose_order_they_follow() -> None:
    """Also where the clock of the agent that wrote them was behind."""
    writer = Writer()
    used_again(writer, at_ms=DAY_MS)
    turn = in_boot("boot-a").begin(writer.state, of_an_older_release(DAY_MS - 60_000, "started", "ended"), now(DAY_MS))
    assert (did(turn), said(turn)[1:]) == ([], ["node-1 RunFinished job-1/1"])


def test_a_job_begins_once_nothing_is_left_of_the_earlier_one_of_its_id() -> None:
    writer = Writer()
    used_again(writer)
    own = in_boot("boot-a")
    turn = own.begin(writer.state, lines_of(0, "started"), now(5_000))
    assert (did(turn), written(turn)) == (["Stop job-1/1"], [])
    turn = own.observed([seen(RunStatus.STOPPED)], now(5_000))
    assert [(line.event, line.ordered_ms) for line in turn.lines] == [("ended", 0), ("started", 5_000)]
    assert said(own.observed([seen(RunStatus.RUNNING)], now(5_000))) == ["node-1 RunStarted job-1/1"]


def test_a_run_that_was_begun_again_behind_its_end_has_not_ended() -> None:
    begun = DiaryLine(event="started", job="j", attempt=1, node="n1", cell_ms=1, wall_ms=1)
    ended = replace(begun, event="ended", status=RunStatus.FAILED)
    assert list(ended_runs([begun, ended])) == list(open_runs([begun])) != []
    assert not ended_runs([begun, ended, begun])
    assert not open_runs([begun, ended])
