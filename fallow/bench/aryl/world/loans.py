"""The orchestrator: lends what inference leaves idle, and takes back what it needs."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from fallow.bench.aryl.world.run import Run, Where
from fallow.bench.aryl.world.sides import GPUS, LENT_PER_TRAINING, Pool
from fallow.services.loaning.policy.reclaim.spread import LentServer
from fallow.shared.events.fields.values import GPU

if TYPE_CHECKING:
    from fallow.bench.aryl.world.world import World

Taken = tuple[int, int, int, int, int]
"""Servers that were wanted back, of these from idle ones and from those with flexible workers only; jobs that were
preempted; GPUs that became free on servers that stay.
"""


class Loans:
    """Of one world."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self.count = 0
        """Servers that are lent now."""

    def adjust(self) -> Taken:
        """Lend or take back, so that as many are lent as the demand allows now."""
        cluster = self._world.cluster
        more = cluster.demand.lendable(self._world.now_ms, cluster.inference_servers) - self.count
        self.count += more
        if cluster.is_one:
            return self._adjust_one_capacity(more)
        if more >= 0:
            self._world.lent.add(more)
            if more:
                self._world.has_more_room = True
            return 0, 0, 0, 0, 0
        return self._take_back(-more)

    def _take_back(self, wanted: int) -> Taken:
        lent = self._world.lent
        empty = list(islice(lent.empty(), wanted))
        idle = lent.by_free[GPUS] - -(-self._world.flexible_gpus[Where.LENT] // GPUS)
        for server in empty:
            lent.remove(server)
        preempted, surplus = self._vacate(wanted - len(empty)) if len(empty) < wanted else (0, 0)
        from_idle = min(len(empty), idle)
        return wanted, from_idle, len(empty) - from_idle, preempted, surplus

    def _vacate(self, left: int) -> tuple[int, int]:
        """Preempt until so many more servers are empty; how many jobs, and the GPUs freed on servers that stay."""
        world, lent = self._world, self._world.lent
        assert world.scheme.reclaim is not None
        runs = {run.job.id: run for held in lent.held for run in held}
        held = {s: {run.job.id: GPU * gpus for run, gpus in lent.held[s].items()} for s in lent.occupied()}
        servers = [LentServer(str(server), base) for server, base in held.items()]
        victims = world.scheme.reclaim(servers, left, self._random)
        freed = sum(gpus for base in held.values() for job, gpus in base.items() if job in set(victims))
        for job in victims:
            world.preempt(runs[job])
        vacated = [server for server in held if not lent.held[server]]
        vacated.sort(key=lambda server: -sum(held[server].values()))
        for server in vacated[:left]:
            lent.remove(server)
            freed -= sum(held[server].values())
        assert len(vacated) >= left, f"{left} servers were to be vacated, and {len(vacated)} are empty"
        return len(victims), freed // GPU

    def _adjust_one_capacity(self, more: int) -> Taken:
        """Lent servers add to the training GPUs. Where too few are left, the smallest job that is large enough ends."""
        world = self._world
        pool = world.training
        assert isinstance(pool, Pool)
        before = pool.gpus
        pool.gpus = world.cluster.training_gpus + self.count * GPUS // LENT_PER_TRAINING
        pool.gpus_free += pool.gpus - before
        if more >= 0:
            world.has_more_room = True
            return 0, 0, 0, 0, 0
        victims = list[Run]()
        surplus = 0
        while pool.gpus_free < 0:
            running = world.running()
            enough = [run for run in running if run.job.gpus >= -pool.gpus_free]
            victim = min(enough or running, key=lambda run: (run.job.gpus if enough else -run.job.gpus, -run.since_ms))
            world.preempt(victim)
            victims.append(victim)
            surplus = max(0, pool.gpus_free)
        return -more, 0 if victims else -more, 0, len(victims), surplus * LENT_PER_TRAINING
