"""An elastic job as a group of the knapsack: what k more workers weigh, and what they are worth."""

from __future__ import annotations

from dataclasses import dataclass

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
    curve, rule = job.curve, rule or ResizeRule()
    steps = range(curve.workers_max - curve.workers_min + 1)
    base_ms = curve.run_ms(job.base_ms, curve.workers_min)
    values = [base_ms - curve.run_ms(job.base_ms, curve.workers_min + k) for k in steps]
    values[job.flexible] += rule.resize_ms + rule.gain_min_ms
    return Group(tuple(job.gpus_per_worker * k for k in steps), tuple(value - values[0] for value in values))
