"""An exclusive job takes whole nodes: the GPUs beside its workers are never those that are guaranteed to others and not
lent.
"""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.queue.planned_places import may_start_in
from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.quota.summary import QuotaRow, quota_rows
from fallow.shared.events.fields.values import JobKind, JobSpec, Resources, WorkerPlace
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    finished,
    joined,
    set_policy,
    set_quotas,
    spec_of,
)


def two_nodes(*quotas: Quota, **policy: Any) -> World:
    """Two nodes of eight GPUs each."""
    world = cell_with(joined("n1", 8), joined("n2", 8))
    world.tell(set_quotas(*quotas), *([set_policy(**policy)] if policy else []))
    return world


def alone(job: str, gpus: int = 1, workers: int = 1, **more: Any) -> JobSpec:
    """A job that has its nodes alone."""
    return spec_of(job, gpus, workers, exclusive=True, **more)


def row(world: World, tenant: str) -> QuotaRow:
    return next(each for each in quota_rows(world.state) if each.tenant == tenant)


def test_a_borrower_takes_no_whole_node_of_which_an_owner_needs_a_part() -> None:
    world = two_nodes(share("ada"), share("bob", 9, lends=False))
    world.tell(admitted(alone("guest")))
    assert why(world, "guest") is PendingReason.QUOTA_REACHED
    world.tell(admitted(spec_of("own", workers=9, tenant="bob")))
    assert sorted({*world.nodes_of("own")}) == ["n1", "n2"]


def test_it_takes_the_nodes_that_are_left_beside_the_guarantee_and_no_more() -> None:
    world = two_nodes(share("ada"), share("bob", 8, lends=False))
    world.tell(admitted(alone("first")), admitted(alone("second")), admitted(spec_of("beside")))
    assert (world.nodes_of("first"), why(world, "second")) == (["n1"], PendingReason.QUOTA_REACHED)
    assert why(world, "beside") is PendingReason.QUOTA_REACHED
    world.tell(admitted(spec_of("own", 8, tenant="bob")))
    assert world.nodes_of("own") == ["n2"]


def test_what_is_idle_beside_it_stands_for_no_guarantee() -> None:
    world = two_nodes(share("ada"))
    world.tell(admitted(alone("guest")))
    world.tell(set_quotas(share("bob", 8, lends=False)), admitted(spec_of("other")))
    assert why(world, "other") is PendingReason.QUOTA_REACHED


def test_replicas_that_must_start_together_share_a_node_where_two_would_be_too_many() -> None:
    world = two_nodes(share("ada"), share("bob", 8, lends=False))
    spec = alone("serves", 4, 2, gang=False, kind=JobKind.INFERENCE, workers_min=2)
    world.tell(admitted(spec))
    assert len({*world.nodes_of("serves")}) == 1


@pytest.mark.parametrize("gang", [True, False])
def test_one_that_needs_a_share_of_a_gpu_takes_whole_nodes_too(*, gang: bool) -> None:
    world = two_nodes(share("ada"), share("bob", 9, lends=False))
    world.tell(admitted(alone("guest", gang=gang, resources=Resources(gpu_milli=500))))
    assert why(world, "guest") is PendingReason.QUOTA_REACHED


def test_an_owner_may_have_whole_nodes_of_its_own_guarantee() -> None:
    world = two_nodes(share("ada", 8, lends=False), share("bob", 8, lends=False))
    world.tell(admitted(alone("own")))
    assert world.nodes_of("own") == ["n1"]


def test_what_an_owner_has_spent_on_whole_nodes_it_does_not_get_again_from_another_owner() -> None:
    world = two_nodes(share("ada", 8, lends=False), share("bob", 8, lends=False))
    world.tell(admitted(alone("own")), admitted(spec_of("more")))
    assert why(world, "more") is PendingReason.QUOTA_REACHED
    world.tell(admitted(spec_of("his", 8, tenant="bob")))
    assert world.nodes_of("his") == ["n2"]
    world.tell(finished("own", "n1"))
    assert world.nodes_of("more") == ["n1"]


def test_an_owner_takes_no_whole_node_of_another_owner() -> None:
    world = two_nodes(share("ada", 7, lends=False), share("bob", 9, lends=False))
    world.tell(admitted(alone("own")))
    assert why(world, "own") is PendingReason.QUOTA_REACHED


