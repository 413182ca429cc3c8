"""A worker runs on where its GPU has failed, and uses nothing of what is healthy: what is idle is counted by device."""

from __future__ import annotations

import pytest

from fallow.services.placement.fit.filling import count_room
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.shared.cluster.capacity.gpu_types import idle_anywhere_milli, idle_milli
from fallow.shared.cluster.quota.summary import quota_rows
from fallow.shared.events.fields.values import GPU, JobSpec, Resources
from fallow.shared.events.reasons import PendingReason
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import World, admitted, cell_with, joined, report, set_quotas, spec_of


def with_a_worker_on_a_failed_gpu(*, exclusive: bool = False) -> World:
    """A node of 8 on which ada's job holds 6, one of them broken; 1 is guaranteed to bob, who lends none."""
    world = cell_with(joined("n1", 8))
    world.tell(set_quotas(share("ada"), share("bob", 1, lends=False)))
    world.tell(admitted(spec_of("runs", 6, exclusive=exclusive)))
    world.tell(report("n1", failed=(0,)))
    return world


def test_what_is_idle_counts_no_failed_gpu_twice() -> None:
    world = with_a_worker_on_a_failed_gpu()
    for state in (world.state, world.twin):
        assert (idle_milli(state, "gpu"), idle_anywhere_milli(state, "gpu")) == (2 * GPU, 2 * GPU)


def test_a_share_of_a_failed_gpu_is_not_idle_either() -> None:
    world = cell_with(joined("n1", 2))
    world.tell(admitted(spec_of("runs", resources=Resources(gpu_milli=GPU // 2))))
    world.tell(report("n1", failed=(0,)))
    assert idle_milli(world.state, "gpu") == GPU


def with_shares_on_a_failed_gpu_and_on_a_healthy_one() -> World:
    """A node of two, of each of which a job has 600 thousandths; the first one is broken."""
    world = cell_with(joined("n1", 2))
    world.tell(*(admitted(part_of_a_gpu(name, 600)) for name in ("broken", "healthy")))
    world.tell(report("n1", failed=(0,)))
    assert [world.job(name).workers[0].devices for name in ("broken", "healthy")] == [(0,), (1,)]
    return world


def part_of_a_gpu(name: str, milli: int, workers: int = 1) -> JobSpec:
    return spec_of(name, workers=workers, resources=Resources(gpu_milli=milli))


def test_a_share_goes_beside_another_on_a_healthy_gpu_and_on_no_failed_one() -> None:
    world = with_shares_on_a_failed_gpu_and_on_a_healthy_one()
    world.tell(admitted(part_of_a_gpu("more", 400)))
    assert world.job("more").workers[0].devices == (1,)


def test_what_is_left_of_a_failed_gpu_is_counted_as_room_for_no_share() -> None:
    world = with_shares_on_a_failed_gpu_and_on_a_healthy_one()
    gang, pool = part_of_a_gpu("gang", 200, workers=4), world.state.pools["train"]
    assert count_room(FreeCapacity.of(world.state, pool, gang), gang, 4) == 2
    world.tell(admitted(gang))
    assert world.nodes_of("gang") == []


@pytest.mark.parametrize(("gpus", "nodes", "reason"), [(1, ["n1"], None), (2, [], PendingReason.QUOTA_REACHED)])
def test_an_owner_keeps_just_what_it_does_not_lend(gpus: int, nodes: list[str], reason: PendingReason | None) -> None:
    world = with_a_worker_on_a_failed_gpu()
    world.tell(admitted(spec_of("guest", gpus)))
    assert (world.nodes_of("guest"), why(world, "guest")) == (nodes, reason)
    world.tell(admitted(spec_of("own", tenant="bob")))
    assert world.nodes_of("own") == ["n1"]


def test_what_is_available_is_what_is_free_by_device() -> None:
    rows = {row.tenant: row for row in quota_rows(with_a_worker_on_a_failed_gpu().state)}
    assert (rows["ada"].available_milli, rows["bob"].available_milli) == (GPU, 2 * GPU)
