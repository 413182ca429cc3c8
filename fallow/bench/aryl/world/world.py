"""The world: arrivals, ends and the orchestrator's ticks, and behind each the two phases of Lyra's scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from fallow.bench.aryl.demand import Demand
from fallow.bench.aryl.world.loans import Loans
from fallow.bench.aryl.world.run import Run, TraceRun, Where
from fallow.bench.aryl.world.scheme import Elastic, Scheme
from fallow.bench.aryl.world.sides import GPUS, LENT_PER_TRAINING, Pool, Servers, Side

TICK_MS = 300_000
"""How often the orchestrator lends and takes back (Lyra, section 3)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What there is. `lends`: this scenario lends; `is_one`: both sides are one capacity (Ideal)."""

    nodes: int
    inference_servers: int
    demand: Demand
    is_placed: bool = False
    lends: bool = True
    is_one: bool = False

    @property
    def training_gpus(self) -> int:
        """Of all training servers."""
        return self.nodes * GPUS


class TickRow(NamedTuple):
    """The state at a tick, behind what was decided there. GPU time is the sum since time 0."""

    at_ms: int
    lent: int
    lent_busy_gpus: int
    training_gpu_ms: int
    lent_gpu_ms: int
    wanted: int
    from_idle: int
    from_flexible: int
    preempted: int
    surplus_gpus: int


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    runs: list[Run]
    ticks: list[TickRow] = field(default_factory=list)


class World:
    """One scheme on one cluster."""

    def __init__(self, jobs: Sequence[TraceRun], cluster: Cluster, scheme: Scheme, random: Random) -> None:
        self.cluster, self.scheme, self.now_ms = cluster, scheme, 0
        self.training: Side = Servers(cluster.nodes) if cluster.is_placed else Pool(cluster.training_gpus)
        self.lent = Servers(0, copies=LENT_PER_TRAINING)
        self.order = scheme.order()
        self._lends = scheme.lends and cluster.lends
        self._loans = Loans(self, random)
        self._arrivals = sorted(map(Run, jobs), key=lambda run: (run.job.submit_ms, run.job.number))
        self._next, self._left = 0, len(jobs)
        self._ends: list[tuple[int, int, int, Run]] = []
        self._elastic: dict[Where, dict[Run, None]] = {Where.TRAINING: {}, Where.LENT: {}}
        self.flexible_gpus = {Where.TRAINING: 0, Where.LENT: 0}
        """Held by flexible workers, of GPUs of that side."""
        self._most_gpus = {Where.TRAINING: 0, Where.LENT: 0}
        """The room that all flexible workers of running jobs would take."""
        self._grown = {Where.TRAINING: 0, Where.LENT: 0}
        """How many jobs have as many workers as they can have."""
        self._area_ms = {Where.TRAINING: 0, Where.LENT: 0}
        self.has_more_room = False
        """Something has become free since jobs were last started."""

    def run(self) -> Outcome:
        """Until all jobs have ended."""
        outcome, tick = Outcome(list(self._arrivals)), 0
        while self._left:
            is_ticking = self._lends or tick * TICK_MS <= self.cluster.demand.period_ms
            self._go_to(min(self._next_event_ms(), tick * TICK_MS if is_ticking else self._next_event_ms()))
            is_tick = is_ticking and self.now_ms == tick * TICK_MS
            self._end_what_is_due()
            taken = self._loans.adjust() if is_tick and self._lends else (0, 0, 0, 0, 0)
            self._receive_arrivals()
            self.order.start(self)
            self.has_more_room = False
            if self.scheme.scaling is not None:
                self._scale()
            if is_tick:
                outcome.ticks.append(self._row(taken))
                tick += 1
        return outcome

    def try_start(self, run: Run) -> bool:
        """Start a job on the first side that it may use and that has room; whether it started."""
        job = run.job
        for where in self.scheme.sides(run):
            if where is Where.TRAINING and self.training.fits(job.workers, job.gpus_each):
                self.training.place(run, job.workers)
                return self._started(run, where, 0)
            if where is Where.LENT and self._lends and self.lent.fits(job.workers, job.gpus_each):
                self.lent.place(run, job.workers)
                return self._started(run, where, job.workers)
            if where is Where.BOTH and self._lends and self._try_both(run):
                return True
        return False

    def preempt(self, run: Run, *, keeps_work: bool = False) -> None:
        """Stop a job; it waits again."""
        self._leave(run)
        run.stop(self.now_ms, restart_ms=self.scheme.restart_ms, keeps_work=keeps_work)
        run.version += 1
        self.order.add(run)

    def lent_busy_gpus(self) -> int:
        """GPUs of lent servers that workers hold."""
        if self.cluster.is_one:
            used = self.training.gpus - self.training.gpus_free + self.flexible_gpus[Where.TRAINING]
            return max(0, used - self.cluster.training_gpus) * LENT_PER_TRAINING
        return self.lent.gpus - self.lent.gpus_free + self.flexible_gpus[Where.LENT]

    def running(self) -> list[Run]:
        """All jobs that run, in the order of their numbers."""
        return sorted(
            (entry[3] for entry in self._ends if entry[2] == entry[3].version), key=lambda run: run.job.number
        )

    def _try_both(self, run: Run) -> bool:
        """Split over both sides, as many workers as possible on training servers."""
        job = run.job
        on_training = next(n for n in range(job.workers - 1, -1, -1) if n == 0 or self.training.fits(n, job.gpus_each))
        if not self.lent.fits(job.workers - on_training, job.gpus_each):
            return False
        if on_training:
            self.training.place(run, on_training)
        self.lent.place(run, job.workers - on_training)
        return self._started(run, Where.BOTH, job.workers - on_training)

    def _started(self, run: Run, where: Where, lent_workers: int) -> bool:
        run.begin(self.now_ms, where, lent_workers)
        heappush(self._ends, (run.due_ms(), run.job.number, run.version, run))
        if run.job.flexible_max:
            side = self._grows_on(run)
            self._elastic[side][run] = None
            self._most_gpus[side] += _most_room(run, side)
        return True

    def _grows_on(self, run: Run) -> Where:
        """The side of its base, but a heterogeneous job grows on lent servers (Lyra, section 2.2)."""
        return Where.TRAINING if run.where is Where.TRAINING and not run.job.is_heterogeneous else Where.LENT

    def _leave(self, run: Run) -> None:
        """Take all its workers away."""
        if run.job.flexible_max:
            side = self._grows_on(run)
            del self._elastic[side][run]
            self._most_gpus[side] -= _most_room(run, side)
            self._grown[side] -= run.flexible == run.job.flexible_max
            self.flexible_gpus[side] -= run.flexible * _flexible_gpus_each(run, side)
        if run.where is not Where.LENT and run.lent_workers < run.job.workers:
            self.training.release(run)
        if run.lent_workers:
            self.lent.release(run)
        self.has_more_room = True

    def _next_event_ms(self) -> int:
        while self._ends and self._ends[0][2] != self._ends[0][3].version:
            heappop(self._ends)
        ends = [self._ends[0][0]] if self._ends else []
        arrivals = [self._arrivals[self._next].job.submit_ms] if self._next < len(self._arrivals) else []
        found = [*ends, *arrivals]
        return min(found) if found else self.now_ms + TICK_MS

    def _go_to(self, at_ms: int) -> None:
        """Add up the GPU time until then, within the period."""
        period_ms = self.cluster.demand.period_ms
        passed_ms = min(at_ms, period_ms) - min(self.now_ms, period_ms)
        if passed_ms:
            lent = self.lent_busy_gpus()
            training = self.training.gpus - self.training.gpus_free + self.flexible_gpus[Where.TRAINING]
            if self.cluster.is_one:
                training = min(training, self.cluster.training_gpus)
            self._area_ms[Where.TRAINING] += training * passed_ms
            self._area_ms[Where.LENT] += lent * passed_ms
        self.now_ms = at_ms

    def _end_what_is_due(self) -> None:
        while self._ends and self._ends[0][0] <= self.now_ms:
            _, _, version, run = heappop(self._ends)
            if version == run.version:
                self._leave(run)
                run.settle(self.now_ms)
                run.end_ms, run.where = self.now_ms, None
                run.version += 1
                self._left -= 1

    def _receive_arrivals(self) -> None:
        while self._next < len(self._arrivals) and self._arrivals[self._next].job.submit_ms <= self.now_ms:
            self.order.add(self._arrivals[self._next])
            self._next += 1

    def _scale(self) -> None:
        """Phase 2, on each side by itself: a job grows on one side only."""
        may_grow = self.scheme.grows_while_others_wait or not self.order.is_waiting()
        if self._elastic[Where.TRAINING]:
            self._scale_side(Where.TRAINING, self.training.gpus_free if may_grow else 0)
        if self._elastic[Where.LENT]:
            empty = self.lent.by_free[GPUS] * GPUS  # flexible workers never sit beside base workers on a lent server
            self._scale_side(Where.LENT, empty if may_grow else 0)

    def _scale_side(self, side: Where, gpus_free: int) -> None:
        runs = self._elastic[side]
        if self._most_gpus[side] <= gpus_free and not self.cluster.is_placed:
            wanted = [run.job.flexible_max for run in runs] if self._grown[side] < len(runs) else None
        elif gpus_free:
            wanted = self._shared_out(side, gpus_free)
        else:
            wanted = [0] * len(runs) if self.flexible_gpus[side] else None
        if wanted is None:
            return
        changed = [(run, n) for run, n in zip(runs, wanted, strict=True) if n != run.flexible]
        for run, flexible in changed:
            self.flexible_gpus[side] += (flexible - run.flexible) * _flexible_gpus_each(run, side)
            run.resize(self.now_ms, flexible)
            heappush(self._ends, (run.due_ms(), run.job.number, run.version, run))
        self._grown[side] = sum(run.flexible == run.job.flexible_max for run in runs)

    def _shared_out(self, side: Where, gpus_free: int) -> list[int]:
        """As the scheme has it, as far as there are servers for it."""
        assert self.scheme.scaling is not None
        runs, now_ms = self._elastic[side], self.now_ms
        asks = [Elastic(run, _room_each(run, side), run.base_ms_left(now_ms)) for run in runs]
        wanted = list(self.scheme.scaling(asks, gpus_free))
        if side is Where.TRAINING:
            return self.training.held_together([(ask.run, n) for ask, n in zip(asks, wanted, strict=True)])
        return wanted

    def _row(self, taken: tuple[int, int, int, int, int]) -> TickRow:
        areas = self._area_ms[Where.TRAINING], self._area_ms[Where.LENT]
        return TickRow(self.now_ms, self._loans.count, self.lent_busy_gpus(), *areas, *taken)


def _flexible_gpus_each(run: Run, side: Where) -> int:
    """What a flexible worker holds."""
    return run.job.gpus_each * (LENT_PER_TRAINING if side is Where.LENT else 1)


def _room_each(run: Run, side: Where) -> int:
    """What it takes of the room that is shared out: of empty servers that are filled with workers of its size."""
    if side is Where.TRAINING:
        return run.job.gpus_each
    return LENT_PER_TRAINING * (GPUS // (GPUS // run.job.gpus_each))


def _most_room(run: Run, side: Where) -> int:
    """What all its flexible workers take."""
    return run.job.flexible_max * _room_each(run, side)
