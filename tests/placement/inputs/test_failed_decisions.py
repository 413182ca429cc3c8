"""An error that one input causes in a decision costs that input alone: it is set aside, and the cell goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.decision.failures import IN_A_ROW_MAX, Failures
from fallow.services.placement.decision.inbox import Input
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import CycleResult, ScheduleQueues, Start, schedule_queues
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobSpec, ProcessRun
from fallow.shared.events.jobs import AdmittedJob, JobAdmitted, JobRejected, JobsAdmitted
from fallow.shared.events.queue import StartsPlanned
from fallow.shared.events.reasons import DeadLetterReason, RejectCode
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.reading import header
from tests.contract.eventually import eventually
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, DIGEST, FILE, World, admitted, cancel, joined, report, spec_of
from tests.placement.worlds.writers import CELL as CELL_ON_A_LOG
from tests.placement.worlds.writers import LAYOUT, PlacementProcess, cluster
from tests.placement.writer.test_refused_appends import enqueued


class Failing:
    """A walk of the lines that raises an error while one of these jobs waits."""

    def __init__(self, *jobs: str, error: type[Exception] = ZeroDivisionError) -> None:
        self.jobs, self.error, self.raised = jobs, error, 0

    def walk(self, state: CellState, lines: Lines, now_ms: int, start: Start) -> CycleResult:
        for job in self.jobs:
            if job in state.jobs:
                self.raised += 1
                raise self.error(f"no way for {job}")
        return schedule_queues(state, lines, now_ms, start)


class Going(World):
    """A cell that tries again after an error of a decision, as the shell does."""

    def __init__(self, walk: ScheduleQueues = schedule_queues, **options: Any) -> None:
        self.placement = partial(PlacementService, walk=walk)  # type: ignore[assignment,misc]  # each has its own
        super().__init__(FILE, **options)

    def decide(self) -> bool:
        try:
            return super().decide()
        except (ArithmeticError, LookupError) as error:
            self.writer.abandon()
            if not self.service.failed(error):
                raise
            return True

    def set_aside(self) -> list[tuple[str, int, DeadLetterReason]]:
        """Which inputs were set aside, and why."""
        return [(item.source, item.next_offset - 1, stray.reason) for item, stray in self.service.take_strays()]


class Odd(str):
    """A name with which nothing can be done."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise OverflowError("no name")


FAILED = DeadLetterReason.HANDLER_FAILED


@pytest.mark.parametrize("at", [0, 1, 137, 299])
def test_one_input_of_many_on_whose_walk_a_decision_fails_is_set_aside_and_the_others_count(at: int) -> None:
    world = Going(Failing(f"job-{at}").walk)
    world.tell(joined("n1", 4), *(admitted(spec_of(f"job-{number}")) for number in range(300)))
    world.check()
    assert world.set_aside() == [("jobs-0", at, FAILED)]
    assert sorted(world.state.jobs) == sorted(f"job-{number}" for number in range(300) if number != at)
    assert world.service.read["jobs-0"] == 300
    assert sum(bool(job.workers) for job in world.state.jobs.values()) == 4


@pytest.mark.parametrize("at", [0, 63, 199])
def test_so_is_one_that_cannot_even_be_taken_in(at: int) -> None:
    world = Going()
    events: list[Event] = [admitted(spec_of(f"job-{number}")) for number in range(200)]
    events[at] = cancel(Odd("job"))
    world.tell(*events, report("ghost"))
    world.check()
    assert (("jobs-0", at, FAILED)) in world.set_aside()
    assert len(world.state.jobs) == 199


def test_one_job_of_a_record_of_many_is_set_aside_alone_and_named() -> None:
    world = Going(Failing("job-41").walk)
    jobs = tuple(AdmittedJob(spec=spec_of(f"job-{n}"), submit_ms=0, digest=DIGEST) for n in range(100))
    world.tell(JobsAdmitted(cell=CELL, jobs=jobs), admitted(spec_of("next")))
    world.check()
    ((item, stray),) = world.service.take_strays()
    assert item.next_offset == 1
    assert stray.text.startswith("ZeroDivisionError: no way for job-41 (raised in Failing.walk:")
    assert stray.text.endswith(", on job job-41)")
    assert sorted(world.state.jobs) == sorted(["next", *(f"job-{n}" for n in range(100) if n != 41)])
    assert world.service.read["jobs-0"] == 2


