"""One end for which very many jobs wait: it is a short step, and what they are called decides nothing."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.requests.dependencies import SETTLED_MAX, give_up, waits_for_unknown
from fallow.services.placement.requests.walk_after_waits import PUT_OFF_MAX, WalkAfterWaits
from fallow.services.projector.app.apply import TOUCH, Touched
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import APPLY
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.dependencies import is_known
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import AfterWhen, Dependency, JobSpec
from fallow.shared.events.operations import HoldJob, ReleaseJob
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import FailReason
from tests.placement.worlds.world import (
    CELL,
    FILE,
    World,
    admitted,
    cancel,
    failed,
    finished,
    joined,
    set_policy,
    spec_of,
    started,
)

GATE = "ada/gate"


def after(*jobs: str, when: AfterWhen = AfterWhen.ANY) -> tuple[Dependency, ...]:
    return tuple(Dependency(job=job, when=when) for job in jobs)


def cell(queue: Queue) -> World:
    """One node of 8 GPUs and one queue."""
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=100),), queues=(queue,))
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    world.checks = False
    world.tell(joined("n1", 8))
    return world


def behind_a_gate(*specs: JobSpec) -> World:
    """These wait for a job that runs."""
    world = World(FILE)
    world.checks = False
    world.tell(joined("n1", 8), admitted(spec_of(GATE, 8)))
    world.tell(started(GATE))
    for each in specs:
        world.tell(admitted(each))
    return world


def half_told(world: World) -> CellState:
    """The gate is over, and one record has told some of those that wait for it."""
    world.hand_over(finished(GATE))
    world.decide()
    assert world.state.ends_untold == {GATE: None}
    return world.state


def array(name: str, *waits: str) -> JobSpec:
    return spec_of(f"ada/{name}", 1, array=900, after=after(*waits))


QUEUES = [
    Queue(name="line", discipline=discipline, order=order) for discipline in QueueDiscipline for order in QueueOrder
]


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: f"{queue.discipline}-{queue.order}")
@pytest.mark.parametrize("names", [("a-first", "m-many"), ("z-first", "m-many"), ("m.first", "m-many")])
@pytest.mark.parametrize("tenants", [("ada", "ada"), ("ada", "bob"), ("bob", "ada")])
def test_of_many_that_wait_for_one_end_the_first_in_order_starts_whatever_all_are_called(
    queue: Queue, names: tuple[str, str], tenants: tuple[str, str]
) -> None:
    world = cell(queue)
    gates = [f"{tenant}/gate" for tenant in dict.fromkeys(tenants)]
    world.tell(*(admitted(spec_of(gate, 8 // len(gates), tenant=gate[:3])) for gate in gates))
    world.tell(*(started(gate) for gate in gates))
    first, many = (f"{tenant}/{name}" for tenant, name in zip(tenants, names, strict=True))
    for_all = {tenant: after(f"{tenant}/gate") for tenant in tenants}
    for number in range(2):
        world.tell(admitted(spec_of(f"{many}{number}", 1, tenant=tenants[1], array=900, after=for_all[tenants[1]]), 1))
    world.tell(admitted(spec_of(first, 8, tenant=tenants[0], priority=50, after=for_all[tenants[0]]), 0))
    world.tell(*(finished(gate) for gate in gates))
    assert [job.id for job in world.state.jobs.values() if job.workers] == [first]


@pytest.mark.parametrize("tenant", ["ada", "bob"])
def test_so_it_is_where_the_first_in_order_waits_for_the_end_that_is_told_last(tenant: str) -> None:
    world = cell(Queue(name="line"))
    tenants = ("ada", "bob")
    world.tell(*(admitted(spec_of(f"{each}/gate", 4, tenant=each)) for each in tenants))
    world.tell(*(started(f"{each}/gate") for each in tenants))
    for each in tenants:
        many = [spec_of(f"{each}/many{n}", 1, tenant=each, array=900, after=after(f"{each}/gate")) for n in (0, 1)]
        world.tell(*(admitted(spec, 1) for spec in many))
    first = spec_of(f"{tenant}/first", 8, tenant=tenant, priority=50, after=after(f"{tenant}/gate"))
    world.tell(admitted(first, 0))
    world.tell(*(finished(f"{each}/gate") for each in tenants))
    assert [job.id for job in world.state.jobs.values() if job.workers] == [first.id]


@pytest.mark.parametrize("ends", [*permutations(range(3))])
def test_a_writer_that_begins_from_a_snapshot_tells_of_many_ends_in_the_order_of_the_one_before(
    ends: tuple[int, ...],
) -> None:
    """The same order as that in which the jobs came, whichever end was first."""
    worlds = [three_ends(ends) for _ in range(2)]
    worlds[0].restart()
    worlds[1].restart_from_snapshot(Random(0))
    logs = [[record.value for record in world.log] for world in worlds]
    assert logs[0] == logs[1]
    told = [each.job for made in worlds[0].decisions for each in made.effects if isinstance(each, e.JobReady)]
    assert told == list(worlds[0].state.jobs)


def test_a_tenant_does_not_wait_for_the_many_waits_of_another() -> None:
    world = cell(Queue(name="line"))
    gates = [f"ada/gate{number}" for number in range(6)]
    world.tell(*(admitted(spec_of(gate, 1, hold=True)) for gate in gates))
    world.tell(*(admitted(array(f"m{gate[-1]}{n}", gate)) for gate in gates for n in range(2)))
    world.tell(admitted(spec_of("bob/gate", 1, tenant="bob", hold=True)))
    world.tell(admitted(spec_of("bob/next", 1, tenant="bob", after=after("bob/gate"))))
    world.hand_over(*map(cancel, gates))
    world.decide()
    world.hand_over(cancel("bob/gate", "bob"))
    world.decide()
    assert world.state.has_waits_to_settle
    assert world.job("bob/next").status is JobStatus.QUEUED


def test_those_that_wait_for_an_end_keep_their_order_where_it_is_undone_that_one_was_told() -> None:
    state = half_told(behind_a_gate(*(array(f"m{number}", GATE) for number in range(3))))
    before = list(state.dependents[GATE])
    mark = state.checkpoint()
    for told in (before[7], before[3], before[-1]):
        APPLY[e.JobReady](state, e.JobReady(job=told), state.at_ms)
    state.rollback(mark)
    assert list(state.dependents[GATE]) == before == sorted(before, key=lambda job: state.jobs[job].number)


def three_ends(ends: tuple[int, ...]) -> World:
    """Jobs wait for three others, which have ended in this order; one record has told some of those."""
    world = cell(Queue(name="line"))
    gates = [f"ada/gate{number}" for number in range(3)]
    world.tell(*(admitted(spec_of(gate, 1, hold=True)) for gate in gates))
    world.tell(*(admitted(array(f"m{gate[-1]}{n}", gate)) for n in range(2) for gate in gates))
    for number in ends:
        world.hand_over(cancel(gates[number]))
    world.decide()
    assert world.state.has_waits_to_settle
    return world


def test_an_end_notes_the_same_however_many_other_names_are_waited_for() -> None:
    names = [f"ada/unknown{number}" for number in range(500)]
    noted = [end_among(names[:count]) for count in (1, 500)]
    assert noted[0] == noted[1]


def end_among(names: list[str]) -> int:
    """How much is noted to take back that a job has been told of an end, where others wait for these names."""
    world = behind_a_gate(spec_of("ada/one", 1, after=after(GATE)))
    world.tell(*(admitted(spec_of(f"ada/w{number}", 1, after=after(name))) for number, name in enumerate(names)))
    state = world.state
    APPLY[e.JobFinished](state, e.JobFinished(job=GATE, attempt=1), state.at_ms)
    state.checkpoint()
    before = len(state.undo_log.entries)
    APPLY[e.JobReady](state, e.JobReady(job="ada/one"), state.at_ms)
    return sum(1 + (len(each[2]) if isinstance(each[2], tuple) else 0) for each in state.undo_log.entries[before:])


@pytest.mark.parametrize("name", ["a-next", "z-next"])
def test_nobody_starts_before_a_chain_of_failures_in_one_record_has_let_go_of_those_behind_it(name: str) -> None:
    world = cell(Queue(name="line"))
    world.tell(admitted(spec_of(GATE, 8)))
    world.tell(started(GATE))
    world.tell(*(admitted(array(f"m{number}", "ada/gate")) for number in range(2)))
    world.tell(admitted(spec_of(f"ada/{name}", 1, after=after("ada/gate", when=AfterWhen.OK)), 0))
    world.tell(admitted(spec_of("ada/last", 8, priority=50, after=after(f"ada/{name}")), 0))
    world.tell(failed(GATE))
    assert [job.id for job in world.state.jobs.values() if job.workers] == ["ada/last"]


def test_a_tenant_whose_waits_end_all_the_time_keeps_nobody_else_from_starting() -> None:
    world = cell(Queue(name="line"))
    gates = [f"ada/gate{number}" for number in range(PUT_OFF_MAX + 2)]
    world.tell(*(admitted(spec_of(gate, 1, hold=True)) for gate in gates))
    world.tell(*(admitted(array(f"m{gate[4:]}-{n}", gate)) for gate in gates for n in range(2)))
    world.hand_over(cancel(gates.pop()))
    world.decide()
    world.hand_over(admitted(spec_of("bob/mine", 1, tenant="bob", priority=9)))
    for _ in range(PUT_OFF_MAX):
        world.hand_over(cancel(gates.pop()))
        world.decide()
        assert world.state.has_waits_to_settle
    assert world.job("bob/mine").workers


def test_no_walk_is_put_off_for_ever() -> None:
    waits, state = WalkAfterWaits(), CellState(CELL)
    state.ends_untold[GATE] = None
    assert [waits.puts_off(state) for _ in range(PUT_OFF_MAX + 2)] == [True] * PUT_OFF_MAX + [False] * 2
    waits.walked()
    assert waits.puts_off(state)


def test_records_that_waits_fill_keep_nobody_else_from_starting() -> None:
    """Long names and two effects for each job: a record has no room for a start."""
    world = cell(Queue(name="line"))
    gates = [f"ada/gate{number}" for number in range(12)]
    world.tell(*(admitted(spec_of(gate, 1, hold=True)) for gate in gates))
    later = {"array": 900, "not_before_ms": 10**9}
    for gate in gates:
        many = [spec_of(f"{gate}{number}{'x' * 90}", 1, after=after(gate), **later) for number in (1, 2)]
        world.tell(*map(admitted, many))
    world.hand_over(cancel(gates.pop()))
    world.decide()
    world.hand_over(admitted(spec_of("bob/mine", 1, tenant="bob", priority=9)))
    for _ in range(8):
        world.hand_over(cancel(gates.pop()))
        world.decide()
        assert world.state.has_waits_to_settle
    assert world.job("bob/mine").workers


@pytest.mark.parametrize(
    "effect", [e.JobFinished(job=GATE, attempt=1), e.JobFailed(job=GATE, reason=FailReason.RETRIES_EXHAUSTED)]
)
def test_an_end_is_as_short_a_step_for_very_many_that_wait_for_it_as_for_one(effect: e.AnyEffect) -> None:
    assert steps_of(effect, array("many", GATE)) == steps_of(effect, spec_of("ada/one", 1, after=after(GATE)))


def steps_of(effect: e.AnyEffect, spec: JobSpec) -> tuple[int, int]:
    """How many changes the fold makes for an effect, and how many rows a reader writes for it."""
    state = behind_a_gate(spec).state
    touched, touch = Touched(), TOUCH[type(effect)]
    assert touch is not None
    touch(touched, state, effect)
    mark = state.checkpoint()
    before = len(state.undo_log.entries)
    APPLY[type(effect)](state, effect, state.at_ms)
    changes = len(state.undo_log.entries) - before
    state.rollback(mark)
    return changes, len(touched)


@pytest.mark.parametrize("is_good", [True, False])
def test_the_next_writer_tells_those_that_the_first_one_did_not_get_to(*, is_good: bool) -> None:
    world = behind_a_gate(
        *(array(f"m{number}", GATE) for number in range(3)), spec_of("ada/z", 1, after=after(GATE, when=AfterWhen.OK))
    )
    world.hand_over(finished(GATE) if is_good else failed(GATE))
    world.decide()
    state = world.state
    assert len(state.dependents[GATE]) == 2_701 - SETTLED_MAX // 2
    assert not check_state(state)
    assert state_from(rows_of(state)) == state
    world.restart()
    assert (world.state.dependents, world.state.ends_untold, world.state.dependencies_resolved) == ({}, {}, {})
    assert all(job.status is not JobStatus.AWAITING for job in world.state.jobs.values())
    assert ("ada/z" in world.state.jobs) is is_good


def test_whoever_is_over_is_remembered_until_all_that_wait_for_it_are_told() -> None:
    world = behind_a_gate(*(array(f"m{number}", GATE) for number in range(3)))
    world.tell(set_policy(finished_jobs_max=1))
    half_told(world)
    world.hand_over(cancel("ada/m0.0"), cancel("ada/m0.1"))
    world.decide()
    assert world.state.ends_untold == {GATE: None}
    assert [*world.state.finished] == [GATE, "ada/m0.0", "ada/m0.1"]
    world.rest()
    world.tell(cancel("ada/m2.898"), cancel("ada/m2.899"))
    assert [*world.state.finished] == ["ada/m2.899"]


def test_a_job_that_was_not_told_yet_that_all_is_over_waits_for_nobody_once_it_is_released() -> None:
    world = behind_a_gate(*(array(f"m{number}", GATE) for number in range(3)))
    state = half_told(world)
    last = [*state.dependents[GATE]][-1]
    for effect in (e.JobHeld(job=last), e.JobReleased(job=last)):
        APPLY[type(effect)](state, effect, state.at_ms)
    assert (state.jobs[last].status, state.jobs[last].waits_for) == (JobStatus.QUEUED, ())
    assert not check_state(state)


def test_a_job_that_was_not_told_yet_does_not_wait_for_somebody_unknown() -> None:
    world = behind_a_gate(*(array(f"m{number}", GATE) for number in range(3)))
    world.tell(set_policy(unknown_dependency_ms=0))
    world.tell(HoldJob(cell=CELL, job="ada/m2"), finished(GATE))
    world.tell(ReleaseJob(cell=CELL, job="ada/m2"))
    assert sum(job.status is JobStatus.QUEUED for job in world.state.jobs.values()) == 2_692


def test_nor_is_it_said_to_while_it_is_not_told() -> None:
    state = half_told(behind_a_gate(*(array(f"m{number}", GATE) for number in range(3))))
    last = state.jobs[[*state.dependents[GATE]][-1]]
    assert is_known(state, GATE)
    assert not waits_for_unknown(state, last)
    decision = DecisionBuilder(state, 0)
    give_up(decision, last)
    assert not decision.effects
