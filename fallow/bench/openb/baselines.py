"""Random fit, best fit and FGD as the simulator of the FGD paper has them (Weng et al., USENIX ATC 2023)."""

from __future__ import annotations

import random
from math import exp

from fallow.bench.openb.files import Pod
from fallow.bench.openb.fragments import Fragments, Lefts
from fallow.bench.openb.scores import NO_ROOM, Scores
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace

SCORE_MAX = 100
CPU_MAX_MILLI, GPU_MAX_MILLI = 128_000, 8_000
"""What counts as a full measure of CPU and of GPU."""


class RandomFit(Scores):
    """Any node that has room, any device of it that has."""

    tie_rule = "none: the choice is random"

    def __init__(self, state: CellState, seed: int) -> None:
        super().__init__(state)
        self._draw = random.Random(seed)  # noqa: S311 - a load, no secret

    def score(self, _number: int, _pod: Pod) -> int:
        """All are alike."""
        return 0

    def device(self, number: int, pod: Pod) -> int:
        """Any with room."""
        return self._draw.choice([at for at, left in enumerate(self.lefts[number]) if left >= pod.gpu_milli])

    def place(self, _spec: JobSpec, pod: Pod) -> tuple[WorkerPlace, ...] | None:
        """Any with room."""
        numbers = [number for number, score in enumerate(self.row(pod)) if score != NO_ROOM]
        return self.take(self._draw.choice(numbers), pod) if numbers else None


class BestFit(Scores):
    """The node with the least left of CPU and GPU together, each against a large node; the device with the least."""

    tie_rule = "scores are whole numbers up to 100, ties go to the lowest node name"

    def score(self, number: int, pod: Pod) -> int:
        """From 0 to 100."""
        node = self.nodes[number]
        cpu = node.spec.cpu_milli - node.cpu_used - pod.cpu_milli
        gpu = sum(self.lefts[number]) - pod.gpu_milli
        left = cpu * GPU_MAX_MILLI + gpu * CPU_MAX_MILLI
        most = 2 * CPU_MAX_MILLI * GPU_MAX_MILLI
        return (most - left) * SCORE_MAX // most

    def device(self, number: int, pod: Pod) -> int:
        """The one with the least room that fits, the lowest of equals."""
        return tightest(self.lefts[number], pod.gpu_milli)


class Fgd(Scores):
    """The node and the device whose fragment grows the least. It knows the usual pods of the trace beforehand."""

    tie_rule = "scores are whole numbers up to 100, ties go to the lowest node name"

    def __init__(self, state: CellState, fragments: Fragments) -> None:
        super().__init__(state)
        self._fragments = fragments

    def score(self, number: int, pod: Pod) -> int:
        """From 0 to 100: 50 where the fragment stays the same."""
        if pod.gpu_milli % GPU:
            return max(self._shares(number, pod).values())
        lefts, gpus = list(self.lefts[number]), pod.gpu_milli // GPU
        for at in [at for at, left in enumerate(lefts) if left == GPU][:gpus]:
            lefts[at] = 0
        return self._score_of(number, pod, tuple(lefts))

    def device(self, number: int, pod: Pod) -> int:
        """The first with the best score."""
        found = self._shares(number, pod)
        return max(found, key=lambda device: (found[device], -device))

    def _shares(self, number: int, pod: Pod) -> dict[int, int]:
        lefts = self.lefts[number]
        found, known = dict[int, int](), dict[int, int]()
        for device, left in enumerate(lefts):
            if left >= pod.gpu_milli:
                if left not in known:
                    after = (*lefts[:device], left - pod.gpu_milli, *lefts[device + 1 :])
                    known[left] = self._score_of(number, pod, after)
                found[device] = known[left]
        return found

    def _score_of(self, number: int, pod: Pod, after: Lefts) -> int:
        node = self.nodes[number]
        kind, cpu = node.spec.gpu_type, node.spec.cpu_milli - node.cpu_used
        amount = self._fragments.amount
        less = amount(kind, cpu, self.lefts[number]) - amount(kind, cpu - pod.cpu_milli, after)
        return int(SCORE_MAX / (1 + exp(-less / (GPU * self._fragments.total))))


def tightest(lefts: Lefts, milli: int) -> int:
    """The device with the least room that has so much, the lowest of equals."""
    return min((left, device) for device, left in enumerate(lefts) if left >= milli)[1]
