"""I1 to I5 and the log's form: each rule passes what is right and catches what breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import Decision, next_chain
from fallow.shared.events.fields.value import replace as changed
from fallow.shared.events.fields.values import JobKind, NodeRole, Resources
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.reasons import ClearReason, FailReason, PreemptionCause, RequeueReason, StopReason
from tests.cluster.worlds.examples import enqueued, node, place, quota, requeued, started, stopping
from tests.simulator.history.story import CELL, finished_gang, two_nodes, with_gang


def test_a_good_run_breaks_nothing() -> None:
    assert finished_gang().broken(is_drained=True) == []


def test_the_checker_needs_no_times_and_no_diaries() -> None:
    assert finished_gang().broken(happened=(), diary=()) == []


def test_a_record_of_a_stale_version_is_passed_over() -> None:
    stale = encode(Decision(cell=CELL, version=2, epoch=1, at_ms=0, effects=(enqueued("other"),)))
    assert finished_gang().record(stale, "0" * 32).broken(is_drained=True) == []


def test_bytes_of_a_stranger_are_passed_over() -> None:
    assert finished_gang().record(b"\xff", "").broken(is_drained=True) == []


def test_a_record_that_does_not_continue_the_chain_is_damage() -> None:
    value = encode(Decision(cell=CELL, version=4, epoch=1, at_ms=0))
    story = with_gang().decide(e.JobRunning(job="gang", attempt=1))
    assert story.record(value, "0" * 32).broken() == ["LOG"]


def test_a_cell_whose_log_was_harmed_may_stand_still() -> None:
    value = encode(Decision(cell=CELL, version=3, epoch=1, at_ms=0))
    assert with_gang().record(value, "0" * 32).broken(is_damaged=True) == []


def test_nobody_writes_behind_a_damaged_record() -> None:
    damaged = encode(Decision(cell=CELL, version=3, epoch=1, at_ms=0))
    story = with_gang().record(damaged, "0" * 32)
    behind = encode(Decision(cell=CELL, version=4, epoch=1, at_ms=0))
    assert story.record(behind, next_chain("0" * 32, behind)).broken(is_damaged=True) == ["LOG"]


def test_a_missing_version_is_damage() -> None:
    value = encode(Decision(cell=CELL, version=5, epoch=1, at_ms=0))
    assert with_gang().record(value, "0" * 32).broken() == ["LOG"]


def test_an_unreadable_record_of_the_cells_own_writer_is_damage() -> None:
    story = with_gang()
    assert story.record(b"{}", next_chain(story.chain, b"{}")).broken() == ["LOG"]


def test_behind_a_record_of_a_later_release_that_cannot_be_read_a_cell_stands_still() -> None:
    story = with_gang()
    story.record(b"{}", next_chain(story.chain, b"{}"))
    assert story.broken(is_damaged=True) == []
    behind = encode(Decision(cell=CELL, version=4, epoch=1, at_ms=0))
    assert story.record(behind, next_chain("0" * 32, behind)).broken(is_damaged=True) == ["LOG"]


@pytest.mark.parametrize("fields", [{"at_ms": 4}, {"inputs": {"jobs-0": 1}}, {"epoch": 1}], ids=str)
def test_time_positions_and_epochs_never_go_back(fields: dict[str, Any]) -> None:
    story = two_nodes().decide(at_ms=5, inputs={"jobs-0": 2}, epoch=2)
    assert story.decide(**{"at_ms": 5, "epoch": 2, **fields}).broken() == ["LOG"]


SINGLE = enqueued("one", tenant="eve")
HOUSE = [quota("house", limit=2), quota("ada", limit=None, parent="house"), quota("eve", limit=None, parent="house")]

BECOMES_ANOTHER = changed(node("n1", gpus=2), offered=node("n1", gpus=8).spec)
SILENT = e.NodeSilent(node="n1", boot="boot-1", silent_wall_ms=20_000)
NO_QUOTA = e.QuotaRemoved(tenant="ada", gpu_type="gpu")
KEPT = [enqueued("first"), e.ReservationSet(job="first", workers=(place(0, "n1", 1),), start_ms=100)]

WAITS, GRACE_MS = enqueued("first"), 30_000
YIELDS = e.JobStopping(job="gang", attempt=1, why=StopReason.PRIORITY, for_whom="first", grace_wall_ms=GRACE_MS)
ROOM = e.RoomHeld(
    job="first", cause=PreemptionCause.PRIORITY, workers=(place(0, "n1", 0),), victims=1, until_ms=100, proposal="p-1"
)

ONE_RECORD: dict[str, tuple[str, list[Any]]] = {
    "a device is held twice": ("I1", [SINGLE, started("one", place(0, "n1", 0))]),
    "a device does not exist": ("I1", [SINGLE, started("one", place(0, "n1", 2))]),
    "a node does not exist": ("I1", [SINGLE, started("one", place(0, "n9", 0))]),
    "a device has failed": (
        "I1",
        [SINGLE, e.DeviceChanged(node="n1", device=1, healthy=False), started("one", place(0, "n1", 1))],
    ),
    "a node is lost": ("I1", [SINGLE, e.LeaseExpired(node="n1", boot="boot-1"), started("one", place(0, "n1", 1))]),
    "more CPU than there is": (
        "I1",
        [
            enqueued("one", resources=Resources(cpu_milli=64_001)),
            started("one", place(0, "n1", 1, cpu=64_001)),
        ],
    ),
    "more memory than there is": (
        "I1",
        [
            enqueued("one", resources=Resources(memory_mib=100_001)),
            started("one", place(0, "n1", 1, memory=100_001)),
        ],
    ),
    "shares add up to more than a device": (
        "I1",
        [
            enqueued("one", workers=2, resources=Resources(gpu_milli=501)),
            started("one", place(0, "n1", 1, milli=501), place(1, "n1", 1, milli=501)),
        ],
    ),
    "a node in use changes its devices": ("I1", [node("n1", gpus=4)]),
    "a node is to become another": (
        "I1",
        [BECOMES_ANOTHER, SINGLE, started("one", place(0, "n1", 1))],
    ),
    "a node is removed that lives": ("I1", [node("n9"), e.NodeRemoved(node="n9")]),
    "a job is accepted twice": ("I2", [SINGLE, SINGLE]),
    "a job starts that was not submitted": ("I2", [started("one", place(0, "n1", 1))]),
    "a job starts while it runs": ("I2", [started("gang", place(0, "n1", 1), place(1, "n2", 1), attempt=2)]),
    "a job ends twice": ("I2", [SINGLE, e.JobCancelled(job="one"), e.JobCancelled(job="one")]),
    "a waiting job finishes": ("I2", [SINGLE, e.JobFinished(job="one", attempt=1)]),
    "a waiting job fails": ("I2", [SINGLE, e.JobFailed(job="one", reason=FailReason.RETRIES_EXHAUSTED)]),
    "a running job is cancelled at once": ("I2", [e.JobCancelled(job="gang")]),
    "a job that is over is accepted again": ("I2", [SINGLE, e.JobCancelled(job="one"), SINGLE]),
    "a job starts before its time": (
        "I2",
        [stopping("gang"), requeued("gang", 99), started("gang", place(0, "n1", 0), place(1, "n2", 0), attempt=2)],
    ),
    "a cancelled job is queued again": (
        "I2",
        [stopping("gang", StopReason.CANCELLED), requeued("gang")],
    ),
    "another tenant updates a job": ("I2", [e.JobUpdated.of(enqueued("gang", tenant="eve", workers=2).spec)]),
    "a gang starts in parts": ("I3", [enqueued("pair", workers=2), started("pair", place(0, "n1", 1))]),
    "two workers have one rank": (
        "I3",
        [enqueued("pair", workers=2), started("pair", place(0, "n1", 1), place(0, "n2", 1))],
    ),
    "a worker gets less than it asked for": (
        "I3",
        [enqueued("one", resources=Resources(gpu_milli=500)), started("one", place(0, "n1", 1, milli=400))],
    ),
    "a job starts in a pool that it does not accept": (
        "I3",
        [enqueued("one", pools=("other",)), started("one", place(0, "n1", 1))],
    ),
    "a job starts on another type": ("I3", [enqueued("one", gpu_type="h100"), started("one", place(0, "n1", 1))]),
    "a tenant passes its limit": ("I4", [quota("eve", limit=0), SINGLE, started("one", place(0, "n1", 1))]),
    "a parent passes its limit": (
        "I4",
        [*HOUSE, SINGLE, started("one", place(0, "n1", 1))],
    ),
    "a quota is removed under living jobs": ("I4", [quota("ada", limit=8), NO_QUOTA]),
    "a quota is removed that was not set": ("I4", [changed(NO_QUOTA, tenant="eve")]),
    "an attempt is counted twice": ("I6", [SINGLE, started("one", place(0, "n1", 1), attempt=2)]),
    "an old attempt runs": ("I6", [e.JobRunning(job="gang", attempt=2)]),
    "a node is lost in another boot": ("LEASE", [e.LeaseExpired(node="n1", boot="boot-0")]),
    "a job starts on a silent node": ("LEASE", [SILENT, SINGLE, started("one", place(0, "n1", 1))]),
    "a lost node is silent": ("LEASE", [e.LeaseExpired(node="n1", boot="boot-1"), SILENT]),
    "an unknown node is heard": ("LEASE", [e.NodeHeard(node="n9")]),
    "a job behind takes the nodes of a planned start": ("PLAN", [*KEPT, SINGLE, started("one", place(0, "n1", 1))]),
    "a job that runs gets a planned start": ("PLAN", [e.ReservationSet(job="gang", start_ms=100)]),
    "a node is kept that is not there": (
        "PLAN",
        [SINGLE, e.ReservationSet(job="one", workers=(place(0, "n9", 1),), start_ms=100)],
    ),
    "another job gets room that is held": (
        "ROOM",
        [WAITS, YIELDS, changed(ROOM, workers=(place(0, "n1", 1),)), SINGLE, started("one", place(0, "n1", 1))],
    ),
    "room is held and fewer yield than is said": ("ROOM", [WAITS, changed(ROOM, victims=2)]),
    "a job yields and no room is held": ("ROOM", [WAITS, YIELDS]),
    "a job yields to one that is not there": ("ROOM", [YIELDS]),
    "a job yields without its grace": ("ROOM", [WAITS, changed(YIELDS, grace_wall_ms=0), ROOM]),
    "a job yields to one of lower priority": (
        "ROOM",
        [enqueued("first", priority=-1), YIELDS, ROOM],
    ),
    "a tenant yields what is guaranteed to it": (
        "ROOM",
        [
            e.QuotaSet(quota=Quota(tenant="ada", gpu_type="gpu", guaranteed_milli=2_000)),
            enqueued("first", tenant="eve"),
            YIELDS,
            ROOM,
        ],
    ),
    "a job yields before it has run for its minimum": (
        "ROOM",
        [
            e.QuotaSet(quota=Quota(tenant="ada", gpu_type="gpu", min_run_ms=5)),
            enqueued("first", tenant="eve"),
            YIELDS,
            ROOM,
        ],
    ),
    "room is let go of that was not held": ("ROOM", [WAITS, e.RoomReleased(job="first", reason=ClearReason.HELD)]),
    "a planned start ends that never was": ("PLAN", [SINGLE, e.ReservationCleared(job="one", reason=ClearReason.HELD)]),
}


@pytest.mark.parametrize(("invariant", "effects"), ONE_RECORD.values(), ids=list(ONE_RECORD))
def test_what_breaks_a_rule_of_the_log_is_found(invariant: str, effects: list[Any]) -> None:
    broken = with_gang().decide(*effects).broken(happened=(), diary=())
    assert broken
    assert broken[0] == invariant


def test_a_node_that_is_heard_again_or_has_become_another_gets_work_and_a_quota_goes_with_the_last_job() -> None:
    one = enqueued("one", tenant="eve")
    heard = [SILENT, e.NodeHeard(node="n1"), one, started("one", place(0, "n1", 1))]
    assert with_gang().decide(*heard).broken(happened=(), diary=()) == []
    other = [BECOMES_ANOTHER, node("n1", gpus=2), one, started("one", place(0, "n1", 1))]
    assert with_gang().decide(*other).broken(happened=(), diary=()) == []
    assert finished_gang().decide(quota("ada", limit=8), NO_QUOTA).broken() == []


def test_a_job_that_is_over_by_then_may_use_the_nodes_of_a_planned_start() -> None:
    short = enqueued("one", tenant="eve", estimate_run_ms=50)
    assert with_gang().decide(*KEPT, short, started("one", place(0, "n1", 1))).broken(happened=(), diary=()) == []


def test_an_owner_of_a_guarantee_may_go_before_the_planned_start_of_another_tenant() -> None:
    owned = e.QuotaSet(quota=Quota(tenant="eve", gpu_type="gpu", guaranteed_milli=1_000))
    story = with_gang().decide(owned, *KEPT, SINGLE, started("one", place(0, "n1", 1)))
    assert story.broken(happened=(), diary=()) == []


@pytest.mark.parametrize("at_ms", [19, 20, 21])
@pytest.mark.parametrize("has_quotas", [False, True])
def test_beyond_its_first_planned_start_a_job_may_be_passed_where_there_are_quotas_alone(
    at_ms: int, *, has_quotas: bool
) -> None:
    """A limit may keep it by then, and without quotas there is none."""
    first, kept = KEPT
    late = changed(kept, first_ms=20)
    story = with_gang().decide(*([quota("eve", limit=8)] if has_quotas else []), first, late, SINGLE)
    story.decide(started("one", place(0, "n1", 1)), at_ms=at_ms)
    may_pass = has_quotas and at_ms >= 20
    assert story.broken(happened=(), diary=()) == ([] if may_pass else ["PLAN"])


def test_a_planned_start_that_is_over_is_not_in_force_for_ever() -> None:
    story = with_gang().decide(*KEPT, e.JobHeld(job="first"))
    for number in range(10):
        story.decide(enqueued(f"more-{number}", tenant="eve"), at_ms=number)
    assert story.broken(happened=(), diary=()) == ["PLAN"]


def test_a_planned_start_that_has_lapsed_stays_while_writers_only_take_the_log_over() -> None:
    lasting = e.ReservationSet(job="first", workers=(place(0, "n1", 1),), start_ms=100, until_ms=5)
    story = with_gang().decide(enqueued("first"), lasting)
    for epoch in range(2, 12):
        story.decide(e.WriterStarted(epoch=epoch, writer="two"), epoch=epoch, at_ms=6)
    assert story.broken(happened=(), diary=()) == []


def test_a_lowered_limit_evicts_nobody() -> None:
    assert with_gang().decide(quota("ada", limit=0)).broken() == []


def test_shares_that_fit_one_device_break_nothing() -> None:
    halves = enqueued("half", workers=2, resources=Resources(gpu_milli=500))
    story = with_gang().decide(halves, started("half", place(0, "n1", 1, milli=500), place(1, "n1", 1, milli=500)))
    assert story.broken() == []


def test_a_job_may_come_again_once_the_cell_has_forgotten_it() -> None:
    forgetful = e.PolicySet(policy=CellPolicy(finished_jobs_ttl_ms=10))
    story = two_nodes().decide(forgetful, SINGLE, e.JobCancelled(job="one"))
    assert story.decide(SINGLE, at_ms=11).broken() == []


def test_a_job_that_is_tried_again_holds_nothing_meanwhile() -> None:
    story = with_gang().ends("gang", "n1", 0).ends("gang", "n2", 0)
    again = e.JobRequeued(job="gang", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0)
    story.decide(again, SINGLE, started("one", place(0, "n1", 0)))
    assert story.broken() == []


def lent(*effects: Any, at_ms: int = 0) -> list[str]:
    loan = e.NodeLent(node="i1", loan="loan", to_pool="train", deadline_ms=1_000)
    story = two_nodes().decide(node("i1", role=NodeRole.INFERENCE), loan, e.PolicySet(policy=CellPolicy()))
    return story.decide(*effects, at_ms=at_ms).broken()


LOANS: dict[str, tuple[list[Any], int, list[str]]] = {
    "a loan within its time": ([], 1_000, []),
    "a loan that comes back": ([e.NodeReclaimed(node="i1", loan="loan")], 99_999, []),
    "a loan that is overdue": ([], 99_999, ["I5"]),
    "a node that is lent twice": ([e.NodeLent(node="i1", loan="b", to_pool="train")], 0, ["I5"]),
    "a node that is no inference node": ([e.NodeLent(node="n1", loan="b", to_pool="train")], 0, ["I5"]),
    "another loan's node": ([e.NodeReclaimed(node="i1", loan="b")], 0, ["I5"]),
}


@pytest.mark.parametrize(("effects", "at_ms", "broken"), LOANS.values(), ids=list(LOANS))
def test_a_lent_server_is_back_by_its_deadline_and_grace(effects: list[Any], at_ms: int, broken: list[str]) -> None:
    assert lent(*effects, at_ms=at_ms) == broken


def test_a_job_that_waits_at_the_end_is_not_drained() -> None:
    assert finished_gang().decide(SINGLE).broken(is_drained=True) == ["I9"]


def test_a_job_that_is_held_back_may_wait_at_the_end() -> None:
    assert finished_gang().decide(SINGLE, e.JobHeld(job="one")).broken(is_drained=True) == []


def test_a_gang_that_never_ends_is_not_drained() -> None:
    story = with_gang().decide(e.JobRunning(job="gang", attempt=1), stopping("gang"))
    assert story.broken(is_drained=True) == ["I9"]


def test_a_planned_start_that_has_lapsed_is_not_in_force_for_ever() -> None:
    lasting = e.ReservationSet(job="first", workers=(place(0, "n1", 1),), start_ms=100, until_ms=5)
    story = with_gang().decide(enqueued("first"), lasting)
    for number in range(10):
        story.decide(enqueued(f"more-{number}", tenant="eve"), at_ms=6 + number)
    assert story.broken(happened=(), diary=()) == ["PLAN"]


@pytest.mark.parametrize(("decisions", "broken"), [(3, []), (4, ["PLAN"])])
def test_a_planned_start_that_has_lapsed_is_over_with_the_fourth_decision(decisions: int, broken: list[str]) -> None:
    lasting = e.ReservationSet(job="first", workers=(place(0, "n1", 1),), start_ms=100, until_ms=5)
    story = with_gang().decide(enqueued("first"), lasting)
    for number in range(decisions):
        story.decide(enqueued(f"more-{number}", tenant="eve"), at_ms=6 + number)
    assert story.broken(happened=(), diary=()) == broken


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        ({"estimate_run_ms": 100}, []),
        ({"estimate_run_ms": 101}, ["PLAN"]),
        ({"estimate_run_ms": 500, "max_run_ms": 100}, []),
        ({"estimate_run_ms": 101, "max_run_ms": 500}, ["PLAN"]),
        ({"estimate_run_ms": 50, "kind": JobKind.INFERENCE}, ["PLAN"]),
    ],
)
def test_how_long_a_job_runs_by_its_own_word_decides_whether_it_delays_a_planned_start(
    told: dict[str, Any], broken: list[str]
) -> None:
    one = enqueued("one", tenant="eve", **told)
    assert with_gang().decide(*KEPT, one, started("one", place(0, "n1", 1))).broken(happened=(), diary=()) == broken
