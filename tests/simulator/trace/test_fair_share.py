"""Tenants with work enough get GPU time by their weights; who was away is owed something, but not without bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, Resources, VirtualRun
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.submissions import SubmitJob
from fallow.simulate.policies import policy_of
from fallow.simulator.trace.cell import VirtualCell

HOUR_MS = 3_600_000
GPUS = 32
NODES = [NodeSpec(id=f"n{number}", pool="train", gpus=8) for number in range(GPUS // 8)]
SIZES = {"ada": (1, 2, 4), "bob": (8, 1), "eve": (2,), "fay": (1,)}
LENGTHS_MS = {"ada": 7 * 60_000, "bob": 11 * 60_000, "eve": 5 * 60_000, "fay": 13 * 60_000}


def file_of(
    *tenants: Tenant, half_life_ms: int = HOUR_MS, discipline: QueueDiscipline = QueueDiscipline.BEST_EFFORT_FIFO
) -> CellFile:
    queue = Queue(name="default", order=QueueOrder.FAIR_SHARE, discipline=discipline)
    policy = CellPolicy(fair_half_life_ms=half_life_ms)
    pools = (Pool(name="train", gpus=GPUS),)
    return CellFile(
        cells=(CellPart(name="c", ordinal=0, pools=pools, queues=(queue,), policy=policy),), tenants=tenants
    )


def tenant(name: str, weight: int = 1, parent: str | None = None) -> Tenant:
    return Tenant(name=name, parent=parent, quotas=(TenantQuota(weight=weight),))


class Backlog:
    """Tenants whose lines never end, and how much GPU time each had."""

    def __init__(self, file: CellFile) -> None:
        self.had: dict[str, int] = {}
        self.submitted = 0
        self.cell = VirtualCell(file, NODES)
        self.cell.begin()

    def go_on(self, tenants: Iterable[str], hours: int) -> dict[str, float]:
        """Keep these tenants' lines full for so long; the share that each had of what all had meanwhile."""
        before = dict(self.had)
        names = list(tenants)
        for _ in range(hours * 20):
            for name in names:
                waiting = sum(job.spec.tenant == name and not job.workers for job in self.cell.state.jobs.values())
                for job in self._more(name, 20 - waiting):
                    self.cell.submit(SubmitJob(job=job, submit_ms=self.cell.now_ms))
            self.cell.settle()
            self._pass(HOUR_MS // 20)
        had = {name: self.had[name] - before.get(name, 0) for name in self.had}
        return {name: had.get(name, 0) / sum(had.values()) for name in names}

    def _more(self, name: str, count: int) -> Iterator[JobSpec]:
        for _ in range(count):
            self.submitted += 1
            gpus = SIZES[name][self.submitted % len(SIZES[name])]
            run = VirtualRun(duration_ms=LENGTHS_MS[name])
            yield JobSpec(id=f"j{self.submitted:06}", tenant=name, resources=Resources(gpu_milli=gpus * GPU), run=run)

    def _pass(self, ms: int) -> None:
        """Time in steps so small that what is held hardly changes within one."""
        for _ in range(10):
            self.cell.advance(self.cell.now_ms + ms // 10)
            for job in self.cell.state.jobs.values():
                if job.status in HOLDING:
                    name = job.spec.tenant
                    self.had[name] = self.had.get(name, 0) + job.spec.gpus_milli * (ms // 10)


@pytest.mark.parametrize("half_life_ms", [0, HOUR_MS, 24 * HOUR_MS])
@pytest.mark.parametrize("discipline", [QueueDiscipline.BEST_EFFORT_FIFO, QueueDiscipline.STRICT_FIFO])
def test_two_tenants_of_weight_two_and_one_get_two_thirds_and_one_third(
    half_life_ms: int, discipline: QueueDiscipline
) -> None:
    backlog = Backlog(file_of(tenant("ada", 2), tenant("eve"), half_life_ms=half_life_ms, discipline=discipline))
    backlog.go_on(("ada", "eve"), 4)
    assert backlog.go_on(("ada", "eve"), 12)["ada"] == pytest.approx(2 / 3, abs=0.03)


def test_a_tenant_of_large_jobs_gets_its_part_too_in_a_strict_queue() -> None:
    backlog = Backlog(file_of(tenant("bob", 3), tenant("eve"), discipline=QueueDiscipline.STRICT_FIFO))
    assert backlog.go_on(("bob", "eve"), 16)["bob"] == pytest.approx(3 / 4, abs=0.04)


def test_in_a_tree_a_family_gets_its_part_however_many_they_are() -> None:
    family = (tenant("top"), tenant("ada", 3, "top"), tenant("eve", 1, "top"))
    backlog = Backlog(file_of(*family, tenant("fay")))
    had = backlog.go_on(("ada", "eve", "fay"), 16)
    assert [had["ada"], had["eve"], had["fay"]] == pytest.approx([3 / 8, 1 / 8, 1 / 2], abs=0.03)


def test_weight_nothing_gets_what_is_left() -> None:
    backlog = Backlog(file_of(tenant("ada", 0), tenant("eve")))
    assert backlog.go_on(("ada", "eve"), 8)["ada"] < 0.05
    assert backlog.go_on(("ada",), 8)["ada"] > 0.9


def test_who_was_away_is_preferred_for_about_a_half_life_and_no_longer() -> None:
    backlog = Backlog(file_of(tenant("ada"), tenant("eve"), half_life_ms=4 * HOUR_MS))
    backlog.go_on(("ada", "eve"), 4)
    assert backlog.go_on(("ada",), 200)["ada"] > 0.9
    assert backlog.go_on(("ada", "eve"), 2)["eve"] > 0.6
    backlog.go_on(("ada", "eve"), 14)
    assert backlog.go_on(("ada", "eve"), 8)["eve"] == pytest.approx(1 / 2, abs=0.04)


def test_without_a_half_life_nobody_is_owed_anything() -> None:
    backlog = Backlog(file_of(tenant("ada"), tenant("eve"), half_life_ms=0))
    backlog.go_on(("ada",), 50)
    backlog.go_on(("ada", "eve"), 1)
    assert backlog.go_on(("ada", "eve"), 8)["eve"] == pytest.approx(1 / 2, abs=0.03)


def test_a_simulation_can_ask_for_fair_shares() -> None:
    file = policy_of("strict-fifo+fair-share+best-fit").on(file_of(tenant("ada")))
    assert [queue.order for queue in file.cells[0].queues] == [QueueOrder.FAIR_SHARE]
    assert file.cells[0].policy.fair_half_life_ms == HOUR_MS
    plain = CellFile(cells=(CellPart(name="c", ordinal=0, pools=(Pool(name="train", gpus=8),)),), tenants=file.tenants)
    assert policy_of("fair-share").on(plain).cells[0].policy.fair_half_life_ms == 7 * 24 * HOUR_MS
