"""Where workers go: the fullest node that fits, ties to the lowest, whole nodes and whole devices kept free."""

from __future__ import annotations

from fallow.shared.events.fields.values import Resources
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import (
    World,
    admitted,
    cell_with,
    finished,
    joined,
    kinds,
    quota,
    report,
    set_policy,
    set_quotas,
    spec_of,
)


def cell_of(*nodes: NodeJoined) -> World:
    """A cell that places by best fit."""
    world = cell_with(*nodes)
    world.tell(set_policy(placement="best-fit"))
    return world


def places_of(world: World, job: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(place.node, place.devices) for place in world.job(job).workers]


def share_of(job: str, milli: int, workers: int = 1) -> object:
    return admitted(spec_of(job, workers=workers, resources=Resources(gpu_milli=milli)))


def submit(world: World, *specs: object) -> None:
    world.tell(*specs)  # type: ignore[arg-type]


def test_a_worker_goes_to_the_fullest_node_that_fits_it() -> None:
    world = cell_of(joined("n1"), joined("n2"), joined("n3"))
    submit(world, admitted(spec_of("five", 5)), admitted(spec_of("six", 6)), admitted(spec_of("two", 2)))
    assert [world.nodes_of(job) for job in ("five", "six", "two")] == [["n1"], ["n2"], ["n2"]]


def test_among_equally_full_nodes_the_lowest_id_is_taken() -> None:
    world = cell_of(joined("n3"), joined("n1"), joined("n2"))
    submit(world, admitted(spec_of("a", 8)), admitted(spec_of("b", 8)), admitted(spec_of("c", 8)))
    assert [world.nodes_of(job) for job in "abc"] == [["n1"], ["n2"], ["n3"]]


def test_small_jobs_fill_one_node_and_leave_the_others_whole() -> None:
    world = cell_of(joined("n1"), joined("n2"))
    submit(world, *(admitted(spec_of(f"job-{number}")) for number in range(8)), admitted(spec_of("whole", 8)))
    assert {node for number in range(8) for node in world.nodes_of(f"job-{number}")} == {"n1"}
    assert world.nodes_of("whole") == ["n2"]


def test_the_workers_of_a_gang_are_packed_as_single_jobs_would_be() -> None:
    world = cell_of(joined("n1", 4), joined("n2", 8))
    submit(world, admitted(spec_of("gang", 2, workers=5)))
    assert world.nodes_of("gang") == ["n1", "n1", "n2", "n2", "n2"]


def test_a_worker_gets_the_lowest_free_devices() -> None:
    world = cell_of(joined("n1"))
    submit(world, admitted(spec_of("a", 2)), admitted(spec_of("b", 3)))
    world.tell(finished("a"))
    submit(world, admitted(spec_of("c", 4)))
    assert places_of(world, "c") == [("n1", (0, 1, 5, 6))]


def test_a_failed_device_is_passed_over() -> None:
    world = cell_of(joined("n1", 3))
    world.tell(report("n1", failed=(0,)))
    submit(world, admitted(spec_of("a", 2)))
    assert places_of(world, "a") == [("n1", (1, 2))]


def test_a_share_goes_to_the_shared_device_with_the_least_room() -> None:
    world = cell_of(joined("n1"))
    submit(world, share_of("a", 300), share_of("b", 800))
    submit(world, share_of("c", 200), share_of("d", 700))
    assert [places_of(world, job)[0][1] for job in "abcd"] == [(0,), (1,), (1,), (0,)]


def test_a_share_breaks_a_whole_device_only_where_no_shared_one_fits() -> None:
    world = cell_of(joined("n1"), joined("n2", 2))
    submit(world, share_of("a", 600), share_of("b", 600))
    assert [places_of(world, job) for job in "ab"] == [[("n2", (0,))], [("n2", (1,))]]


def test_the_shares_of_one_gang_may_sit_on_one_device() -> None:
    world = cell_of(joined("n1", 1))
    submit(world, share_of("gang", 250, workers=4))
    assert places_of(world, "gang") == [("n1", (0,))] * 4


def test_a_gang_of_shares_is_whole_or_waits() -> None:
    world = cell_of(joined("n1", 2))
    submit(world, admitted(spec_of("first")), share_of("gang", 250, workers=5))
    assert world.job("gang").deferred is PendingReason.FRAGMENTED
    assert world.job("gang").workers == ()


