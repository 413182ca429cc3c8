"""A job whose start the state refuses is held with the broken rule as its reason, and the others keep starting."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.app.showing import HELD
from fallow.services.placement.decision.failures import DEFECT, JOBS_IN_A_ROW
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import CycleResult, Start, schedule_queues
from fallow.services.placement.search.gang import Places
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.arrays import element_id
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, NodeSpec
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.log.machine.writer import UnwritableDecision
from fallow.shared.log.memory.log import MemoryBroker
from fallow.shared.log.reading import event_of
from tests.contract.eventually import eventually
from tests.hypothesis_profile import reaches
from tests.placement.inputs.test_failed_decisions import notes, process_on, submitted
from tests.placement.worlds.world import CELL, FILE, Fate, World, admitted, finished, joined, spec_of
from tests.placement.worlds.writers import CELL as CELL_ON_A_LOG
from tests.placement.worlds.writers import LAYOUT
from tests.placement.writer.test_refused_appends import DECISIONS


class Misplacing:
    """A walk of the lines that finds places for these jobs that no state allows: their ranks begin with 7."""

    def __init__(self, *jobs: str) -> None:
        self.jobs, self.tries = dict.fromkeys(jobs), 0
        self.only_further = False
        """Whether only the workers that enter while their job runs are misplaced."""

    def walk(self, state: CellState, lines: Lines, now_ms: int, start: Start) -> CycleResult:
        def misplaced(job: Job, places: Places, over: str) -> bool:
            if job.id in self.jobs and (job.status is not JobStatus.QUEUED or not self.only_further):
                self.tries += 1
                places = tuple(replace(place, rank=0 if self.only_further else 7 + place.rank) for place in places)
            return start(job, places, over)

        return schedule_queues(state, lines, now_ms, misplaced)


class Holding(World):
    """A cell with such a walk."""

    def __init__(self, misplacing: Misplacing, **options: Any) -> None:
        self.placement = partial(PlacementService, walk=misplacing.walk)  # type: ignore[assignment,misc]  # each has its own
        super().__init__(FILE, **options)
        self.may_refuse = True

    def held(self) -> dict[str, str]:
        """The jobs that are held, and why."""
        return {job.id: job.held_why for job in self.state.jobs.values() if job.status is JobStatus.HELD}

    def running(self) -> list[str]:
        """The jobs that have workers."""
        return [job.id for job in self.state.jobs.values() if job.workers]


def why(job: str) -> str:
    return f"{DEFECT}job {job}: rank 7 stands where 0 belongs"


def jobs(count: int) -> list[str]:
    return [f"job-{number}" for number in range(count)]


def cell(*misplaced: str, gpus: int = 8, **options: Any) -> tuple[Holding, Misplacing]:
    misplacing = Misplacing(*misplaced)
    world = Holding(misplacing, **options)
    world.tell(*(joined(f"n{number}", min(8, gpus - 8 * number)) for number in range((gpus + 7) // 8)))
    return world, misplacing


@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_job_that_comes_with_others_is_held_and_these_start(at: int) -> None:
    world, _ = cell(f"job-{at}")
    world.tell(*(admitted(spec_of(job)) for job in jobs(6)))
    world.check()
    assert world.held() == {f"job-{at}": why(f"job-{at}")}
    assert world.running() == [job for job in jobs(6) if job != f"job-{at}"]
    assert world.service.take_strays() == []


def test_a_job_that_waited_already_is_held_and_no_input_pays_for_it() -> None:
    world, misplacing = cell(gpus=2)
    world.run(spec_of("first", gpus=2))
    world.tell(admitted(spec_of("second", gpus=2)), admitted(spec_of("third", gpus=2)))
    misplacing.jobs["second"] = None
    world.tell(finished("first", "n0"))
    world.check()
    assert world.held() == {"second": why("second")}
    assert world.running() == ["third"]
    assert world.service.take_strays() == []
    assert "first" in world.state.finished


def test_the_decision_that_holds_it_also_starts_the_others() -> None:
    world, _ = cell("job-1")
    world.tell(*(admitted(spec_of(job)) for job in jobs(3)))
    (made,) = [d.effects for d in world.decisions if any(isinstance(effect, e.JobHeld) for effect in d.effects)]
    assert [effect.job for effect in made if isinstance(effect, e.JobStarted)] == ["job-0", "job-2"]


def test_once_released_it_starts_where_the_defect_is_gone_and_is_held_again_where_it_is_not() -> None:
    world, misplacing = cell("job-0")
    world.tell(admitted(spec_of("job-0")))
    for _ in range(JOBS_IN_A_ROW):
        world.tell(o.ReleaseJob(cell=CELL, job="job-0"))
        assert world.held() == {"job-0": why("job-0")}
    misplacing.jobs.clear()
    world.tell(o.ReleaseJob(cell=CELL, job="job-0"))
    world.check()
    assert (world.held(), world.running()) == ({}, ["job-0"])


def test_a_hold_of_a_person_takes_the_place_of_that_reason() -> None:
    world, _ = cell("job-0")
    world.tell(admitted(spec_of("job-0")))
    world.tell(o.HoldJob(cell=CELL, job="job-0"))
    assert world.held() == {"job-0": ""}


def cell_in_which_they_wait(*names: str) -> tuple[Holding, Misplacing]:
    """All GPUs are in use, and these jobs wait. From now on all of them are misplaced."""
    world, misplacing = cell(gpus=2)
    world.run(spec_of("first", gpus=2))
    world.tell(*(admitted(spec_of(name)) for name in names))
    misplacing.jobs.update(dict.fromkeys(names))
    return world, misplacing


def test_so_many_different_jobs_in_a_row_end_the_work_and_none_of_them_is_held() -> None:
    world, _ = cell_in_which_they_wait(*jobs(JOBS_IN_A_ROW))
    with pytest.raises(UnwritableDecision, match="rank 7"):
        world.tell(finished("first", "n0"))
    assert world.held() == {}
    assert world.service.take_strays() == []
    world, _ = cell_in_which_they_wait(*jobs(JOBS_IN_A_ROW - 1))
    world.tell(finished("first", "n0"))
    world.check()
    assert list(world.held()) == jobs(JOBS_IN_A_ROW - 1)


def test_they_are_in_a_row_also_where_each_comes_by_itself() -> None:
    world, _ = cell(*jobs(JOBS_IN_A_ROW))
    for job in jobs(JOBS_IN_A_ROW - 1):
        world.tell(admitted(spec_of(job)))
    with pytest.raises(UnwritableDecision):
        world.tell(admitted(spec_of(jobs(JOBS_IN_A_ROW)[-1])))
    assert list(world.held()) == jobs(JOBS_IN_A_ROW - 1)
    assert world.service.take_strays() == []


def test_a_start_between_them_breaks_the_row() -> None:
    world, _ = cell("job-0", "job-1", "job-3", "job-4", gpus=8)
    for job in jobs(6):
        world.tell(admitted(spec_of(job)))
    world.check()
    assert (list(world.held()), world.running()) == (["job-0", "job-1", "job-3", "job-4"], ["job-2", "job-5"])


def test_an_array_counts_as_one_job() -> None:
    misplaced = [element_id("many", n) for n in range(5)]
    world, _ = cell(*misplaced)
    world.tell(admitted(spec_of("many", array=5)), admitted(spec_of("other")))
    world.check()
    assert (list(world.held()), world.running()) == (misplaced, ["other"])


@pytest.mark.parametrize("said", ["heads", "cleared"])
def test_so_is_a_job_of_which_the_walk_says_what_the_state_does_not_allow(said: str) -> None:
    class Saying(Misplacing):
        def walk(self, state: CellState, lines: Lines, now_ms: int, start: Start) -> CycleResult:
            walk = schedule_queues(state, lines, now_ms, start)
            if "job-1" in state.jobs and state.jobs["job-1"].status is JobStatus.QUEUED:
                getattr(walk, said).extend(["job-1", "job-1"])
            return walk

    world = Holding(Saying())
    world.tell(joined("n1", 1), *(admitted(spec_of(job)) for job in jobs(3)))
    world.tell(finished("job-0"))
    world.check()
    rule = "job job-1 is a head already" if said == "heads" else "job job-1 is no head"
    assert world.held() == {"job-1": f"{DEFECT}{rule}"}
    assert world.running() == ["job-2"]


def test_a_state_that_is_not_sound_is_not_decided_upon_without_the_job() -> None:
    world, _ = cell("job-1")
    world.tell(admitted(spec_of("job-0")))
    world.state.waiting_of["bob"] = 7
    before = len(world.log)
    with pytest.raises(IllegalEffect, match="rank 7"):
        world.tell(admitted(spec_of("job-1")))
    assert len(world.log) == before


def test_further_workers_that_are_refused_stay_out_and_the_job_keeps_those_that_it_has() -> None:
    world, misplacing = cell("grows", gpus=2)
    misplacing.only_further = True
    world.run(spec_of("first", gpus=1))
    world.run(spec_of("grows", workers=3, workers_min=1, gang=False, kind=JobKind.INFERENCE))
    world.tell(admitted(spec_of("next")))
    world.tell(finished("first", "n0"))
    world.check()
    assert (len(world.job("grows").workers), world.running()) == (1, ["grows", "next"])
    assert [refusal.job for refusal in world.service.take_without()] == ["grows"]


def test_another_writer_comes_to_the_same_state_whether_or_not_the_hold_is_in_the_log_yet() -> None:
    digests = []
    for dies in (False, True):
        world, _ = cell("job-1")
        world.hand_over(*(admitted(spec_of(job)) for job in jobs(4)))
        if dies:
            world.on_append = lambda: Fate.LOST
            world.decide()  # it fails on the job
            world.decide()  # and what it makes then is lost
            assert world.held() == {}
            world.on_append = lambda: Fate.KEPT
            world.restart()
        world.rest()
        world.check()
        digests.append((world.held(), world.running(), [*world.state.jobs]))
    assert digests[0] == digests[1]
    assert digests[0][0] == {"job-1": why("job-1")}


def test_a_replay_comes_to_the_same_decisions() -> None:
    logs = []
    for _ in range(2):
        world, _ = cell("job-1", "job-4", stepped=True)
        world.tell(*(admitted(spec_of(job), submit_ms=number) for number, job in enumerate(jobs(6))))
        world.check()
        logs.append(([made.effects for made in world.decisions], digest_of(world.state)))
    assert logs[0] == logs[1]


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 40), st.booleans())
def test_whatever_comes_these_jobs_alone_are_held_as_long_as_no_row_of_them_is_too_long(
    bad: list[bool], gpus: int, are_alike: bool
) -> None:
    for at in range(JOBS_IN_A_ROW - 1, len(bad)):
        bad[at] &= not all(bad[at - JOBS_IN_A_ROW + 1 : at])
    world, _ = cell(*(f"job-{number}" for number, is_bad in enumerate(bad) if is_bad), gpus=gpus)
    specs = [spec_of(f"job-{n}", priority=0 if are_alike else -n) for n in range(len(bad))]
    world.tell(*map(admitted, specs))
    world.check()
    good = [f"job-{number}" for number, is_bad in enumerate(bad) if not is_bad]
    reaches("some jobs run, and those with a defect are held", world.running() and world.held())
    assert world.running() == good[:gpus]
    assert set(world.held()) <= {f"job-{number}" for number, is_bad in enumerate(bad) if is_bad}
    if gpus > len(good):
        assert len(world.held()) == sum(bad)
    assert world.service.take_strays() == []


# The shell that ships.


def in_the_log(broker: MemoryBroker, kind: type[e.JobHeld | e.JobStarted]) -> list[Any]:
    """The effects of this kind in the decisions of the cell."""
    events = [event_of(record) for record in broker.partition((DECISIONS, 0)).records]
    return [x for made in events if isinstance(made, Decision) for x in made.effects if isinstance(x, kind)]


async def test_the_shell_holds_the_job_says_why_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    broker = submitted(*jobs(6))
    spec = NodeSpec(
        id="n1", pool="training", gpus=8
    )  # of the cell file that ships, which counts from the first look on
    node = NodeJoined(cell=CELL_ON_A_LOG, node="n1", boot="boot-1", seq=0, spec=spec)
    broker.write(LAYOUT.outgoing(node, id="n1", source="test", wall_ms=0))
    process = process_on(broker, Misplacing("job-2").walk)
    await process.start()
    try:
        await eventually(lambda: len(in_the_log(broker, e.JobStarted)) == 5)
        assert [(held.job, held.reason) for held in in_the_log(broker, e.JobHeld)] == [("job-2", why("job-2"))]
        await eventually(
            lambda: b"1 job was held since the state refused the start; the newest: job-2: job" in notes(process)
        )
        assert process.metric("fallow_jobs_held_by_defects_total") == 1
        assert process.health == ""
    finally:
        await process.stop()
    said = [line for line in capsys.readouterr().out.splitlines() if HELD in line]
    assert len(said) == 1
    assert "job-2" in said[0]
