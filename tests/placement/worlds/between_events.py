"""A cell that acts at its events and at the moments that it has planned itself, and no oftener.

Between events it is asked at drawn moments, and at those at which heads become due, what a writer with no memory would
do: one that folds the log and walks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from random import Random
from typing import Any

from fallow.services.placement.owners.patience import PATIENCE_MS, changes_ms
from fallow.services.placement.queue.heads import PLAN_WAITS_MAX
from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.shared.cluster.checks.audit import Ledger
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.run_time import run_estimate_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobKind, JobSpec, Resources, RetryPolicy
from fallow.shared.events.operations import CellPolicy, EstimatorKind
from fallow.shared.events.queue import QueueDiscipline, QueueOrder, StartsPlanned
from tests.placement.worlds.world import CELL, World, admitted, cancel, joined, quota, set_quotas, update

TYPES = ("big", "gpu")
TENANTS = ("ada", "bob", "eve", "fay")
WAITS_MS = (0, 100, 100, 100, 100, 100, 100, 1_000)
"""After the shorter waits a planned start that is far away is waited for no longer while the story goes on."""

ROUNDS = 14
ORDERS = (QueueOrder.FAIR_SHARE, QueueOrder.FAIR_SHARE, QueueOrder.FIFO)
DISCIPLINES = (QueueDiscipline.BACKFILL, QueueDiscipline.BACKFILL, *QueueDiscipline)
WALKED = (e.JobStarted, e.JobResizing, e.HeadBlocked, e.HeadCleared, e.ReservationCleared)
"""What walks and what stands before them say; why jobs wait is told besides, of some of them only."""

ASKED_SHARE = 0.5
"""Of so much of the moments it is asked, since each time a log is folded."""

ACTS_IN_A_ROW_MAX = 40


class Moment(Enum):
    """What changes by time alone, beside heads that become due after their wait."""

    PLAN_WAITED_FOR = "a head has waited long enough for a planned start that is far away"
    FIRST_PLAN_OVER = "a first planned start is over"
    TOO_LATE_FOR_A_PLAN = "a run would not be over by a planned start any more"
    NODE_CLOSES = "a node closes for a run"
    OWNER_HAS_WAITED = "an owner has waited for so long that more runs count as endless"


class BetweenEvents:
    """Nodes of two GPU types, one to three queues, and tenants with limits or guarantees: in some cells mostly these,
    which wait for long, in the others mostly planned starts. `due_alone` is how often
    heads have become due by time alone while others waited, `started_alone` how many jobs started at such a moment or
    another one that the cell has planned, `woken_by` how often it has woken at which kind of moment.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.queues = tuple(
            Queue(name=f"q{number}", discipline=random.choice(DISCIPLINES), order=random.choice(ORDERS))
            for number in range(random.choice((1, 1, 2, 3)))
        )
        self.is_of_owners = random.random() < 0.3
        self.plans = not self.is_of_owners and random.random() < 0.9
        self.wait_ms = random.choice(WAITS_MS)
        policy = CellPolicy(
            node_lease_wall_ms=80_000_000,
            start_timeout_wall_ms=80_000_000,
            stop_grace_wall_ms=80_000_000,
            backfill_wait_ms=self.wait_ms,
            fair_half_life_ms=0 if self.is_of_owners else random.choice((0, 0, 640_000)),
            reservations_max=8 if self.plans else 0,
            reservation_ttl_ms=random.choice((5_000, 50_000)),
            default_run_estimate_ms=random.choice((0, 0, 2_000)),
            estimator=random.choice(tuple(EstimatorKind)),
        )
        pools = tuple(Pool(name=name, gpus=100, gpu_type=name) for name in TYPES)
        cell = CellPart(name=CELL, ordinal=0, pools=pools, queues=self.queues, policy=policy)
        self.file = CellFile(cells=(cell,), tenants=self._tenants())
        self.world = World(self.file)
        self.world.checks = False
        self.jobs = self.plan = 0
        self.due_alone = self.started_alone = self.asked = self.wakes = 0
        self.woken_by = Counter[Moment]()
        self._tell(
            *(joined(f"n{number}", 8, pool=TYPES[number % 2], gpu_type=TYPES[number % 2]) for number in range(4))
        )

    def _tenants(self) -> tuple[Tenant, ...]:
        random, left = self.random, dict.fromkeys(TYPES, 16)
        found, has_any = [Tenant(name="lab")], self.is_of_owners or random.random() < 0.5
        for name in TENANTS:
            quotas = []
            for gpu_type in TYPES:
                guaranteed = min(left[gpu_type], random.choice((0, 4, 8, 8) if self.is_of_owners else (0, 0, 4, 8)))
                left[gpu_type] -= guaranteed
                limit = random.choice((None, max(4, guaranteed), max(8, guaranteed)))
                quotas.append(TenantQuota(gpu_type=gpu_type, guaranteed=guaranteed, limit=limit))
            parent = random.choice((None, None, "lab"))
            found.append(
                Tenant(name=name, parent=parent, quotas=tuple(quotas) if has_any and random.random() < 0.8 else ())
            )
        return tuple(found)

    # What happens to it.

    def one_round(self) -> None:
        """Something happens."""
        what = self.random.choice(
            (self.submit, self.submit, self.submit, self.end, self.end, self.change, self.operate)
        )
        what()
        if self.plans and self.random.random() < 0.7:
            self._tell(self._planned())

    def submit(self) -> None:
        """Jobs come."""
        self._tell(*(admitted(self._spec(), self.world.now_ms) for _ in range(self.random.choice((1, 2, 3)))))

    def _spec(self) -> JobSpec:
        random, self.jobs = self.random, self.jobs + 1
        is_gang = random.random() < 0.85
        more: dict[str, Any] = {}
        if is_gang and random.random() < 0.1:
            more = {"array": 3, "array_max_running": random.choice((None, 1, 2))}
        elif is_gang and random.random() < 0.1:
            more = {"exclusive": True}
        elif not is_gang:
            more = {"workers_min": 1, "kind": random.choice((JobKind.TRAINING, JobKind.INFERENCE))}
        if random.random() < 0.1:
            more["not_before_ms"] = self.world.now_ms + random.randrange(3_000)
        return JobSpec(
            id=f"j{self.jobs}",
            tenant=random.choice(TENANTS),
            queue=random.choice(self.queues).name,
            gpu_type=random.choice((None, *TYPES)),
            workers=random.choice((1, 1, 2, 3)),
            gang=is_gang,
            priority=random.choice((0, 0, 0, 1)),
            resources=Resources(gpu_milli=random.choice((1_000, 2_000, 4_000, 6_000, 8_000))),
            estimate_run_ms=random.choice((None, 500, 1_500, 4_000, 10_000)),
            preemptible=random.random() < 0.8,
            retry=RetryPolicy(budget=2, backoff_ms=700),
            **more,
        )

    def end(self) -> None:
        """Some of what runs ends, well or badly."""
        held = [job for job in self._of(*HOLDING) if self.random.random() < 0.5]
        self._tell(*(said for job in held for said in self._said(job)))

    def _said(self, job: Job) -> list[Event]:
        what: type[n.RunEvent] = n.RunFinished if self.random.random() < 0.8 else n.RunFailed
        if job.status is JobStatus.STOPPING:
            what = n.RunStopped
        ranks = [(place.node, place.rank, place.turn) for place in job.workers]
        said = dict.fromkeys([(node, 0, 0) for node, _, _ in ranks] if job.spec.gang else ranks)
        of: dict[str, Any] = {"cell": CELL, "seq": 1, "job": job.id, "attempt": job.attempt, "boot": "boot-1"}
        return [what(node=node, rank=rank, turn=turn, **of) for node, rank, turn in said]

    def change(self) -> None:
        """A job is cancelled, or gets another priority or size."""
        jobs = self._of(*HOLDING, JobStatus.QUEUED)
        if not jobs:
            return
        job = self.random.choice(jobs)
        if self.random.random() < 0.5:
            self._tell(cancel(job.id, job.spec.tenant))
        elif not job.spec.gang:
            self._tell(update(job.id, job.spec.tenant, workers=self.random.randint(1, 4)))
        else:
            self._tell(update(job.id, job.spec.tenant, priority=self.random.randint(0, 2)))

    def operate(self) -> None:
        """An operator closes or opens a node, plans maintenance, or sets a limit."""
        random, node = self.random, f"n{self.random.randrange(4)}"
        begin_ms = self.world.now_ms + random.randrange(1, 6_000)
        end_ms = begin_ms + random.randrange(500, 3_000)
        plan = o.PlanMaintenance(cell=CELL, node=node, begin_ms=begin_ms, end_ms=end_ms)
        close = (o.Cordon if random.random() < 0.4 else o.Uncordon)(cell=CELL, node=node)
        limit = set_quotas(quota(random.choice(TENANTS), random.choice((4, 8, 16)), gpu_type=random.choice(TYPES)))
        self._tell(random.choice((plan, plan, close, limit)))

    def _planned(self) -> StartsPlanned:
        world, self.plan = self.world, self.plan + 1
        starts = plan_starts(world.twin, self.queues, world.now_ms, 8, estimator_of(world.twin))
        return StartsPlanned(
            cell=CELL,
            writer="queueing-1",
            plan=self.plan,
            version=world.twin.version,
            at_ms=world.now_ms,
            starts=starts,
        )

    def _of(self, *statuses: JobStatus) -> list[Job]:
        return [job for job in self.world.state.jobs.values() if job.status in statuses]

    # When it acts.

    def _tell(self, *events: Event) -> None:
        self.world.hand_over(*events)
        self._act()

    def _act(self) -> list[e.AnyEffect]:
        """Decide for as long as there is something to decide now."""
        made = list[e.AnyEffect]()
        for _ in range(ACTS_IN_A_ROW_MAX):
            made += self.world.rest()
            due_ms = self.world.service.next_cell_ms()
            if due_ms is None or due_ms > self.world.now_ms:
                return made
        raise AssertionError(f"the cell spins at {self.world.now_ms}")

    def pass_time(self, until_ms: int) -> None:
        """Let time pass: the cell acts at the moments that it has planned."""
        for moment_ms in self._asked_at(until_ms):
            while (due_ms := self.world.service.next_cell_ms()) is not None and due_ms <= moment_ms:
                self._to(due_ms)
                self.wakes += 1
                others = len(self._of(JobStatus.QUEUED)) > 1
                becomes_due = any(since_ms + self.wait_ms == due_ms for since_ms in self.world.state.heads.values())
                self.due_alone += others and becomes_due
                self.woken_by.update(self._moments_at(due_ms))
                self.started_alone += sum(isinstance(effect, e.JobStarted) for effect in self._act())
            self._to(moment_ms)
            if self.random.random() < ASKED_SHARE:
                self.ask_one_without_memory()

    def _moments_at(self, at_ms: int) -> list[Moment]:
        """What changes at this moment, in whole or in part, by which the cell may have woken."""
        state = self.world.state
        waiting, kept = self._of(JobStatus.QUEUED), state.reservations
        runs_ms = {run_ms for job in waiting if (run_ms := run_estimate_ms(state, job.spec)) is not None}
        planned = [state.heads[job] + PLAN_WAITS_MAX * self.wait_ms for job in kept if job in state.heads]
        found = {
            Moment.PLAN_WAITED_FOR: at_ms in planned if self.wait_ms else False,
            Moment.FIRST_PLAN_OVER: any(each.first_ms == at_ms for each in kept.values()),
            Moment.TOO_LATE_FOR_A_PLAN: any(each.start_ms + 1 - at_ms in runs_ms for each in kept.values()),
            Moment.NODE_CLOSES: any(begin + 1 - at_ms in runs_ms for begin in state.maintenance_starts.values()),
            Moment.OWNER_HAS_WAITED: any(changes_ms(job.submit_ms, at_ms - 1) == at_ms for job in waiting),
        }
        return [moment for moment, is_now in found.items() if is_now]

    def next_event_ms(self) -> int:
        """When something happens again: seldom, and only where no shares move by time, after longer than runs take."""
        pauses_ms = [0, 300, 1_000, 2_500, 6_000] * 2
        if not self.world.state.fair.half_life_ms:
            pauses_ms += [3 * PATIENCE_MS] * (4 if self.is_of_owners else 1)
        return self.world.now_ms + self.random.choice(pauses_ms)

    def _to(self, at_ms: int) -> None:
        self.world.now_ms = self.world.wall_ms = at_ms

    def _asked_at(self, until_ms: int) -> list[int]:
        state, now_ms = self.world.state, self.world.now_ms
        moments = {until_ms, *(self.random.randrange(now_ms, until_ms + 1) for _ in range(2))}
        moments |= {since_ms + self.wait_ms for since_ms in state.heads.values()}
        moments |= {job.submit_ms + PATIENCE_MS for job in self._of(JobStatus.QUEUED)}
        moments |= {kept.first_ms for kept in state.reservations.values() if kept.first_ms is not None}
        return sorted(each for each in moments if now_ms < each <= until_ms)

    def ask_one_without_memory(self) -> None:
        """One that knows the log and nothing else starts nobody, and finds no other heads."""
        self.asked += 1
        found = [effect for effect in said_by_another(self.world) if isinstance(effect, WALKED)]
        assert found == [], (self.world.now_ms, found)


def said_by_another(world: World) -> list[e.AnyEffect]:
    """What another process that took the cell over now would decide."""
    other = World(world.file)
    other.checks = False
    other.log, other.twin, other.ledger = list(world.log), CellState(CELL), Ledger()
    other.inputs = {name: list(events) for name, events in world.inputs.items()}
    other.now_ms, other.wall_ms = world.now_ms, world.wall_ms
    other.state = CellState(CELL)
    known = len(other.log)
    other.restart()
    return [effect for record in other.log[known:] for effect in effects_of(record.decision)]


def effects_of(decision: object) -> Iterable[e.AnyEffect]:
    """Those of a record that is a decision."""
    return getattr(decision, "effects", ())
