"""E-Binpack keeps whole nodes and whole leaf groups free: small jobs gather, large ones sit close together."""

from __future__ import annotations

from collections import Counter

from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobSpec, Level, NodeSpec, NodeStatus, Position, Resources, WorkerPlace
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.networks import Machine, gang, network, node_spec, nodes_of, start, unit_of


def run(state: CellState, spec: JobSpec) -> list[str]:
    """Place and start a job."""
    found = place_gang(state, spec)
    assert not isinstance(found, PendingReason)
    start(state, spec, found)
    return nodes_of(found)


def test_a_small_job_goes_to_a_node_in_use() -> None:
    state = network([Machine("a"), Machine("b"), Machine("b", used=1)])
    assert run(state, gang("small")) == ["n002"]


def test_of_equally_full_nodes_the_one_in_the_fuller_leaf_group_is_taken() -> None:
    state = network([Machine("a", used=1), Machine("a"), Machine("b", used=1), Machine("b", used=3)])
    assert run(state, gang("small", 2)) == ["n002"]


def test_a_whole_node_is_broken_in_the_fullest_leaf_group() -> None:
    state = network([Machine("a"), Machine("a"), Machine("b"), Machine("b", used=4)])
    assert run(state, gang("small")) == ["n002"]


def test_small_jobs_leave_whole_groups_free() -> None:
    state = network([Machine(leaf) for leaf in "aabb"])
    used = [run(state, gang(f"job-{number}"))[0] for number in range(8)]
    assert used == ["n000"] * 4 + ["n001"] * 4


def test_a_gang_of_whole_nodes_goes_to_the_smallest_group_that_holds_it() -> None:
    state = network([Machine(leaf) for leaf in "aaabbcccc"])
    assert run(state, gang("two", 4, 2)) == ["n003", "n004"]
    assert run(state, gang("three", 4, 3)) == ["n000", "n001", "n002"]


def test_a_gang_that_no_group_holds_uses_as_few_as_possible() -> None:
    state = network([Machine(leaf) for leaf in "abbcccdd"])
    used = run(state, gang("five", 4, 5))
    assert Counter(unit_of(state, Level.LEAF, node)[-1] for node in used) == {"c": 3, "b": 2}


def test_a_gang_that_no_group_holds_stays_within_one_spine() -> None:
    state = network([Machine(leaf, spine) for leaf, spine in ("as", "as", "bs", "ct", "ct", "ct", "dt")])
    used = run(state, gang("four", 4, 4))
    assert {unit_of(state, Level.SPINE, node)[-1] for node in used} == {"t"}


def test_the_workers_of_a_gang_share_a_node_if_one_holds_them() -> None:
    state = network([Machine("a", used=2), Machine("a", used=2), Machine("b")])
    assert run(state, gang("pair", 2, 2)) == ["n002", "n002"]


def test_a_gang_within_a_group_is_on_as_few_nodes_as_possible() -> None:
    state = network([Machine("a", used=2), Machine("a", used=2), Machine("a"), Machine("a")])
    assert run(state, gang("five", 1, 5)) == ["n000", "n002", "n002", "n002", "n002"]


def test_a_high_bandwidth_domain_is_closer_than_a_leaf() -> None:
    state = network([Machine("a", domain=domain) for domain in "xyyx"])
    assert run(state, gang("pair", 4, 2)) == ["n000", "n003"]


def test_leaves_of_one_name_under_two_spines_are_two() -> None:
    state = network([Machine("a", "s"), Machine("a", "t"), Machine("a", "t")])
    assert run(state, gang("pair", 4, 2)) == ["n001", "n002"]


def test_cpus_keep_a_gang_out_of_a_group_that_has_the_gpus() -> None:
    state = network(
        [Machine("a", cpu=1), Machine("a", cpu=1), Machine("b", cpu=4), Machine("b", cpu=4), Machine("b", cpu=4)]
    )
    assert run(state, gang("pair", 4, 2, cpu=2)) == ["n002", "n003"]


def test_a_cordoned_node_is_left_alone() -> None:
    state = network([Machine("a"), Machine("a"), Machine("b"), Machine("b"), Machine("b")])
    place_gang(state, gang("first-look"))
    apply(state, e.NodeChanged(spec=state.nodes["n000"].spec, boot="boot-1", status=NodeStatus.CORDONED), 0)
    assert run(state, gang("pair", 4, 2)) == ["n002", "n003"]


def test_a_node_that_is_moved_to_another_leaf_counts_there() -> None:
    state = network([Machine("a"), Machine("a"), Machine("b"), Machine("b"), Machine("b")])
    place_gang(state, gang("first-look"))
    apply(state, e.NodeChanged(spec=node_spec(0, Machine("c")), boot="boot-1", status=NodeStatus.READY), 0)
    assert run(state, gang("pair", 4, 2)) == ["n002", "n003"]


def test_the_gpus_of_one_worker_come_from_one_island() -> None:
    state = network([])
    spec = NodeSpec(id="n", pool="train", gpus=8, islands=(4, 4), position=Position(leaf="a"))
    apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    devices = []
    for job, gpus in (("one", 1), ("four", 4), ("two", 2)):
        found = place_gang(state, gang(job, gpus))
        assert not isinstance(found, PendingReason)
        start(state, gang(job, gpus), found)
        devices.append(found[0].devices)
    assert devices == [(0,), (4, 5, 6, 7), (1, 2)]


def test_a_node_with_room_on_one_island_is_taken_before_a_tighter_one() -> None:
    state = network([])
    for node in ("n1", "n2"):
        spec = NodeSpec(id=node, pool="train", gpus=8, islands=(4, 4), position=Position(leaf="a"))
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    apart = tuple(
        WorkerPlace(rank=rank, node="n1", devices=(device,), gpu_milli=1000) for rank, device in enumerate((0, 1, 4, 5))
    )
    start(state, gang("apart", 1, 4), apart)
    assert run(state, gang("pair", 2)) == ["n1"]
    assert run(state, gang("four", 4)) == ["n2"]


def test_islands_count_for_gangs_as_for_single_workers() -> None:
    state = network([])
    for node in ("n1", "n2", "n3"):
        spec = NodeSpec(id=node, pool="train", gpus=8, islands=(4, 4), position=Position(leaf="a"))
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    apart = tuple(
        WorkerPlace(rank=rank, node="n1", devices=(device,), gpu_milli=1000) for rank, device in enumerate((0, 5, 6, 7))
    )
    start(state, gang("apart", 1, 4), apart)
    assert run(state, gang("six", 2, 6)) == ["n2"] * 4 + ["n3"] * 2
    assert run(state, gang("two", 2, 2)) == ["n3"] * 2
    assert run(state, gang("one", 2)) == ["n1"]


def test_a_worker_larger_than_an_island_uses_as_few_as_possible() -> None:
    state = network([])
    spec = NodeSpec(id="n", pool="train", gpus=8, islands=(2, 2, 4), position=Position(leaf="a"))
    apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    found = place_gang(state, gang("six", 6))
    assert not isinstance(found, PendingReason)
    assert found[0].devices == (0, 1, 4, 5, 6, 7)


def test_shares_of_devices_gather_on_shared_ones() -> None:
    state = network([Machine("a"), Machine("b", used=1)])
    run(state, gang("half", milli=500))
    assert run(state, JobSpec(id="other", tenant="ada", resources=Resources(gpu_milli=500))) == ["n001"]
