"""The property of an idle cell: while nothing runs, no job waits for which there is room.

What waits there waits for other jobs that wait: for a head before it, or for places that are kept for an owner. Where
two wait so for each other nothing ever ends it, since nothing runs that could end.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import example, given

from fallow.services.placement.search.gang import place_gang
from fallow.services.placement.search.partial_start import places_to_enter
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.quota.kept_places import NOTHING_KEPT
from fallow.shared.events import nodes as n
from fallow.shared.events.fields.values import JobSpec, Resources
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches, rounds_of, stories
from tests.placement.worlds.world import CELL, World, admitted, joined

TYPES = ("big", "gpu")
TENANTS = ("ada", "bob", "eve", "fay")
QUEUES = [
    Queue(name=f"{discipline}-{order}", discipline=discipline, order=order)
    for discipline in QueueDiscipline
    for order in QueueOrder
]
ENDS_MAX, JOBS_MAX = 200, 14


def _tenants(random: Random) -> tuple[Tenant, ...]:
    """Some have a limit of a GPU type, some a guarantee: of the 16 GPUs that are there of each, no more than these."""
    found, left = [Tenant(name="lab")], dict.fromkeys(TYPES, 16)
    for name in TENANTS:
        quotas = []
        for gpu_type in TYPES:
            guaranteed = min(left[gpu_type], random.choice((0, 0, 4, 8)))
            left[gpu_type] -= guaranteed
            limit = random.choice((None, max(4, guaranteed), max(8, guaranteed)))
            quotas.append(TenantQuota(gpu_type=gpu_type, guaranteed=guaranteed, limit=limit))
        has_quotas, parent = random.random() < 0.7, random.choice((None, None, "lab"))
        found.append(Tenant(name=name, parent=parent, quotas=tuple(quotas) if has_quotas else ()))
    return tuple(found)


class TwoTypes:
    """Four nodes of two GPU types, in one pool or in two, and jobs of tenants with limits or guarantees."""

    def __init__(self, random: Random) -> None:
        self.random = random
        keeps_order = [queue for queue in QUEUES if queue.discipline is not QueueDiscipline.BEST_EFFORT_FIFO]
        self.queues = random.choice(([random.choice(keeps_order)], random.sample(QUEUES, 2)))
        pools = tuple(Pool(name=name, gpus=100, gpu_type=name) for name in TYPES)
        policy = CellPolicy(node_lease_wall_ms=10**7, backfill_wait_ms=random.choice((0, 600_000)))
        cell = CellPart(name=CELL, ordinal=0, pools=pools, queues=tuple(self.queues), policy=policy)
        self.world = World(CellFile(cells=(cell,), tenants=_tenants(random)))
        self.world.checks = False
        is_mixed = random.random() < 0.3
        for number in range(4):
            gpu_type = TYPES[number % 2]
            self.world.tell(joined(f"n{number}", 8, pool="gpu" if is_mixed else gpu_type, gpu_type=gpu_type))

    def live(self) -> None:
        """Jobs come, and some of those that run end."""
        for number in rounds_of(self.random, self.random.randint(6, JOBS_MAX)):
            self.world.tell(admitted(self._spec(number), self.world.now_ms))
            self.world.pass_time(self.random.choice((0, 1_000, 600_000)))
            if self.random.random() < 0.2:
                self._end(0.5)

    def _spec(self, number: int) -> JobSpec:
        random = self.random
        is_gang = random.random() < 0.8
        return JobSpec(
            id=f"j{number}",
            tenant=random.choice(TENANTS),
            queue=random.choice(self.queues).name,
            gpu_type=random.choice((None, None, *TYPES)),
            workers=random.choice((1, 1, 2)),
            gang=is_gang,
            resources=Resources(gpu_milli=random.choice((1_000, 4_000, 8_000, 8_000))),
        )

    def empty(self) -> None:
        """All that runs ends, and what starts behind it, until nothing runs."""
        for _ in range(ENDS_MAX):
            self.world.pass_time(60_000)
            if not self._end(1):
                return
        raise AssertionError("it does not become empty")

    def _end(self, share: float) -> bool:
        """So much of what runs ends well. Whether anything ran."""
        held = [job for job in self.world.state.jobs.values() if job.status in HOLDING]
        ended = [job for job in held if self.random.random() < share]
        self.world.tell(*(said for job in ended for said in _ends(self.world, job)))
        return bool(held)

    def could_start(self) -> list[str]:
        """The waiting jobs for which there is room if no other one waits."""
        state, kept = self.world.state, self.world.state.tree.kept
        waiting = [job for job in state.jobs.values() if job.status is JobStatus.QUEUED]
        state.tree.kept = NOTHING_KEPT
        try:
            return [job.id for job in waiting if not isinstance(self._places(job), PendingReason)]
        finally:
            state.tree.kept = kept

    def _places(self, job: Job) -> object:
        state = self.world.state
        return place_gang(state, job.spec) if job.spec.gang else places_to_enter(state, job, self.world.now_ms)


def _ends(world: World, job: Job) -> list[n.RunFinished]:
    """Its nodes say that all of its workers have ended well."""
    ranks = [(place.node, place.rank, place.turn) for place in job.workers]
    said = dict.fromkeys([(node, 0, 0) for node, _, _ in ranks] if job.spec.gang else ranks)
    of: dict[str, Any] = {"cell": CELL, "seq": 1, "job": job.id, "attempt": job.attempt}
    boots = {place.node: world.state.nodes[place.node].boot for place in job.workers}
    return [n.RunFinished(node=node, boot=boots[node], rank=rank, turn=turn, **of) for node, rank, turn in said]


@given(stories(JOBS_MAX))
@example(Random(1_294))
@example(Random(1_642))
@example(Random(1_759))
@example(Random(1_958))
@example(Random(1_998))
def test_while_nothing_runs_no_job_waits_for_which_there_is_room(random: Random) -> None:
    cell = TwoTypes(random)
    cell.live()
    waits = any(job.status is JobStatus.QUEUED for job in cell.world.state.jobs.values())
    reaches("jobs wait when all that runs begins to end", waits)
    cell.empty()
    assert cell.could_start() == []
