"""The story of a job: what happened to it, and to the nodes on which it was at that time."""

from __future__ import annotations

from fallow.cli.log.why import Why, in_vain
from fallow.shared.events.operations import Drain, PlanMaintenance
from tests.placement.worlds.replicas import all_start, leave, service
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    cell_with,
    joined,
    lost,
    spec_of,
    started,
    stopped,
)


def told(world: World, job: str) -> list[str]:
    why = Why(job)
    for decision in world.decisions:
        why.take(decision)
    return [sentence for step in why.steps for sentence in step.sentences]


def test_maintenance_that_stops_a_job_stands_in_its_story() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("job")))
    world.tell(started("job"))
    world.tell(PlanMaintenance(cell=CELL, node="n1", begin_ms=10_000, end_ms=20_000, reason="new memory"))
    world.pass_time(10_000)
    world.tell(stopped("job"))
    story = told(world, "job")
    assert any("Maintenance of node n1 is planned" in sentence for sentence in story)
    assert any("Maintenance of node n1 has begun" in sentence for sentence in story)


def test_what_becomes_of_a_node_that_a_service_has_left_is_no_part_of_its_story() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(admitted(service("web", 2, gpus=4)))
    all_start(world, "web")
    (first,) = set(world.nodes_of("web"))
    world.tell(Drain(cell=CELL, node=first))
    for _ in range(4):
        all_start(world, "web")
        leave(world, "web")
    assert first not in world.nodes_of("web")
    before = told(world, "web")
    world.tell(lost(first))
    assert told(world, "web") == before


def test_of_a_job_that_was_only_asked_about_there_is_no_story() -> None:
    world = cell_with(joined("n1"))
    world.tell(cancel("job"))
    world.tell(cancel("job"))
    why = Why("job")
    for decision in world.decisions:
        why.take(decision)
    assert (len(why.steps), why.is_there) == (2, False)
    assert in_vain(why.refused) == ", but of 2 requests about it, refused since there was none"
    world.tell(admitted(spec_of("job")))
    why.take(world.decisions[-1])
    assert why.is_there
    assert in_vain(0) == ""
