"""What happened in a case: starts, evictions and ends, step by step, as the decisions tell it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import GPU, WorkerPlace
from fallow.shared.events.reasons import StopReason


@dataclass(frozen=True, slots=True)
class Began:
    """A start: when, by which decision, and on which nodes (one for each task)."""

    job: str
    at_ms: int
    version: int
    nodes: tuple[str, ...]


@dataclass(slots=True)
class Stretch:
    """What happened since the expectation before: `evicted` counts tasks, by job; `plans` are planned starts."""

    starts: list[Began] = field(default_factory=list)
    evicted: Counter[str] = field(default_factory=Counter)
    preempted: dict[str, None] = field(default_factory=dict)
    shrunk: dict[str, None] = field(default_factory=dict)
    moved: dict[str, None] = field(default_factory=dict)
    over: dict[str, None] = field(default_factory=dict)
    plans: dict[str, list[int]] = field(default_factory=dict)


class Story:
    """Follows all decisions of one cell. `now` is the stretch of the present step."""

    def __init__(self) -> None:
        self.now = Stretch()
        self.starts: list[Began] = []
        self.evictions: Counter[str] = Counter()
        self.duplicates: list[str] = []
        self.overcommit_milli = 0
        self.decisions: list[Decision] = []
        self._held: dict[str, tuple[WorkerPlace, ...]] = {}
        self._used: Counter[tuple[str, int]] = Counter()

    def begin_step(self) -> None:
        """What happens from now on counts for the next expectation."""
        self.now = Stretch()

    def follow(self, _: CellState, decision: Decision) -> None:
        """The next decision."""
        self.decisions.append(decision)
        for effect in decision.effects:
            match effect:
                case e.JobStarted():
                    self._start(effect, decision)
                case e.JobPreempted():
                    self._evict(effect.job, moves=effect.why is StopReason.MIGRATION)
                case e.JobRequeued():
                    self._evict(effect.job, moves=False)
                case e.ReservationSet():
                    self.now.plans.setdefault(effect.job, []).append(effect.start_ms)
                case e.JobResized():
                    self._resize(effect)
                case e.JobResizing() if effect.add:
                    self._hold(effect.job, self._held.get(effect.job, ()) + effect.add)
                case e.WorkersSettled():
                    over = {*effect.done, *effect.gone}
                    left = [place for place in self._held.get(effect.job, ()) if place.rank not in over]
                    self._hold(effect.job, tuple(left))
                case e.JobFinished() | e.JobFailed() | e.JobCancelled():
                    self._hold(effect.job, ())
                    self.now.over[effect.job] = None

    def _start(self, effect: e.JobStarted, decision: Decision) -> None:
        if effect.job in self._held:
            self.duplicates.append(effect.job)
        nodes = tuple(place.node for place in effect.workers)
        began = Began(effect.job, decision.at_ms, decision.version, nodes)
        self.starts.append(began)
        self.now.starts.append(began)
        self._hold(effect.job, effect.workers)

    def _evict(self, job: str, *, moves: bool) -> None:
        places = self._held.get(job)
        if places:
            self.now.evicted[job] += len(places)
            (self.now.moved if moves else self.now.preempted)[job] = None
            self.evictions[job] += 1
            self._hold(job, ())

    def _resize(self, effect: e.JobResized) -> None:
        fewer = len(self._held.get(effect.job, ())) - len(effect.workers)
        if fewer > 0:
            self.now.evicted[effect.job] += fewer
            self.now.shrunk[effect.job] = None
        self._hold(effect.job, effect.workers)

    def _hold(self, job: str, places: tuple[WorkerPlace, ...]) -> None:
        """Count by own arithmetic what each device carries."""
        for sign, each in ((-1, self._held.pop(job, ())), (1, places)):
            for place in each:
                for device in place.devices:
                    self._used[place.node, device] += sign * min(place.gpu_milli, GPU)
                    over = self._used[place.node, device] - GPU
                    self.overcommit_milli = max(self.overcommit_milli, over)
        if places:
            self._held[job] = places
