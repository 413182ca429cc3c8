"""What quotas say of a job that may have any of several GPU types, and of one that waits for room."""

from __future__ import annotations

import pytest

from fallow.services.placement.search.gang import POLICIES
from fallow.services.placement.search.quota_check import is_ever_allowed, limit_reached, waits_by_types
from fallow.shared.events.fields.values import JobKind
from fallow.shared.events.operations import Quota
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import World, admitted, cell_with, finished, joined, set_policy, set_quotas, spec_of


def two_types(*quotas: Quota) -> World:
    """Four GPUs of each of two types, in one pool."""
    world = cell_with(joined("n1", 4), joined("n2", 4, gpu_type="big"))
    world.tell(set_quotas(*quotas))
    return world


@pytest.mark.parametrize("placement", POLICIES)
def test_a_gang_of_any_type_takes_of_none_what_its_owner_does_not_lend(placement: str) -> None:
    world = two_types(share("ada"), share("bob", 1, lends=False))
    world.tell(set_policy(placement=placement))
    world.tell(admitted(spec_of("all", workers=8)), admitted(spec_of("most", workers=7)))
    assert (world.nodes_of("all"), world.nodes_of("most")) == ([], [])
    world.tell(admitted(spec_of("few", workers=4)), admitted(spec_of("own", tenant="bob", gpu_type="gpu")))
    assert ({*world.nodes_of("few")}, world.nodes_of("own")) == ({"n2"}, ["n1"])


def test_one_type_below_whose_limit_it_is_keeps_a_job_from_the_limit_of_another() -> None:
    one = two_types(share("ada", limit=2))
    both = two_types(share("ada", limit=2), Quota(tenant="ada", gpu_type="big", limit_milli=2_000))
    spec = spec_of("job", 3)
    assert (limit_reached(one.state, spec), limit_reached(both.state, spec)) == (None, "ada")
    one.tell(admitted(spec))
    assert one.nodes_of("job") == ["n2"]


def test_who_waits_for_room_that_is_in_use_is_told_so_and_nothing_of_quota() -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8))
    world.tell(set_quotas(share("ada"), share("bob", 4, lends=False)))
    world.tell(admitted(spec_of("runs", 6, 1)), admitted(spec_of("more", 5, 1)), admitted(spec_of("waits", 6)))
    assert world.nodes_of("runs") != world.nodes_of("more")
    assert why(world, "waits") is PendingReason.NO_FREE_GPUS


def test_one_that_may_be_preempted_waits_for_what_others_keep_and_not_for_what_is_left_of_its_guarantee() -> None:
    world = cell_with(joined("n1", 8))
    world.tell(set_quotas(share("ada", 2), share("bob", 4, lends=False)))
    world.tell(admitted(spec_of("runs", 2)), admitted(spec_of("waits", 3)))
    waits = waits_by_types(world.state, world.job("waits").spec)
    assert (why(world, "waits"), waits.to_all, waits.under) == (PendingReason.QUOTA_REACHED, ["gpu"], {})


@pytest.mark.parametrize("rule", ["limit", "not lent"])
def test_a_service_that_has_all_that_its_tenant_may_ever_use_is_never_allowed_one_replica_more(rule: str) -> None:
    world = cell_with(joined("n1", 8))
    world.tell(set_quotas(share("ada", limit=3)) if rule == "limit" else set_quotas(share("bob", 5, lends=False)))
    world.run(spec_of("holds"), spec_of("serves", 1, 4, gang=False, kind=JobKind.INFERENCE))
    assert is_ever_allowed(world.state, world.job("serves"))
    world.tell(finished("holds", "n1"))
    job = world.job("serves")
    assert not is_ever_allowed(world.state, job)
