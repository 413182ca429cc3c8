"""THE property of owners: what placement keeps by what has changed is what one comes to who looks at every job anew.

It is judged at each look of placement, in worlds of many owners with many kinds of waiting jobs: quotas change, nodes
close, leave and return, devices break, jobs start and end, decisions do not come into force, and writers take over.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given

from fallow.services.placement.owners.patience import PATIENCE_MS
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING, JobStatus
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import (
    Cordon,
    PlanMaintenance,
    PreemptionMode,
    ReclaimFrom,
    SetQuota,
    Uncordon,
)
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.hypothesis_profile import Story, reaches, rounds_of, stories
from tests.placement.oracles.naive_keeping import JudgedWorld
from tests.placement.worlds.world import (
    CELL,
    Fate,
    admitted,
    cancel,
    finished,
    joined,
    lost,
    report,
    set_policy,
    update,
)

ROUNDS, SMALL_ROUNDS = 16, 8
TYPES = ("gpu", "big")
LABS, TENANTS_OF_LAB, NODES = 3, 3, 8


def _tenants() -> list[Tenant]:
    found = []
    for lab in range(LABS):
        quotas = (TenantQuota(guaranteed=12, limit=40), TenantQuota(gpu_type="big", guaranteed=8))
        found.append(Tenant(name=f"lab{lab}", quotas=quotas))
        for number in range(TENANTS_OF_LAB):
            own = TenantQuota(guaranteed=1 + number, limit=None if number else 6, lends=number != 1)
            quotas = (own, TenantQuota(gpu_type="big", guaranteed=2, lends=number == 0))
            found.append(Tenant(name=f"t{lab}{number}", parent=f"lab{lab}", quotas=quotas))
    return [*found, Tenant(name="alone", quotas=(TenantQuota(guaranteed=9),)), Tenant(name="guest")]


FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=(Pool(name="train", gpus=200), Pool(name="extra", gpus=200)),
            queues=(
                Queue(name="default"),
                Queue(name="strict", discipline=QueueDiscipline.STRICT_FIFO),
                Queue(name="backfill", discipline=QueueDiscipline.BACKFILL),
                Queue(name="fair-strict", order=QueueOrder.FAIR_SHARE, discipline=QueueDiscipline.STRICT_FIFO),
            ),
        ),
    ),
    tenants=tuple(_tenants()),
)


class ManyOwners:
    """One cell in which something happens again and again."""

    rounds, at_once_max, guests = ROUNDS, 25, 40
    guest_sizes: tuple[int, ...] = (500, GPU, 2 * GPU)

    def __init__(self, random: Random) -> None:
        self.random, self.submitted = random, 0
        self.world = JudgedWorld(FILE, on_append=self._fate)
        self.world.checks = False
        self.queues = random.choice((("default",), ("default", "strict"), ("strict", "fair-strict"), ("backfill",)))
        self.is_choosy, self.has_maintenance = random.random() < 0.5, random.random() < 0.2
        self.reached = Counter[str]()
        placement = random.choice(("best-fit", "spread", "e-binpack"))
        preemption = random.choice((PreemptionMode.OFF, PreemptionMode.RECLAIM, PreemptionMode.ALL))
        self.world.tell(
            set_policy(placement=placement, preemption=preemption), *(self._node(number) for number in range(NODES))
        )

    def _fate(self) -> Fate:
        return self.random.choice((Fate.LOST, Fate.LATE)) if self.random.random() < 0.05 else Fate.KEPT

    def _node(self, number: int) -> NodeJoined:
        is_big, gpus = number % 4 == 3, 4 if number % 2 else 8
        return joined(
            f"n{number}",
            gpus,
            pool="extra" if number % 3 == 2 else "train",
            gpu_type="big" if is_big else "gpu",
            cpu_milli=self.random.choice((16_000, 3_000)),
            memory_mib=self.random.choice((6_000, 64_000)),
            islands=(gpus // 2, gpus // 2) if number % 5 == 0 else (),
            labels={"zone": "a" if number % 2 else "b"},
            position=Position(leaf=f"leaf{number % 2}", spine="spine"),
        )

    def live(self) -> None:
        """All that happens to it."""
        self.fill()
        for _ in rounds_of(self.random, self.rounds):
            often, seldom = (
                (self.submit, self.end),
                (self.fill, self.cancel, self.change, self.share_out, self.move_nodes),
            )
            self.random.choice(often * 2 + seldom)()
            kept = self.world.state.tree.kept
            self.reached["owners"] += len(kept.owners)
            self.reached["owners at most"] = max(self.reached["owners at most"], len(kept.owners))
            self.reached["places"] += sum(len(each.places) for each in kept.all)
            self.reached["kept in part"] += sum(not each.is_whole for each in kept.all)
            self.reached["lent"] += sum(each.is_lent for each in kept.all)
            self.reached["lent by one that is guaranteed whole"] += sum(
                each.is_lent and each.is_whole for each in kept.all
            )
            self.reached["jobs that are no gangs"] += sum(not job.spec.gang for job in self.world.state.jobs.values())
            if self.random.random() < 0.1:
                self.world.restart()

    def submit(self) -> None:
        """Jobs of owners."""
        self.world.tell(
            *(admitted(self._spec(), self.submitted) for _ in range(self.random.randint(1, self.at_once_max)))
        )

    def fill(self) -> None:
        """Guests take what is free."""
        sizes = [self.random.choice(self.guest_sizes) for _ in range(self.guests)]
        alike = {"tenant": "guest", "workers": 1, "workers_min": None, "gpu_type": None, "pools": ()}
        guests = [replace(self._spec(), resources=Resources(gpu_milli=size), **alike) for size in sizes]
        self.world.tell(*(admitted(spec, self.submitted) for spec in guests))

    def _spec(self) -> JobSpec:
        self.submitted += 1
        random, owners = self.random, [tenant.name for tenant in FILE.tenants if tenant.quotas]
        is_service = random.random() < 0.1
        is_single = not is_service and random.random() < 0.1
        is_array = not (is_service or is_single) and random.random() < 0.15
        slices = random.choice((None, None, 1))
        wish = TopologyRequest(level=Level.LEAF, wish=random.choice(list(Wish)), slice_workers=slices)
        return JobSpec(
            id=f"j{self.submitted:04}",
            tenant="guest" if random.random() < 0.1 else random.choice(owners),
            queue=random.choice(self.queues),
            priority=random.choice((0, 0, 1)),
            pools=random.choice(((), ("train",), ("extra", "train"))),
            gpu_type=random.choice((None, "gpu", "gpu", "big")),
            kind=JobKind.INFERENCE if is_service else JobKind.TRAINING,
            workers=random.choice((1, 1, 2, 4)),
            workers_min=1 if is_service or is_single else None,
            resources=Resources(
                gpu_milli=random.choice((500, 250, GPU, 2 * GPU, 4 * GPU, 4 * GPU)),
                cpu_milli=random.choice((500, 500, 1_500)),
                memory_mib=random.choice((0, 0, 2_000)),
            ),
            preemptible=random.random() < 0.8,
            max_run_ms=random.choice((None, None, 10_000_000)),
            gang=not (is_service or is_single),
            topology=wish if self.is_choosy and not is_single and random.random() < 0.3 else None,
            node_labels=random.choice(((), ("zone=a",), ("zone!=a",))) if self.is_choosy else (),
            exclusive=self.is_choosy and random.random() < 0.1,
            array=3 if is_array else None,
            array_max_running=random.choice((None, 1)) if is_array else None,
        )

    def end(self) -> None:
        """Some jobs end."""
        events: list[Event] = []
        for job in [job for job in self.world.state.jobs.values() if job.status in HOLDING]:
            if self.random.random() < 0.15:
                events += [finished(job.id, node, job.attempt) for node in dict.fromkeys(p.node for p in job.workers)]
        self.world.tell(*events)

    def cancel(self) -> None:
        """Some waiting jobs are not wanted any more."""
        waiting = [job for job in self.world.state.jobs.values() if job.status is JobStatus.QUEUED]
        self.world.tell(*(cancel(job.id, job.spec.tenant) for job in waiting if self.random.random() < 0.3))

    def change(self) -> None:
        """Some waiting jobs become others."""
        waiting = [job for job in self.world.state.jobs.values() if job.status is JobStatus.QUEUED]
        chosen = [job for job in waiting if self.random.random() < 0.2]
        self.world.tell(*(update(job.id, job.spec.tenant, priority=self.random.randint(0, 2)) for job in chosen))

    def share_out(self) -> None:
        """Another tenant may lend, or borrow, or has another guarantee."""
        quota = self.random.choice(FILE.quotas())
        guaranteed = self.random.choice((0, quota.guaranteed_milli, 2 * quota.guaranteed_milli))
        switches = {
            "lends": self.random.random() < 0.5,
            "borrows": self.random.random() < 0.8,
            "reclaim": self.random.choice((ReclaimFrom.ANY, ReclaimFrom.ANY, ReclaimFrom.LOWER_PRIORITY)),
            "reclaimable": self.random.random() < 0.8,
        }
        self.world.tell(SetQuota(cell=CELL, quotas=(replace(quota, guaranteed_milli=guaranteed, **switches),)))

    def move_nodes(self) -> None:
        """Nodes close, leave, return, or have broken devices."""
        number = self.random.randrange(NODES)
        node, now_ms = f"n{number}", self.world.now_ms
        choices: list[Event] = [
            Cordon(cell=CELL, node=node),
            Uncordon(cell=CELL, node=node),
            lost(node),
            self._node(number),
            report(node, failed=(0,)),
            report(node),
        ]
        if self.has_maintenance:
            choices.append(PlanMaintenance(cell=CELL, node=node, begin_ms=now_ms + 50, end_ms=now_ms + 90))
        self.world.tell(self.random.choice(choices))
        self.world.pass_time(self.random.choice((0, 30)))


class SomeOwners(ManyOwners):
    """Such a cell with fewer jobs, which guests fill with fewer and larger ones."""

    rounds, at_once_max, guests = SMALL_ROUNDS, 10, 14
    guest_sizes = (500, GPU, 2 * GPU, 4 * GPU, 4 * GPU)


@given(stories(SMALL_ROUNDS))
def test_what_is_kept_by_what_has_changed_is_what_is_kept_when_everything_is_looked_at(story: Story) -> None:
    many = SomeOwners(story)
    many.live()
    reaches("places are kept for several owners at once", many.reached["owners at most"] > 1)


@pytest.mark.parametrize("seed", [9_999, 10_101, 10_261])
def test_nothing_is_kept_where_the_jobs_own_workers_leave_no_room_for_another(seed: int) -> None:
    """They take all CPUs or memory of a node of which GPUs are free."""
    SomeOwners(Random(seed)).live()


def test_the_property_is_about_something() -> None:
    reached = Counter[str]()
    for seed in range(12):
        many = ManyOwners(Random(seed))
        many.live()
        reached += many.reached
    assert reached["owners at most"] > 12 * 8
    assert reached["places"] > 150
    assert reached["kept in part"] > 100
    assert reached["lent"] > 50
    assert reached["lent by one that is guaranteed whole"] > 10
    assert reached["jobs that are no gangs"] > 100


WORLDS_WITH_MORE = 4


class PatientOwners(ManyOwners):
    """A cell whose owners wait for so long that runs without a limit count as endless: more is kept beside these."""

    def live(self) -> None:
        self.fill()
        self.submit()
        often, seldom = (self.wait_long, self.end), (self.submit, self.fill, self.cancel, self.share_out)
        for _ in range(ROUNDS):
            self.random.choice(often * 2 + (*seldom, self.move_nodes))()
            self.reached["more"] += any(each.is_more for each in self.world.state.tree.kept.all)
            if self.random.random() < 0.1:
                self.world.restart()

    def wait_long(self) -> None:
        """Some runs end at the end of it, before any job takes their place."""
        self.world.now_ms += self.random.choice((PATIENCE_MS // 2, PATIENCE_MS, 3 * PATIENCE_MS))
        self.end()


def test_it_is_so_too_where_more_is_kept_beside_endless_runs() -> None:
    """In four worlds in which it is: which they are moves with each change of what is decided."""
    reached = 0
    for seed in range(60):
        many = PatientOwners(Random(seed))
        many.live()
        reached += bool(many.reached["more"])
        if reached == WORLDS_WITH_MORE:
            return
    pytest.fail(f"only {reached} worlds reached it")
