"""A record has a bound: what does not fit goes into the next one, and a record that is not in force leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, cycle, repeat

import pytest

from fallow.services.placement.decision.decision import BYTES_MAX, RECORD_BYTES_MAX, STARTS_MAX
from fallow.services.placement.service import DEFERRED_MAX, IDLE_INPUTS_MAX, IDLE_WALL_MS
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import RetryPolicy
from fallow.shared.events.operations import AdvanceTime, Drain, HoldJob, ReleaseJob
from tests.placement.worlds.world import (
    CELL,
    Fate,
    World,
    admitted,
    cancel,
    failed,
    finished,
    joined,
    kinds,
    lost,
    quota,
    report,
    seen,
    set_quotas,
    spec_of,
    started,
    update,
)


def sizes(world: World) -> list[int]:
    return [len(record.value) for record in world.log]


WIDE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=1_000_000, gpus_per_node=4_096),)),),
    tenants=(Tenant(name="ada"),),
)


def quick(*nodes: Event) -> World:
    """A world of wide nodes that looks at itself only at the end of a test."""
    world = World(WIDE)
    world.checks = False
    world.tell(*nodes)
    return world


def test_a_record_starts_so_many_jobs_and_the_next_one_goes_on() -> None:
    world = quick()
    world.tell(*(admitted(spec_of(f"job-{number:04}")) for number in range(STARTS_MAX + 200)))
    world.tell(*(joined(f"n{number:03}") for number in range(160)))
    world.check()
    starts = [kinds(decision.effects).count("JobStarted") for decision in world.decisions]
    assert [count for count in starts if count] == [STARTS_MAX, 200]


def test_inputs_stop_in_the_middle_of_a_batch_when_the_record_is_full() -> None:
    world = quick()
    world.tell(*(admitted(spec_of(f"job-{number}")) for number in range(10)), size_bytes=60_000)
    world.check()
    read = [decision.inputs.get("jobs-0") for decision in world.decisions]
    assert read == [None, 3, 6, 9, 10]


def test_new_jobs_leave_room_for_starts_however_many_come() -> None:
    world = quick(*(joined(f"n{number:03}") for number in range(100)))
    world.tell(*(admitted(spec_of(f"job-{number:04}")) for number in range(300)), size_bytes=100)
    world.hand_over(*(admitted(spec_of(f"more-{number:04}")) for number in range(3_000)), size_bytes=600)
    world.decide()
    effects = kinds(world.decisions[-1].effects)
    assert effects.count("JobStarted") == effects.count("JobEnqueued") == BYTES_MAX // 2 // 600


def test_what_nodes_say_does_not_wait_behind_new_jobs() -> None:
    world = quick(joined("n1", 1))
    world.run(spec_of("first"))
    world.hand_over(*(admitted(spec_of(f"more-{number:04}")) for number in range(3_000)), size_bytes=600)
    world.hand_over(finished("first"))
    world.decide()
    assert "JobFinished" in kinds(world.decisions[-1].effects)
    assert world.service.new_jobs_pending == 3_000 - BYTES_MAX // 2 // 600


def test_a_stepped_clock_takes_its_inputs_as_they_came() -> None:
    world = World(WIDE, stepped=True)
    world.hand_over(
        admitted(spec_of("early"), submit_ms=5), AdvanceTime(cell=CELL, now_ms=9), AdvanceTime(cell=CELL, now_ms=12)
    )
    world.hand_over(admitted(spec_of("late"), submit_ms=9))
    world.rest()
    assert [(job.id, job.submit_ms) for job in world.state.jobs.values()] == [("early", 5), ("late", 9)]
    assert [decision.at_ms for decision in world.decisions if decision.effects] == [0, 5, 12]


def test_a_job_as_large_as_a_submission_may_be_has_a_record_to_itself() -> None:
    world = quick()
    sizes_of_inputs = (1_000, 512_000, 1_000)
    for size in sizes_of_inputs:
        world.hand_over(admitted(spec_of(f"job-{size}-{len(world.inputs.get('jobs-0', ()))}")), size_bytes=size)
    world.rest()
    world.check()
    assert [kinds(decision.effects).count("JobEnqueued") for decision in world.decisions[1:]] == [1, 1, 1]


def test_thousands_of_answers_at_once_make_several_bounded_records() -> None:
    world = quick(*(joined(f"n{number:03}", 250) for number in range(24)))
    names = [f"job-{number:04}-{'x' * 100}" for number in range(6_000)]
    world.tell(*(admitted(spec_of(name)) for name in names))
    answers = [finished(name, world.nodes_of(name)[0]) for name in names]
    before = len(world.log)
    world.tell(*answers)
    world.check()
    assert len(world.log) - before > 2
    assert max(sizes(world)[before:]) < RECORD_BYTES_MAX
    assert not world.state.jobs


def test_thousands_of_limits_at_once_make_several_bounded_records() -> None:
    world = quick(*(joined(f"n{number:03}", 250) for number in range(24)))
    names = [f"job-{number:04}-{'x' * 100}" for number in range(6_000)]
    world.tell(*(admitted(spec_of(name, max_run_ms=1_000)) for name in names))
    before = len(world.log)
    world.pass_time(1_000)
    world.check()
    assert len(world.log) - before > 2
    assert max(sizes(world)[before:]) < RECORD_BYTES_MAX
    assert {job.status for job in world.state.jobs.values()} == {JobStatus.STOPPING}


def test_many_nodes_lost_at_once_make_several_bounded_records() -> None:
    nodes = [f"n{number:04}-{'x' * 100}" for number in range(4_000)]
    world = quick(*(joined(node, 1) for node in nodes))
    world.tell(*(admitted(spec_of(f"job-{number:04}-{'x' * 100}")) for number in range(4_000)))
    world.pass_time(30_000)
    world.tell(*(report(node) for node in nodes[800:]))
    before = len(world.log)
    world.pass_time(10_001)
    world.check()
    assert kinds(chain(*(decision.effects for decision in world.decisions))).count("LeaseExpired") == 800
    assert max(sizes(world)[before:]) < BYTES_MAX + 100_000


def test_a_gang_that_does_not_fit_into_the_record_any_more_starts_in_the_next_one() -> None:
    world = quick(*(joined(f"n{number:05}-{'x' * 120}", 1) for number in range(8_000)))
    world.tell(*(admitted(spec_of(f"gang-{number}", workers=4_000)) for number in range(2)))
    world.check()
    starts = [kinds(decision.effects).count("JobStarted") for decision in world.decisions]
    assert [count for count in starts if count] == [1, 1]
    assert max(sizes(world)) < RECORD_BYTES_MAX


def test_new_reasons_to_wait_are_told_in_portions() -> None:
    world = quick()
    specs = [spec_of(f"job-{number:04}", priority=number % 8) for number in range(DEFERRED_MAX * 2 + 50)]
    world.tell(*(admitted(spec) for spec in specs))
    told = [kinds(decision.effects).count("JobDeferred") for decision in world.decisions]
    assert [count for count in told if count] == [DEFERRED_MAX, DEFERRED_MAX, 50]


def test_inputs_without_consequences_get_a_record_now_and_then() -> None:
    world = quick(joined("n1"))
    before = len(world.log)
    world.tell(*(report("n1") for _ in range(IDLE_INPUTS_MAX - 1)))
    assert len(world.log) == before
    assert world.service.read["nodes-0"] == IDLE_INPUTS_MAX
    world.tell(report("n1"))
    assert world.state.inputs["nodes-0"] == IDLE_INPUTS_MAX + 1
    assert world.decisions[-1].effects == ()


def test_an_input_without_consequences_that_comes_once_gets_a_record_within_seconds() -> None:
    """Else a cell that rests for longer than its topics keep records would take it for deleted unread."""
    world = quick()
    world.tell(admitted(spec_of("job")))
    world.tell(admitted(spec_of("job")))
    assert world.state.inputs["jobs-0"] == 1, "the same job again changes nothing"
    world.pass_time(IDLE_WALL_MS - 1)
    assert world.state.inputs["jobs-0"] == 1
    world.pass_time(1)
    assert world.state.inputs["jobs-0"] == 2


def story() -> Iterator[list[Event]]:
    """A little of everything, in batches."""
    yield [joined("n1"), joined("n2"), joined("n3", 4)]
    yield [admitted(spec_of(f"job-{number}", 2, retry=RetryPolicy(budget=1))) for number in range(6)]
    yield [admitted(spec_of("gang", 4, workers=3, priority=1)), set_quotas(quota("ada", 18))]
    yield [started("job-0", "n3"), started("gang", "n1"), started("gang", "n2"), failed("job-0", "n3")]
    yield [cancel("job-1"), update("job-2", priority=4), HoldJob(cell=CELL, job="job-5")]
    yield [lost("n2"), report("n2", seen("gang")), joined("n4")]
    yield [ReleaseJob(cell=CELL, job="job-5"), Drain(cell=CELL, node="n3")]
    yield [joined("n1", boot="boot-2"), report("n2"), AdvanceTime(cell=CELL, now_ms=7)]
    yield [finished("job-2", "n3"), admitted(spec_of("job-0", 1)), cancel("nobody")]


def live(fates: Iterator[Fate]) -> World:
    world = World(on_append=lambda: next(fates))
    for batch in story():
        world.tell(*batch)
        world.pass_time(10)
    world.on_append = lambda: Fate.KEPT
    world.rest()
    world.check()
    return world


LOSSES = [
    pytest.param(lambda: cycle((Fate.LOST, Fate.KEPT)), id="each lost once"),
    pytest.param(lambda: cycle((Fate.LOST, Fate.LOST, Fate.LOST, Fate.KEPT)), id="each lost three times"),
    pytest.param(lambda: cycle((Fate.KEPT, Fate.KEPT, Fate.LOST)), id="each third lost"),
]


@pytest.mark.parametrize("fates", LOSSES)
def test_a_record_that_was_lost_leaves_no_trace(fates: object) -> None:
    calm = live(repeat(Fate.KEPT))
    shaken = live(fates())  # type: ignore[operator]
    assert [record.value for record in shaken.log] == [record.value for record in calm.log]


@pytest.mark.parametrize("at", range(24))
def test_a_single_loss_at_any_point_leaves_no_trace(at: int) -> None:
    calm = live(repeat(Fate.KEPT))
    shaken = live(chain(repeat(Fate.KEPT, at), [Fate.LOST], repeat(Fate.KEPT)))
    assert [record.value for record in shaken.log] == [record.value for record in calm.log]


@pytest.mark.parametrize("fate", [Fate.LATE, Fate.AFTER_A_STALE_ONE])
def test_a_record_whose_answer_was_lost_counts_once(fate: Fate) -> None:
    calm = live(repeat(Fate.KEPT))
    shaken = live(cycle((fate, Fate.KEPT)))
    assert effects_of(shaken) == effects_of(calm)


def test_a_writer_that_was_beaten_takes_over_anew_and_decides_the_same() -> None:
    calm = live(repeat(Fate.KEPT))
    shaken = live(cycle((Fate.KEPT, Fate.BEATEN)))
    assert starts_of(shaken) == starts_of(calm)
    assert set(shaken.state.jobs) == set(calm.state.jobs)


def test_a_process_that_starts_from_the_log_comes_to_the_same_state() -> None:
    world = live(repeat(Fate.KEPT))
    before = effects_of(world)
    world.restart()
    assert [effect for effect in effects_of(world)[len(before) :] if not isinstance(effect, e.WriterStarted)] == []
    assert digest_of(world.state) == digest_of(world.twin)


def effects_of(world: World) -> list[e.AnyEffect]:
    decisions = {decision.version: decision for decision in world.decisions if decision.version > 1}
    return [effect for version in sorted(decisions) for effect in decisions[version].effects]


def starts_of(world: World) -> list[tuple[str, int]]:
    in_force = [record.decision for record in world.log if record.offset <= world.twin.offset]
    assert in_force
    return sorted({(job.id, job.attempt) for job in world.state.jobs.values()})
