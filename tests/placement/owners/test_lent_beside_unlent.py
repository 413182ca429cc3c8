"""An owner whose guarantee is lent gets it back beside one that lends nothing: what is idle for the other one is no
room for it, and no borrower takes what it waits for.
"""

from __future__ import annotations

from operator import itemgetter

import pytest

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING, JobStatus
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, Resources
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.borrowers import ends_until_start
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, set_quotas, spec_of

BORROWERS = 4
"""So many of the borrower's jobs wait at any time."""

ENDS_MAX = 40
ALL_CPUS = Resources(gpu_milli=1_000, cpu_milli=1_000)


class Beside:
    """A cell of 16 GPUs: 8 are guaranteed to ada, who lends them, and 8 to bob, who does not. Jobs of one GPU each of a
    third tenant have all that ada lends.
    """

    def __init__(self, discipline: QueueDiscipline, borrowers_in: str, *others: Tenant) -> None:
        ada = Tenant(name="ada", quotas=(TenantQuota(guaranteed=8),))
        bob = Tenant(name="bob", quotas=(TenantQuota(guaranteed=8, lends=False),))
        queues = (Queue(name="q", discipline=discipline), Queue(name="later"))
        policy = CellPolicy(node_lease_wall_ms=10**7, backfill_wait_ms=60_000)
        part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=20),), queues=queues, policy=policy)
        self.world, self._queue, self._count = (
            World(CellFile(cells=(part,), tenants=(Tenant(name="lab"), ada, bob, *others))),
            borrowers_in,
            0,
        )
        self.world.listens = False
        self.world.tell(joined("n1", 8), joined("n2", 8))
        for _ in range(BORROWERS):
            self.refill()

    def refill(self) -> None:
        """Others of the borrower's jobs come for those that have started."""
        jobs = self.world.state.jobs.values()
        while sum(job.status is JobStatus.QUEUED and job.spec.tenant == "lab" for job in jobs) < BORROWERS:
            self._count += 1
            spec = JobSpec(id=f"b{self._count}", tenant="lab", queue=self._queue, resources=Resources(gpu_milli=1_000))
            self.world.tell(admitted(spec, self.world.now_ms))

    def ends_until_start(self, job: JobSpec) -> int | None:
        """How many of the borrower's jobs end before the owner's starts; None if it never does."""
        return ends_until_start(self.world, job, self.refill, itemgetter(0), ENDS_MAX)


@pytest.mark.parametrize("borrowers_in", ["q", "later"])
@pytest.mark.parametrize("discipline", QueueDiscipline)
@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("exclusive", [True, False])
def test_an_owner_gets_back_what_it_lends_though_as_much_is_idle_for_one_who_lends_nothing(
    discipline: QueueDiscipline, borrowers_in: str, preemptible: bool, exclusive: bool
) -> None:
    own = JobSpec(
        id="own",
        tenant="ada",
        queue="q",
        preemptible=preemptible,
        exclusive=exclusive,
        resources=Resources(gpu_milli=1_000 if exclusive else 8_000),
    )
    assert Beside(discipline, borrowers_in).ends_until_start(own) is not None


def test_a_borrower_waits_for_what_is_kept_for_the_owner_and_for_no_quota() -> None:
    beside = Beside(QueueDiscipline.BEST_EFFORT_FIFO, "later")
    own = JobSpec(id="own", tenant="ada", queue="q", resources=Resources(gpu_milli=8_000))
    beside.world.tell(admitted(own, beside.world.now_ms))
    ended = next(job for job in beside.world.state.jobs.values() if job.status in HOLDING)
    beside.world.tell(finished(ended.id, ended.workers[0].node))
    waiting = [job for job in beside.world.state.jobs.values() if job.status is JobStatus.QUEUED]
    assert {job.deferred for job in waiting if job.id != "own"} == {PendingReason.RESERVED_FOR_OTHER}
    assert beside.world.job("own").deferred is PendingReason.QUOTA_REACHED


