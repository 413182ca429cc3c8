"""JTTED, the job training time estimation distribution (Kant, section 4): how much longer than in the best place a
job's training takes in the place that it got, by a communication model. An estimate, not a measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fallow.services.metrics.policy.effect_dispatch import Acts, act_on
from fallow.services.metrics.policy.groups import Group, Whose
from fallow.services.metrics.policy.kant.communication import RING, UNSTRETCHED, CommunicationModel, Spread
from fallow.services.metrics.policy.kant.fewest import Fewest, Kind, leaf_of
from fallow.services.metrics.policy.kant.waiting import rank_of
from fallow.services.metrics.policy.size_classes import size_class
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import GPU, WorkerPlace


class Stretches:
    """The stretches of some starts, in thousandths. They take few values, so the whole distribution is kept.

    `told_ms` is the sum of the run times that submitters estimated, `estimated_ms` the same with each stretch.
    """

    __slots__ = ("counts", "estimated_ms", "told_ms")

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.told_ms = 0
        self.estimated_ms = 0

    @property
    def count(self) -> int:
        """How many starts."""
        return self.counts.total()

    @property
    def sum_milli(self) -> int:
        """All stretches together."""
        return sum(stretch * count for stretch, count in self.counts.items())

    def percentile(self, percent: int) -> int | None:
        """The smallest stretch that at least so many per cent of the starts do not exceed; None of none."""
        wanted = rank_of(self.count, percent)
        for stretch in sorted(self.counts):
            wanted -= self.counts[stretch]
            if wanted <= 0:
                return stretch
        return None

    def merge(self, other: Stretches) -> None:
        """Take in others."""
        self.counts.update(other.counts)
        self.told_ms += other.told_ms
        self.estimated_ms += other.estimated_ms


class Jtted:
    """Every start, a second attempt's too, adds its stretch to its group. `model` may be any."""

    def __init__(self, model: CommunicationModel = RING, whose: Whose | None = None) -> None:
        self._whose = whose or Whose()
        self.model = model
        self.groups: dict[Group, Stretches] = {}
        self._found: dict[tuple[str, str, str], Stretches] = {}
        self._fewest = Fewest()
        self.acts: Acts = {e.JobStarted: self._started, **self._fewest.acts}

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        act_on(self.acts, state, decision.effects, decision.at_ms)

    def merged(self, field: str) -> dict[str, Stretches]:
        """The stretches by `tenant`, `pool` or `size_class`."""
        found: dict[str, Stretches] = {}
        for group, stretches in self.groups.items():
            found.setdefault(getattr(group, field), Stretches()).merge(stretches)
        return found

    def _started(self, state: CellState, effect: e.JobStarted, _: int) -> None:
        places = effect.workers
        tenant, pool = self._whose.start(state, effect)
        milli = places[0].gpu_milli if len(places) == 1 else sum([place.gpu_milli for place in places])
        key = (tenant, pool, size_class(milli))
        stretches = self._found.get(key)
        if stretches is None:
            stretches = self._found[key] = self.groups[Group(*key)] = Stretches()
        stretch = UNSTRETCHED if len(places) == 1 else self._stretch(state, pool, milli, places)
        if stretch in stretches.counts:
            stretches.counts[stretch] += 1
        else:
            stretches.counts[stretch] = 1
        job = state.jobs.get(effect.job)
        if job is not None and job.spec.estimate_run_ms is not None:
            stretches.told_ms += job.spec.estimate_run_ms
            stretches.estimated_ms += job.spec.estimate_run_ms * stretch // UNSTRETCHED

    def _stretch(self, state: CellState, pool: str, milli: int, places: tuple[WorkerPlace, ...]) -> int:
        spread = self.spread(state, pool, milli, places)
        return UNSTRETCHED if spread is None else self.model.stretch(spread)

    def spread(self, state: CellState, pool: str, milli: int, places: tuple[WorkerPlace, ...]) -> Spread | None:
        """Where the gang lies; None on one node, which cannot be bettered."""
        nodes = [node for name in _distinct(places) if (node := state.nodes.get(name)) is not None]
        if len(nodes) <= 1:
            return None
        leaves = len({leaf_of(node.spec) for node in nodes})
        kind = Kind(pool, nodes[0].spec.gpu_type, places[0].gpu_milli)
        nodes_fewest, leaves_fewest = self._fewest.count(state, kind, len(places))
        return Spread(
            gpus=-(-milli // GPU),
            nodes=len(nodes),
            leaves=leaves,
            nodes_fewest=min(nodes_fewest, len(nodes)),
            leaves_fewest=min(leaves_fewest, leaves),
        )


def _distinct(places: Iterable[WorkerPlace]) -> dict[str, None]:
    return dict.fromkeys([place.node for place in places])
