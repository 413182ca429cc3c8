"""An elastic job as a group of the knapsack: what k more workers weigh, and what they are worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fallow.services.loaning.policy.scaling.curve import ScalingCurve
from fallow.services.loaning.policy.scaling.knapsack import Group


@dataclass(frozen=True, slots=True)
class ResizeRule:
    """What keeps workers from coming and going: the time that a resize takes, and the least gain that is worth one."""

    resize_ms: int = 0
    gain_min_ms: int = 0


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """A queued or running job that may have more workers than its base.

    `base_ms` is the work that is left, as its run time with the base workers: of a running job only the rest counts,
    since only that can be saved. `flexible` is how many workers beyond the base it has now.
    """

    gpus_per_worker: int
    base_ms: int
    curve: ScalingCurve
    flexible: int = 0


def group_of(job: ElasticJob, rule: ResizeRule | None = None) -> Group:
    """The choices 0, 1, 2, ... more workers.

    Weight is GPUs; value is the run time saved against the base, in ms: T(w_min) - T(w_min + k). What the job has now
    is worth more by what a resize costs, so that a choice between almost equal ones does not flap.
    """
    throughput = job.curve.throughput
    work = job.base_ms * throughput[0]
    values = [job.base_ms - -(-work // each) for each in throughput]  # as `run_ms` rounds
    if rule is not None:
        values[job.flexible] += rule.resize_ms + rule.gain_min_ms
        values = [value - values[0] for value in values]
    return Group(_weights(job.gpus_per_worker, len(values)), tuple(values))


@lru_cache(maxsize=4096)
def _weights(gpus_per_worker: int, count: int) -> tuple[int, ...]:
    return tuple(gpus_per_worker * k for k in range(count))
