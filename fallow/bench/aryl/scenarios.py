"""The scenarios of Lyra (section 7.1), and which jobs are fungible, elastic and heterogeneous in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from fallow.bench.aryl.world.run import TraceRun
from fallow.replay.trace import TraceJob
from fallow.replay.workload import WorkloadError
from fallow.shared.events.fields.values import GPU

FUNGIBLE_PCT, ELASTIC_JOBS_PCT, ELASTIC_WORK_PCT, HETEROGENEOUS_PCT = 21, 5, 36, 10
ELASTIC_GPUS_MIN = 4
SWAPS_MAX = 200_000
GPUS_MAX = 8


class Scenario(StrEnum):
    """What is possible in a run."""

    BASIC = "basic"
    ADVANCED = "advanced"
    HETEROGENEOUS = "heterogeneous"
    IDEAL = "ideal"
    LOANING = "loaning"
    SCALING = "scaling"


@dataclass(frozen=True, slots=True)
class Possible:
    """Of one scenario."""

    fungible: bool = False
    elastic: bool = False
    heterogeneous: bool = False
    lends: bool = True
    is_one: bool = False


POSSIBLE = {
    Scenario.BASIC: Possible(fungible=True, elastic=True),
    Scenario.ADVANCED: Possible(fungible=True, elastic=True, heterogeneous=True),
    Scenario.HETEROGENEOUS: Possible(elastic=True, heterogeneous=True),
    Scenario.IDEAL: Possible(elastic=True, is_one=True),
    Scenario.LOANING: Possible(fungible=True),
    Scenario.SCALING: Possible(elastic=True, lends=False),
}


def trace_runs(jobs: Sequence[TraceJob], carried: Sequence[TraceJob]) -> list[TraceRun]:
    """The carried jobs at time 0 before all others, and in no statistic. Raises WorkloadError for one that cannot run
    on servers of 8 GPUs.
    """
    return [_trace_run(job, number, is_counted=number >= len(carried)) for number, job in enumerate([*carried, *jobs])]


def _trace_run(job: TraceJob, number: int, *, is_counted: bool) -> TraceRun:
    each, rest = divmod(job.gpu_milli, GPU)
    if rest or not 1 <= each <= GPUS_MAX:
        raise WorkloadError(f"job {job.id}: {job.gpu_milli} milli-GPUs a worker: must be 1 to {GPUS_MAX} whole GPUs")
    if not job.duration_ms:
        raise WorkloadError(f"job {job.id}: must have a duration above 0")
    submit_ms = job.submit_ms if is_counted else 0
    return TraceRun(job.id, number, submit_ms, job.duration_ms, job.workers, each, is_counted=is_counted)


def drawn(runs: Sequence[TraceRun], scenario: Scenario, seed: int) -> list[TraceRun]:
    """The jobs as they are in a scenario. Each draw is independent of the others: jobs are fungible, elastic and
    heterogeneous by the seed alone.
    """
    possible, counted = POSSIBLE[scenario], [run for run in runs if run.is_counted]
    if possible.is_one:
        return [replace(run, is_elastic=run.is_counted) for run in runs]
    fungible = _part_of_work(counted, FUNGIBLE_PCT, _chance("fungible", seed))
    elastic = _elastic(counted, _chance("elastic", seed))
    others = [run for run in counted if not possible.fungible or run.number not in fungible]
    heterogeneous = _part_of_work(others, HETEROGENEOUS_PCT, _chance("heterogeneous", seed))
    return [
        replace(
            run,
            is_fungible=possible.fungible and run.number in fungible,
            is_elastic=possible.elastic and run.number in elastic,
            is_heterogeneous=possible.heterogeneous and run.number in heterogeneous,
        )
        for run in runs
    ]


def _chance(what: str, seed: int) -> Random:
    """Of one draw, independent of the others."""
    return Random(f"{what} {seed}")  # noqa: S311 - chance of a simulation


def _part_of_work(runs: Sequence[TraceRun], pct: int, random: Random) -> set[int]:
    """Random jobs until they have so much of the GPU time."""
    wanted, found = sum(run.gpu_ms for run in runs) * pct // 100, set[int]()
    for run in random.sample(runs, len(runs)):
        if wanted <= 0:
            break
        found.add(run.number)
        wanted -= run.gpu_ms
    return found


def _elastic(runs: Sequence[TraceRun], random: Random) -> set[int]:
    """A twentieth of all jobs, of those that have 4 GPUs and more, by random swaps until they have 36 % of the work."""
    wanted = sum(run.gpu_ms for run in runs) * ELASTIC_WORK_PCT // 100
    large = [run for run in runs if run.gpus >= ELASTIC_GPUS_MIN]
    mixed = random.sample(large, len(large))
    count = min(-(-len(runs) * ELASTIC_JOBS_PCT // 100), len(large))
    inside, outside = mixed[:count], mixed[count:]
    excess = sum(run.gpu_ms for run in inside) - wanted
    for _ in range(SWAPS_MAX if inside and outside else 0):
        give, take = random.randrange(len(inside)), random.randrange(len(outside))
        after = excess - inside[give].gpu_ms + outside[take].gpu_ms
        if abs(after) < abs(excess):
            inside[give], outside[take], excess = outside[take], inside[give], after
    return {run.number for run in inside}
