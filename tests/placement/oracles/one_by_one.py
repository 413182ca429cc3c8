"""Where the workers of a gang go if each looks for a place after the one before: the rules of the policies said once
more, worker by worker, with a count of what is free of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Level
from tests.placement.worlds.networks import may_use, unit_of

Seat = tuple[str, tuple[int, ...]]
"""A node and devices of it."""


@dataclass
class Bench:
    """What is left of one node."""

    name: str
    whole: list[int]
    shares: dict[int, int]
    cpu: int
    memory: int

    def suits(self, spec: JobSpec) -> bool:
        return self.cpu >= spec.resources.cpu_milli and self.memory >= spec.resources.memory_mib

    def take(self, spec: JobSpec, device: int | None) -> Seat:
        """Room for one worker: this shared device, or the lowest whole ones."""
        wants = spec.resources
        self.cpu, self.memory = self.cpu - wants.cpu_milli, self.memory - wants.memory_mib
        if device is None:
            chosen, self.whole = self.whole[: gpus_of(spec)], self.whole[gpus_of(spec) :]
            if wants.gpu_milli < GPU:
                self.shares[chosen[0]] = GPU - wants.gpu_milli
            return self.name, tuple(chosen)
        self.shares[device] -= wants.gpu_milli
        return self.name, (device,)


def gpus_of(spec: JobSpec) -> int:
    """Whole devices that one worker takes, or breaks."""
    return -(-spec.resources.gpu_milli // GPU)


def benches(state: CellState, spec: JobSpec) -> list[Bench]:
    """What is free on the nodes that the job may use, in the order of their names."""
    found = []
    for name in sorted(state.nodes):
        node = state.nodes[name]
        if not may_use(state, spec, name) or spec.gpu_type not in (None, node.spec.gpu_type):
            continue
        healthy = [device for device in range(node.spec.gpus) if not node.failed >> device & 1]
        whole = [device for device in healthy if device not in node.shares and not node.held >> device & 1]
        shares = {device: node.shares[device] for device in healthy if device in node.shares}
        cpu, memory = node.spec.cpu_milli - node.cpu_used, node.spec.memory_mib - node.memory_used
        found.append(Bench(name, whole, shares, cpu, memory))
    return found


def beside_others(all_: Sequence[Bench], spec: JobSpec) -> Seat | None:
    """On the shared device with the least room that fits, of equals that of the lowest node."""
    milli = spec.resources.gpu_milli
    fits = [
        (left, at, device)
        for at, bench in enumerate(all_)
        if bench.suits(spec)
        for device, left in bench.shares.items()
        if left >= milli
    ]
    if milli >= GPU or not fits:
        return None
    _, at, device = min(fits)
    return all_[at].take(spec, device)


def with_whole(all_: Sequence[Bench], spec: JobSpec) -> list[Bench]:
    return [bench for bench in all_ if bench.suits(spec) and len(bench.whole) >= gpus_of(spec)]


def packed(all_: Sequence[Bench], spec: JobSpec, rank: Callable[[Bench], int]) -> list[Seat]:
    """Each worker beside others where it fits so, else on the first node by `rank`."""
    seats: list[Seat] = []
    while len(seats) < spec.workers:
        seat = beside_others(all_, spec)
        if seat is None:
            fits = with_whole(all_, spec)
            if not fits:
                break
            seat = min(fits, key=rank).take(spec, None)
        seats.append(seat)
    return seats


def best_fit(state: CellState, spec: JobSpec) -> list[Seat]:
    return packed(benches(state, spec), spec, lambda bench: len(bench.whole))


def first_fit(state: CellState, spec: JobSpec) -> list[Seat]:
    return packed(benches(state, spec), spec, lambda _: 0)


def spread(state: CellState, spec: JobSpec) -> list[Seat]:
    """Each worker to the emptiest node of a unit without one in this round, to one not used before any that is."""
    all_, seats, level = benches(state, spec), list[Seat](), spec.spread or Level.NODE
    visited: set[tuple[str, ...]] = set()
    while len(seats) < spec.workers:
        fits = with_whole(all_, spec)
        fresh = [bench for bench in fits if unit_of(state, level, bench.name) not in visited]
        if not fresh and not fits:
            break
        if not fresh:
            visited.clear()
            continue
        used = {name for name, _ in seats}
        chosen = min(fresh, key=lambda bench: (bench.name in used, -len(bench.whole)))
        visited.add(unit_of(state, level, chosen.name))
        seats.append(chosen.take(spec, None))
    while len(seats) < spec.workers and (seat := beside_others(all_, spec)) is not None:
        seats.append(seat)
    return seats


def node_by_node(seats: Sequence[Seat]) -> list[Seat]:
    """These places with those of one node behind each other, the nodes as they were found."""
    order = list(dict.fromkeys(name for name, _ in seats))
    return sorted(seats, key=lambda seat: order.index(seat[0]))
