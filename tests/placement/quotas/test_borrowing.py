"""What a start needs: its own guarantee, or what others leave idle and lend; and what is told where it has neither."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.owners.holdback import LOOKS_MAX
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.effects import JobDeferred
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, Resources
from fallow.shared.events.operations import Quota, ReclaimFrom
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import (
    CELL,
    FILE,
    World,
    admitted,
    cancel,
    cell_with,
    finished,
    joined,
    set_quotas,
    spec_of,
)


def share(tenant: str, guaranteed: int = 0, **rules: Any) -> Quota:
    """A quota in whole GPUs."""
    limits = {f"{name}_milli": rules.pop(name) * 1000 for name in list(rules) if name.endswith("limit")}
    return Quota(tenant=tenant, gpu_type="gpu", guaranteed_milli=guaranteed * 1000, **limits, **rules)


def cell_of(gpus: int, *quotas: Quota) -> World:
    """A cell of one node, in which placement walks all waiting jobs."""
    world = cell_with(joined("n1", gpus))
    world.tell(set_quotas(*quotas))
    return world


def why(world: World, job: str) -> PendingReason | None:
    """Why the job waits; None if it runs."""
    return world.job(job).deferred


def test_idle_quota_is_lent_to_who_wants_more_than_his_own() -> None:
    world = cell_of(8, share("ada", 4), share("bob", 4))
    world.tell(admitted(spec_of("all", 8)))
    assert world.nodes_of("all") == ["n1"]


@pytest.mark.parametrize(
    "rule",
    [{"borrows": False}, {"borrow_limit": 1}, {"limit": 5}],
    ids=["no right to borrow", "a limit on borrowing", "a limit on all"],
)
def test_who_may_not_borrow_so_much_waits_for_his_quota(rule: dict[str, Any]) -> None:
    world = cell_of(8, share("ada", 4, **rule), share("bob", 4))
    world.tell(admitted(spec_of("his-own", 4)), admitted(spec_of("more", 2)))
    assert (world.nodes_of("his-own"), why(world, "more")) == (["n1"], PendingReason.QUOTA_REACHED)


def test_what_is_idle_of_another_type_in_the_same_pool_does_not_stand_for_what_is_not_lent() -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8, gpu_type="a100"))
    world.tell(set_quotas(share("ada"), share("bob", 8, lends=False)))
    world.tell(admitted(spec_of("more", 4, gpu_type="gpu")))
    assert why(world, "more") is PendingReason.QUOTA_REACHED


@pytest.mark.parametrize("rule", [{"lends": False}, {"lend_limit": 1}], ids=["lends nothing", "lends too little"])
def test_what_is_not_lent_stays_idle_for_its_owner(rule: dict[str, Any]) -> None:
    world = cell_of(8, share("ada", 4), share("bob", 4, **rule))
    world.tell(admitted(spec_of("more", 6)))
    assert why(world, "more") is PendingReason.QUOTA_REACHED
    world.tell(admitted(spec_of("his", 4, tenant="bob")))
    assert world.nodes_of("his") == ["n1"]


def test_what_is_lent_up_to_a_limit_may_be_borrowed_so_far() -> None:
    world = cell_of(8, share("ada", 4), share("bob", 4, lend_limit=1))
    world.tell(admitted(spec_of("more", 5)))
    assert world.nodes_of("more") == ["n1"]


def test_children_of_a_parent_that_borrows_nothing_share_its_guarantee_and_no_more() -> None:
    world = cell_of(8, share("lab", 4, borrows=False), share("ada", 1, parent="lab"), share("bob", 1, parent="lab"))
    world.tell(admitted(spec_of("a", 3)), admitted(spec_of("b", 1, tenant="bob")), admitted(spec_of("c", 1)))
    assert (world.nodes_of("a"), world.nodes_of("b"), why(world, "c")) == (["n1"], ["n1"], PendingReason.QUOTA_REACHED)


def test_a_job_that_may_not_be_preempted_borrows_nothing() -> None:
    world = cell_of(8, share("ada", 3), share("bob", 1))
    world.tell(admitted(spec_of("firm", 4, preemptible=False)), admitted(spec_of("small", 3, preemptible=False)))
    assert (why(world, "firm"), world.nodes_of("small")) == (PendingReason.QUOTA_REACHED, ["n1"])


def test_without_a_guarantee_it_has_what_is_guaranteed_to_nobody() -> None:
    world = cell_of(8, share("bob", 6))
    world.tell(admitted(spec_of("large", 3, preemptible=False)), admitted(spec_of("small", 2, preemptible=False)))
    assert (why(world, "large"), world.nodes_of("small")) == (PendingReason.QUOTA_REACHED, ["n1"])


def test_quota_is_told_before_room() -> None:
    world = cell_of(8, share("ada", 4, borrows=False))
    world.tell(admitted(spec_of("full", 8, tenant="bob")))
    world.tell(admitted(spec_of("both", 5)), admitted(spec_of("room", 4)))
    assert (why(world, "both"), why(world, "room")) == (PendingReason.QUOTA_REACHED, PendingReason.NO_FREE_GPUS)


def test_what_no_pool_ever_holds_is_told_before_quota() -> None:
    world = cell_of(8, share("ada", 4, borrows=False))
    world.tell(admitted(spec_of("huge", 8, workers=2)))
    assert why(world, "huge") is PendingReason.NO_SUCH_NODES


def keeping(reclaim: ReclaimFrom = ReclaimFrom.ANY, **waits: Any) -> World:
    """An owner uses one of his two GPUs and waits for two; another wants to borrow the idle one."""
    world = cell_of(2, share("ada", 2, reclaim=reclaim), share("bob", 0))
    world.tell(admitted(spec_of("first", 1)))
    world.tell(admitted(spec_of("waits", 2, **waits)), admitted(spec_of("borrows", 1, tenant="bob")))
    return world


@pytest.mark.parametrize("priority", [-1, 0, 1])
@pytest.mark.parametrize("reclaim", ReclaimFrom)
def test_idle_quota_is_kept_for_an_owner_who_waits_whatever_he_may_reclaim(reclaim: ReclaimFrom, priority: int) -> None:
    world = keeping(reclaim, priority=priority)
    assert (why(world, "waits"), why(world, "borrows")) == (
        PendingReason.NO_FREE_GPUS,
        PendingReason.RESERVED_FOR_OTHER,
    )
    world.tell(finished("first"))
    assert world.nodes_of("waits") == ["n1"]


def two_owners(*wants: int, guaranteed: int = 4) -> World:
    """Two owners of a free cell of eight GPUs ask for so many, both at once."""
    world = cell_of(8, share("ada", guaranteed), share("bob", guaranteed))
    jobs = [spec_of(tenant, gpus, tenant=tenant) for tenant, gpus in zip(("ada", "bob"), wants, strict=True)]
    world.hand_over(*(admitted(job) for job in jobs))
    world.rest()
    return world


@pytest.mark.parametrize("guaranteed", [1, 4])
def test_of_two_owners_who_each_want_more_than_their_own_the_first_starts_and_then_the_other(guaranteed: int) -> None:
    world = two_owners(8, 8, guaranteed=guaranteed)
    assert (world.nodes_of("ada"), why(world, "bob")) == (["n1"], PendingReason.NO_FREE_GPUS)
    world.tell(finished("ada"))
    assert world.nodes_of("bob") == ["n1"]


def test_an_owner_who_wants_no_more_than_his_own_goes_before_one_who_would_borrow_it() -> None:
    world = two_owners(6, 4)
    assert (why(world, "ada"), world.nodes_of("bob")) == (PendingReason.NO_FREE_GPUS, ["n1"])


def test_nothing_is_kept_for_a_job_that_no_node_could_hold() -> None:
    world = cell_of(2, share("ada", 2), share("bob", 0))
    world.tell(admitted(spec_of("first", 1)))
    world.tell(admitted(spec_of("giant", 1, resources=Resources(cpu_milli=10**9))))
    world.tell(admitted(spec_of("borrows", 1, tenant="bob")))
    assert world.nodes_of("borrows") == ["n1"]


def test_nothing_is_kept_for_an_owner_who_does_not_wait_any_more() -> None:
    world = keeping(ReclaimFrom.NEVER)
    world.tell(cancel("waits"))
    assert world.nodes_of("borrows") == ["n1"]


def test_a_new_writer_keeps_it_too() -> None:
    world = keeping(ReclaimFrom.NEVER)
    world.restart()
    world.tell(admitted(spec_of("another", 1, tenant="bob")))
    assert (why(world, "borrows"), why(world, "another")) == (PendingReason.RESERVED_FOR_OTHER,) * 2


def test_a_quota_that_is_set_lets_start_who_waited_for_it() -> None:
    world = cell_of(8, share("ada", 4, borrows=False))
    world.tell(admitted(spec_of("late", 6)))
    world.tell(set_quotas(share("ada", 4)))
    assert world.nodes_of("late") == ["n1"]


def test_a_guarantee_lowered_below_its_use_stops_nobody() -> None:
    world = cell_of(8, share("ada", 8))
    world.tell(admitted(spec_of("runs", 8)))
    world.tell(set_quotas(replace(share("ada", 2), borrows=False)))
    assert world.nodes_of("runs") == ["n1"]
    world.tell(admitted(spec_of("late", 1)))
    assert why(world, "late") is PendingReason.QUOTA_REACHED


def test_reading_tells_what_is_kept_for_an_owner_too() -> None:
    world = keeping(ReclaimFrom.NEVER)
    told = why_not(world.state, world.job("borrows"), (), world.now_ms)
    told_by_twin = why_not(world.twin, world.twin.jobs["borrows"], (), world.now_ms)
    assert (told.codes, told_by_twin.codes) == ((PendingReason.RESERVED_FOR_OTHER,),) * 2
    world.tell(admitted(spec_of("another", 1, tenant="bob")))
    assert why(world, "another") is PendingReason.RESERVED_FOR_OTHER


def test_a_job_that_wants_more_than_the_whole_limit_is_told_so() -> None:
    world = cell_of(8, share("ada", limit=4))
    world.tell(admitted(spec_of("large", 8)))
    found = why_not(world.state, world.job("large"), (), world.now_ms)
    assert found.to_free == ("the limit of ada is 4 gpu; the job needs 8",)


def test_reading_tells_how_much_more_may_be_borrowed() -> None:
    world = cell_of(8, share("ada", 4, borrow_limit=1), share("bob", 4))
    world.tell(admitted(spec_of("his-own", 3)), admitted(spec_of("more", 3)))
    found = why_not(world.state, world.job("more"), (), world.now_ms)
    assert [(use.tenant, use.room_milli, use.to_free) for use in found.accounts] == [
        ("ada", 2_000, "1 gpu less in use by ada")
    ]


def test_as_much_is_kept_for_a_tenant_with_several_waiting_jobs_as_the_largest_of_them_needs() -> None:
    nodes = [joined(f"n{number}", 2, labels={"name": f"n{number}"}) for number in range(4)]
    world = cell_with(*nodes)
    world.tell(set_quotas(share("ada", 4), share("bob", 0)))
    for number in range(4):
        world.tell(admitted(spec_of(f"bob-{number}", tenant="bob", node_labels=(f"name=n{number}",)), number))
    world.tell(admitted(spec_of("ada-1", 2), 10), admitted(spec_of("ada-2", 2), 11))
    world.tell(*(admitted(spec_of(f"borrows-{number}", tenant="bob"), 20 + number) for number in range(4)))
    waits = [number for number in range(4) if why(world, f"borrows-{number}") is PendingReason.RESERVED_FOR_OTHER]
    assert waits == [3]
    world.tell(finished("bob-0", "n0"))
    assert world.nodes_of("ada-1") == ["n0"]


def test_no_more_is_kept_for_a_tenant_than_the_idle_part_of_its_guarantee() -> None:
    world = cell_of(8, share("ada", 4), share("bob", 0))
    world.tell(admitted(spec_of("own", 3)), admitted(spec_of("other", 2, tenant="bob")))
    world.tell(admitted(spec_of("waits", 4)))
    world.tell(*(admitted(spec_of(f"borrows-{number}", tenant="bob"), 20 + number) for number in range(3)))
    waits = [number for number in range(3) if why(world, f"borrows-{number}") is PendingReason.RESERVED_FOR_OTHER]
    assert waits == [2]


def test_nothing_is_kept_for_a_tenant_at_its_limit() -> None:
    world = cell_of(4, share("ada", 4, limit=4), share("bob", 0))
    world.tell(admitted(spec_of("own", 3)), admitted(spec_of("waits", 2)))
    world.tell(admitted(spec_of("borrows", 1, tenant="bob")))
    assert (why(world, "waits"), world.nodes_of("borrows")) == (PendingReason.QUOTA_REACHED, ["n1"])


def test_nothing_is_kept_for_an_array_of_which_no_more_may_run() -> None:
    world = cell_of(8, share("ada", 8), share("bob"))
    world.tell(admitted(spec_of("sweep", 4, array=3, array_max_running=1)))
    world.tell(admitted(spec_of("guest", 4, tenant="bob"), 1))
    assert (world.nodes_of("sweep.0"), world.nodes_of("guest")) == (["n1"], ["n1"])


def test_in_a_strict_queue_it_is_kept_for_who_comes_behind_an_array_of_which_no_more_may_run() -> None:
    queues = (Queue(name="line", discipline=QueueDiscipline.STRICT_FIFO), Queue(name="next"))
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=8),), queues=queues)
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    world.tell(joined("n1"), set_quotas(share("ada", 8), share("bob")))
    world.tell(admitted(spec_of("sweep", queue="line", array=3, array_max_running=1)))
    world.tell(*(admitted(spec_of(job, gpus, tenant="bob", queue="next"), 1) for job, gpus in (("a", 3), ("b", 4))))
    world.tell(admitted(spec_of("own", 7, queue="line"), 2), admitted(spec_of("c", 3, tenant="bob", queue="next"), 3))
    world.tell(finished("a"))
    assert (world.nodes_of("own"), world.nodes_of("c")) == ([], [])
    world.tell(finished("b"))
    assert world.nodes_of("own") == ["n1"]


def test_in_a_strict_queue_quota_is_kept_for_the_first_job_that_some_node_could_hold() -> None:
    queues = (Queue(name="urgent"), Queue(name="line", discipline=QueueDiscipline.STRICT_FIFO))
    cell = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=100),), queues=queues)
    world = World(CellFile(cells=(cell,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    world.tell(joined("n1", 2), set_quotas(share("ada", 2), share("bob", 0)))
    giant = spec_of("giant", 1, queue="line", resources=Resources(gpu_milli=1_000, cpu_milli=10**9))
    world.tell(admitted(spec_of("own", 1, queue="line")), admitted(giant, 1))
    world.tell(admitted(spec_of("waits", 2, queue="line"), 2))
    world.tell(admitted(spec_of("borrows", 1, tenant="bob", queue="urgent"), 3))
    assert why(world, "borrows") is PendingReason.RESERVED_FOR_OTHER


@pytest.mark.parametrize("more", [{}, {"gang": False}, {"gang": False, "kind": JobKind.INFERENCE}])
def test_a_job_that_borrows_nothing_takes_what_is_kept_for_others_where_nothing_else_is_left(
    more: dict[str, Any],
) -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8))
    world.tell(set_quotas(share("ada", 4), share("bob", 8)))
    world.tell(admitted(spec_of("full", 4, tenant="bob")))
    world.tell(admitted(spec_of("waits", 8, workers=2)))
    assert world.state.tree.kept.nodes == {"n2"}
    effects = world.tell(admitted(spec_of("his", 8, tenant="bob", **more)))
    assert world.nodes_of("his") == ["n2"]
    assert not [effect for effect in effects if isinstance(effect, JobDeferred)]


FAMILY = CellFile(
    cells=FILE.cells, tenants=tuple(Tenant(name=name) for name in ("ada", "bob", "dan", "eve", "guest", "lab"))
)


@pytest.mark.parametrize("nodes", [1, LOOKS_MAX + 1])
def test_a_job_takes_what_is_kept_for_an_owner_from_whom_it_borrows_nothing_and_not_what_it_would_borrow(
    nodes: int,
) -> None:
    """One GPU is free on each node, and kept: for ada on the first ones, for eve on the others. Dan is below lab, as
    ada is: he would borrow from ada, and from no other tenant.
    """
    names = {"ada": [f"a{at}" for at in range(nodes)], "eve": [f"e{at}" for at in range(nodes)]}
    world = cell_with(
        *(joined(node, 2, labels={"of": of}, cpu_milli=1_000) for of, here in names.items() for node in here),
        file=FAMILY,
    )
    lab = (share("lab", 2 * nodes + 1), share("ada", 2 * nodes, parent="lab"), share("dan", parent="lab"))
    world.tell(set_quotas(*lab, share("eve", 2 * nodes)))
    one_a_node = Resources(gpu_milli=1_000, cpu_milli=600)
    world.tell(admitted(spec_of("busy", workers=2 * nodes, tenant="guest", resources=one_a_node)))
    for owner in names:
        world.tell(admitted(spec_of(owner, 2, workers=nodes, tenant=owner, node_labels=(f"of={owner}",))))
    assert len(world.state.tree.kept.nodes) == 2 * nodes
    world.tell(admitted(spec_of("job", tenant="dan")))
    assert world.nodes_of("job") == ["e0"]


def test_an_owner_that_waits_too_takes_what_is_kept_for_a_job_that_is_guaranteed_in_part_only() -> None:
    """Of n1 the one free GPU is kept for bob, whose whole job is guaranteed, and of n2 two of three for eve, to which
    two of four are.
    """
    world = cell_with(joined("n1", 2, labels={"of": "bob"}), joined("n2", 4, labels={"of": "eve"}), file=FAMILY)
    world.tell(set_quotas(share("ada", 1), share("bob", 2), share("eve", 2)))
    for owner, gpus in (("bob", 2), ("eve", 4)):
        there = (f"of={owner}",)
        world.tell(admitted(spec_of(f"beside-{owner}", tenant="guest", node_labels=there)))
        world.tell(admitted(spec_of(owner, gpus, tenant=owner, node_labels=there)))
    kept = [(each.is_whole, [place.milli for place in each.places]) for each in world.state.tree.kept.all]
    assert kept == [(True, [1_000]), (False, [2_000])]
    world.tell(admitted(spec_of("of-ada", workers=3)))
    assert world.nodes_of("of-ada") == ["n2"] * 3
