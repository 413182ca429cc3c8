"""An owner gets what is guaranteed to it though some of its borrowers never end, and nothing tells which."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.owners.patience import PATIENCE_MS, changes_ms, turned_since_ms
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.events.fields.values import JobSpec, Level, Position, TopologyRequest, Wish
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.world import World, admitted, cell_with, finished, joined, set_quotas, spec_of

RACK = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
RUN_MS = 1_500_000


def cell(nodes: int, *, in_rack: int = 1, milli: int = 8) -> World:
    """Empty nodes of eight GPUs, of which so many stand in a rack. The owner is ada, and bob borrows."""
    world = cell_with()
    world.tell(set_quotas(share("ada", milli), share("bob")))
    world.tell(*(joined(f"n{n}", position=Position(leaf=f"rack-{n // in_rack}")) for n in range(nodes)))
    return world


def borrow(world: World, name: str, gpus: int = 4, **more: Any) -> None:
    """One more job of bob."""
    world.tell(admitted(spec_of(name, gpus, tenant="bob", **more), world.now_ms))


def lend_until_it_starts(world: World, own: JobSpec, rounds: int) -> int:
    """Let ada's job wait while bob has ever another job, and each but those that are called `endless` ends in its time.
    How much of the cell was idle at the most, in GPUs.
    """
    world.tell(admitted(own, world.now_ms))
    began, idle = dict[str, int](), 0
    for number in range(rounds):
        running = [job.id for job in world.state.jobs.values() if job.status in HOLDING]
        began |= {name: world.now_ms for name in running if name not in began}
        over = [name for name in running if "endless" not in name and world.now_ms - began[name] >= RUN_MS]
        for name in over:
            world.tell(*(finished(name, node, world.job(name).attempt) for node in dict.fromkeys(world.nodes_of(name))))
        for more in range(len(world.state.nodes)):
            borrow(world, f"more-{number}-{more}")
        if world.job(own.id).status in HOLDING:
            return idle
        idle = max(idle, sum(node.gpus_free for node in world.state.nodes.values()))
        world.now_ms += 300_000
    raise AssertionError(f"{own.id} waits after {world.now_ms} ms")


@pytest.mark.parametrize("endless", [1, 2, 3])
def test_an_owner_gets_a_node_on_which_all_runs_end_though_others_have_more_free_gpus(endless: int) -> None:
    world = cell(4)
    for number in range(endless):
        borrow(world, f"endless-{number}", 1)
        borrow(world, f"rest-{number}", 7)
    for number in range(4):
        borrow(world, f"first-{number}")
    idle = lend_until_it_starts(world, spec_of("own", 8), rounds=100)
    assert idle <= 7 + 8 + 3 * (endless - 1), "two nodes are kept at the most; on the others four GPUs run beside one"
    assert not [job for job in world.state.jobs.values() if job.id.startswith("endless") and job.status not in HOLDING]


def test_a_gang_that_must_be_in_one_rack_gets_one_without_endless_runs() -> None:
    world = cell(4, in_rack=2, milli=16)
    borrow(world, "endless", 1)
    borrow(world, "rest", 7)
    for number in range(6):
        borrow(world, f"first-{number}")
    lend_until_it_starts(world, spec_of("own", 8, 2, topology=RACK), rounds=100)
    assert sorted(world.nodes_of("own")) == ["n2", "n3"]


def young_beside(world: World, first: str) -> None:
    """A node is in use by this job, for long, and 7 of its GPUs are idle; the runs of the other one are of 0.7 of the
    first wait, and four of its GPUs are idle.
    """
    borrow(world, "rest", 7)
    for name in ("old-1", "old-2"):
        borrow(world, name)
    world.tell(finished("rest", world.nodes_of("rest")[0]), admitted(spec_of("own", 8), world.now_ms))
    world.now_ms += 7 * PATIENCE_MS // 10
    for number in (1, 2):
        world.tell(finished(f"old-{number}", world.nodes_of(f"old-{number}")[0]))
        borrow(world, f"young-{number}")
        assert world.job(f"young-{number}").status in HOLDING
    world.tell(finished("young-1", world.nodes_of("young-1")[0]))
    assert world.nodes_of(first) != world.nodes_of("young-2")
    world.now_ms += 4 * PATIENCE_MS // 10
    borrow(world, "next")


def test_nothing_more_is_kept_where_a_limit_ends_the_run_that_is_there() -> None:
    """The other node has young runs alone: there more could be kept."""
    world = cell(2)
    borrow(world, "limited", 1, max_run_ms=100 * PATIENCE_MS)
    young_beside(world, "limited")
    assert world.job("next").status in HOLDING
    assert [kept.is_more for kept in world.state.tree.kept.all] == [False]


def test_as_soon_as_the_owner_has_waited_for_long_more_is_kept_though_nothing_else_has_changed() -> None:
    world = cell(2)
    borrow(world, "endless", 1)
    young_beside(world, "endless")
    assert world.job("next").status not in HOLDING
    assert [kept.is_more for kept in world.state.tree.kept.all] == [False, True]


def test_it_is_ten_minutes_before_any_run_counts_as_endless() -> None:
    assert turned_since_ms(0, 599_999) is None
    assert turned_since_ms(0, 600_000) == 300_000


@pytest.mark.parametrize(("waited", "since"), [(0, None), (1, 0.5), (1.9, 0.5), (2, 1), (3.9, 1), (4, 2), (9, 4)])
def test_runs_that_began_before_the_middle_of_the_wait_when_it_doubled_last_may_be_endless(
    waited: float, since: float | None
) -> None:
    now_ms = 77 + int(waited * PATIENCE_MS)
    found = turned_since_ms(77, now_ms)
    assert found == (None if since is None else 77 + int(since * PATIENCE_MS))
    assert turned_since_ms(77, changes_ms(77, now_ms) - 1) == found != turned_since_ms(77, changes_ms(77, now_ms))
