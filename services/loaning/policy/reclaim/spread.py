"""How the base workers of jobs spread over lent servers, while servers are vacated one by one.

A job is a gang: to vacate one of its servers ends it on all of them. So the servers of a job share its cost
(Lyra, section 5.3):

    c(s) = sum over the jobs j on s of cost(j) / (number of servers on which j has base workers)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm


@dataclass(frozen=True, slots=True)
class LentServer:
    """A lent server with what its workers hold: milli-GPUs by job. Flexible workers can leave without a preemption."""

    name: str
    base: Mapping[str, int] = field(default_factory=dict)
    flexible: Mapping[str, int] = field(default_factory=dict)


class Spread:
    """The jobs with base workers on some servers. A server is named by its position.

    Costs are whole numbers: `unit` stands for a cost of 1, so shares of it are exact and equal costs are equal.
    """

    def __init__(self, servers: Sequence[LentServer], costs: Mapping[str, int]) -> None:
        self.held = [dict(server.base) for server in servers]
        """Of each server: the milli-GPUs of base workers by job that is still there."""
        self.servers_of: dict[str, list[int]] = {}
        for position, server in enumerate(servers):
            for job in server.base:
                self.servers_of.setdefault(job, []).append(position)
        self.costs = {job: costs.get(job, 1) for job in self.servers_of}
        self.unit = lcm(*(len(positions) for positions in self.servers_of.values()))
        self._share = {job: self.costs[job] * self.unit // len(there) for job, there in self.servers_of.items()}
        self.shares = [sum(self._share[job] for job in held) for held in self.held]
        """c(s) of each server, in units; 0 of one without base workers."""

    def occupied(self) -> list[int]:
        """The servers that hold base workers."""
        return [position for position, held in enumerate(self.held) if held]

    def cost_of(self, position: int) -> int:
        """What it costs to preempt all jobs on a server, not only this server's share."""
        return sum(self.costs[job] for job in self.held[position])

    def vacated_with(self, position: int) -> dict[int, int]:
        """The servers that a preemption of all jobs of this server leaves without base workers, with the milli-GPUs
        that become free there.
        """
        jobs = self.held[position]
        touched = {other for job in jobs for other in self.servers_of[job]}
        return {
            other: sum(self.held[other].values()) for other in sorted(touched) if self.held[other].keys() <= jobs.keys()
        }

    def freed_with(self, position: int) -> int:
        """The milli-GPUs that a preemption of all jobs of this server sets free, on all servers."""
        return sum(self.held[other][job] for job in self.held[position] for other in self.servers_of[job])

    def preempt_all_on(self, position: int) -> list[str]:
        """End all jobs of a server, on all their servers; the jobs. The costs of the others stay exact: a job that
        shares a server with an ended one still has as many servers as before.
        """
        jobs = list(self.held[position])
        for job in jobs:
            for other in self.servers_of[job]:
                del self.held[other][job]
                self.shares[other] -= self._share[job]
        return jobs

    def cost_min(self, needed: int) -> int:
        """A bound: no way to vacate so many more servers costs less. A set S of servers costs at least the sum of its
        shares, since a job that is ended costs all of its shares and only some of its servers may be in S.
        """
        cheapest = sorted(self.shares[position] for position in self.occupied())[:needed]
        return -(-sum(cheapest) // self.unit)
