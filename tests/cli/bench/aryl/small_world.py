"""Small traces, and an oracle that steps through time second by second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from hypothesis import strategies as st

from fallow.bench.aryl.demand import Demand
from fallow.bench.aryl.policies.registry import SCHEMES
from fallow.bench.aryl.world.run import TraceRun
from fallow.bench.aryl.world.world import Cluster, Outcome, World

S = 1000
QUIET = Demand(300 * S, (500_000, 500_000))
SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8))


def job(number: int, submit_s: int, run_s: int, workers: int = 1, gpus: int = 1, **flags: bool) -> TraceRun:
    return TraceRun(f"j{number}", number, submit_s * S, run_s * S, workers, gpus, **flags)


def world_of(jobs: Sequence[TraceRun], policy: str, nodes: int = 2, **cluster: object) -> World:
    there = Cluster(nodes, **{"inference_servers": 10, "demand": QUIET, **cluster})  # type: ignore[arg-type]
    return World(jobs, there, SCHEMES[policy], Random(0))


def times(outcome: Outcome) -> list[tuple[float, float]]:
    """First start and end of each job, in s, in the order of their numbers."""
    runs = sorted(outcome.runs, key=lambda run: run.job.number)
    return [((run.start_ms or 0) / S, (run.end_ms or 0) / S) for run in runs]


@st.composite
def traces(draw: st.DrawFn, jobs_max: int = 14) -> list[TraceRun]:
    """Jobs that come close together, so that most wait; sizes and run times that often are equal."""
    count, submit_s, jobs = draw(st.sampled_from((jobs_max, jobs_max, 5, 1))), 0, []
    for number in range(count):
        submit_s += draw(st.sampled_from((0, 0, 1, 2, 7)))
        workers, gpus = draw(st.sampled_from(SIZES))
        jobs.append(job(number, submit_s, draw(st.sampled_from((1, 3, 4, 9, 10))), workers, gpus))
    return jobs


def by_seconds(
    jobs: Sequence[TraceRun], gpus: int, choose: Callable[[list[TraceRun], int], list[TraceRun]]
) -> list[tuple[float, float]]:
    """First start and end of each job in a pool: each second those that `choose` names of the waiting ones start."""
    start, now = dict[int, int](), 0
    while len(start) < len(jobs):
        held = sum(each.gpus for each in jobs if each.number in start and start[each.number] + each.base_ms // S > now)
        waiting = [each for each in jobs if each.submit_ms <= now * S and each.number not in start]
        for each in choose(waiting, gpus - held):
            start[each.number] = now
        now += 1
    return [(start[each.number], start[each.number] + each.base_ms // S) for each in jobs]


def first_come(waiting: list[TraceRun], free: int) -> list[TraceRun]:
    chosen: list[TraceRun] = []
    for each in sorted(waiting, key=lambda found: (found.submit_ms, found.number)):
        if each.gpus > free - sum(other.gpus for other in chosen):
            break
        chosen.append(each)
    return chosen


def shortest(waiting: list[TraceRun], free: int) -> list[TraceRun]:
    chosen: list[TraceRun] = []
    for each in sorted(waiting, key=lambda found: (found.base_ms, found.number)):
        if each.gpus <= free - sum(other.gpus for other in chosen):
            chosen.append(each)
    return chosen
