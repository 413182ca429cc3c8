"""A cell whose queueing and nodes are played: plans come as often as told, and jobs run exactly as long as they say."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline, StartsPlanned
from tests.placement.worlds.world import CELL, World, admitted, finished, started

BACKFILL = Queue(name="day", discipline=QueueDiscipline.BACKFILL, aging_ms=0, aging_max_ms=0)
NEVER_MS = 10**9


def file_of(*queues: Queue, pools: tuple[str, ...] = ("train",), gpus_per_node: int = 8, **policy: Any) -> CellFile:
    """A cell of these queues in which no head becomes due by its wait."""
    numbers = {"backfill_wait_ms": NEVER_MS, "reservations_max": 64, "reservation_ttl_ms": NEVER_MS, **policy}
    part = CellPart(
        name=CELL,
        ordinal=0,
        pools=tuple(Pool(name=name, gpus=1_000_000, gpus_per_node=gpus_per_node) for name in pools),
        queues=queues or (BACKFILL,),
        policy=CellPolicy(**numbers),
    )
    return CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob")))


class Planned:
    """The cell, and when what runs in it ends. `starts` is when each job started, `promises` the first planned start
    of each job for which places were kept, `overruns` each job that started on devices kept for another one, whose
    planned start its run does not end by, and that other one.
    """

    def __init__(self, file: CellFile, *nodes: Event) -> None:
        self.world = World(file)
        self.world.listens = False
        self.checks_plans = True
        """Whether each plan is looked at to leave the state as it was."""
        self.file, self.plans = file, 0
        self.starts: dict[str, int] = {}
        self.promises: dict[str, int] = {}
        self.overruns: list[tuple[str, str]] = []
        self.effects: list[e.AnyEffect] = []
        self._ends: list[tuple[int, str, tuple[str, ...]]] = []
        self.run_ms: dict[str, int] = {}
        self.queue: dict[str, str] = {}
        self.tell(*nodes)

    def tell(self, *events: Event) -> list[e.AnyEffect]:
        """Hand over inputs; what starts by that runs at once, until its time is over."""
        effects = self.world.tell(*events)
        self._note(effects)
        return effects

    def submit(self, *specs: JobSpec, run_ms: int | None = None) -> list[e.AnyEffect]:
        """Jobs come, of which each runs as long as its estimate says, or as this does."""
        for spec in specs:
            self.run_ms[spec.id], self.queue[spec.id] = run_ms or spec.estimate_run_ms or NEVER_MS, spec.queue or "day"
        return self.tell(*(admitted(spec, self.world.now_ms) for spec in specs))

    def pass_time(self, until_ms: int, *, plans: bool = True) -> None:
        """Let time pass, one end of a run or edge of a maintenance window after the other, with a plan behind each."""
        while (at_ms := self._next_ms()) <= until_ms:
            self._go_to(at_ms)
            over = []
            while self._ends and self._ends[0][0] == at_ms:
                _, job, nodes = heappop(self._ends)
                over += [finished(job, node, self.world.job(job).attempt) for node in nodes]
            self.tell(*over)
            if plans:
                self.tell(self.plan())
        self._go_to(until_ms)

    def _next_ms(self) -> int:
        """When the next run ends, or maintenance begins or ends."""
        windows = [node.maintenance_ms for node in self.world.state.nodes.values() if node.maintenance_ms is not None]
        edges = [at_ms for window in windows for at_ms in window if at_ms > self.world.now_ms]
        return min(edges + [each[0] for each in self._ends[:1]], default=NEVER_MS * 10)

    def _go_to(self, at_ms: int) -> None:
        self._note(self.world.pass_time(at_ms - self.world.now_ms))

    def plan(self) -> StartsPlanned:
        """What queueing would say now: it folds the log itself."""
        world, queues = self.world, self.file.cell(CELL).queues
        before = digest_of(world.twin) if self.checks_plans else None
        found = plan_starts(
            world.twin, queues, world.now_ms, world.twin.policy.reservations_max, estimator_of(world.twin)
        )
        assert before is None or digest_of(world.twin) == before, "the state is given back as it was"
        self.plans += 1
        return StartsPlanned(
            cell=CELL,
            writer="queueing-1",
            plan=self.plans,
            version=world.twin.version,
            at_ms=world.now_ms,
            starts=found,
        )

    def planned(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """The planned start of each job, and the nodes that are kept for it, as the log has it."""
        kept = self.world.state.reservations
        return {job: (each.start_ms, tuple(dict.fromkeys(p.node for p in each.workers))) for job, each in kept.items()}

    def _note(self, effects: list[e.AnyEffect]) -> None:
        self.effects += effects
        fresh = []
        for effect in effects:
            if isinstance(effect, e.JobStarted):
                nodes = tuple(dict.fromkeys(place.node for place in effect.workers))
                self.starts[effect.job] = self.world.now_ms
                self.overruns += [(effect.job, other) for other in self._overrun_by(effect)]
                heappush(self._ends, (self.world.now_ms + self.run_ms[effect.job], effect.job, nodes))
                fresh += [started(effect.job, node, effect.attempt) for node in nodes]
            elif isinstance(effect, e.ReservationSet) and effect.workers:
                self.promises.setdefault(effect.job, effect.start_ms)
        if fresh:
            self.tell(*fresh)

    def _overrun_by(self, effect: e.JobStarted) -> list[str]:
        """The jobs that wait for devices which this one takes beyond their planned start."""
        taken = {(place.node, device) for place in effect.workers for device in place.devices}
        end_ms = self.world.now_ms + self.run_ms[effect.job]
        return [
            job
            for job, kept in self.world.state.reservations.items()
            if kept.start_ms < end_ms
            and job not in self.starts
            and taken & {(place.node, device) for place in kept.workers for device in place.devices}
        ]