def test_culprits_with_others_between_them_are_found_one_by_one() -> None:
    bad = [f"job-{number}" for number in range(7, 200, 20)]
    world = Going(Failing(*bad).walk)
    world.tell(*(admitted(spec_of(f"job-{number}")) for number in range(200)))
    world.check()
    assert world.set_aside() == [("jobs-0", number, FAILED) for number in range(7, 200, 20)]
    assert len(world.state.jobs) == 190


def test_each_half_is_tried_and_not_each_input() -> None:
    failing = Failing("job-900")
    world = Going(failing.walk)
    world.checks = False
    world.tell(*(admitted(spec_of(f"job-{number}")) for number in range(1_000)))
    assert failing.raised < 40
    assert len(world.state.jobs) == 999


def test_a_fault_that_passes_costs_no_input() -> None:
    failing = Failing("job-3")
    world = Going(failing.walk)
    world.hand_over(*(admitted(spec_of(f"job-{number}")) for number in range(10)))
    world.decide()
    failing.jobs = ()
    world.rest()
    world.check()
    assert (failing.raised, world.set_aside(), len(world.state.jobs)) == (1, [], 10)


def test_as_many_in_a_row_are_set_aside_as_may_be_chance_and_one_more_ends_the_work() -> None:
    jobs = [f"job-{number}" for number in range(IN_A_ROW_MAX + 1)]
    world = Going(Failing(*jobs[:-1]).walk)
    world.tell(*(admitted(spec_of(job)) for job in jobs))
    assert (len(world.set_aside()), list(world.state.jobs)) == (IN_A_ROW_MAX, jobs[-1:])
    world = Going(Failing(*jobs).walk)
    with pytest.raises(ZeroDivisionError, match=jobs[-1]):
        world.tell(*(admitted(spec_of(job)) for job in jobs))
    assert world.state.jobs == {}


def test_copies_of_what_was_set_aside_are_no_further_causes() -> None:
    """Admission, which died before it had noted what it told, has told all of it again."""
    bad = [f"bad-{number}" for number in range(IN_A_ROW_MAX)]
    world = Going(Failing(*bad).walk)
    world.tell(joined("n1", 8), *[admitted(spec_of(job)) for job in bad * 3], admitted(spec_of("good")))
    assert list(world.state.jobs) == ["good"]
    assert len(world.set_aside()) == 3 * IN_A_ROW_MAX