def test_one_who_lends_nothing_starts_while_the_other_owner_waits() -> None:
    beside = Beside(QueueDiscipline.BEST_EFFORT_FIFO, "later")
    own = JobSpec(id="own", tenant="ada", queue="q", resources=Resources(gpu_milli=8_000))
    his = JobSpec(id="his", tenant="bob", queue="q", resources=Resources(gpu_milli=8_000))
    beside.world.tell(admitted(own, beside.world.now_ms), admitted(his, beside.world.now_ms))
    assert beside.world.job("his").status is JobStatus.STARTING


def test_in_a_strict_queue_no_other_owner_passes_one_who_waits_for_what_it_has_lent() -> None:
    eve = Tenant(name="eve", quotas=(TenantQuota(guaranteed=4),))
    beside = Beside(QueueDiscipline.STRICT_FIFO, "later", eve)
    beside.world.tell(joined("n3", 4))
    beside.refill()
    for tenant, count in (("ada", 8), ("eve", 4)):
        own = JobSpec(
            id=tenant, tenant=tenant, queue="q", preemptible=False, resources=Resources(gpu_milli=count * 1_000)
        )
        beside.world.tell(admitted(own, beside.world.now_ms))
    running = [job for job in beside.world.state.jobs.values() if job.status in HOLDING]
    beside.world.tell(*(finished(job.id, job.workers[0].node) for job in running[:4]))
    assert beside.world.job("eve").deferred is PendingReason.BEHIND_HEAD


def family(*nodes: NodeJoined) -> World:
    """A cell with these nodes, of a lab and four tenants."""
    names = ("lab", "ada", "bob", "eve", "guest")
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=20),), queues=(Queue(name="q"),))
    world = World(CellFile(cells=(part,), tenants=tuple(Tenant(name=name) for name in names)))
    world.tell(*nodes)
    return world


def kept_on(world: World) -> list[tuple[bool, int]]:
    """Whether it is for a job that is guaranteed whole, and how many milli-GPUs, of each kept place."""
    return [(kept.is_whole, place.milli) for kept in world.state.tree.kept.all for place in kept.places]


def test_what_is_at_home_above_a_tenant_is_used_though_little_else_is_left_for_an_owner_that_waits() -> None:
    """Three GPUs are free, as many as lab and eve lend to nobody. Two are kept for bob, who would draw one of them from
    all others. Ada, who is below lab as bob is, draws none: hers is at home at lab.
    """
    world = family(joined("n1", 3, cpu_milli=1_000), joined("n2", 1))
    world.tell(admitted(spec_of("busy", tenant="guest", resources=ALL_CPUS)))
    bob, eve = share("bob", 2, parent="lab"), share("eve", 2, lends=False)
    world.tell(set_quotas(share("lab", 3, lend_limit=2), share("ada", parent="lab"), bob, eve))
    world.tell(admitted(spec_of("waits", tenant="bob", resources=replace(ALL_CPUS, gpu_milli=2_000))))
    assert kept_on(world) == [(True, 2_000)]
    world.tell(admitted(spec_of("job")))
    assert world.nodes_of("job") == ["n2"]


def test_an_owner_that_waits_too_leaves_nothing_for_one_that_is_guaranteed_in_part_only() -> None:
    """Four GPUs are free, two of them eve's, who lends none. Two are kept for a job of bob's that needs four, and to
    whom two are guaranteed; ada, to whom one is, needs two.
    """
    world = family(joined("n1", 4), joined("n2", 1), joined("n3", 2, labels={"of": "guest"}))
    world.tell(admitted(spec_of("busy", 2, tenant="guest", node_labels=("of=guest",))))
    world.tell(admitted(spec_of("beside", tenant="guest", node_labels=("!of",))))
    world.tell(set_quotas(share("ada", 1), share("bob", 2), share("eve", 2, lends=False)))
    world.tell(admitted(spec_of("waits", 4, tenant="bob")))
    assert kept_on(world) == [(False, 2_000)]
    world.tell(admitted(spec_of("job", workers=2)))
    assert len(world.nodes_of("job")) == 2
