"""A look for places that found none: for which nodes it holds."""

from __future__ import annotations

import pytest

from fallow.services.placement.queue.lines.row import InVain
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.placement.lines.test_wakes_by_time import submit, world_of
from tests.placement.worlds.world import joined, quota, set_quotas


@pytest.mark.parametrize(
    ("beside", "holds"),
    [
        ({"train": 0b011}, True),
        ({"train": 0b001}, True),
        ({}, True),
        ({"train": 0b100}, False),
        ({"train": 0b111}, False),
        ({"train": 0b001, "extra": 0b1}, False),
    ],
)
def test_a_look_holds_for_nodes_that_were_all_looked_at(beside: dict[str, int], *, holds: bool) -> None:
    assert InVain(1, PendingReason.NO_FREE_GPUS, {"train": 0b011}).holds_for(beside) is holds


def test_a_job_that_found_no_room_beside_a_head_keeps_none_there_once_its_tenant_is_at_its_limit() -> None:
    """Since a job of its tenant has started behind it: then it is the limit that it waits for."""
    world = world_of(Queue(name="line", discipline=QueueDiscipline.STRICT_FIFO))
    world.tell(*(joined(name, 8, labels={"at": name}) for name in ("n1", "n2", "n3")), set_quotas(quota("bob", 8)))
    submit(world, "fill-1", 6, "eve", node_labels=("at=n1",))
    submit(world, "fill-2", 6, "eve", node_labels=("at=n2",))
    submit(world, "head", 8, "ada", node_labels=("at=n1",))
    submit(world, "beside", 4, "bob", node_labels=("at=n1|n2",))
    submit(world, "more", 6, "bob", node_labels=("at=n3",))
    assert world.nodes_of("more") == ["n3"]
    submit(world, "small", 2, "eve", node_labels=("at=n2",))
    assert world.nodes_of("small") == ["n2"]


def test_so_does_one_whose_tenant_comes_to_its_limit_by_a_job_of_a_queue_that_keeps_nothing_back() -> None:
    world = world_of(
        Queue(name="line", discipline=QueueDiscipline.STRICT_FIFO),
        Queue(name="later", discipline=QueueDiscipline.BEST_EFFORT_FIFO),
    )
    world.tell(*(joined(name, 8, labels={"at": name}) for name in ("n1", "n2", "n3")), set_quotas(quota("bob", 8)))
    submit(world, "fill-1", 6, "eve", node_labels=("at=n1",))
    submit(world, "fill-2", 6, "eve", node_labels=("at=n2",))
    submit(world, "head", 8, "ada", node_labels=("at=n1",))
    submit(world, "beside", 4, "bob", node_labels=("at=n1|n2",))
    submit(world, "more", 6, "bob", node_labels=("at=n3",), queue="later")
    assert world.nodes_of("more") == ["n3"]
    submit(world, "small", 2, "eve", node_labels=("at=n2",))
    assert world.nodes_of("small") == ["n2"]
