"""The world of `fallow bench aryl`: cases that can be followed by hand, and oracles that step through time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.bench.aryl.demand import Demand
from fallow.bench.aryl.policies.random_reclaim import at_random
from fallow.bench.aryl.policies.registry import SCHEMES
from fallow.bench.aryl.world.orders import ShortestFirst
from fallow.bench.aryl.world.run import TraceRun, Where
from fallow.bench.aryl.world.sides import GPUS, LENT_PER_TRAINING
from fallow.bench.aryl.world.world import TICK_MS, World
from tests.cli.bench.aryl.small_world import QUIET, S, by_seconds, first_come, job, shortest, times, traces, world_of
from tests.hypothesis_profile import reaches

TICK_S = TICK_MS // S
DAY_AND_NIGHT = Demand(TICK_MS, (180_000, 180_000, 980_000, 180_000, 580_000))
"""Of 10 servers 8, 8, 0, 8, 4 are lent."""

Choose = Callable[[list[TraceRun], int], list[TraceRun]]


@given(traces(), st.sampled_from([("fifo", first_come), ("sjf", shortest)]), st.sampled_from((2, 3)))
def test_a_pool_starts_jobs_when_a_walk_through_every_second_does(
    jobs: list[TraceRun], way: tuple[str, Choose], nodes: int
) -> None:
    name, choose = way
    expected = by_seconds(jobs, nodes * GPUS, choose)
    assert times(world_of(jobs, name, nodes).run()) == expected
    waited = sum(start > each.submit_ms / S for (start, _), each in zip(expected, jobs, strict=True))
    reaches("a trace in which three jobs wait", waited >= 3)


@given(traces())
def test_srpt_finishes_no_later_in_the_mean_than_sjf_on_one_server_of_whole_jobs(jobs: list[TraceRun]) -> None:
    """Where each job takes the whole cluster, the rule is known to be the best one."""
    whole = [replace(each, workers=1, gpus_each=8) for each in jobs]
    best, other = (times(world_of(whole, name, nodes=1).run()) for name in ("srpt", "sjf"))
    assert sum(end for _, end in best) <= sum(end for _, end in other)
    reaches("a trace in which stopping a job helps", sum(end for _, end in best) < sum(end for _, end in other))


def test_an_elastic_job_that_has_all_workers_takes_half_as_long() -> None:
    assert times(world_of([job(0, 0, 100, 2, 4, is_elastic=True)], "lyra", nodes=2).run()) == [(0, 50)]


def test_flexible_workers_leave_when_a_job_comes_that_wants_their_place() -> None:
    """Alone for 10 s at double speed, then at base speed for the 30 s of the other one, then at double speed again."""
    jobs = [job(0, 0, 100, 2, 4, is_elastic=True), job(1, 10, 30, 1, 8)]
    assert times(world_of(jobs, "lyra", nodes=2).run()) == [(0, 65), (10, 40)]
    alone = world_of([replace(jobs[0], is_elastic=False), jobs[1]], "lyra", nodes=2)
    assert times(alone.run()) == [(0, 100), (10, 40)]


def test_gandiva_grows_only_while_nothing_waits() -> None:
    jobs = [job(0, 0, 100, 1, 4, is_elastic=True), job(1, 10, 20, 2, 8)]
    assert times(world_of(jobs, "gandiva", nodes=2).run())[0] == (0, 90), "at double speed till 10 s"
    assert times(world_of(jobs, "afs", nodes=2).run())[0] == (0, 50), "it keeps its flexible worker"


def test_a_fungible_job_runs_on_three_times_as_many_lent_servers_and_is_stopped_when_these_go_back() -> None:
    """It starts at 1 s; at 600 s all servers go back, so it starts anew at 900 s, and 63 s are added."""
    lent = job(0, 1, 800, 1, 8, is_fungible=True)
    full = job(1, 0, 5_000, 2, 8)
    world = world_of([full, replace(lent, number=2)], "lyra", nodes=2, demand=DAY_AND_NIGHT)
    outcome = world.run()
    assert times(outcome) == [(0, 5_000), (1, 900 + 800 + 63)]
    run = next(run for run in outcome.runs if run.job.is_fungible)
    assert (run.preemptions, run.waited_ms, run.lost_gpu_ms) == (1, 300 * S, 599 * S * 8)
    ticks = outcome.ticks
    assert [(tick.lent, tick.lent_busy_gpus, tick.wanted, tick.preempted) for tick in ticks[:5]] == [
        (8, 0, 0, 0), (8, 24, 0, 0), (0, 0, 8, 1), (8, 24, 0, 0), (4, 24, 4, 0)
    ]  # fmt: skip


def test_flexible_workers_on_lent_servers_leave_before_a_job_is_stopped() -> None:
    """Base and flexible workers are on three servers each; of 8, 4 go back at the fifth tick."""
    jobs = [job(0, 901, 5_000, 1, 8, is_fungible=True, is_elastic=True), job(1, 0, 9_000, 2, 8)]
    outcome = world_of(jobs, "lyra", nodes=2, demand=DAY_AND_NIGHT).run()
    fourth = outcome.ticks[4]
    assert (fourth.lent, fourth.wanted, fourth.from_idle, fourth.from_flexible, fourth.preempted) == (4, 4, 2, 2, 0)
    assert outcome.ticks[3].lent_busy_gpus == 0
    assert fourth.lent_busy_gpus == 24


def test_a_heterogeneous_job_is_last_and_runs_on_both_sides_at_seven_tenths() -> None:
    jobs = [job(0, 0, 70, 2, 8, is_heterogeneous=True), job(1, 0, 1_000, 1, 8)]
    outcome = world_of(jobs, "lyra", nodes=2).run()
    assert times(outcome) == [(0, 100), (0, 1_000)], "the longer one starts first, the other one is split"


def test_an_inference_gpu_is_a_third_of_a_training_gpu_in_the_ideal_scenario() -> None:
    """Half of 10 servers less the headroom: 4 are lent, 32 GPUs that do as much as 10."""
    jobs = [job(number, 0, 100, 1, 1) for number in range(40)]
    starts = [start for start, _ in times(world_of(jobs, "lyra", nodes=2, is_one=True).run())]
    assert starts.count(0) == 16 + 4 * GPUS // LENT_PER_TRAINING


def test_placed_workers_need_room_on_single_servers_and_pooled_ones_do_not() -> None:
    jobs = [job(0, 0, 10, 1, 6), job(1, 0, 10, 1, 6), job(2, 0, 10, 1, 4)]
    assert times(world_of(jobs, "fifo", is_placed=True).run())[2] == (10, 20)
    assert times(world_of(jobs, "fifo").run())[2] == (0, 10)


class Watched(ShortestFirst):
    """Looks at the world each time before jobs start."""

    seen: list[tuple[int, int, int]] = []

    def start(self, world: World) -> None:
        super().start(world)
        assert 0 <= world.training.gpus_free <= world.training.gpus
        assert 0 <= world.lent.gpus_free <= world.lent.gpus
        running = world.running()
        on_training = sum((run.job.workers - run.lent_workers) * run.job.gpus_each for run in running)
        on_lent = LENT_PER_TRAINING * sum(run.lent_workers * run.job.gpus_each for run in running)
        assert on_training == world.training.gpus - world.training.gpus_free
        assert on_lent == world.lent.gpus - world.lent.gpus_free
        assert all(sum(held.values()) <= GPUS for held in world.lent.held)
        assert not any(run.where is Where.LENT and not run.job.is_fungible for run in running)


@st.composite
def mixed(draw: st.DrawFn) -> list[TraceRun]:
    """Longer jobs of all kinds."""
    jobs = []
    for each in draw(traces()):
        kinds = draw(st.sampled_from(("fungible elastic", "fungible", "elastic", "heterogeneous", "")))
        jobs.append(
            replace(
                each,
                base_ms=each.base_ms * 300,
                is_fungible="fungible" in kinds,
                is_elastic="elastic" in kinds,
                is_heterogeneous=kinds == "heterogeneous",
            )
        )
    return jobs


@given(
    mixed(),
    st.sampled_from(("lyra", "random", "scf")),
    st.booleans(),
    st.lists(st.integers(0, 980_000), min_size=2, max_size=6),
)
def test_no_gpu_is_held_twice_and_all_work_is_done(
    jobs: Sequence[TraceRun], policy: str, is_placed: bool, busy_ppm: list[int]
) -> None:
    demand = Demand(TICK_MS, (*busy_ppm, 180_000))
    world = world_of(jobs, policy, nodes=2, demand=demand, is_placed=is_placed)
    world.order = Watched()
    outcome = world.run()
    for run in outcome.runs:
        assert run.work == 0
        assert run.end_ms is not None
        least_ms = run.job.base_ms * run.job.workers // (run.job.workers + run.job.flexible_max)
        assert run.end_ms - run.job.submit_ms - run.waited_ms >= least_ms
    for tick in outcome.ticks:
        assert tick.lent == demand.lendable(tick.at_ms, 10)
        assert tick.lent_busy_gpus <= GPUS * tick.lent
    reaches("a world in which a reclaim preempts", any(run.preemptions for run in outcome.runs))
    reaches("a world in which jobs grow", any(run.resizes for run in outcome.runs))
    reaches(
        "a world in which a job is split", any(run.job.is_heterogeneous and run.lent_workers for run in outcome.runs)
    )


@given(mixed())
def test_names_decide_nothing(jobs: list[TraceRun]) -> None:
    renamed = [replace(each, id=f"x{-each.number}") for each in jobs]
    one, other = (times(world_of(each, "lyra", demand=DAY_AND_NIGHT).run()) for each in (jobs, renamed))
    assert one == other


def test_reclaims_at_random_vacate_enough() -> None:
    assert SCHEMES["random"].reclaim is at_random
    assert QUIET.lendable(0, 10) == 4
    assert QUIET.lendable(0, 520) == 249


@pytest.mark.parametrize(("busy_ppm", "lendable"), [(0, 509), (980_000, 0), (990_000, 0), (568_300, 214)])
def test_two_of_a_hundred_servers_are_never_lent(busy_ppm: int, lendable: int) -> None:
    assert Demand(TICK_MS, (busy_ppm,)).lendable(0, 520) == lendable
