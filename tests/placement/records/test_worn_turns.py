"""A decision is made in one go, so what it may cost is bounded: the rest comes with the next ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fallow.services.placement.decision.decision import STARTS_MAX, STEPS_MAX
from fallow.shared.cluster.model.config import CellFile, Tenant
from fallow.shared.cluster.model.job import Job
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import Dependency, JobSpec
from fallow.shared.events.jobs import AdmittedJob, JobsAdmitted
from fallow.shared.events.operations import HoldJob, Quota, RemoveQuota
from tests.placement.worlds.replicas import service
from tests.placement.worlds.world import (
    CELL,
    DIGEST,
    FILE,
    World,
    admitted,
    cell_with,
    joined,
    kinds,
    quota,
    set_quotas,
    spec_of,
    update,
)


def file_of(*tenants: str) -> CellFile:
    return FILE.model_copy(update={"tenants": tuple(Tenant(name=name) for name in tenants)})


def world_of(*tenants: str) -> World:
    world = World(file_of(*tenants))
    world.checks = False
    return world


def effects_of_each(world: World, kind: str) -> list[int]:
    """How many effects of this kind each decision has, until the cell rests."""
    found, goes_on = list[int](), True
    while goes_on:
        known = len(world.decisions)
        goes_on = world.decide()
        found += [kinds(decision.effects).count(kind) for decision in world.decisions[known:]]
    return [count for count in found if count]


# What comes in.


def crowd(name: str, *first: str) -> list[JobSpec]:
    """Jobs of which each waits for a hundred before it, and all of them for these: ten thousand waits."""
    return [
        spec_of(
            f"{name}{number}",
            after=tuple(
                Dependency(job=waited)
                for waited in (*(f"{name}{other}" for other in range(max(0, number - 95), number)), *first)
            ),
        )
        for number in range(200)
    ]


@pytest.mark.parametrize("are_together", [False, True])
def test_searches_for_circles_that_are_long_come_one_after_the_other(are_together: bool) -> None:
    world = world_of("ada")
    for each in (*crowd("before"), *crowd("behind", "new")):
        world.tell(admitted(each))
    new = AdmittedJob(spec=spec_of("new", after=(Dependency(job="before199"),)), submit_ms=0, digest=DIGEST)
    if are_together:
        world.hand_over(JobsAdmitted(cell=CELL, jobs=(new,) * 30))
    else:
        world.hand_over(*(admitted(new.spec) for _ in range(30)))
    refused = effects_of_each(world, "JobRefused")
    assert sum(refused) == 30
    assert max(refused) <= STEPS_MAX // 9_000


def test_quotas_that_are_set_one_by_one_beside_many_others() -> None:
    world = world_of("ada")
    others = [quota(f"t{number}", 1) for number in range(999)]
    world.tell(set_quotas(*others))
    world.hand_over(*(set_quotas(quota("ada", number)) for number in range(1, 13)))
    sets = effects_of_each(world, "QuotaSet")
    assert sum(sets) == 12
    assert max(sets) <= STEPS_MAX // 10_000
    assert world.state.quotas["ada", "gpu"] == quota("ada", 12)


def test_removals_of_a_quota_beside_many_jobs() -> None:
    world = world_of("ada")
    world.tell(set_quotas(quota("ada", 1)), admitted(spec_of("many", array=1_000)))
    world.hand_over(*(RemoveQuota(cell=CELL, tenant="ada") for _ in range(250)))
    refused = effects_of_each(world, "ProposalRefused")
    assert sum(refused) == 250
    assert max(refused) <= STEPS_MAX // 1_000


WISHES: list[Callable[[], Event]] = [
    lambda: HoldJob(cell=CELL, job="many"),
    lambda: update("many", max_run_ms=None, priority=5),
]


@pytest.mark.parametrize("wish", WISHES)
def test_wishes_for_an_array_that_change_nothing_any_more(wish: Callable[[], Event]) -> None:
    world = world_of("ada")
    world.tell(admitted(spec_of("many", array=1_000)), admitted(spec_of("stays")))
    world.hand_over(*(wish() for _ in range(250)))
    decisions = 0
    while world.decide():
        decisions += 1
    assert world.service.others_pending == 0
    assert decisions >= 2


# A cell file that no longer names many tenants.


class Counted(dict[str, Job]):
    """Jobs that count how often a caller goes over all of them."""

    passes = 0

    def values(self) -> Any:
        self.passes += 1
        return super().values()

    def __iter__(self) -> Iterator[str]:
        self.passes += 1
        return super().__iter__()


def test_the_jobs_are_gone_over_as_often_for_many_tenants_that_go_as_for_one() -> None:
    passes = []
    for count in (1, 50):
        world = world_of("ada", *(f"t{number}" for number in range(count)))
        world.tell(*(set_quotas(quota(f"t{number}", 1)) for number in range(count)))
        world.tell(admitted(spec_of("stays")))
        world.state.jobs = Counted(world.state.jobs)
        world.service.reload(file_of("ada"))
        world.rest()
        assert not world.state.quotas
        passes.append(world.state.jobs.passes)
    assert passes[0] == passes[1]


def test_many_quotas_go_with_their_tenants_in_one_decision() -> None:
    names = [f"t{number}" for number in range(800)]
    world = world_of("ada", *names)
    world.tell(set_quotas(*(quota(name, 1) for name in names)))
    world.service.reload(file_of("ada"))
    removed = effects_of_each(world, "QuotaRemoved")
    assert removed == [800]
    assert not world.state.quotas


FAMILY = [quota("z", None), quota("top", None, parent="z"), quota("a", 1, parent="top"), quota("b", 1, parent="a")]


def removed_with(*more: Quota) -> list[str]:
    """Whose quotas go when the file names `stays` alone."""
    world = world_of("z", "top", "a", "b", "stays")
    world.tell(set_quotas(*FAMILY, *more))
    world.service.reload(file_of("stays"))
    return [effect.tenant for effect in world.rest() if isinstance(effect, e.QuotaRemoved)]


def test_a_family_goes_from_below() -> None:
    assert removed_with(quota("stays", 1)) == ["b", "a", "top", "z"]


def test_nobody_goes_from_above_a_tenant_that_stays() -> None:
    assert removed_with(quota("stays", 1, parent="a")) == ["b"]


# Workers that enter one by one.


def test_a_service_of_many_replicas_enters_over_several_decisions() -> None:
    world = cell_with(*(joined(f"n{number}", 8) for number in range(500)))
    world.checks = False
    world.hand_over(admitted(service("job", 4_000, workers_min=1)))
    entered, goes_on = [], True
    while goes_on:
        known = len(world.job("job").workers) if "job" in world.state.jobs else 0
        goes_on = world.decide()
        entered.append(len(world.job("job").workers) - known)
    assert sum(entered) == 4_000
    assert max(entered) <= 2 * STARTS_MAX
