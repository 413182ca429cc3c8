"""Labels and taints while a cell runs: nodes that change, that are drained, and jobs that wait for the right ones."""

from __future__ import annotations

from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Resources
from fallow.shared.events.operations import Drain, Uncordon
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import CELL, World, admitted, cell_with, joined, kinds, spec_of, started, stopped


def again(world: World, node: str, **spec: object) -> list[str]:
    """The node joins again in its boot, as another."""
    event = replace(joined(node, **spec), seq=world.state.nodes[node].seq + 1)  # type: ignore[arg-type]
    return kinds(world.tell(event))


def test_a_job_waits_until_a_node_has_the_right_label() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(admitted(spec_of("job", 1, node_labels=("zone=a",))))
    assert world.job("job").deferred is PendingReason.NO_SUCH_NODES
    again(world, "n2", labels={"zone": "a"})
    assert world.nodes_of("job") == ["n2"]


def test_a_node_that_joins_again_in_its_boot_changes_its_labels_and_taints_alone() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job", 1))
    again(world, "n1", gpus=4, labels={"zone": "a"}, taints=("hot",))
    spec = world.state.nodes["n1"].spec
    assert (spec.gpus, spec.labels, spec.taints) == (8, {"zone": "a"}, ("hot",))
    assert world.nodes_of("job") == ["n1"]


def test_a_drained_node_that_joins_again_stays_drained() -> None:
    world = cell_with(joined("n1"))
    world.tell(Drain(cell=CELL, node="n1", deadline_ms=10_000))
    again(world, "n1", labels={"zone": "a"})
    assert (world.state.nodes["n1"].status, world.state.nodes["n1"].drain_deadline_ms) == ("draining", 10_000)


def test_at_a_drains_deadline_a_job_goes_to_another_of_its_nodes_and_to_no_other() -> None:
    world = cell_with(joined("n1", labels={"zone": "a"}), joined("n2"), joined("n3", labels={"zone": "a"}))
    world.run(spec_of("filler", 8, node_labels=("zone=a",)))
    world.run(spec_of("job", 8, node_labels=("zone=a",), exclusive=True))
    assert (world.nodes_of("filler"), world.nodes_of("job")) == (["n1"], ["n3"])
    world.tell(started("job", "n3"), Drain(cell=CELL, node="n3", deadline_ms=world.now_ms))
    world.tell(stopped("job", "n3"))
    assert (world.nodes_of("job"), world.job("job").deferred) == ([], PendingReason.NO_FREE_GPUS)
    world.tell(Uncordon(cell=CELL, node="n3"))
    assert world.nodes_of("job") == ["n3"]


def test_a_share_that_fits_exactly_is_found_for_a_job_that_may_use_some_nodes_only() -> None:
    world = cell_with(joined("n1", 1, labels={"zone": "a"}), joined("n2", 1))
    half = Resources(gpu_milli=500)
    for name in ("one", "two"):
        world.tell(admitted(spec_of(name, resources=half, node_labels=("zone=a",))))
        assert world.nodes_of(name) == ["n1"], name
