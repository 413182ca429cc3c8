"""A job that is lost again and again ends only where a node names a fault of its own at the last, of the run that was
lost. Neither words of other workers nor those of earlier failures end it, and all that counts is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.runs.retry import FAULTS_MAX
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events.fields.values import JobSpec, RetryPolicy, RunStatus
from fallow.shared.events.operations import Drain
from fallow.shared.events.reasons import FailReason, StopReason
from tests.placement.worlds.replicas import all_start, loose, service, word
from tests.placement.worlds.world import CELL, World, admitted, cell_with, joined, lost, spec_of, started

FULL = "No space left on device"
ONE_TRY = RetryPolicy(budget=0, backoff_ms=1, backoff_max_ms=1)
TEN_TRIES = RetryPolicy(budget=10, backoff_ms=1, backoff_max_ms=1)
PAUSE_MS = 20_000

OF_A_GANG = f"{FAULTS_MAX + 1} attempts in a row were lost, the last one: {FULL}"
OF_A_RANK = f"its worker of rank 1 was lost {FAULTS_MAX + 1} times in a row, the last time: {FULL}"


def gang(workers: int = 2, **more: Any) -> JobSpec:
    return spec_of("job", 8, workers, **{"retry": ONE_TRY, **more})


def singles(make: Callable[..., JobSpec] = loose, **more: Any) -> JobSpec:
    return make("job", 2, 8, **{"retry": ONE_TRY, **more})


def cell(spec: JobSpec) -> World:
    """Two nodes, each with room for one worker."""
    world = cell_with(joined("n1"), joined("n2"))
    world.listens = world.checks = False
    world.tell(admitted(spec))
    return world


def begin(world: World) -> None:
    """The pauses are over, and all workers run."""
    world.pass_time(PAUSE_MS)
    job = world.job("job")
    assert job.status is not JobStatus.STOPPING, job.stop_text
    if not job.spec.gang:
        all_start(world, "job")
        return
    world.tell(*(started("job", node, job.attempt, world.state.nodes[node].boot) for node in job.runs))


def said(world: World, cls: type[n.RunEvent], rank: int, **more: Any) -> n.RunEvent:
    """What its node says of a worker."""
    job = world.job("job")
    if not job.spec.gang:
        return word(cls, world, "job", rank, **more)
    node = job.workers[rank].node
    boot = world.state.nodes[node].boot
    return cls(cell=CELL, node=node, boot=boot, seq=1, job="job", attempt=job.attempt, **more)


def fault(world: World, rank: int = 1, text: str = FULL) -> n.RunEvent:
    """The node of this worker failed its run by a fault of its own."""
    return said(world, n.RunFailed, rank, infrastructure=True, text=text)


def lose_node(world: World, rank: int = 1) -> list[e.AnyEffect]:
    """The node of this worker is gone, and then back with a new boot. It names no fault."""
    node = next(place.node for place in world.job("job").workers if place.rank == rank)
    boot = world.state.nodes[node].boot
    return world.tell(lost(node, boot)) + world.tell(joined(node, boot=f"{boot}+"))


def lose_often(world: World, times: int = FAULTS_MAX, *, by: Callable[..., n.RunEvent] | None = None) -> None:
    """Rank 1 is lost so many times: with its node, or by what is said of it. The rest of a gang stops each time."""
    for _ in range(times):
        begin(world)
        if by is None:
            lose_node(world)
        else:
            world.tell(by(world))
        if len(world.job("job").runs) > 1 and world.job("job").spec.gang:
            world.tell(said(world, n.RunStopped, 0))


def ends(made: Iterable[e.AnyEffect]) -> list[e.JobFailed]:
    return [effect for effect in made if isinstance(effect, e.JobFailed)]


def stops(made: Iterable[e.AnyEffect]) -> list[e.JobStopping]:
    return [effect for effect in made if isinstance(effect, e.JobStopping)]


def losses_of(world: World) -> int:
    return world.job("job").losses


def failed(text: str) -> list[e.JobFailed]:
    return [e.JobFailed(job="job", reason=FailReason.NODE_FAULTS, text=text)]


# What ends a job, and how it is told.


@pytest.mark.parametrize("by", [None, fault])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_gang_ends_with_the_fault_that_its_node_names_at_the_last(
    by: Callable[..., n.RunEvent] | None, restarts: bool
) -> None:
    world = cell(gang())
    lose_often(world, by=by)
    begin(world)
    (stop,) = stops(world.tell(fault(world)))
    assert (stop.why, stop.text) == (StopReason.DEVICE_FAILED, FULL)
    if restarts:
        world.restart()
    assert ends(world.tell(said(world, n.RunStopped, 0))) == failed(OF_A_GANG)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_gang_on_one_node_ends_with_the_same_words(restarts: bool) -> None:
    world = cell(gang(1))
    for _ in range(FAULTS_MAX):
        begin(world)
        world.tell(fault(world, 0))
    begin(world)
    if restarts:
        world.restart()
    assert ends(world.tell(fault(world, 0))) == failed(OF_A_GANG)


@pytest.mark.parametrize("by", [None, fault])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_of_single_workers_ends_with_the_fault_that_a_node_names_at_the_last(
    by: Callable[..., n.RunEvent] | None, restarts: bool
) -> None:
    world = cell(singles())
    lose_often(world, by=by)
    begin(world)
    if restarts:
        world.restart()
    (stop,) = stops(world.tell(fault(world)))
    assert (stop.why, stop.text) == (StopReason.DEVICE_FAILED, OF_A_RANK)
    if restarts:
        world.restart()
    assert ends(world.tell(said(world, n.RunStopped, 0))) == failed(OF_A_RANK)


def test_the_last_single_worker_that_is_left_ends_the_job_at_once() -> None:
    world = cell(singles())
    begin(world)
    world.tell(said(world, n.RunFinished, 0))
    lose_often(world)
    begin(world)
    assert ends(world.tell(fault(world))) == failed(OF_A_RANK)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_fault_that_a_node_names_without_words_ends_the_job_too(workers: int) -> None:
    """Also where the rest of the gang has to stop for it."""
    world = cell(gang(workers))
    lose_often(world, by=lambda world: fault(world, workers - 1, ""))
    begin(world)
    made = world.tell(fault(world, workers - 1, ""))
    if workers > 1:
        made = world.tell(said(world, n.RunStopped, 0))
    words = f"{FAULTS_MAX + 1} attempts in a row were lost, the last one by a fault of its node"
    assert ends(made) == failed(words)


# What ends none.


@pytest.mark.parametrize("make", [gang, singles])
def test_losses_for_which_no_node_names_a_fault_end_no_job(make: Callable[..., JobSpec]) -> None:
    world = cell(make())
    lose_often(world, FAULTS_MAX + 10)
    assert losses_of(world) == FAULTS_MAX + 10


@pytest.mark.parametrize("make", [gang, singles])
def test_so_many_faults_and_no_more_end_no_job(make: Callable[..., JobSpec]) -> None:
    world = cell(make())
    lose_often(world, by=fault)
    assert losses_of(world) == FAULTS_MAX


@pytest.mark.parametrize("restarts", [False, True])
def test_what_the_worker_of_a_gang_says_whose_peer_was_lost_ends_no_job(restarts: bool) -> None:
    world = cell(gang())
    for _ in range(FAULTS_MAX + 10):
        begin(world)
        lose_node(world)
        if restarts:
            world.restart()
        world.tell(said(world, n.RunFailed, 0, text="NCCL: connection closed by remote peer"))
    assert losses_of(world) == FAULTS_MAX + 10


def test_a_fault_of_a_gangs_other_node_behind_the_loss_ends_no_job() -> None:
    world = cell(gang())
    lose_often(world)
    begin(world)
    lose_node(world)
    assert ends(world.tell(fault(world, 0))) == []
    assert losses_of(world) == FAULTS_MAX + 1


def test_an_old_failure_of_a_single_worker_ends_no_job_that_is_lost_later() -> None:
    world = cell(singles(retry=TEN_TRIES))
    begin(world)
    world.tell(said(world, n.RunFailed, 1, text="ImportError: no module foo"))
    lose_often(world, FAULTS_MAX + 10)
    assert losses_of(world) == FAULTS_MAX + 10


def test_an_old_fault_of_a_single_worker_ends_no_job_that_is_lost_later() -> None:
    world = cell(singles())
    begin(world)
    world.tell(fault(world))
    lose_often(world, FAULTS_MAX + 10)
    assert losses_of(world) == FAULTS_MAX + 11


def test_the_fault_of_one_rank_does_not_count_with_the_losses_of_another() -> None:
    world = cell(singles())
    lose_often(world)
    begin(world)
    node = next(place.node for place in world.job("job").workers if place.rank == 1)
    assert stops(world.tell(lost(node, world.state.nodes[node].boot), fault(world, 0))) == []
    assert losses_of(world) == FAULTS_MAX + 1


def test_a_fault_of_a_worker_does_not_count_for_its_neighbour_on_the_same_node() -> None:
    """Its run was stopped beside it: of that one its node names no fault."""
    world = cell(loose("job", 2, 4, retry=ONE_TRY, pools=("train",)))
    lose_often(world, by=lambda world: said(world, n.RunStopped, 1))
    begin(world)
    assert len({place.node for place in world.job("job").workers}) == 1
    assert stops(world.tell(said(world, n.RunStopped, 1), fault(world, 0))) == []


def test_a_fault_ends_no_service() -> None:
    world = cell(singles(service))
    lose_often(world, FAULTS_MAX + 10, by=fault)
    assert losses_of(world) == FAULTS_MAX + 10


def test_losses_before_work_that_ran_for_an_hour_count_no_more() -> None:
    world = cell(gang())
    lose_often(world, by=fault)
    begin(world)
    world.pass_time(3_600_000)
    world.tell(fault(world))
    world.tell(said(world, n.RunStopped, 0))
    assert losses_of(world) == 1


# The words of failures.


def test_a_job_of_single_workers_fails_with_the_words_of_the_failure_that_used_up_its_budget() -> None:
    world = cell(singles(retry=RetryPolicy(budget=1, backoff_ms=1, backoff_max_ms=1)))
    begin(world)
    world.tell(said(world, n.RunFailed, 1, text="the first"))
    begin(world)
    (stop,) = stops(world.tell(said(world, n.RunFailed, 1, text="the last")))
    assert (stop.why, stop.text) == (StopReason.WORKER_FAILED, "the last")
    world.restart()
    (end,) = ends(world.tell(said(world, n.RunStopped, 0)))
    assert (end.reason, end.text) == (FailReason.RETRIES_EXHAUSTED, "the last")


def test_the_words_of_a_gangs_failure_outlive_the_writer_that_heard_them() -> None:
    world = cell(gang())
    begin(world)
    world.tell(said(world, n.RunFailed, 1, text="out of memory"))
    world.restart()
    (end,) = ends(world.tell(said(world, n.RunFailed, 0, text="lost its peer")))
    assert (end.reason, end.text) == (FailReason.RETRIES_EXHAUSTED, "out of memory")


def test_the_words_of_one_attempt_are_not_told_of_the_next() -> None:
    """Which fails by itself: no other run had to stop for it."""
    world = cell(gang(retry=RetryPolicy(budget=1, backoff_ms=1, backoff_max_ms=1)))
    begin(world)
    world.tell(said(world, n.RunFailed, 1, text="of the first"))
    world.tell(said(world, n.RunStopped, 0))
    assert world.job("job").stop_text == ""
    begin(world)
    (end,) = ends(world.tell(*(said(world, n.RunFailed, rank, text="of the second") for rank in (0, 1))))
    assert (end.reason, end.text) == (FailReason.RETRIES_EXHAUSTED, "of the second")


def test_a_failure_is_told_with_the_first_words_that_are_some() -> None:
    world = cell(gang())
    begin(world)
    silent, loud = said(world, n.RunFailed, 0), said(world, n.RunFailed, 1, text="out of memory")
    (end,) = ends(world.tell(silent, loud))
    assert end.text == "out of memory"


def test_a_job_of_single_workers_does_not_fail_with_the_words_of_one_that_was_told_to_leave() -> None:
    world = cell(singles())
    begin(world)
    world.tell(Drain(cell=CELL, node=world.job("job").workers[0].node, deadline_ms=world.now_ms))
    assert world.job("job").leaving == (0,)
    made = world.tell(said(world, n.RunFailed, 0, text="killed"), said(world, n.RunFailed, 1, text="out of memory"))
    assert [(end.reason, end.text) for end in ends(made)] == [(FailReason.RETRIES_EXHAUSTED, "out of memory")]


def test_the_first_words_of_a_run_stay_and_count_once_in_the_size_of_the_record() -> None:
    builder = DecisionBuilder(CellState(CELL), 0)
    before = builder.bytes
    builder.keep_words(builder.failures, ("job", 1), "n1", "first")
    taken = builder.bytes - before
    builder.keep_words(builder.failures, ("job", 1), "n1", "the last, and a longer one")
    assert builder.failures == {("job", 1): {"n1": "first"}}
    assert (taken > 0, builder.bytes - before) == (True, taken)


def test_faults_count_only_of_the_runs_that_are_over_by_them() -> None:
    """One that its node failed and that finished all the same, or that is not over with these, names none."""
    builder = DecisionBuilder(CellState(CELL), 0)
    for node in ("n1", "n2", "n3"):
        builder.keep_words(builder.faults, ("job", 1), node, FULL)
    noted = {"n1": RunStatus.STOPPED, "n2": RunStatus.FINISHED}
    assert builder.faults_among(("job", 1), noted) == {"n1": FULL}
    assert builder.faults_among(("job", 2), noted) == {}