def test_a_failed_shared_device_gives_no_room_to_a_gang() -> None:
    world = cell_of(joined("n1", 2))
    submit(world, share_of("a", 500), share_of("b", 700), share_of("c", 300))
    world.tell(finished("b"), finished("c"))
    submit(world, share_of("d", 600), share_of("e", 500))
    world.tell(finished("d"))
    submit(world, share_of("f", 500))
    assert [places_of(world, job)[0][1] for job in "aef"] == [(0,), (0,), (1,)]
    world.tell(finished("e"), report("n1", failed=(1,)))
    submit(world, share_of("gang", 300, workers=2))
    assert world.job("gang").deferred is PendingReason.FRAGMENTED


def test_cpus_and_memory_of_a_node_bind_all_workers_of_a_gang_together() -> None:
    world = cell_of(joined("n1", cpu_milli=4_000, memory_mib=100), joined("n2", cpu_milli=4_000, memory_mib=100))
    wants = Resources(gpu_milli=1000, cpu_milli=2_000, memory_mib=30)
    submit(world, admitted(spec_of("gang", workers=3, resources=wants)))
    assert world.nodes_of("gang") == ["n1", "n1", "n2"]


def test_memory_alone_can_keep_a_job_waiting() -> None:
    world = cell_of(joined("n1", memory_mib=100))
    submit(world, *(admitted(spec_of(job, resources=Resources(memory_mib=60))) for job in ("a", "b")))
    assert world.job("b").deferred is PendingReason.FRAGMENTED


def test_a_job_that_names_a_gpu_type_gets_nothing_else() -> None:
    world = cell_of(joined("n1", gpu_type="a100"), joined("n2", gpu_type="h100"))
    submit(world, admitted(spec_of("a", gpu_type="h100")))
    assert world.nodes_of("a") == ["n2"]


def test_pools_are_tried_in_the_order_of_the_job() -> None:
    world = cell_of(joined("a1", 1, pool="first"), joined("b1", 8, pool="second"))
    both = ("second", "first")
    submit(world, admitted(spec_of("x", 8, pools=both)), admitted(spec_of("y", pools=both)))
    assert [world.nodes_of(job) for job in "xy"] == [["b1"], ["a1"]]


def test_a_gang_never_spans_two_pools() -> None:
    world = cell_of(joined("a1", 1, pool="first"), joined("b1", 1, pool="second"))
    submit(world, admitted(spec_of("gang", workers=2)))
    assert world.job("gang").deferred is PendingReason.NO_SUCH_NODES


def test_a_job_is_told_the_reason_that_is_nearest_to_a_start() -> None:
    world = cell_of(joined("n1", 4), joined("n2", 4), joined("full", 2, pool="other"))
    world.tell(set_quotas(quota("ada", 12)))
    submit(world, admitted(spec_of("filler", 2, pools=("other",), tenant="bob")))
    submit(world, admitted(spec_of("half", 3, workers=2)))
    submit(
        world,
        admitted(spec_of("fragments", 2, pools=("other", "train"))),
        admitted(spec_of("no-gpus", 2, pools=("other",))),
        admitted(spec_of("too-many", 9, workers=9)),
        admitted(spec_of("nowhere", pools=("elsewhere",))),
    )
    told = {job: world.job(job).deferred for job in ("fragments", "no-gpus", "too-many", "nowhere")}
    assert told == {
        "fragments": PendingReason.FRAGMENTED,
        "no-gpus": PendingReason.NO_FREE_GPUS,
        "too-many": PendingReason.NO_SUCH_NODES,
        "nowhere": PendingReason.NO_SUCH_NODES,
    }


def test_a_limit_keeps_a_job_waiting_until_use_goes_down() -> None:
    world = cell_of(joined("n1"))
    world.tell(set_quotas(quota("ada", 2)))
    submit(world, admitted(spec_of("a", 2)), admitted(spec_of("b", 1)), admitted(spec_of("c", 6, tenant="bob")))
    assert world.job("b").deferred is PendingReason.QUOTA_REACHED
    assert "JobStarted" in kinds(world.tell(finished("a")))
    assert world.nodes_of("b") == ["n1"]


def test_the_limit_of_a_parent_binds_its_children_together() -> None:
    world = cell_of(joined("n1"))
    world.tell(set_quotas(quota("lab", 3), quota("ada", None, "lab"), quota("bob", None, "lab")))
    submit(world, admitted(spec_of("a", 2)), admitted(spec_of("b", 2, tenant="bob")))
    assert world.job("b").deferred is PendingReason.QUOTA_REACHED


def test_a_limit_in_the_first_pool_sends_a_job_to_its_second() -> None:
    world = cell_of(joined("n1", gpu_type="h100"), joined("m1", gpu_type="a100", pool="other"))
    world.tell(set_quotas(quota("ada", 0, gpu_type="h100")))
    submit(world, admitted(spec_of("a", pools=("train", "other"))))
    assert world.nodes_of("a") == ["m1"]
