"""Lifetime-aware packing: a worker below a node goes where it adds the least time in which a node is in use in part, by
how long it and the jobs that are there are expected to run.

With e the time that the worker is expected to run, and a node whose jobs end first after a and last after b, it adds
the time by which it outlasts them all, max(b, e) - b; and it takes away min(a, e) where it fills the node, which is
then in use in full until the first of them all is over. An empty node costs e, or nothing where one worker fills it.
Ties go to the node with the fewest free devices, then to the lowest. So jobs that end together lie together, and nodes
become free as a whole.

Where nothing is known of the worker's job it goes by best fit. Gangs, shares of a GPU and services go by E-Binpack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fallow.services.placement.fit.device_selection import devices_of_one
from fallow.services.placement.fit.free_capacity import first_suitable, suits
from fallow.services.placement.policy import best_fit, ebinpack
from fallow.services.placement.policy.lifetime.estimated_ends import EstimatedEnds, ends_of
from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.node_filter_index import allowed
from fallow.shared.cluster.model.run_time import expected_run_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import later
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, WorkerPlace

Cost = tuple[int, int, int]
"""The time (ms) in which the node is in use in part that a worker adds, the node's free devices, its number: the least
is the best.
"""


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang in the pool, or None."""
    if spec.workers > 1 or spec.resources.gpu_milli < GPU:
        return ebinpack.place_gang(state, pool, spec)
    place = place_alone(state, pool, spec)
    return None if place is None else (place,)


def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
    """A place for the only worker of a job of whole GPUs, or None."""
    if spec.kind is JobKind.INFERENCE:
        return ebinpack.place_alone(state, pool, spec)
    run_ms = _estimate_ms(state, spec)
    if run_ms is None:
        return best_fit.place_alone(state, pool, spec)
    search = _Search(state, pool, spec, run_ms)
    cost = min([*search.in_part(), *search.empty()], default=None)
    if cost is None:
        return None
    node, wants = state.nodes[pool.ids[cost[2]]], spec.resources
    return WorkerPlace(
        rank=0,
        node=node.spec.id,
        devices=devices_of_one(node.free, node.spec, search.gpus),
        gpu_milli=wants.gpu_milli,
        cpu_milli=wants.cpu_milli,
        memory_mib=wants.memory_mib,
    )


def _estimate_ms(state: CellState, spec: JobSpec) -> int | None:
    """How long the job is expected to run. A search gives a job that tells nothing some time to keep it off nodes that
    close soon (`open_longest`), and that is no estimate.
    """
    job = state.jobs.get(spec.id)
    return expected_run_ms(state, spec if job is None else job.spec)


class _Search:
    """One worker before one pool."""

    __slots__ = ("_ends", "_needs_more", "_pool", "_spec", "_state", "_usable", "gpus", "over_ms")

    def __init__(self, state: CellState, pool: PoolCapacity, spec: JobSpec, run_ms: int) -> None:
        self._state, self._pool, self._spec = state, pool, spec
        self._ends: EstimatedEnds = ends_of(state, pool)
        self._usable = allowed(state, pool, spec)
        self.gpus = spec.resources.gpu_milli // GPU
        self.over_ms = later(self._ends.now_ms, run_ms)
        wants = spec.resources
        self._needs_more = bool(wants.cpu_milli or wants.memory_mib or spec.gpu_type is not None)

    def in_part(self) -> Iterator[Cost]:
        """The nodes in use in part: of those that the worker fills the best one, and of the others the best one."""
        ends, over_ms = self._ends, self.over_ms
        by_free, last = ends.by_free, ends.last_ms
        numbers = self._open(by_free.get(self.gpus, ()))
        if numbers:
            now_ms, first = ends.now_ms, ends.first_ms
            costs = [max(over_ms - last[at], 0) - max(min(first[at], over_ms) - now_ms, 0) for at in numbers]
            least = min(costs)
            yield least, self.gpus, numbers[costs.index(least)]
        for free in sorted([free for free in by_free if free > self.gpus]):
            numbers = self._open(by_free[free])
            if not numbers:
                continue
            lasts = [last[at] for at in numbers]
            latest_ms = max(lasts)
            if latest_ms < over_ms:
                yield over_ms - latest_ms, free, numbers[lasts.index(latest_ms)]
                continue
            yield 0, free, next(at for at, last_ms in zip(numbers, lasts, strict=True) if last_ms >= over_ms)
            return  # those with more free devices come behind this one, whatever their jobs

    def empty(self) -> Iterator[Cost]:
        """The best of the empty nodes of each size."""
        now_ms, in_use, by_free = self._ends.now_ms, self._ends.in_use, self._pool.by_free
        for free in sorted([free for free in by_free if free >= self.gpus]):
            nodes = by_free[free] & ~in_use
            if self._usable is not None:
                nodes &= self._usable
            node = first_suitable(self._state, self._pool, nodes, self._spec)
            if node is not None:
                yield self.over_ms - now_ms if free > self.gpus else 0, free, self._pool.number(node.spec.id)

    def _open(self, numbers: Sequence[int]) -> Sequence[int]:
        """Those of these nodes that the worker may take, in their order; when their jobs end is known."""
        state, ids, usable = self._state, self._pool.ids, self._usable
        self._pool.effort.looks += len(numbers)
        if usable is not None:
            numbers = [at for at in numbers if usable >> at & 1]
        if self._needs_more:
            nodes, spec = state.nodes, self._spec
            numbers = [at for at in numbers if suits(nodes[ids[at]], spec, 1)]
        self._ends.work_out(state, numbers)
        return numbers


POLICY = PlacementPolicy(
    name="lifetime",
    what_for="Jobs that tell how long they run, beside gangs that need whole nodes.",
    gang=place_gang,
    alone=place_alone,
    learns=True,
)