def test_words_of_which_nothing_comes_are_no_row() -> None:
    world = Going()
    world.tell(joined("n1"))
    for _ in range(IN_A_ROW_MAX + 1):
        world.tell(cancel(Odd("job")))
        world.tell(None, JobRejected(cell=CELL, job="job", command="cancel", code=RejectCode.UNKNOWN_TENANT))
    assert len(world.set_aside()) == IN_A_ROW_MAX + 1


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    """How many jobs each record of a stream holds, and of each job whether it is one on which a decision fails."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    bad = draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes)))
    for at in range(IN_A_ROW_MAX, len(bad)):
        if all(bad[at - IN_A_ROW_MAX : at]):
            bad[at] = False
    return sizes, bad


@given(streams())
def test_whatever_comes_in_whatever_records_these_jobs_alone_are_missing(stream: tuple[list[int], list[bool]]) -> None:
    sizes, bad = stream
    jobs = [AdmittedJob(spec=spec_of(f"job-{n:03}"), submit_ms=0, digest=DIGEST) for n in range(len(bad))]
    world = Going(Failing(*(job.spec.id for job, is_bad in zip(jobs, bad, strict=True) if is_bad)).walk)
    ends = [*accumulate(sizes)]
    mixed = [bad[end - n : end] for n, end in zip(sizes, ends, strict=True) if len({*bad[end - n : end]}) > 1]
    reaches("a job on which decisions fail comes in one record with others", mixed)
    world.tell(*(JobsAdmitted(cell=CELL, jobs=tuple(jobs[end - n : end])) for n, end in zip(sizes, ends, strict=True)))
    world.check()
    assert list(world.state.jobs) == [job.spec.id for job, is_bad in zip(jobs, bad, strict=True) if not is_bad]
    assert len(world.set_aside()) == sum(bad)
    assert world.service.read["jobs-0"] == len(sizes)


def test_an_error_that_comes_from_no_input_is_raised_and_blames_none() -> None:
    failing = Failing()
    world = Going(failing.walk)
    world.tell(admitted(spec_of("job-1")))
    failing.jobs = ("job-1",)
    with pytest.raises(ZeroDivisionError):
        world.tell(admitted(spec_of("job-2")), admitted(spec_of("job-3")))
    assert world.set_aside() == []
    assert list(world.state.jobs) == ["job-1"]


def fail_by_a_plan(world: Going) -> None:
    """A decision fails on a plan, and there will be another one."""
    world.service.hear_plan(StartsPlanned(cell=CELL, writer="q", plan=1, version=1, at_ms=0, starts=(None,)))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        World.decide(world)
    world.writer.abandon()
    assert world.service.failed(AttributeError())


def test_a_plan_on_which_a_decision_fails_is_forgotten_and_no_input_pays_for_it() -> None:
    world = Going()
    world.tell(admitted(spec_of("job-1")))
    world.hand_over(admitted(spec_of("job-2")))
    fail_by_a_plan(world)
    world.rest()
    assert (world.set_aside(), list(world.state.jobs)) == ([], ["job-1", "job-2"])


def test_a_plan_that_comes_alone_and_on_which_a_decision_fails_ends_no_work() -> None:
    world = Going()
    world.tell(admitted(spec_of("job-1")))
    fail_by_a_plan(world)
    world.tell(admitted(spec_of("job-2")))
    assert (world.set_aside(), list(world.state.jobs)) == ([], ["job-1", "job-2"])


def test_a_writer_that_begins_anew_counts_a_row_from_nothing() -> None:
    failures = Failures()
    culprits = [Input("jobs-0", at, admitted(spec_of(f"job-{at}")), 0) for at in range(IN_A_ROW_MAX + 1)]
    assert [failures.note(culprit, "why") for culprit in culprits] == [True] * IN_A_ROW_MAX + [False]
    failures.begin()
    assert failures.note(culprits[-1], "why")
    assert failures.count == IN_A_ROW_MAX + 1


def test_inputs_about_no_job_and_no_node_are_as_many_causes_as_there_are_of_them() -> None:
    failures = Failures()
    culprits = [Input("jobs-0", at, JobsAdmitted(cell=CELL, jobs=()), 0) for at in range(1, IN_A_ROW_MAX + 2)]
    assert [failures.note(culprit, "why") for culprit in culprits] == [True] * IN_A_ROW_MAX + [False]
    assert failures.note(culprits[0], "why"), "one that is read again is not another one"


def test_a_state_that_is_not_sound_behind_the_error_is_not_decided_upon() -> None:
    def harming(state: CellState, lines: Lines, now_ms: int, start: Start) -> CycleResult:
        if "job-1" in state.jobs:
            state.waiting_of["bob"] = 7  # and nobody is told how to undo that
            raise KeyError("job-1")
        return schedule_queues(state, lines, now_ms, start)

    world = Going(harming)
    before = len(world.log)
    with pytest.raises(KeyError):
        world.tell(admitted(spec_of("job-0")), admitted(spec_of("job-1")))
    assert len(world.log) == before


def test_a_stepped_clock_does_not_go_on_by_an_input_that_was_set_aside() -> None:
    world = Going(Failing("late").walk, stepped=True)
    world.tell(admitted(spec_of("late"), submit_ms=5_000), admitted(spec_of("next"), submit_ms=10))
    world.check()
    assert world.set_aside() == [("jobs-0", 0, FAILED)]
    assert world.decisions[-1].at_ms == 10


def test_another_writer_reads_the_same_log_and_sets_the_same_input_aside_once_more() -> None:
    world = Going(Failing("job-3").walk)
    world.hand_over(*(admitted(spec_of(f"job-{number}")) for number in range(10)))
    while not world.state.jobs:
        world.decide()
    world.restart()
    world.check()
    assert world.set_aside() == [("jobs-0", 3, FAILED)]
    assert len(world.state.jobs) == 9


# The shell that ships.


def submitted(*jobs: str) -> MemoryBroker:
    broker = cluster()
    for job in jobs:
        spec = JobSpec(id=job, tenant="vision", run=ProcessRun(argv=("true",)))
        event = JobAdmitted(cell=CELL_ON_A_LOG, spec=spec, submit_ms=0, digest="0" * 32)
        broker.write(LAYOUT.outgoing(event, id=job, source="test", wall_ms=0))
    return broker


def process_on(broker: MemoryBroker, walk: ScheduleQueues) -> PlacementProcess:
    return PlacementProcess(MemoryLog(broker), "placement-1", deciding=partial(PlacementService, walk=walk))


def notes(process: PlacementProcess) -> bytes:
    return process.context.health.answer("/readyz")[2]


def letters(broker: MemoryBroker) -> Sequence[Any]:
    return broker.partition((LAYOUT.topic("dead-letters"), 0)).records


async def test_the_shell_sets_the_culprit_aside_says_why_and_goes_on() -> None:
    broker = submitted(*(f"job-{number}" for number in range(50)))
    process = process_on(broker, Failing("job-17", error=RecursionError).walk)
    await process.start()
    try:
        await eventually(lambda: len(enqueued(broker)) == 49 and len(letters(broker)) == 1)
        (letter,) = letters(broker)
        assert (header(letter, "reason"), header(letter, "origin_offset")) == ("handler_failed", "17")
        assert header(letter, "text").startswith("RecursionError: no way for job-17 (raised in ")
        assert process.health == ""
        await eventually(
            lambda: b"1 input was set aside because decisions failed; the newest: jobs-0@17:" in notes(process)
        )
        counted = process.context.telemetry.registry.get_sample_value
        labels = {"topic": LAYOUT.topic("jobs"), "reason": "handler_failed"}
        assert counted("fallow_dead_letters_total", labels) == 1
        assert (counted("fallow_stale_appends_total", {"cell": process.writer.cell, "why": "failed"}) or 0) > 1
        process.owned.give_up(0)
        process.writer.wake()
        await eventually(lambda: b"decisions failed" not in notes(process))
    finally:
        await process.stop()


@pytest.mark.parametrize("error", [MemoryError])
async def test_an_error_that_says_nothing_of_what_was_tried_ends_the_work_at_once(error: type[Exception]) -> None:
    failing = Failing("job-1", error=error)
    process = process_on(submitted("job-0", "job-1"), failing.walk)
    await process.member.start()
    running = asyncio.create_task(process.writer.run())
    process.owned.take_again(0)
    await process.owned.changed()
    with pytest.raises(error):
        await asyncio.wait_for(running, 10)
    assert failing.raised == 1
    await process.member.stop()


async def test_the_error_of_a_walk_that_fails_without_any_input_ends_the_work() -> None:
    def broken(*_: object) -> CycleResult:
        raise KeyError("nothing works")

    broker = submitted("job-0", "job-1")
    process = process_on(broker, broken)
    await process.member.start()
    await process.owned.changed()
    with pytest.raises(KeyError, match="nothing works"):
        await asyncio.wait_for(process.writer.run(), 10)
    assert (enqueued(broker), list(letters(broker))) == ([], [])
    await process.member.stop()
