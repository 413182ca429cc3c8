"""Rules that give each node a score for a pod and take the best: those to which the cell's own policy is compared.

Scores are kept for each kind of pod, and worked out again only for nodes that have changed since.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from fallow.bench.openb.files import Pod
from fallow.bench.openb.fragments import Lefts, lefts_of
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace

NO_ROOM = -(1 << 60)


class Scores(ABC):
    """A rule over all nodes of a cell. Nodes stand in the order of their names; of equal scores the first wins."""

    def __init__(self, state: CellState) -> None:
        self.nodes = [state.nodes[name] for name in sorted(state.nodes)]
        self.lefts: list[Lefts] = [lefts_of(node) for node in self.nodes]
        self._changed: list[int] = []
        self._rows: dict[Pod, list[int]] = {}
        self._at: dict[Pod, int] = {}
        self._kinds: dict[tuple[int, int, int, tuple[str, ...]], Pod] = {}

    @abstractmethod
    def score(self, number: int, pod: Pod, /) -> int:
        """How good a node is for a pod that fits there; more is better."""

    @abstractmethod
    def device(self, number: int, pod: Pod) -> int:
        """On which device of a node a share goes. It fits on one."""

    def place(self, _spec: JobSpec, pod: Pod) -> tuple[WorkerPlace, ...] | None:
        """Where the pod goes, or None where it does not fit."""
        row = self.row(pod)
        best = max(row)
        return None if best == NO_ROOM else self.take(row.index(best), pod)

    def row(self, pod: Pod) -> list[int]:
        """The scores of all nodes for a pod, as the nodes are now."""
        wants = (pod.gpu_milli, pod.cpu_milli, pod.memory_mib, pod.types)
        kind = self._kinds.setdefault(wants, pod)
        row = self._rows.get(kind)
        if row is None:
            row = self._rows[kind] = [self._score(number, kind) for number in range(len(self.nodes))]
        else:
            for number in dict.fromkeys(self._changed[self._at[kind] :]):
                row[number] = self._score(number, kind)
        self._at[kind] = len(self._changed)
        return row

    def take(self, number: int, pod: Pod) -> tuple[WorkerPlace, ...]:
        """The pod's place on this node."""
        lefts, milli = self.lefts[number], pod.gpu_milli
        if not milli:
            devices: tuple[int, ...] = ()
        elif milli < GPU:
            devices = (self.device(number, pod),)
        else:
            devices = tuple([device for device, left in enumerate(lefts) if left == GPU][: milli // GPU])
        after = list(lefts)
        for device in devices:
            after[device] -= min(milli, GPU)
        self.lefts[number] = tuple(after)
        self._changed.append(number)
        node = self.nodes[number].id
        place = WorkerPlace(
            rank=0, node=node, devices=devices, gpu_milli=milli, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib
        )
        return (place,)

    def _score(self, number: int, pod: Pod) -> int:
        return self.score(number, pod) if fits(self.nodes[number], self.lefts[number], pod) else NO_ROOM


def fits(node: Node, lefts: Lefts, pod: Pod) -> bool:
    """Whether a pod has room on a node."""
    spec, milli = node.spec, pod.gpu_milli
    if pod.cpu_milli > spec.cpu_milli - node.cpu_used or pod.memory_mib > spec.memory_mib - node.memory_used:
        return False
    if pod.types and spec.gpu_type not in pod.types:
        return False
    return max(lefts) >= milli if milli < GPU else lefts.count(GPU) * GPU >= milli
