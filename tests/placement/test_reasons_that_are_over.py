"""In a strict queue a job is told why it waits now, when what it was told before is over: a node that it could use has
joined.
"""

from __future__ import annotations

import pytest

from shared.cluster.config import CellFile, CellPart, Pool, Queue, Tenant
from shared.events.queue import QueueDiscipline
from shared.events.reasons import DeferCode
from tests.placement.test_borrowing import why
from tests.placement.world import CELL, World, admitted, joined, lost, spec_of

FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=(Pool(name="train", gpus=100),),
            queues=(Queue(name="line", discipline=QueueDiscipline.STRICT_FIFO),),
        ),
    ),
    tenants=(Tenant(name="ada"), Tenant(name="bob")),
)


def behind_a_head() -> World:
    """Two nodes that are in use, and a gang before all others that waits for both."""
    world = World(FILE)
    world.tell(joined("n1", 8), joined("n2", 8))
    world.tell(*(admitted(spec_of(f"busy-{n}", 8, tenant="bob", queue="line"), n) for n in (1, 2)))
    world.tell(admitted(spec_of("head", 8, 2, tenant="bob", queue="line"), 3))
    return world


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize("many", [1, 70, 250])
def test_a_node_that_fits_has_joined(many: int, takes_over: bool) -> None:
    world = behind_a_head()
    jobs = [f"j{n}" for n in range(many)]
    world.tell(*(admitted(spec_of(job, node_labels=("zone=b",), queue="line"), 4) for job in jobs))
    for _ in range(3):
        world.rest()
        world.pass_time(1)
    assert {why(world, job) for job in jobs} == {DeferCode.NO_SUCH_NODES}
    if takes_over:
        world.restart()
    world.tell(joined("n3", 8, labels={"zone": "b"}))
    for _ in range(3):
        world.tell(admitted(spec_of(f"later-{world.now_ms}", queue="line"), 5))
        world.pass_time(1)
    assert {why(world, job) for job in jobs} == {DeferCode.BEHIND_HEAD}


def test_it_is_told_again_that_there_is_none_when_the_node_is_lost() -> None:
    world = behind_a_head()
    world.tell(admitted(spec_of("job", node_labels=("zone=b",), queue="line"), 4))
    for node in ("n3", "n4"):
        assert why(world, "job") is DeferCode.NO_SUCH_NODES
        world.tell(joined(node, 8, labels={"zone": "b"}))
        assert why(world, "job") is DeferCode.BEHIND_HEAD
        world.tell(lost(node))
    assert why(world, "job") is DeferCode.NO_SUCH_NODES
