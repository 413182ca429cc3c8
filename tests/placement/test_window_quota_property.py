"""The property of windows where quota is lent and borrowed: who sees heads of queues only makes the same starts."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

import tests.hypothesis_profile  # noqa: F401 - sets how examples are searched
from services.placement.policy.owners import Owners
from services.queueing.policy.row import Shown
from shared.cluster.config import CellFile, Queue, Tenant, TenantQuota
from shared.events import effects as e
from shared.events.base import Event
from shared.events.operations import ReclaimFrom, SetQuota
from shared.events.queue import QueueHead, QueueOrder
from shared.events.value import replace
from shared.events.values import JobSpec
from tests.placement.queues import NaiveWorld, QueuedWorld
from tests.placement.test_window_property import FILE as PLAIN
from tests.placement.test_window_property import Twins, live_alike
from tests.placement.world import CELL

FILE = CellFile(
    cells=PLAIN.cells,
    tenants=(
        Tenant(name="lab", quotas=(TenantQuota(guaranteed=7, borrow_limit=3),)),
        Tenant(name="ada", parent="lab", quotas=(TenantQuota(guaranteed=3, lend_limit=1),)),
        Tenant(name="bob", parent="lab", quotas=(TenantQuota(guaranteed=2, limit=6, borrow_limit=3, weight=2),)),
        Tenant(name="dan", parent="lab"),
        Tenant(name="eve", quotas=(TenantQuota(guaranteed=2, lends=False),)),
        Tenant(name="fay", quotas=(TenantQuota(guaranteed=1, weight=3),)),
        Tenant(name="gus", quotas=(TenantQuota(weight=0),)),
    ),
)


class QuotaTwins(Twins):
    """Twins whose tenants have guarantees, and some of whose jobs may not be preempted."""

    def __init__(self, random: Random, shown: Shown, few: int = -1) -> None:
        super().__init__(random, shown, few)
        self.queued, self.naive = QueuedWorld(FILE, shown, few=few), NaiveWorld(FILE)
        self.worlds = (self.queued, self.naive)

    def spec(self) -> JobSpec:
        return replace(super().spec(), preemptible=self.random.random() < 0.8)

    def wait(self) -> None:
        """Another tenant may lend, or borrow, or has another guarantee."""
        quota = self.random.choice(FILE.quotas())
        switch = {"lends": self.random.random() < 0.5, "borrows": self.random.random() < 0.8}
        limit = self.random.choice((None, quota.guaranteed_milli, 3 * quota.guaranteed_milli))
        changed = replace(quota, limit_milli=limit, **switch)
        self.settle(SetQuota(cell=CELL, quotas=(changed,)), afresh=True)
        super().wait()


@given(st.integers(0, 10**9), st.integers(1, 4))
def test_windows_lead_to_the_starts_of_a_walk_over_all_jobs(seed: int, most: int) -> None:
    twins = QuotaTwins(Random(seed), Shown(most, most))
    assert live_alike(twins)
    assert twins.naive.state.quotas


@given(st.integers(0, 10**9), st.integers(0, 12))
def test_so_does_a_placement_that_needs_no_window_while_few_jobs_wait(seed: int, few: int) -> None:
    twins = QuotaTwins(Random(seed), Shown(1, 4), few)
    assert live_alike(twins)
    assert twins.naive.state.quotas


class KeepingNaive(NaiveWorld):
    """Looks at each job, and keeps what is guaranteed to those who wait and might not get it back."""

    def __init__(self, file: CellFile) -> None:
        super().__init__(file)
        self._owners = Owners()

    def settle(self, *events: Event, afresh: bool = False) -> None:
        """Walk all queues again and again, until nobody starts: who has started needs nothing kept any more."""
        self.tell(*events)
        for _ in range(100):
            before = len(self.log)
            self._note()
            super().settle()
            if len(self.log) == before:
                return
        raise AssertionError("it does not come to rest")

    def _done(self, effect: e.AnyEffect) -> e.AnyEffect:
        done = super()._done(effect)
        if isinstance(effect, e.JobStarted):
            self._owners.started(self.state, effect.job)
        return done

    def _note(self) -> None:
        fifo = [queue for queue in self._part.queues if queue.order is QueueOrder.FIFO]
        shared = [queue for queue in self._part.queues if queue.order is QueueOrder.FAIR_SHARE]
        heads = [self._head(queue, None) for queue in fifo]
        heads += [self._head(queue, tenant.name) for queue in shared for tenant in FILE.tenants]
        self._owners.note(self.state, heads, self.now_ms, is_all=True)

    def _head(self, queue: Queue, tenant: str | None) -> QueueHead:
        """A queue's line, or that of one of its tenants."""
        jobs = tuple(job.id for job in self._line(queue) if tenant in (None, job.spec.tenant))
        return QueueHead(queue=queue.name, discipline=queue.discipline, jobs=jobs)


class KeepingTwins(QuotaTwins):
    """Twins some of whose tenants may not take back from everybody what they lent."""

    def __init__(self, random: Random, few: int) -> None:
        super().__init__(random, Shown(1, 4), few)
        self.naive = KeepingNaive(FILE)
        self.worlds = (self.queued, self.naive)
        reclaims = [random.choice(list(ReclaimFrom)) for _ in FILE.quotas()]
        quotas = tuple(replace(quota, reclaim=each) for quota, each in zip(FILE.quotas(), reclaims, strict=True))
        self.settle(SetQuota(cell=CELL, quotas=quotas))


@given(st.integers(0, 10**9))
def test_so_does_one_that_keeps_what_its_owners_might_not_get_back(seed: int) -> None:
    twins = KeepingTwins(Random(seed), 10_000)
    assert live_alike(twins)
    assert twins.naive.state.quotas
