"""Orders in which jobs start: first come first served, shortest first, and shortest remaining work first."""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from fallow.bench.aryl.world.run import Run, TraceRun, Where
from fallow.bench.aryl.world.scheme import Order

if TYPE_CHECKING:
    from fallow.bench.aryl.world.world import World

Shape = tuple[bool, int, int, bool, bool]
"""Jobs of one shape need the same room: if one does not fit, none of them does. Heterogeneous ones come last."""

Entry = tuple[int, int, Run]


def fit_key(job: TraceRun) -> Shape:
    """The shape of a job."""
    return job.is_heterogeneous, job.workers, job.gpus_each, job.is_fungible, job.is_elastic


class StrictFifo(Order):
    """By submission; if the first does not fit, nothing behind it starts. A preempted job is where it was."""

    def __init__(self) -> None:
        self._waiting: list[Entry] = []

    def add(self, run: Run) -> None:
        """It waits from now on."""
        heappush(self._waiting, (run.job.submit_ms, run.job.number, run))

    def start(self, world: World) -> None:
        """From the first on, as long as they fit."""
        while self._waiting and world.try_start(self._waiting[0][2]):
            heappop(self._waiting)

    def is_waiting(self) -> bool:
        """Whether a job waits."""
        return bool(self._waiting)


def is_for_lent(run: Run) -> bool:
    """Whether it waits for lent servers, where there are lines for each side: until it was stopped there."""
    return run.job.is_fungible and not run.preemptions


class FifoOfEachSide(Order):
    """Two lines, for lent servers and for training servers, each by submission."""

    def __init__(self) -> None:
        self._lines = {True: StrictFifo(), False: StrictFifo()}

    def add(self, run: Run) -> None:
        """It waits from now on."""
        self._lines[is_for_lent(run)].add(run)

    def start(self, world: World) -> None:
        """Each line by itself."""
        for line in self._lines.values():
            line.start(world)

    def is_waiting(self) -> bool:
        """Whether a job waits."""
        return any(line.is_waiting() for line in self._lines.values())


class ShortestFirst(Order):
    """By run time with base workers; a job that does not fit is passed (Lyra, section 5.2, phase 1)."""

    def __init__(self) -> None:
        self._by_shape: dict[Shape, list[Entry]] = {}
        self._blocked: set[Shape] = set()
        self._count = 0

    def add(self, run: Run) -> None:
        """It waits from now on."""
        heappush(self._by_shape.setdefault(fit_key(run.job), []), (run.job.base_ms, run.job.number, run))
        self._count += 1

    def start(self, world: World) -> None:
        """The shortest of each shape in turn; a shape of which one did not fit is left until there is more room."""
        if world.has_more_room:
            self._blocked.clear()
        if not self._count:
            return
        shapes = ((shape, line) for shape, line in self._by_shape.items() if line and shape not in self._blocked)
        heads = [(shape[0], *line[0][:2], shape) for shape, line in shapes]
        heapify(heads)
        while heads:
            shape = heappop(heads)[3]
            line = self._by_shape[shape]
            if not world.try_start(line[0][2]):
                self._blocked.add(shape)
                continue
            heappop(line)
            self._count -= 1
            if line:
                heappush(heads, (shape[0], *line[0][:2], shape))

    def is_waiting(self) -> bool:
        """Whether a job waits."""
        return self._count > 0


class ShortestRemaining(Order):
    """By the work that is left, and running jobs with more of it are stopped, which costs nothing: a yardstick that no
    real scheduler reaches. For one pool of training GPUs.
    """

    def __init__(self) -> None:
        self._by_shape: dict[Shape, list[Entry]] = {}
        self._running: list[tuple[int, int, Run]] = []

    def add(self, run: Run) -> None:
        """It waits from now on."""
        left_ms = run.base_ms_left(run.since_ms)
        heappush(self._by_shape.setdefault(fit_key(run.job), []), (left_ms, run.job.number, run))

    def start(self, world: World) -> None:
        """The shortest of each shape, in the place of longer ones."""
        self._running = [entry for entry in self._running if entry[2].where is Where.TRAINING]
        heads = [(*line[0][:2], shape) for shape, line in self._by_shape.items() if line]
        heapify(heads)
        while heads:
            left_ms, _, shape = heappop(heads)
            line = self._by_shape[shape]
            run = line[0][2]
            if not world.training.fits(run.job.workers, run.job.gpus_each):
                victims = self._longer_ones(world, run, left_ms)
                if not victims:
                    continue
                heappop(line)
                del self._running[-len(victims) :]
                for victim in victims:
                    world.preempt(victim, keeps_work=True)
            else:
                heappop(line)
            assert world.try_start(run)
            insort(self._running, (run.due_ms(), run.job.number, run))
            if line:
                heappush(heads, (*line[0][:2], shape))

    def is_waiting(self) -> bool:
        """Whether a job waits."""
        return any(self._by_shape.values())

    def _longer_ones(self, world: World, run: Run, left_ms: int) -> list[Run]:
        """Those with the most work left that have to give way, none where not enough have more left."""
        needed, victims = run.job.gpus - world.training.gpus_free, list[Run]()
        for due_ms, _, other in reversed(self._running):
            if needed <= 0 or due_ms - world.now_ms <= left_ms:
                break
            victims.append(other)
            needed -= other.job.gpus
        return victims if needed <= 0 else []
