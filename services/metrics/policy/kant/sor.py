"""SOR, the scheduling occupancy rate (Kant, section 4): the GPU time that jobs held, of all the GPU time that there
was.

    SOR[t0, t1] = sum over jobs of GPUs x (its time on them within [t0, t1]) / (all GPUs x (t1 - t0))

Counted from the jobs' own starts and ends, so it shares no arithmetic with GAR, whose mean it equals while the capacity
is constant. A pool's is of the pool's GPUs; a tenant's of the whole cell's, so that those of all tenants add up to the
cell's.
"""

from __future__ import annotations

from fractions import Fraction

from fallow.services.metrics.policy.effect_dispatch import Acts, act_on
from fallow.services.metrics.policy.groups import Whose, pool_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import WorkerPlace

CAPACITY = (e.NodeChanged, e.DeviceChanged, e.LeaseExpired, e.NodeLent, e.NodeLoanDraining, e.NodeReclaimed)
"""Effects that may change how many GPUs there are."""


class GpuTime:
    """Milli-GPUs over time: a sum of what is closed, and of what is open since when."""

    __slots__ = ("closed_milli_ms", "open_milli", "open_since")

    def __init__(self) -> None:
        self.closed_milli_ms = self.open_milli = self.open_since = 0

    def close(self, milli: int, since_ms: int, at_ms: int) -> None:
        """So many that were there since `since_ms` are gone."""
        self.closed_milli_ms += milli * (at_ms - since_ms)
        self.open_milli -= milli
        self.open_since -= milli * since_ms

    def value(self, until_ms: int) -> int:
        """Milli-GPUs times milliseconds up to `until_ms`."""
        return self.closed_milli_ms + self.open_milli * until_ms - self.open_since


Account = tuple[str, str]
"""Under what GPU time is told: the tenant and the pool."""

Held = tuple[GpuTime, int, int]
"""What an attempt holds in one pool: of which account, how many milli-GPUs, and since when (ms)."""


class Sor:
    """SOR of a cell, from the first decision behind which it has GPUs; of its pools and tenants too."""

    def __init__(self, whose: Whose | None = None) -> None:
        self._whose = whose or Whose()
        self.accounts: dict[Account, GpuTime] = {}
        self._held: dict[str, tuple[Held, ...]] = {}
        self._gpus: dict[str, tuple[int, int]] = {}
        self._gpu_milli_ms: dict[str, int] = {}
        self._is_capacity_noted = False
        self.acts: Acts = {
            e.JobStarted: self._start,
            e.JobResized: self._hold,
            e.JobResizing: self._hold_more,
            e.WorkersSettled: self._hold_anew,
            e.JobPreempted: self._let_go,
            e.JobRequeued: self._let_go,
            e.JobFinished: self._let_go,
            e.JobFailed: self._let_go,
            e.JobCancelled: self._let_go,
            **dict.fromkeys(CAPACITY, self._note_capacity),
        }

    def begin(self, state: CellState, since_ms: int | None = None) -> None:
        """Start from a state in the middle of a cell's life, at `since_ms` (None: its own time): what holds GPUs holds
        them from then on.
        """
        at_ms = state.at_ms if since_ms is None else since_ms
        self._count_gpus(state, at_ms)
        for job in state.jobs.values():
            if job.workers or job.joining:
                self._open(state, job.id, job.workers + job.joining, at_ms)

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        act_on(self.acts, state, decision.effects, decision.at_ms)
        self.settle(state, decision.at_ms)

    def settle(self, state: CellState, at_ms: int) -> None:
        """Take in, behind all effects of a decision, how many GPUs there are now."""
        if self._is_capacity_noted:
            self._is_capacity_noted = False
            self._count_gpus(state, at_ms)

    def value(self, until_ms: int, *, pool: str | None = None, tenant: str | None = None) -> Fraction | None:
        """SOR up to `until_ms` of the cell, of a pool, or of a tenant; None while there was no GPU time at all."""
        there_was = sum(self._there_was(name, until_ms) for name in self._gpus if pool in (None, name))
        if not there_was:
            return None
        accounts = self.accounts.items()
        held = [time for account, time in accounts if tenant in (None, account[0]) and pool in (None, account[1])]
        return Fraction(sum(time.value(until_ms) for time in held), there_was)

    @property
    def tenants(self) -> list[str]:
        """Everybody who ever held a GPU, by name."""
        return sorted({account[0]: None for account in self.accounts})

    def _there_was(self, pool: str, until_ms: int) -> int:
        milli, since_ms = self._gpus[pool]
        return self._gpu_milli_ms.get(pool, 0) + milli * max(0, until_ms - since_ms)

    def _count_gpus(self, state: CellState, at_ms: int) -> None:
        now = {name: pool.gpus_milli for name, pool in state.pools.items()}
        for name in {**self._gpus, **now}:
            milli, since_ms = self._gpus.get(name, (0, at_ms))
            if now.get(name, 0) != milli:
                self._gpu_milli_ms[name] = self._gpu_milli_ms.get(name, 0) + milli * (at_ms - since_ms)
                self._gpus[name] = (now.get(name, 0), at_ms)

    def _note_capacity(self, _: CellState, __: e.Effect, ___: int) -> None:
        """Counted once behind the decision, and not behind every one: to count is to look at all nodes that changed."""
        self._is_capacity_noted = True

    def _start(self, state: CellState, effect: e.JobStarted, at_ms: int) -> None:
        if len(effect.workers) > 1 or effect.job in self._held:
            self._hold(state, effect, at_ms)
        else:
            account = self._whose.start(state, effect)
            self._held[effect.job] = (self._begin(account, effect.workers[0].gpu_milli, at_ms),)

    def _hold(self, state: CellState, effect: e.JobStarted | e.JobResized, at_ms: int) -> None:
        self._let_go(state, effect, at_ms)
        self._open(state, effect.job, effect.workers, at_ms)

    def _hold_more(self, state: CellState, effect: e.JobResizing, at_ms: int) -> None:
        job = state.jobs.get(effect.job)
        if job is not None and not job.spec.gang:
            self._hold_anew(state, effect, at_ms)
            return
        before = self._held.get(effect.job, ())
        self._open(state, effect.job, effect.add, at_ms)
        self._held[effect.job] = before + self._held[effect.job]

    def _hold_anew(self, state: CellState, effect: e.JobResizing | e.WorkersSettled, at_ms: int) -> None:
        """What a job that is no gang holds behind the whole decision, whichever of its effects comes first."""
        self._let_go(state, effect, at_ms)
        job = state.jobs.get(effect.job)
        if job is not None and job.workers:
            self._open(state, effect.job, job.workers, at_ms)

    def _open(self, state: CellState, job_id: str, places: tuple[WorkerPlace, ...], at_ms: int) -> None:
        tenant = self._whose.tenant(state, job_id)
        by_pool: dict[str, int] = {}
        for place in places:
            pool = pool_of(state, place)
            by_pool[pool] = by_pool.get(pool, 0) + place.gpu_milli
        self._held[job_id] = tuple([self._begin((tenant, pool), milli, at_ms) for pool, milli in by_pool.items()])

    def _begin(self, account: Account, milli: int, at_ms: int) -> Held:
        time = self.accounts.get(account)
        if time is None:
            time = self.accounts[account] = GpuTime()
        time.open_milli += milli
        time.open_since += milli * at_ms
        return time, milli, at_ms

    def _let_go(self, _: CellState, effect: e.JobEffect, at_ms: int) -> None:
        for time, milli, since_ms in self._held.pop(effect.job, ()):
            time.close(milli, since_ms, at_ms)
