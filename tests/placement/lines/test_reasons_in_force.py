"""A recorded reason is the one that a new writer would find: what changes it is noticed, also behind a head."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import RemoveNode, SetPolicy
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.quotas.test_borrowing import why
from tests.placement.worlds.world import CELL, World, admitted, cell_with, joined, lost, report, spec_of

NODES = ("a", "b", "c", "d")


def file_of(discipline: QueueDiscipline) -> CellFile:
    queues = (Queue(name="line", discipline=discipline),)
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=1_000),), queues=queues)
    return CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob")))


def cell_of(*nodes: str) -> World:
    world = cell_with(*map(joined, nodes), file=file_of(QueueDiscipline.BACKFILL))
    policy = replace(world.state.policy, breaker_wait_wall_ms=60_000, backfill_wait_ms=10_000, remove_lost_ms=0)
    world.tell(SetPolicy(cell=CELL, policy=policy))
    return world


def pass_seconds(world: World, seconds: int, *speaking: str) -> None:
    for _ in range(seconds):
        world.hand_over(*map(report, speaking))
        world.pass_time(1_000)


def reasons(world: World) -> dict[str, PendingReason | None]:
    return {job.id: job.deferred for job in world.state.jobs.values() if job.status is JobStatus.QUEUED}


def test_a_head_that_no_node_can_hold_since_one_was_lost_blocks_nobody() -> None:
    world = cell_of(*NODES)
    pass_seconds(world, 20, "b", "c", "d")
    world.tell(admitted(spec_of("head", gpus=8, workers=4)))
    pass_seconds(world, 120, "b", "c", "d")
    assert world.state.nodes["a"].status is NodeStatus.LOST
    world.tell(admitted(spec_of("next", gpus=8)))
    pass_seconds(world, 60, "b", "c", "d")
    assert world.job("head").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("next").status is not JobStatus.QUEUED


def test_a_job_of_a_cell_whose_nodes_are_lost_does_not_wait_for_silent_ones() -> None:
    world = cell_of("a")
    pass_seconds(world, 20)
    world.tell(admitted(spec_of("early", gpus=8)))
    assert world.job("early").deferred is PendingReason.NODES_SILENT
    pass_seconds(world, 120)
    world.tell(admitted(spec_of("late", gpus=8)))
    assert reasons(world) == {"early": PendingReason.NO_SUCH_NODES, "late": PendingReason.NO_SUCH_NODES}


def behind_a_head() -> World:
    """Two nodes that are in use, and a gang before all others that waits for both."""
    world = World(file_of(QueueDiscipline.STRICT_FIFO))
    world.tell(joined("n1", 8), joined("n2", 8))
    world.tell(*(admitted(spec_of(f"busy-{n}", 8, tenant="bob", queue="line"), n) for n in (1, 2)))
    world.tell(admitted(spec_of("head", 8, 2, tenant="bob", queue="line"), 3))
    return world


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize("many", [1, 70, 250])
def test_behind_a_head_the_reason_changes_when_a_node_that_fits_has_joined(many: int, takes_over: bool) -> None:
    world = behind_a_head()
    jobs = [f"j{n}" for n in range(many)]
    world.tell(*(admitted(spec_of(job, node_labels=("zone=b",), queue="line"), 4) for job in jobs))
    for _ in range(3):
        world.rest()
        world.pass_time(1)
    assert {why(world, job) for job in jobs} == {PendingReason.NO_SUCH_NODES}
    if takes_over:
        world.restart()
    world.tell(joined("n3", 8, labels={"zone": "b"}))
    for _ in range(3):
        world.tell(admitted(spec_of(f"later-{world.now_ms}", queue="line"), 5))
        world.pass_time(1)
    assert {why(world, job) for job in jobs} == {PendingReason.BEHIND_HEAD}


def test_behind_a_head_it_changes_back_when_that_node_is_lost() -> None:
    world = behind_a_head()
    world.tell(admitted(spec_of("job", node_labels=("zone=b",), queue="line"), 4))
    for node in ("n3", "n4"):
        assert why(world, "job") is PendingReason.NO_SUCH_NODES
        world.tell(joined(node, 8, labels={"zone": "b"}))
        assert why(world, "job") is PendingReason.BEHIND_HEAD
        world.tell(lost(node))
    assert why(world, "job") is PendingReason.NO_SUCH_NODES


SUBMIT = st.tuples(st.just("submit"), st.sampled_from((1, 4, 8)), st.integers(1, 4))
MOVES = st.one_of(
    st.tuples(st.just("wait"), st.sets(st.sampled_from(NODES)), st.sampled_from((5, 30, 90))),
    SUBMIT,
    st.tuples(st.just("remove"), st.sampled_from(NODES), st.just(0)),
)
FULL, TOO_MANY = ("submit", 8, len(NODES)), ("submit", 8, len(NODES) + 1)
"""A gang that takes the whole cell, and one that the cell does not hold."""

CROWD = st.builds(
    lambda first, then, last: [FULL, *first, *then, TOO_MANY, *last],
    st.lists(SUBMIT, min_size=1, max_size=3),
    st.lists(MOVES, max_size=2),
    st.lists(MOVES, max_size=2),
)
"""More jobs come than the cell has room for."""

STORIES = st.lists(MOVES, min_size=3, max_size=10) | CROWD


@given(STORIES)
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
    recorded, told = reasons(world), codes_told(world)
    reaches("jobs wait for several reasons when another writer takes over", len({*recorded.values()}) > 1)
    world.restart()
    world.rest()
    newest = reasons(world)
    assert newest.keys() == recorded.keys()
    for job, code in newest.items():
        assert recorded[job] is code or (is_of_less_room_since(recorded[job], code) and code in told[job]), job


def codes_told(world: World) -> dict[str, tuple[PendingReason, ...]]:
    """What `fallow job` tells of each waiting job: it looks anew."""
    queues = file_of(QueueDiscipline.BACKFILL).cells[0].queues
    waiting = [job for job in world.state.jobs.values() if job.status is JobStatus.QUEUED]
    return {job.id: why_not(world.state, job, queues, world.state.at_ms).codes for job in waiting}


def is_of_less_room_since(recorded: PendingReason | None, newest: PendingReason | None) -> bool:
    """Whether others may have taken so much since the last look that the one reason has become the other: placement
    does not look again at what waits for room before something becomes free.
    """
    return newest is PendingReason.NO_FREE_GPUS and recorded in (PendingReason.NODES_SILENT, PendingReason.FRAGMENTED)
