"""Runs of single workers: of a job that is no gang each worker starts, stops and ends by itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fallow.services.executor.policy.desired import Change, DesiredRun, DesiredStates, desired_of, touched, worker_name
from fallow.services.executor.policy.turn import Start, Stop, Turn
from fallow.services.executor.policy.worker_environment import gang_of
from fallow.services.executor.service import ExecutorService
from fallow.shared.cluster.checks.run_journal import DiaryLine, Orders, check_diaries
from fallow.shared.cluster.model.job import JobStatus, index_of
from fallow.shared.events import effects as e
from fallow.shared.events.base import JobId
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobSpec, ProcessRun, RunStatus, VirtualRun, WorkerPlace
from fallow.shared.events.nodes import RunStatusUpdate
from fallow.shared.events.reasons import RequeueReason
from tests.contract.eventually import eventually
from tests.executor.worlds.cells import CELL, Writer, node, now
from tests.executor.worlds.processes import NODE, Machine
from tests.hypothesis_profile import reaches

NODES = [node(1), node(2)]
OWNED = ("node-1", "node-2")
WAITS = ProcessRun(argv=("sh", "-c", "echo up $RANK; exec sleep 600"))


def place(rank: int, on: int = 1, device: int | None = None, turn: int = 0, since_ms: int = 0) -> WorkerPlace:
    held = (rank if device is None else device,)
    return WorkerPlace(rank=rank, node=f"node-{on}", devices=held, gpu_milli=1000, turn=turn, since_ms=since_ms)


def began(
    writer: Writer, *places: WorkerPlace, run: VirtualRun | None = None, workers: int = 4, gang: bool = False
) -> Decision:
    spec = JobSpec(id="job", tenant="acme", workers=workers, gang=gang, run=run or VirtualRun())
    enqueued = e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32)
    return writer.decide(enqueued, e.JobStarted(job="job", attempt=1, workers=places))


def resizing(*add: WorkerPlace, remove: tuple[int, ...] = ()) -> e.JobResizing:
    return e.JobResizing(job="job", attempt=1, add=add, remove=remove)


def settled(joined: tuple[int, ...] = (), gone: tuple[int, ...] = ()) -> e.WorkersSettled:
    return e.WorkersSettled(job="job", attempt=1, joined=joined, gone=gone)


def executor(writer: Writer, diary: list[DiaryLine] | None = None, seq: int = 0) -> tuple[ExecutorService, Turn]:
    service = ExecutorService(CELL, NODES, 1, says_by_itself=False)
    lines = diary or []
    return service, service.take_over(
        0, writer.state, seq, lambda name: [line for line in lines if line.node == name], now()
    )


def words(turn: Turn) -> list[str]:
    return [f"{w.node} {w.rank}/{w.turn} {w.status}" for w in turn.events if isinstance(w, RunStatusUpdate)]


def test_each_worker_is_told_of_by_itself() -> None:
    writer = Writer(NODES)
    service, _ = executor(writer)
    made = service.decided(writer.state, [began(writer, place(0), place(1), place(2, on=2))], now())
    assert words(made) == ["node-1 0/0 running", "node-1 1/0 running", "node-2 2/0 running"]
    assert [(line.rank, line.devices) for line in made.lines] == [(0, (0,)), (1, (1,)), (2, (2,))]


def test_a_worker_that_enters_later_starts_beside_those_that_run() -> None:
    writer = Writer(NODES)
    service, _ = executor(writer)
    service.decided(writer.state, [began(writer, place(0))], now())
    made = service.decided(writer.state, [writer.decide(resizing(place(1, turn=1)))], now())
    assert words(made) == ["node-1 1/1 running"]


def test_a_worker_that_shall_leave_stops_and_the_others_go_on() -> None:
    writer = Writer(NODES)
    service, _ = executor(writer)
    service.decided(writer.state, [began(writer, place(0), place(1))], now())
    made = service.decided(writer.state, [writer.decide(resizing(remove=(0,)))], now())
    assert words(made) == ["node-1 0/0 stopped"]
    assert service.runs_by_status() == {RunStatus.STOPPED: 1, RunStatus.RUNNING: 1}


def test_a_rank_that_enters_again_is_another_run() -> None:
    writer = Writer(NODES)
    service, _ = executor(writer)
    service.decided(writer.state, [began(writer, place(0), place(1))], now())
    service.decided(writer.state, [writer.decide(resizing(remove=(0,)))], now())
    again = writer.decide(settled(joined=(1,), gone=(0,)), resizing(place(0, device=5, turn=1)))
    made = service.decided(writer.state, [again], now())
    assert words(made) == ["node-1 0/1 running"]
    assert [(line.event, line.rank, line.turn) for line in made.lines] == [("started", 0, 1)]


def test_a_worker_takes_its_time_from_when_it_entered() -> None:
    writer = Writer(NODES)
    service, _ = executor(writer)
    brief = VirtualRun(duration_ms=100)
    service.decided(writer.state, [began(writer, place(0), run=brief)], now())
    entered = writer.decide(resizing(place(1, turn=1, since_ms=60)), at_ms=60)
    service.decided(writer.state, [entered], now(60))
    assert words(service.tick(writer.state, now(100))) == ["node-1 0/0 finished"]
    assert words(service.tick(writer.state, now(160))) == ["node-1 1/1 finished"]


def test_another_executor_goes_on_with_each_worker_and_knows_which_are_over() -> None:
    writer = Writer(NODES)
    service, _ = executor(writer)
    first = service.decided(writer.state, [began(writer, place(0), place(1))], now())
    second = service.decided(writer.state, [writer.decide(resizing(place(2, turn=1), remove=(1,)))], now())
    diary = [*first.lines, *second.lines]
    _, made = executor(writer, diary, seq=1_000)
    assert words(made) == ["node-1 0/0 running", "node-1 1/0 stopped", "node-1 2/1 running"]
    assert [(line.event, line.rank) for line in made.lines] == [("adopted", 0), ("adopted", 2)]


def test_the_diaries_of_single_workers_are_checked_one_by_one() -> None:
    writer = Writer(NODES)
    service, _ = executor(writer)
    orders = Orders()
    made = [service.decided(writer.state, [began(writer, place(0), place(1))], now())]
    made.append(service.decided(writer.state, [writer.decide(settled(joined=(0, 1)))], now()))
    for decision in writer.log:
        orders.take(decision)
    lines = [line for turn in made for line in turn.lines]
    assert check_diaries(orders, lines) == []
    assert [offence.invariant for offence in check_diaries(orders, lines[:1])] == ["I6"]


def test_only_what_changes_is_wanted_anew() -> None:
    writer = Writer(NODES)
    wanted = DesiredStates()
    wanted.own(writer.state, "node-1")
    wanted.changes(writer.state, touched([began(writer, place(0), place(1))]).jobs)
    more = wanted.changes(writer.state, touched([writer.decide(resizing(place(2, turn=1)))]).jobs)
    assert [(change.name, change.run is not None) for change in more] == [("job 2", True)]
    over = writer.decide(settled(gone=(0,)))
    assert [(c.name, c.run) for c in wanted.changes(writer.state, touched([over]).jobs)] == [("job 0", None)]


class Counted(tuple[WorkerPlace, ...]):
    """Workers that count how often a caller goes through them."""

    __slots__ = ()
    walks = 0

    def __iter__(self) -> Iterator[WorkerPlace]:
        Counted.walks += 1
        return super().__iter__()


def test_what_a_decision_does_not_name_is_not_compared() -> None:
    writer, wanted = Writer(NODES), DesiredStates()
    wanted.own(writer.state, "node-1")
    wanted.changes(writer.state, touched([began(writer, place(0), place(1))]).jobs)
    over = writer.decide(settled(gone=(0,)))
    job = writer.state.jobs["job"]
    job.workers = Counted(job.workers)
    index_of(job)
    built = Counted.walks
    assert [change.name for change in wanted.changes(writer.state, touched([over]).jobs)] == ["job 0"]
    assert Counted.walks == built


@pytest.mark.parametrize("gang", [False, True])
def test_of_nodes_that_are_taken_over_no_job_is_searched_through_for_each(*, gang: bool) -> None:
    writer, wanted = Writer(NODES), DesiredStates()
    began(writer, place(0), place(1, on=2), place(2), workers=3, gang=gang)
    job = writer.state.jobs["job"]
    job.workers = Counted(job.workers)
    index_of(job)
    built = Counted.walks
    runs = [run for name in ("node-1", "node-2") for run in wanted.own(writer.state, name)]
    assert [place.rank for run in runs for place in run.places] == [0, 2, 1]
    assert Counted.walks == built


def test_a_rank_that_leaves_one_node_and_enters_on_another_at_once_is_told_of_to_both() -> None:
    writer, wanted = Writer(NODES), DesiredStates()
    for name in ("node-1", "node-2"):
        wanted.own(writer.state, name)
    wanted.changes(writer.state, touched([began(writer, place(0), place(1))]).jobs)
    batch = [writer.decide(settled(gone=(0,))), writer.decide(resizing(place(0, on=2, turn=1)))]
    found = wanted.changes(writer.state, touched(batch).jobs)
    assert [(change.node, change.name, change.run is not None) for change in found] == [
        ("node-1", "job 0", False),
        ("node-2", "job 0", True),
    ]


@pytest.mark.parametrize("job", ["vision", "vision/many.0"])
def test_no_job_is_called_as_a_worker_of_another_is(job: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter[str](JobId).validate_python(worker_name(job, 0))


def test_workers_that_are_over_at_once_are_named_in_the_order_in_which_they_entered() -> None:
    writer, wanted = Writer(NODES), DesiredStates()
    wanted.own(writer.state, "node-1")
    wanted.changes(writer.state, touched([began(writer, place(0), place(1), place(2))]).jobs)
    again = [writer.decide(settled(gone=(0,))), writer.decide(resizing(place(0, turn=1)))]
    wanted.changes(writer.state, touched(again).jobs)
    over = writer.decide(settled(gone=(0, 1)))
    assert [change.name for change in wanted.changes(writer.state, touched([over]).jobs)] == ["job 1", "job 0"]


@given(st.data())
def test_the_changes_lead_from_what_was_wanted_of_each_node_to_what_is_wanted_now(data: st.DataObject) -> None:
    writer, wanted, known = Writer([node(1), node(2), node(3)]), DesiredStates(), dict[tuple[str, str], DesiredRun]()
    for name in OWNED:
        wanted.own(writer.state, name)
    batch, attempt = [began(writer, place(0), place(1, on=2), place(2, on=3), workers=8)], 1
    kinds = set[str]()
    for _ in range(data.draw(st.integers(1, 12))):
        job = writer.state.jobs["job"]
        held = [place.rank for place in job.workers]
        kind = data.draw(st.sampled_from(["enter", "leave", "over", "joined", "again"]))
        some = data.draw(st.sets(st.sampled_from(held), max_size=3)) if held else set[int]()
        if kind == "enter" and job.status in (JobStatus.STARTING, JobStatus.RUNNING):
            free = sorted({*range(8)}.difference(held))[: data.draw(st.integers(0, 3))]
            on = data.draw(st.permutations([1, 2, 3]))
            add = tuple(place(rank, on[k], turn=job.turns + 1) for k, rank in enumerate(free))
            batch.append(writer.decide(e.JobResizing(job="job", attempt=attempt, add=add)))
            kinds.update({kind} if add else ())
        elif kind == "leave" and some.difference(job.leaving):
            remove = tuple(sorted(some.difference(job.leaving)))
            batch.append(writer.decide(e.JobResizing(job="job", attempt=attempt, remove=remove)))
            kinds.add(kind)
        elif kind == "joined":
            starting = tuple(rank for rank in sorted(some) if job.runs[str(rank)] is RunStatus.STARTING)
            batch.append(writer.decide(e.WorkersSettled(job="job", attempt=attempt, joined=starting)))
        elif kind == "over" and len(some) < len(held):
            batch.append(writer.decide(e.WorkersSettled(job="job", attempt=attempt, gone=tuple(some))))
            kinds.update({kind} if some else ())
        elif kind == "again":
            batch.append(writer.decide(*_started_again(attempt, held)))
            attempt += 1
        if data.draw(st.booleans()):
            _follow(known, wanted.changes(writer.state, touched(batch).jobs))
            runs = [run for name in OWNED for run in desired_of(writer.state, name)]
            assert known == {(run.node, run.name): run for run in runs}
            batch = []
    reaches("workers enter a job, and others leave it or are over", "enter" in kinds and len(kinds) > 1)


def _follow(known: dict[tuple[str, str], DesiredRun], changes: list[Change]) -> None:
    """What nodes that hear of these changes alone take for wanted."""
    for change in changes:
        if change.run is None:
            del known[change.node, change.name]
        else:
            known[change.node, change.name] = change.run


def _started_again(attempt: int, held: list[int]) -> list[e.AnyEffect]:
    return [
        e.WorkersSettled(job="job", attempt=attempt, gone=tuple(held)),
        e.JobRequeued(job="job", reason=RequeueReason.NO_WORKER_LEFT, not_before_ms=0, failures=0),
        e.JobStarted(job="job", attempt=attempt + 1, workers=(place(0, on=2), place(1), place(2, on=3))),
    ]


def test_a_worker_sees_how_many_are_wanted_and_who_is_there() -> None:
    writer = Writer(NODES)
    began(writer, place(0), place(3, on=2))
    writer.decide(settled(joined=(0,)), resizing(remove=(3,)))
    gang = gang_of(writer.state, "job", 1)
    assert gang is not None
    assert json.loads(gang.as_world()) == {
        "wanted": 4,
        "workers": [
            {"rank": 0, "node": "node-1", "address": "node-1", "status": "running"},
            {"rank": 3, "node": "node-2", "address": "node-2", "status": "leaving"},
        ],
    }


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    await machine.end()


def begin(machine: Machine, writer: Writer, rank: int, turn: int = 0) -> None:
    order = Start(NODE, "job", 1, (place(rank, turn=turn),), WAITS, 0, rank, turn)
    machine.told(machine.driver.start(order, gang_of(writer.state, "job", 1)))


async def test_processes_of_one_job_start_and_stop_one_by_one_and_see_each_other_in_a_file(machine: Machine) -> None:
    writer = Writer(NODES)
    began(writer, place(0), place(1))
    begin(machine, writer, 0)
    begin(machine, writer, 1)
    await machine.until("running", "running")
    world = machine.folder / "runs" / "job" / "1" / "world.json"
    assert len(json.loads(world.read_text())["workers"]) == 2
    writer.decide(resizing(remove=(0,)))
    machine.driver.show_world("job", 1, gang_of(writer.state, "job", 1))
    assert [each["status"] for each in json.loads(world.read_text())["workers"]] == ["leaving", "starting"]
    machine.told(machine.driver.stop(Stop(NODE, "job", 1, 1_000, 0, 0)))
    assert (await machine.until("running", "running", "stopped")).rank == 0
    assert len(machine.alive()) == 1


async def test_a_rank_that_enters_again_has_a_folder_of_its_own_and_an_agent_that_comes_back_finds_it(
    machine: Machine,
) -> None:
    writer = Writer(NODES)
    began(writer, place(0))
    begin(machine, writer, 0)
    await machine.until("running")
    machine.told(machine.driver.stop(Stop(NODE, "job", 1, 1_000, 0, 0)))
    await machine.until("running", "stopped")
    begin(machine, writer, 0, turn=1)
    await machine.until("running", "stopped", "running")
    machine.restart_agent()
    begin(machine, writer, 0, turn=1)
    seen = await machine.until("running", "stopped", "running", "running")
    assert (seen.rank, seen.turn) == (0, 1)
    said = machine.folder / "runs" / "job" / "1" / "0.1" / "stdout"
    await eventually(lambda: said.read_text() == "up 0\n", 5)
