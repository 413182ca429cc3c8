"""A check that cannot fail checks nothing: each invariant is broken by hand, in a state, in a log and in a diary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import fields
from typing import Any

import pytest

from fallow.shared.cluster.checks.audit import Ledger, ledger_of
from fallow.shared.cluster.checks.invariants import Offence, check_state
from fallow.shared.cluster.checks.run_journal import DiaryLine, Orders, check_diaries
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import build_valid, replace
from fallow.shared.events.fields.values import JobSpec, NodeStatus, Resources, RunStatus, WorkerPlace
from fallow.shared.events.operations import Quota
from fallow.shared.events.reasons import FailReason, PreemptionCause, StopReason
from tests.cluster.worlds.examples import TWO_GPUS, cell, enqueued, node, place, quota, requeued, started, then
from tests.cluster.worlds.histories import CELL

LIFE: list[Any] = [
    node("n1"),
    node("n2"),
    quota("lab", limit=6),
    quota("ada", limit=6, parent="lab"),
    enqueued("gang", workers=2, resources=TWO_GPUS),
    started("gang", place(0, "n1", 0, 1), place(1, "n2", 0, 1)),
    enqueued("share", resources=Resources(gpu_milli=600)),
    started("share", place(0, "n1", 7, milli=600)),
    enqueued("idle"),
]


def hold(state: CellState, job: str, *places: WorkerPlace) -> None:
    state.jobs[job].workers = places


def room_for(job: str, node: str, device: int) -> e.RoomHeld:
    """Room of one device."""
    cause = PreemptionCause.PRIORITY
    return e.RoomHeld(job=job, cause=cause, workers=(place(0, node, device),), victims=1, until_ms=9, proposal="p-1")


def finish_twice(state: CellState) -> None:
    then(state, e.JobCancelled(job="idle"))
    state.jobs["idle"] = deepcopy(state.jobs["gang"])


TAMPERED: dict[str, tuple[str, Callable[[CellState], Any]]] = {
    "two jobs on one device": ("I1", lambda s: hold(s, "share", place(0, "n1", 0, milli=600))),
    "a device that its node thinks free": ("I1", lambda s: setattr(s.nodes["n1"], "held", 0)),
    "a device that its node thinks held": ("I1", lambda s: setattr(s.nodes["n1"], "held", 0b111)),
    "a share that its node does not count": ("I1", lambda s: s.nodes["n1"].shares.clear()),
    "a device that does not exist": ("I1", lambda s: hold(s, "share", place(0, "n1", 9, milli=600))),
    "a node that does not exist": ("I1", lambda s: hold(s, "share", place(0, "n9", 0, milli=600))),
    "CPUs that no job holds": ("I1", lambda s: setattr(s.nodes["n1"], "cpu_used", 5)),
    "a job that the node does not know": ("I1", lambda s: s.nodes["n2"].jobs.clear()),
    "a job that is over and is not": ("I2", finish_twice),
    "a job in no state in which it may rest": (
        "I2",
        lambda s: setattr(s.jobs["idle"], "status", JobStatus.PREEMPTED),
    ),
    "a job that is not counted": ("I2", lambda s: s.jobs.pop("idle")),
    "a waiting job that is counted for another tenant": ("I2", lambda s: s.waiting_of.update(ada=0, bob=1)),
    "a reservation of a job that is gone": (
        "I2",
        lambda s: s.reservations.update(gone=e.ReservationSet(job="gone", workers=(place(0, "n1", 5),), start_ms=1)),
    ),
    "room of a job that is gone": ("ROOM", lambda s: s.rooms.update(gone=room_for("gone", "n1", 5))),
    "room that its node does not count": ("ROOM", lambda s: s.rooms.update(idle=room_for("idle", "n1", 5))),
    "room that nobody holds": ("ROOM", lambda s: setattr(s.nodes["n1"], "room", 32)),
    "half a gang": ("I3", lambda s: hold(s, "gang", place(0, "n1", 0, 1))),
    "a rank twice": ("I3", lambda s: hold(s, "gang", place(0, "n1", 0, 1), place(0, "n2", 0, 1))),
    "a waiting job that holds places": ("I3", lambda s: setattr(s.jobs["share"], "status", JobStatus.QUEUED)),
    "a waiting job that is to stop": ("I3", lambda s: setattr(s.jobs["idle"], "stop_why", StopReason.PRIORITY)),
    "a waiting job that has words of its last attempt": ("I3", lambda s: setattr(s.jobs["idle"], "stop_text", "full")),
    "use that is not counted": ("I4", lambda s: s.usage.clear()),
    "use that a parent does not know": ("I4", lambda s: s.usage.pop(("lab", "gpu"))),
    "texts that a job does not have": ("index", lambda s: setattr(s.jobs["idle"], "spec_bytes", 1)),
    "texts that no job has": ("index", lambda s: setattr(s, "live_bytes", 1)),
    "texts of a tenant that has none": ("index", lambda s: s.live_bytes_of.update(bob=1)),
    "a free count that is off": ("index", lambda s: setattr(s.pools["train"], "free_whole", 3)),
    "a bit in the wrong bucket": ("index", lambda s: s.pools["train"].by_free.update({8: 1})),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_state_is_caught(what: str) -> None:
    state = cell(*LIFE)
    assert check_state(state) == []
    invariant, tamper = TAMPERED[what]
    tamper(state)
    assert invariant in {offence.invariant for offence in check_state(state)}


def numbered(id_: str, seq: int, *, boot: str = "boot-1") -> e.NodeChanged:
    """A node, as the word with this number says."""
    return replace(node(id_), boot=boot, seq=seq)


# Logs that no honest writer could write: what follows LIFE, and the invariant that it breaks.
FORGED: dict[str, tuple[str, list[Any]]] = {
    "one device for two jobs": ("I1", [started("idle", place(0, "n1", 0))]),
    "more than is left of a shared device": (
        "I1",
        [
            enqueued("other", resources=Resources(gpu_milli=500)),
            started("other", place(0, "n1", 7, milli=500)),
        ],
    ),
    "a device beyond the last": ("I1", [started("idle", place(0, "n1", 8))]),
    "a device of an unknown node": ("I1", [started("idle", place(0, "n9", 0))]),
    "growth onto a device in use": (
        "I1",
        [
            enqueued("grows", workers=2, workers_min=1),
            started("grows", place(0, "n2", 6)),
            e.JobResizing(job="grows", attempt=1, add=(place(1, "n2", 0),)),
        ],
    ),
    "a job accepted twice": ("I2", [enqueued("idle")]),
    "a job that was never accepted": ("I2", [started("stranger", place(0, "n2", 7))]),
    "a start while it runs": ("I2", [started("share", place(0, "n2", 7, milli=600), attempt=2)]),
    "an end after an end": ("I2", [e.JobCancelled(job="idle"), e.JobCancelled(job="idle")]),
    "an end of another kind after an end": (
        "I2",
        [e.JobFinished(job="share", attempt=1), e.JobFailed(job="share", reason=FailReason.RUN_TIME_LIMIT)],
    ),
    "a start after the end": ("I2", [e.JobCancelled(job="idle"), started("idle", place(0, "n2", 7))]),
    "an update of what does not live": ("I2", [e.JobUpdated.of(JobSpec(id="stranger", tenant="ada"))]),
    "a resize of what holds nothing": ("I2", [e.JobResizing(job="idle", attempt=1, add=(place(1, "n2", 7),))]),
    "half a gang": ("I3", [requeued("gang"), started("gang", place(0, "n1", 0, 1), attempt=2)]),
    "a gang that shrinks": ("I3", [e.JobResized(job="gang", attempt=1, workers=(place(0, "n1", 0, 1),))]),
    "a lost node that is used again without a word of it": (
        "LEASE",
        [numbered("n2", 7), e.LeaseExpired(node="n2", boot="boot-1"), numbered("n2", 7)],
    ),
    "a start above the limit": (
        "I4",
        [enqueued("big", resources=TWO_GPUS), started("big", place(0, "n2", 4, 5))],
    ),
    "a start above the limit of a parent": (
        "I4",
        [
            quota("bob", limit=None, parent="lab"),
            enqueued("big", tenant="bob", resources=TWO_GPUS),
            started("big", place(0, "n2", 4, 5)),
        ],
    ),
    "a start above what may be borrowed": (
        "I4",
        [
            e.QuotaSet(quota=Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=1000, borrow_limit_milli=500)),
            enqueued("big", tenant="bob", resources=TWO_GPUS),
            started("big", place(0, "n2", 4, 5)),
        ],
    ),
    "a start of who may not borrow": (
        "I4",
        [
            e.QuotaSet(quota=Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=1000, borrows=False)),
            enqueued("big", tenant="bob", resources=TWO_GPUS),
            started("big", place(0, "n2", 4, 5)),
        ],
    ),
    "a start above a limit that is raised too late": (
        "I4",
        [enqueued("big", resources=TWO_GPUS), started("big", place(0, "n2", 4, 5)), quota("ada", limit=None)],
    ),
}


def decision(effects: list[Any]) -> Decision:
    return Decision(cell=CELL, version=1, epoch=0, at_ms=0, effects=tuple(effects))


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_log_is_caught(what: str) -> None:
    ledger = Ledger()
    assert ledger.take(decision(LIFE)) is None
    invariant, effects = FORGED[what]
    offence = ledger.take(decision(effects))
    assert offence is not None
    assert offence.invariant == invariant


@pytest.mark.parametrize("word", [numbered("n2", 8), numbered("n2", 7, boot="boot-2"), numbered("n2", 3)])
def test_a_lost_node_that_is_back_by_another_word_accuses_nobody(word: e.NodeChanged) -> None:
    """The number of a word may also be lower: the clock that it comes from was wrong before."""
    ledger, lost = Ledger(), e.LeaseExpired(node="n2", boot="boot-1")
    kept = replace(numbered("n2", 7), status=NodeStatus.LOST)
    assert ledger.take(decision([*LIFE, numbered("n2", 7), lost, kept, word])) is None


def test_a_lost_node_that_does_not_number_its_words_is_back_by_one_like_the_last_and_accuses_nobody() -> None:
    ledger, lost = Ledger(), e.LeaseExpired(node="n2", boot="boot-1")
    assert ledger.take(decision([*LIFE, numbered("n2", 0), lost, numbered("n2", 0)])) is None


@pytest.mark.parametrize("seq", [7, 8])
def test_a_lost_node_that_was_removed_joins_as_a_new_one_and_accuses_nobody(seq: int) -> None:
    ledger, lost = Ledger(), e.LeaseExpired(node="n3", boot="boot-1")
    assert ledger.take(decision([*LIFE, numbered("n3", 7), lost, e.NodeRemoved(node="n3")])) is None
    assert ledger.take(decision([numbered("n3", seq)])) is None


def test_of_a_lost_node_that_was_removed_nothing_is_kept() -> None:
    ledger, lost = Ledger(), e.LeaseExpired(node="n3", boot="boot-1")
    assert ledger.take(decision(LIFE)) is None
    before = sizes_of(ledger)
    assert ledger.take(decision([numbered("n3", 7), lost, e.NodeRemoved(node="n3")])) is None
    assert sizes_of(ledger) == before


def sizes_of(ledger: Ledger) -> dict[str, int]:
    """How much each table of the ledger holds."""
    return {each.name: len(getattr(ledger, each.name)) for each in fields(ledger)}


def test_a_lost_node_of_a_snapshot_is_used_again_after_a_word_of_it() -> None:
    effects = [*LIFE, numbered("n3", 7), e.LeaseExpired(node="n3", boot="boot-1")]
    ledger = ledger_of(cell(*effects))
    assert ledger.take(decision([numbered("n3", 8)])) is None
    ledger = ledger_of(cell(*effects))
    offence = ledger.take(decision([numbered("n3", 7)]))
    assert offence is not None
    assert offence.invariant == "LEASE"


def test_a_limit_lowered_after_a_start_accuses_nobody() -> None:
    ledger = Ledger()
    assert ledger.take(decision([*LIFE, quota("ada", limit=1, parent="lab")])) is None
    assert ledger.take(decision([e.JobHeld(job="idle")])) is None


def test_a_service_that_grows_on_one_gpu_type_is_not_held_against_the_lowered_limit_of_another() -> None:
    ledger, h100 = Ledger(), node("n3")
    h100 = replace(h100, spec=replace(h100.spec, gpu_type="h100"))
    life = [
        *LIFE,
        h100,
        enqueued("service", workers=2, workers_min=1, gang=False),
        started("service", place(0, "n2", 4)),
    ]
    assert ledger.take(decision([*life, quota("ada", limit=1, parent="lab")])) is None
    more = (replace(place(1, "n3", 0), turn=1),)
    assert ledger.take(decision([e.JobResizing(job="service", attempt=1, add=more)])) is None
    too_many = (replace(place(2, "n2", 5), turn=2),)
    offence = ledger.take(decision([e.JobResizing(job="service", attempt=1, add=too_many)]))
    assert offence is not None
    assert offence.invariant == "I4"


@pytest.mark.parametrize(
    ("tamper", "invariant"),
    [
        (lambda s: s.jobs.pop("idle"), "I2"),
        (lambda s: s.jobs.update(ghost=s.jobs["idle"]), "I2"),
        (lambda s: hold(s, "share", place(0, "n1", 6, milli=600)), "I1"),
    ],
)
def test_a_state_that_differs_from_its_log_is_caught(tamper: Callable[[CellState], Any], invariant: str) -> None:
    ledger, state = Ledger(), cell(*LIFE)
    ledger.take(decision(LIFE))
    assert ledger.compare(state) is None
    tamper(state)
    offence = ledger.compare(state)
    assert offence is not None
    assert offence.invariant == invariant


def line(event: str, job: str, on: str, *devices: int, status: RunStatus | None = None) -> DiaryLine:
    fields = {"node": on, "job": job, "attempt": 1, "event": event, "devices": devices}
    return build_valid(DiaryLine, **fields, status=status, cell_ms=0, wall_ms=0)


GANG = [line("started", "gang", "n1", 0, 1), line("started", "gang", "n2", 0, 1)]
SHARE = [line("started", "share", "n1", 7)]
HONEST = [*GANG, *SHARE, line("adopted", "gang", "n1"), line("ended", "gang", "n1", status=RunStatus.FINISHED)]
ORDERED = [*LIFE, e.JobRunning(job="gang", attempt=1), e.JobRunning(job="share", attempt=1)]
SECOND_SHARE = [
    requeued("share"),
    enqueued("half", resources=Resources(gpu_milli=500)),
    started("half", place(0, "n1", 7, milli=500)),
]
NOT_SO_LATE = [enqueued("next"), e.JobFinished(job="gang", attempt=1), started("next", place(0, "n1", 0))]

DIARIES: dict[str, tuple[str, list[Any], list[DiaryLine]]] = {
    "a run begun twice": ("I6", [], [*HONEST, *SHARE]),
    "a run begun and never ordered": ("I6", [], [*HONEST, line("started", "idle", "n2", 5)]),
    "a run begun on other devices": ("I6", [], [*GANG, line("started", "share", "n1", 6)]),
    "a run ended twice": ("I6", [], [*HONEST, line("ended", "gang", "n1")]),
    "a run ended and never begun": ("I6", [], [*HONEST, line("ended", "idle", "n2")]),
    "a run adopted after its end": ("I6", [], [*HONEST, line("adopted", "gang", "n1")]),
    "a confirmed run that one node never began": ("I6", [], [GANG[0], *SHARE]),
    "a run that ended well and was never begun": (
        "I6",
        [started("idle", place(0, "n2", 5)), e.JobFinished(job="idle", attempt=1)],
        HONEST,
    ),
    "two runs on one device": ("I1", NOT_SO_LATE, [*GANG, *SHARE, line("started", "next", "n1", 0)]),
    "two shares that do not fit": ("I1", SECOND_SHARE, [*HONEST, line("started", "half", "n1", 7)]),
}


def offences_of(more: list[Any], lines: list[DiaryLine]) -> list[Offence]:
    orders = Orders()
    orders.take(decision([*ORDERED, *more]))
    return check_diaries(orders, lines)


def test_honest_diaries_are_believed() -> None:
    assert offences_of([], HONEST) == []


@pytest.mark.parametrize("what", DIARIES)
def test_a_false_diary_is_caught(what: str) -> None:
    invariant, more, lines = DIARIES[what]
    assert [offence.invariant for offence in offences_of(more, lines)] == [invariant]


def test_a_device_may_serve_the_next_run_once_the_first_has_ended() -> None:
    assert offences_of(NOT_SO_LATE, [*HONEST, line("started", "next", "n1", 0)]) == []


NODE_LOST = e.LeaseExpired(node="n1", boot="b1")
HELD_BY_ITS_FIRST_AGENT = SHARE[0]
AGAIN = replace(SHARE[0], attempt=2)


STARTED_AGAIN = e.JobStarted(job="share", attempt=2, workers=(place(0, "n1", 7, milli=600),))


def after_the_loss_of_a_node(*lines: DiaryLine, lost: e.LeaseExpired = NODE_LOST) -> list[str]:
    """A job ran on a node, the node was declared lost, and the job runs on the same device of the node again."""
    return beside_each_other([lost, requeued("share")], [STARTED_AGAIN], lines=lines)


def beside_each_other(*decided: list[Any], lines: Iterable[DiaryLine]) -> list[str]:
    """Runs on one device of the node, where these decisions followed the one that ordered the first run."""
    orders = Orders()
    for version, effects in enumerate([ORDERED, *decided], start=1):
        orders.take(replace(decision(effects), version=version))
    return [offence.invariant for offence in check_diaries(orders, lines) if offence.invariant == "I1"]


def test_a_run_without_an_end_is_over_when_the_lease_of_its_node_has_expired() -> None:
    """Its agent was killed, and the next one writes its diary in a new folder."""
    assert after_the_loss_of_a_node(HELD_BY_ITS_FIRST_AGENT, AGAIN) == []
    assert after_the_loss_of_a_node(AGAIN, HELD_BY_ITS_FIRST_AGENT) == []


def test_a_run_that_ends_after_the_next_one_has_begun_is_caught_even_if_its_node_was_lost() -> None:
    over = line("ended", "share", "n1", status=RunStatus.STOPPED)
    assert after_the_loss_of_a_node(HELD_BY_ITS_FIRST_AGENT, AGAIN, over) == ["I1"]


def test_a_run_goes_on_though_a_person_has_said_that_its_node_is_lost() -> None:
    """Its lease has not expired: nobody has told its workers to stop."""
    said = replace(NODE_LOST, reason="taken out of its rack")
    assert after_the_loss_of_a_node(HELD_BY_ITS_FIRST_AGENT, AGAIN, lost=said) == ["I1"]


def test_a_lease_that_expires_after_the_next_run_was_ordered_has_not_ended_the_one_before() -> None:
    lines = (HELD_BY_ITS_FIRST_AGENT, AGAIN)
    assert beside_each_other([requeued("share"), STARTED_AGAIN], [NODE_LOST], lines=lines) == ["I1"]


def test_two_shares_that_fit_may_run_on_one_device() -> None:
    more = [
        enqueued("third", resources=Resources(gpu_milli=400)),
        started("third", place(0, "n1", 7, milli=400)),
    ]
    assert offences_of(more, [*HONEST, line("started", "third", "n1", 7)]) == []


def test_workers_that_join_a_running_job_are_ordered_too() -> None:
    more = [
        enqueued("grows", workers=2, workers_min=1),
        started("grows", place(0, "n1", 5)),
        e.JobResizing(job="grows", attempt=1, add=(place(1, "n2", 5),)),
    ]
    lines = [*HONEST, line("started", "grows", "n1", 5), line("started", "grows", "n2", 5)]
    assert offences_of(more, lines) == []


def test_a_line_of_an_older_release_is_of_the_run_whose_order_it_follows() -> None:
    """It does not say when its run was ordered, and an id was used again a day later."""
    orders, day_ms = Orders(), 86_400_000
    orders.take(decision(ORDERED))
    second = [e.JobFinished(job="share", attempt=1), enqueued("share"), started("share", place(0, "n1", 7))]
    orders.take(replace(decision(second), at_ms=day_ms))
    over = line("ended", "share", "n1", status=RunStatus.FINISHED)
    again = replace(SHARE[0], cell_ms=day_ms)
    assert check_diaries(orders, [*HONEST, over, again]) == []
    assert [offence.invariant for offence in check_diaries(orders, [*HONEST, over, again, again])] == ["I6"]


def test_a_job_whose_id_was_used_before_is_another_run() -> None:
    """Both took device 7; the second one was begun once the log had ordered it again."""
    orders = Orders()
    orders.take(decision(ORDERED))
    second = [e.JobFinished(job="share", attempt=1), enqueued("share"), started("share", place(0, "n1", 7))]
    orders.take(replace(decision(second), at_ms=9_000))
    first = [replace(line, ordered_ms=decision(ORDERED).at_ms) for line in HONEST]
    over = replace(line("ended", "share", "n1", status=RunStatus.FINISHED), ordered_ms=first[0].ordered_ms)
    again = replace(SHARE[0], ordered_ms=9_000)
    assert check_diaries(orders, [*first, over, again]) == []
    assert [offence.invariant for offence in check_diaries(orders, [*first, over, again, again])] == ["I6"]
    assert [offence.invariant for offence in check_diaries(orders, [*first, again])] == ["I1"]
