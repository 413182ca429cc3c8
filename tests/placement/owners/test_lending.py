"""What an owner can take back it lends while its job waits; all else is kept for that job."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.events.operations import PreemptionMode, ReclaimFrom
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import World, admitted, cell_with, joined, set_policy, set_quotas, spec_of


def waiting(ada: dict[str, Any] | None = None, bob: dict[str, Any] | None = None, **own: Any) -> World:
    """A node of four GPUs, all guaranteed to ada, of which a job of hers has three; her next one waits for two."""
    world = cell_with(joined("n1", 4))
    world.tell(set_policy(preemption=PreemptionMode.RECLAIM))
    world.tell(set_quotas(share("ada", 4, **(ada or {})), share("bob", **(bob or {}))))
    world.tell(admitted(spec_of("first", 3)))
    world.tell(admitted(spec_of("waits", own.pop("gpus", 2), **own), 1))
    return world


def start_of(world: World, **borrower: Any) -> bool:
    """Whether a job of bob's for one GPU starts, which is the one that is left."""
    world.tell(admitted(spec_of("borrows", 1, tenant="bob", **borrower), 2))
    is_started = bool(world.job("borrows").workers)
    assert is_started or why(world, "borrows") is PendingReason.RESERVED_FOR_OTHER
    return is_started


def test_what_an_owner_can_take_back_is_lent_while_its_job_waits() -> None:
    assert start_of(waiting())


def test_where_nothing_yields_it_is_kept_and_lent_once_something_does() -> None:
    world = waiting()
    world.tell(set_policy(preemption=PreemptionMode.OFF))
    assert not start_of(world)
    world.tell(set_policy(preemption=PreemptionMode.ALL))
    assert world.nodes_of("borrows") == ["n1"]


@pytest.mark.parametrize("reclaim", [ReclaimFrom.LOWER_PRIORITY, ReclaimFrom.NEVER])
def test_it_is_kept_where_the_owner_does_not_take_back_from_all(reclaim: ReclaimFrom) -> None:
    assert not start_of(waiting({"reclaim": reclaim}))


def test_it_is_kept_from_a_tenant_that_is_not_reclaimable_until_it_is() -> None:
    world = waiting(bob={"reclaimable": False})
    assert not start_of(world)
    world.tell(set_quotas(share("ada", 4), share("bob")))
    assert world.nodes_of("borrows") == ["n1"]


def test_it_is_kept_from_jobs_below_a_tenant_that_is_not_reclaimable() -> None:
    world = waiting()
    world.tell(set_quotas(share("ada", 4), share("lab", reclaimable=False), share("bob", parent="lab")))
    assert not start_of(world)


def test_it_is_kept_from_a_job_whose_workers_come_singly() -> None:
    """No such job yields in this version."""
    assert not start_of(waiting(), gang=False)


@pytest.mark.parametrize("own", [{"gang": False}, {"gpus": 4, "exclusive": True}])
def test_it_is_kept_for_a_job_to_which_nothing_yields(own: dict[str, Any]) -> None:
    """Of one whose workers come singly the next one alone counts, and that is not guaranteed whole."""
    assert not start_of(waiting(**own))


def test_it_is_kept_for_a_job_that_no_guarantee_would_hold() -> None:
    """It could never take it back: it needs more than what is guaranteed."""
    world = cell_with(joined("n1", 4), joined("n2", 4))
    world.tell(set_policy(preemption=PreemptionMode.RECLAIM))
    world.tell(set_quotas(share("ada", 4), share("bob")))
    world.tell(admitted(spec_of("first", 3)), admitted(spec_of("full", 4, tenant="bob")))
    world.tell(admitted(spec_of("waits", 1, workers=5), 1))
    assert not start_of(world)


def test_what_lets_a_job_start_now_that_is_guaranteed_whole_is_not_lent() -> None:
    """The job of higher priority would have to stop for it at once."""
    world = cell_with(joined("n1", 4))
    world.tell(set_policy(preemption=PreemptionMode.RECLAIM))
    world.tell(set_quotas(share("ada", 4), share("bob")))
    borrows = spec_of("borrows", 1, tenant="bob", priority=5)
    world.tell(admitted(borrows), admitted(spec_of("own", 4)))
    assert (world.nodes_of("own"), world.nodes_of("borrows")) == (["n1"], [])


def test_a_job_that_gives_it_back_leaves_it_alone_where_it_fits_elsewhere() -> None:
    world = waiting()
    world.tell(joined("n2", 1))
    assert start_of(world)
    assert world.nodes_of("borrows") == ["n2"]
