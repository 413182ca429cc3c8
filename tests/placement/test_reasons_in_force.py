"""A recorded reason is the one that a new writer would find: nothing that changes it passes by unnoticed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.config import CellFile, CellPart, Pool, Queue, Tenant
from shared.cluster.job import JobStatus
from shared.events.operations import RemoveNode, SetPolicy
from shared.events.queue import QueueDiscipline
from shared.events.reasons import DeferCode
from shared.events.value import replace
from shared.events.values import NodeStatus
from tests.placement.world import CELL, World, admitted, cell_with, joined, report, spec_of

NODES = ("a", "b", "c", "d")
FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=(Pool(name="train", gpus=1_000),),
            queues=(Queue(name="line", discipline=QueueDiscipline.BACKFILL),),
        ),
    ),
    tenants=(Tenant(name="ada"),),
)


def cell_of(*nodes: str) -> World:
    world = cell_with(*map(joined, nodes), file=FILE)
    policy = replace(world.state.policy, breaker_wait_wall_ms=60_000, backfill_wait_ms=10_000, remove_lost_ms=0)
    world.tell(SetPolicy(cell=CELL, policy=policy))
    return world


def pass_seconds(world: World, seconds: int, *speaking: str) -> None:
    for _ in range(seconds):
        world.hand_over(*map(report, speaking))
        world.pass_time(1_000)


def reasons(world: World) -> dict[str, DeferCode | None]:
    return {job.id: job.deferred for job in world.state.jobs.values() if job.status is JobStatus.QUEUED}


def test_a_head_that_no_node_can_hold_since_one_was_lost_blocks_nobody() -> None:
    world = cell_of(*NODES)
    pass_seconds(world, 20, "b", "c", "d")
    world.tell(admitted(spec_of("head", gpus=8, workers=4)))
    pass_seconds(world, 120, "b", "c", "d")
    assert world.state.nodes["a"].status is NodeStatus.LOST
    world.tell(admitted(spec_of("next", gpus=8)))
    pass_seconds(world, 60, "b", "c", "d")
    assert world.job("head").deferred is DeferCode.NO_SUCH_NODES
    assert world.job("next").status is not JobStatus.QUEUED


def test_a_job_of_a_cell_whose_nodes_are_lost_does_not_wait_for_silent_ones() -> None:
    world = cell_of("a")
    pass_seconds(world, 20)
    world.tell(admitted(spec_of("early", gpus=8)))
    assert world.job("early").deferred is DeferCode.NODES_SILENT
    pass_seconds(world, 120)
    world.tell(admitted(spec_of("late", gpus=8)))
    assert reasons(world) == {"early": DeferCode.NO_SUCH_NODES, "late": DeferCode.NO_SUCH_NODES}


MOVES = st.one_of(
    st.tuples(st.just("wait"), st.sets(st.sampled_from(NODES)), st.sampled_from((5, 30, 90))),
    st.tuples(st.just("submit"), st.sampled_from((1, 4, 8)), st.integers(1, 4)),
    st.tuples(st.just("remove"), st.sampled_from(NODES), st.just(0)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(MOVES, min_size=3, max_size=10))
def test_a_new_writer_records_no_other_reason(moves: list[tuple[str, object, int]]) -> None:
    world = cell_of(*NODES)
    for number, (move, what, how) in enumerate(moves):
        if move == "wait":
            pass_seconds(world, how, *sorted(what))  # type: ignore[call-overload]
        elif move == "submit":
            world.tell(admitted(spec_of(f"job-{number}", gpus=what, workers=how)))  # type: ignore[arg-type]
        else:
            world.tell(RemoveNode(cell=CELL, node=what, by="operator"))  # type: ignore[arg-type]
    world.rest()
    recorded = reasons(world)
    world.restart()
    world.rest()
    assert reasons(world) == recorded
