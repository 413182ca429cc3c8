"""A job that no node of a pool may take is told so, and not that it is too large."""

from __future__ import annotations

import pytest

from fallow.cli.job.story import reason
from fallow.cli.log.why import DEFERRED
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.effects import JobDeferred
from fallow.shared.events.fields.values import JobSpec
from tests.placement.worlds.world import World, admitted, cell_with, joined, spec_of

LABELS = "no node of it may take the job, however small that is, by its zone, labels and taints"
SIZE = "the most that any node has that it may use"


def told(world: World, job: str) -> str:
    found = reason.reason_in(world.state, job, [Queue(name="default")])
    assert found is not None
    return "\n".join(reason.lines(*found))


@pytest.mark.parametrize(
    ("spec", "said", "not_said"),
    [
        (spec_of("late", 1, node_labels=("zone=c",)), LABELS, SIZE),
        (spec_of("late", 9), SIZE, "however small"),
        (spec_of("late", 1, gpu_type="other"), "no node of it has GPUs of type other", SIZE),
    ],
)
def test_a_job_that_no_node_may_take_is_told_so(spec: JobSpec, said: str, not_said: str) -> None:
    world = cell_with(joined("n1", labels={"zone": "a"}), joined("n2", labels={"zone": "b"}))
    world.tell(admitted(spec))
    assert said in told(world, "late")
    assert not_said not in told(world, "late")


def test_a_taint_that_every_node_has_is_told_so() -> None:
    world = cell_with(joined("n1", taints=("hot",)))
    world.tell(admitted(spec_of("late", 1)))
    assert LABELS in told(world, "late")


def test_pools_without_nodes_are_told_so() -> None:
    world = cell_with()
    world.tell(admitted(spec_of("late", 1)))
    assert "no pool that it may use has a node: none has joined yet, or all were removed" in told(world, "late")


@pytest.mark.parametrize("pools", [(), ("train",)])
def test_before_the_first_node_has_joined_the_reason_is_of_nodes_that_have_joined_recorded_and_live(
    pools: tuple[str, ...],
) -> None:
    world = cell_with()
    effects = world.tell(admitted(spec_of("early", 1, pools=pools)))
    deferred = next(effect for effect in effects if isinstance(effect, JobDeferred))
    words = "the nodes that have joined and are not lost could not hold it, even if empty"
    assert DEFERRED[deferred.code] == words
    assert words in told(world, "early")
    assert "none has joined yet, or all were removed" in told(world, "early")
