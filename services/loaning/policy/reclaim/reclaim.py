"""What a reclaim does: which servers go back, which flexible workers leave, which jobs are preempted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fallow.services.loaning.policy.reclaim.exact import search
from fallow.services.loaning.policy.reclaim.greedy import vacate_greedily
from fallow.services.loaning.policy.reclaim.spread import LentServer, Spread


@dataclass(frozen=True, slots=True)
class ScaledIn:
    """Flexible workers of a job that leave a server; the job runs on with fewer workers."""

    job: str
    server: str
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class ReclaimPlan:
    """The servers that go back, in the order idle, flexible workers only, vacated by preemption.

    `cost` is what the preemptions cost; none that vacate as many servers cost less than `cost_min`. `surplus_milli` is
    what preemptions set free on servers that stay lent: the collateral damage. `short` servers were wanted in vain,
    since no more are lent.
    """

    servers: tuple[str, ...]
    idle: int
    flexible: int
    scaled_in: tuple[ScaledIn, ...]
    preempted: tuple[str, ...]
    cost: int
    cost_min: int
    surplus_milli: int
    short: int

    @property
    def is_exact(self) -> bool:
        """Whether it is proven that no cheaper preemptions do."""
        return self.cost == self.cost_min


def reclaim(
    servers: Sequence[LentServer], needed: int, costs: Mapping[str, int] | None = None, nodes_max: int = 0
) -> ReclaimPlan:
    """Choose `needed` of the lent servers, which come in the order of their pool: it decides between equal ones.

    `costs`: what the preemption of a job costs, 1 where it is not told. With `nodes_max` the greedy's answer is
    improved by an exact search through so many nodes at most. Raises ValueError where a number is below 0.
    """
    costs = costs or {}
    _check(needed, costs, nodes_max)
    free = sorted((s for s in servers if not s.base), key=lambda s: sum(s.flexible.values()))[:needed]
    left = min(needed - len(free), sum(bool(s.base) for s in servers))
    preempted, cost_min = _preemptions(servers, left, costs, nodes_max)
    vacated = _vacated(servers, set(preempted))[:left]
    gone = [*free, *vacated]
    idle = sum(not server.flexible for server in free)
    return ReclaimPlan(
        servers=tuple(server.name for server in gone),
        idle=idle,
        flexible=len(free) - idle,
        scaled_in=tuple(_scaled_in(gone, set(preempted))),
        preempted=tuple(preempted),
        cost=sum(costs.get(job, 1) for job in preempted),
        cost_min=cost_min,
        surplus_milli=_held(servers, set(preempted)) - _held(vacated, set(preempted)),
        short=needed - len(gone),
    )


def _check(needed: int, costs: Mapping[str, int], nodes_max: int) -> None:
    for name, value in (
        ("needed", needed),
        ("nodes_max", nodes_max),
        *((f"cost of {job}", c) for job, c in costs.items()),
    ):
        if value < 0:
            raise ValueError(f"{name} = {value}: must be at least 0")


def _preemptions(
    servers: Sequence[LentServer], left: int, costs: Mapping[str, int], nodes_max: int
) -> tuple[list[str], int]:
    """The jobs to preempt, and the bound of their cost."""
    if left <= 0:
        return [], 0
    spread = Spread(servers, costs)
    cost_min = spread.cost_min(left)
    preempted = vacate_greedily(spread, left)
    cost = sum(spread.costs[job] for job in preempted)
    if cost > cost_min and nodes_max:
        found = search(Spread(servers, costs), left, cost, nodes_max)
        preempted, cost_min = found.preempted or preempted, max(cost_min, found.cost_min)
    return preempted, cost_min


def _vacated(servers: Sequence[LentServer], preempted: set[str]) -> list[LentServer]:
    """The servers that hold base workers of preempted jobs only; first those on which these hold most."""
    empty = [server for server in servers if server.base and preempted.issuperset(server.base)]
    return sorted(empty, key=lambda server: -sum(server.base.values()))


def _held(servers: Sequence[LentServer], jobs: set[str]) -> int:
    return sum(gpu_milli for server in servers for job, gpu_milli in server.base.items() if job in jobs)


def _scaled_in(servers: Sequence[LentServer], preempted: set[str]) -> list[ScaledIn]:
    """The flexible workers on servers that go back, without those of jobs that end anyway."""
    return [
        ScaledIn(job, server.name, gpu_milli)
        for server in servers
        for job, gpu_milli in server.flexible.items()
        if job not in preempted
    ]
