"""When the jobs on each node of a pool are expected to end, kept by delta: worked out anew only for nodes that have
changed, and for those with a job that has outlived its estimate, whose end moves on with time.

Only nodes that somebody asks about are worked out: those that are in use in part, which are few.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.masks import each_bit
from fallow.shared.cluster.model.job import Job, index_of
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.run_time import OVER, LearnedEnd, RunEnd, run_end
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.run_times.learning import Edition
from fallow.shared.events.operations import EstimatorKind

ENDS = "estimated ends"
"""The name of this view of a pool."""

NEVER_MS = 1 << 63
"""The end of a job of which nothing is known, or that runs without end."""

LOOKS_TO_WORK_OUT = 8
"""To work out the ends on a node takes so long as to look at so many."""


End = RunEnd | LearnedEnd

Basis = tuple[EstimatorKind, int, Edition]

FOR_GOOD = RunEnd(0, NEVER_MS, NEVER_MS)
CHANGED, MOVED = 1, 2
"""Why the ends on a node are worked out again: the node has changed, or only the time has."""


@dataclass(slots=True)
class EstimatedEnds:
    """The index over one pool. `in_use` are the nodes with GPUs in use, as a mask over the pool's numbers, and
    `by_free[k]` the numbers of those with k free devices that take new work, in rising order. `first_ms` and `last_ms`
    hold by number what was asked for, from `runs`. They are worked out again where `stale` says so; at every other time
    for those in `moving`, and for all others when their time in the heap `due` has come. `basis` is by what run times
    are expected beside what jobs tell.
    """

    pool: PoolCapacity
    basis: Basis
    first_ms: list[int]
    last_ms: list[int]
    free: list[int]
    stale: bytearray
    runs: dict[int, list[End]] = field(default_factory=dict)
    now_ms: int = 0
    in_use: int = 0
    by_free: dict[int, list[int]] = field(default_factory=dict)
    moving: list[int] = field(default_factory=list)
    due: list[tuple[int, int]] = field(default_factory=list)
    is_stale: bool = False

    @classmethod
    def of(cls, state: CellState, pool: PoolCapacity) -> EstimatedEnds:
        """The index over the pool's nodes, of which nothing is worked out yet."""
        size = len(pool.ids)
        zeros, stale = [0] * size, bytearray([CHANGED]) * size
        found = cls(pool, _basis_of(state), zeros, [*zeros], [*zeros], stale)
        for free, nodes in pool.by_free.items():
            for number in each_bit(nodes):
                found.note(state.nodes[pool.ids[number]], free)
        return found

    def note(self, node: Node, free: int) -> None:
        """The node may have changed."""
        number = self.pool.number(node.spec.id)
        bit, is_in_use = 1 << number, bool(node.held or node.shares)
        self.stale[number] = CHANGED
        if is_in_use != bool(self.in_use & bit):
            self.in_use ^= bit
        before, now = self.free[number], free if is_in_use else 0
        if before == now:
            return
        if before:
            numbers = self.by_free[before]
            del numbers[bisect_left(numbers, number)]
        if now:
            insort(self.by_free.setdefault(now, []), number)
        self.free[number] = now

    def bring_to(self, state: CellState, now_ms: int) -> None:
        """Bring what is known to this time."""
        basis = _basis_of(state)
        if basis != self.basis:
            self.basis = basis
            self.stale = bytearray([CHANGED]) * len(self.free)
        if now_ms == self.now_ms:
            return
        self.now_ms = now_ms
        for number in self.moving:
            self.stale[number] = self.stale[number] or MOVED
        self.moving.clear()
        due, stale = self.due, self.stale
        while due and due[0][0] <= now_ms:
            number = heappop(due)[1]
            stale[number] = stale[number] or MOVED
        if len(due) > 4 * len(stale) + 64:
            due[:] = [(_until_ms(here, now_ms), number) for number, here in self.runs.items() if not stale[number]]
            heapify(due)

    def work_out(self, state: CellState, numbers: Sequence[int]) -> None:
        """Let `first_ms` and `last_ms` be right for these nodes."""
        stale, runs, now_ms = self.stale, self.runs, self.now_ms
        anew = [number for number in numbers if stale[number]]
        self.pool.effort.looks += LOOKS_TO_WORK_OUT * len(anew)
        for number in anew:
            if stale[number] == CHANGED:
                runs[number] = runs_on(state, state.nodes[self.pool.ids[number]])
            stale[number] = 0
            here = runs[number]
            ends = [run.at(now_ms) for run in here]
            self.first_ms[number], self.last_ms[number] = min(ends), max(ends)
            until_ms = _until_ms(here, now_ms)
            if until_ms <= now_ms:
                self.moving.append(number)
            else:
                heappush(self.due, (until_ms, number))


def _basis_of(state: CellState) -> Basis:
    return state.policy.estimator, state.policy.default_run_estimate_ms, state.edition


def _until_ms(runs: list[End], now_ms: int) -> int:
    """The time from which on one of these may end at another time."""
    return min([run.same_until_ms(now_ms) for run in runs])


def runs_on(state: CellState, node: Node) -> list[End]:
    """When the workers with GPUs on a node will be over. GPUs that are in use without a job, as what is kept for one
    that is to come, are so for good.
    """
    found: list[End] = []
    for job_id in node.jobs:
        job = state.jobs.get(job_id)
        if job is None or job.spec.resources.gpu_milli:
            found += _runs_of(state, job, node.spec.id) or (FOR_GOOD,)
    if found and any(free and not node.closed >> device & 1 for device, free in node.shares.items()):
        found.append(OVER)  # a part of a device stays free: whole GPUs do not fill the node, not for any time
    return found or [FOR_GOOD]


def _runs_of(state: CellState, job: Job | None, node_id: str) -> list[End]:
    """The workers of one job on a node. A job that is planned, and has not started, has none there yet."""
    if job is None:
        return []
    is_alone = len(job.workers) == 1 and job.workers[0].node == node_id
    here = [*(job.workers if is_alone else index_of(job).on(node_id))]
    here += [place for place in job.joining if place.node == node_id]
    return [run_end(state, job, place) or FOR_GOOD for place in here]


def ends_of(state: CellState, pool: PoolCapacity) -> EstimatedEnds:
    """The index over the pool, as of now."""
    found = pool.views.get(ENDS)
    if not isinstance(found, EstimatedEnds):
        found = pool.views[ENDS] = EstimatedEnds.of(state, pool)
    found.bring_to(state, max(state.at_ms, state.clock_ms))
    return found
