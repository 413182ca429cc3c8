"""One run of the FGD protocol: the pods of one seed, one by one, under one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import process_time
from typing import Protocol

from fallow.bench.openb.cell import Resourceful, arrive, capacity_milli, drop, start
from fallow.bench.openb.draw import ARRIVED_PCT_MAX
from fallow.bench.openb.files import Pod
from fallow.bench.openb.fragments import Fragments
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, WorkerPlace

STEP_PCT = 5

PLACEMENT_COLUMNS = (
    "seed", "number", "pod", "gpu_milli", "cpu_milli", "memory_mib", "gpu_types", "node", "devices",
)  # fmt: skip


class Rule(Protocol):
    """Finds the place of one pod."""

    def place(self, spec: JobSpec, pod: Pod) -> tuple[WorkerPlace, ...] | None:
        """Where it goes, or None where it does not fit."""


@dataclass(frozen=True, slots=True)
class Moment:
    """How the cluster is when so much has arrived, in percent of all its GPUs."""

    arrived_pct: int
    allocation_pct: float
    fragmentation_pct: float


@dataclass(slots=True)
class Run:
    """What came of it. `spent_s` is the processor time of the decisions and of keeping the state."""

    seed: int
    moments: list[Moment] = field(default_factory=list)
    rows: list[tuple[object, ...]] = field(default_factory=list)
    placed: int = 0
    dropped: int = 0
    spent_s: float = 0.0

    @property
    def pods_per_s(self) -> int:
        """How fast that was."""
        return round((self.placed + self.dropped) / max(self.spent_s, 1e-9))

    def at(self, arrived_pct: int) -> Moment:
        """The moment when so much had arrived."""
        return next(moment for moment in self.moments if moment.arrived_pct == arrived_pct)


def run(seed: int, pods: Sequence[Pod], state: CellState, rule: Rule, fragments: Fragments) -> Run:
    """Let these pods come."""
    nodes = [node.spec for node in state.nodes.values()]
    found, jobs, capacity = Run(seed), Resourceful(nodes), capacity_milli(nodes)
    arrived, next_pct = 0, 0
    for number, pod in enumerate(pods):
        while arrived * 100 >= next_pct * capacity:
            found.moments.append(moment(state, next_pct, capacity, fragments))
            next_pct += STEP_PCT
        arrived += pod.gpu_milli
        begin_s = process_time()
        spec = jobs.job(f"{pod.name}-{number}", pod)
        arrive(state, spec)
        places = rule.place(spec, pod)
        if places is None:
            drop(state, spec)
            found.dropped += 1
        else:
            start(state, spec, places)
            found.placed += 1
        found.spent_s += process_time() - begin_s
        found.rows.append(_row(seed, number, pod, places))
    while next_pct <= ARRIVED_PCT_MAX:
        found.moments.append(moment(state, next_pct, capacity, fragments))
        next_pct += STEP_PCT
    return found


def moment(state: CellState, arrived_pct: int, capacity: int, fragments: Fragments) -> Moment:
    """How the cluster is now."""
    allocated = sum(node.allocated_milli for node in state.nodes.values())
    fragment = sum(fragments.of(node) for node in state.nodes.values())
    return Moment(arrived_pct, 100 * allocated / capacity, 100 * fragment / (capacity * fragments.total))


def _row(seed: int, number: int, pod: Pod, places: tuple[WorkerPlace, ...] | None) -> tuple[object, ...]:
    node, devices = (places[0].node, places[0].devices) if places else ("", ())
    return (
        seed,
        number,
        pod.name,
        pod.gpu_milli,
        pod.cpu_milli,
        pod.memory_mib,
        "|".join(pod.types),
        node,
        "+".join(map(str, devices)),
    )