def test_limits_charge_what_it_asks_for() -> None:
    world = two_nodes(share("ada", limit=2))
    world.tell(admitted(alone("first")), admitted(alone("second")))
    assert (world.nodes_of("first"), world.nodes_of("second")) == (["n1"], ["n2"])
    assert row(world, "ada").used_milli == 2_000


@pytest.mark.parametrize("placement", POLICIES)
def test_where_a_policy_would_spread_it_over_too_many_nodes_it_goes_to_fewer(placement: str) -> None:
    world = two_nodes(share("ada"), share("bob", 8, lends=False), placement=placement)
    world.tell(admitted(alone("gang", 4, 2)))
    assert len({*world.nodes_of("gang")}) == 1


@pytest.mark.parametrize("placement", POLICIES)
def test_where_a_large_node_would_be_too_much_it_goes_to_a_small_one(placement: str) -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8), joined("n3", 2))
    world.tell(set_quotas(share("ada"), share("bob", 16, lends=False)), set_policy(placement=placement))
    world.tell(admitted(alone("small", 2)))
    assert world.nodes_of("small") == ["n3"]


def test_workers_that_enter_one_by_one_take_whole_nodes_as_well() -> None:
    world = two_nodes(share("ada"), share("bob", 8, lends=False))
    world.tell(admitted(alone("many", 8, 2, gang=False)))
    assert world.nodes_of("many") == ["n1"]


def test_so_do_replicas_of_a_service() -> None:
    world = two_nodes(share("ada"), share("bob", 8, lends=False))
    world.tell(admitted(alone("serves", 5, 2, gang=False, kind=JobKind.INFERENCE)))
    assert world.nodes_of("serves") == ["n1"]


def test_one_that_may_not_be_preempted_borrows_nothing_beside_its_workers() -> None:
    world = two_nodes(share("ada", 4), share("bob", 12))
    world.tell(admitted(alone("firm", preemptible=False)))
    assert why(world, "firm") is PendingReason.QUOTA_REACHED
    world.tell(set_quotas(share("bob", 8)), set_quotas(share("ada", 8)))
    assert world.nodes_of("firm") == ["n1"]


def test_it_starts_in_no_planned_places_that_would_take_from_an_owner() -> None:
    world = two_nodes(share("ada"), share("bob", 9, lends=False))
    place = WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=1_000)
    assert may_start_in(world.state, spec_of("guest"), (place,))
    assert not may_start_in(world.state, alone("guest"), (place,))


def test_it_does_not_follow_another_job_to_a_node_of_which_an_owner_needs_a_part() -> None:
    world = two_nodes(share("ada"), share("bob", 9, lends=False))
    world.tell(admitted(spec_of("first")), admitted(alone("waits")))
    world.tell(finished("first"))
    assert why(world, "waits") is PendingReason.QUOTA_REACHED


@pytest.mark.parametrize("discipline", [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL])
def test_one_that_could_have_no_node_beside_the_guarantees_keeps_nobody_back(discipline: QueueDiscipline) -> None:
    part = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=16),),
        queues=(Queue(name="line", discipline=discipline),),
        policy=CellPolicy(backfill_wait_ms=20),
    )
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    world.tell(joined("n1", 8), joined("n2", 8), set_quotas(share("ada"), share("bob", 9, lends=False)))
    world.tell(admitted(alone("head", queue="line")), admitted(spec_of("behind", queue="line"), 1))
    world.pass_time(40)
    world.tell(admitted(spec_of("later", queue="line"), 2))
    assert why(world, "head") is PendingReason.QUOTA_REACHED
    assert (world.nodes_of("behind"), world.nodes_of("later")) == (["n1"], ["n1"])


def test_it_is_told_how_much_it_takes_and_how_much_is_missing() -> None:
    world = two_nodes(share("ada"), share("bob", 9, lends=False))
    world.tell(admitted(alone("guest")))
    told = (
        "1 more idle gpu: alone on its nodes the job needs 8 beside the guarantees of other tenants; "
        "16 are idle, 9 of them guaranteed and not lent"
    )
    for state in (world.state, world.twin):
        found = why_not(state, state.jobs["guest"], (), world.now_ms)
        assert (found.codes, found.to_free) == ((PendingReason.QUOTA_REACHED,), (told,))


def test_what_is_idle_beside_it_is_available_to_nobody() -> None:
    world = two_nodes(share("ada"), share("bob", 4, lends=False))
    world.tell(admitted(alone("guest")))
    assert (row(world, "bob").available_milli, row(world, "bob").lent_milli) == (8_000, 0)
    assert row(world, "ada").available_milli == 4_000
