"""What the preemption of one job costs: one, as in Lyra, or weighted by the work that is lost."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.shared.events.fields.values import GPU

MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class CostWeights:
    """What counts, in whole units: each preemption, and each GPU-second of lost work and of the restart.

    The default counts preempted jobs, the objective of Lyra (section 5.3).
    """

    per_preemption: int = 1
    per_gpu_s: int = 0

    def __post_init__(self) -> None:
        for name in ("per_preemption", "per_gpu_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 0")


@dataclass(frozen=True, slots=True)
class AtRisk:
    """What a running job loses if it is preempted now: its unsaved work, and the time of a restart."""

    gpu_milli: int
    unsaved_ms: int
    restart_ms: int


def preemption_cost(job: AtRisk, weights: CostWeights) -> int:
    """The cost in whole units; GPU-seconds are rounded up, so that lost work is never free."""
    lost = job.gpu_milli * (job.unsaved_ms + job.restart_ms)
    return weights.per_preemption + -(-lost * weights.per_gpu_s // (GPU * MS_PER_S))
