"""An exclusive job that requires a place in the network goes to the nodes there with the fewest GPUs, where others
leave it no more; and where they leave it too few in every unit, it keeps no job back.
"""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import POLICIES
from fallow.services.placement.search.whole_nodes import cheapest_places, takes_milli
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.fields.values import GPU, JobSpec, Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import CELL, World, admitted, cell_with, joined, set_policy, set_quotas, spec_of

KEEP_BACK = [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL]


def world_of(discipline: QueueDiscipline, *nodes: NodeJoined) -> World:
    queues = (Queue(name="line", discipline=discipline),)
    part = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=100),),
        queues=queues,
        policy=CellPolicy(backfill_wait_ms=20),
    )
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    world.tell(*nodes)
    return world


def alone(workers: int, level: Level, slice_workers: int | None = None, gpus: int = 1) -> JobSpec:
    return JobSpec(
        id="head",
        tenant="ada",
        queue="line",
        workers=workers,
        exclusive=True,
        resources=Resources(gpu_milli=gpus * GPU),
        topology=TopologyRequest(level=level, wish=Wish.REQUIRED, slice_workers=slice_workers),
    )


@pytest.mark.parametrize("placement", POLICIES)
@pytest.mark.parametrize("discipline", KEEP_BACK)
@pytest.mark.parametrize(("level", "slice_workers"), [(Level.NODE, None), (Level.LEAF, None), (Level.LEAF, 1)])
def test_it_goes_to_the_unit_where_it_takes_the_least(
    discipline: QueueDiscipline, level: Level, slice_workers: int | None, placement: str
) -> None:
    """Both nodes have room for two workers: the policy would take the first one, which is the larger."""
    here, there = Position(leaf="l1"), Position(leaf="l2")
    world = world_of(discipline, joined("first", 5, position=here), joined("small", 4, position=there))
    world.tell(set_policy(placement=placement), set_quotas(share("ada"), share("bob", 5, lends=False)))
    world.tell(admitted(alone(2, level, slice_workers, gpus=2)))
    assert {*world.nodes_of("head")} == {"small"}


@pytest.mark.parametrize("discipline", KEEP_BACK)
@pytest.mark.parametrize(("level", "slice_workers"), [(Level.NODE, None), (Level.LEAF, None), (Level.LEAF, 2)])
def test_one_that_others_leave_too_few_in_every_unit_keeps_nobody_back(
    discipline: QueueDiscipline, level: Level, slice_workers: int | None
) -> None:
    """Each unit has a small node, and these two would do, were it not for the place that the job requires."""
    nodes = [joined(f"n{at}{gpus}", gpus, position=Position(leaf=f"l{at}")) for at in (1, 2) for gpus in (1, 8)]
    world = world_of(discipline, *nodes)
    world.tell(set_quotas(share("ada"), share("bob", 11, lends=False)))
    world.tell(admitted(alone(2, level, slice_workers)), admitted(spec_of("behind", queue="line"), 1))
    world.pass_time(40)
    world.tell(admitted(spec_of("later", queue="line"), 2))
    assert (why(world, "head"), why(world, "behind"), why(world, "later")) == (PendingReason.QUOTA_REACHED, None, None)


def least(nodes: list[tuple[int, int]], workers: int, slice_: int) -> int | None:
    """The fewest GPUs of nodes, each of so many GPUs in some leaf, that hold so many workers of one GPU each, slice by
    slice in one leaf: by trying each set of nodes.
    """
    found: int | None = None
    for chosen in product((False, True), repeat=len(nodes)):
        room: dict[int, int] = {}
        for is_in, (gpus, leaf) in zip(chosen, nodes, strict=True):
            room[leaf] = room.get(leaf, 0) + (gpus if is_in else 0)
        whole, rest = divmod(workers, slice_)
        slices = sum(each // slice_ for each in room.values())
        is_beside = any(each % slice_ >= rest for each in room.values())
        if slices > whole or (slices == whole and (not rest or is_beside)):
            gpus = sum(gpus for is_in, (gpus, _) in zip(chosen, nodes, strict=True) if is_in)
            found = gpus if found is None else min(found, gpus)
    return found


@given(st.randoms(use_true_random=False))
def test_the_fewest_gpus_are_found_in_units_and_the_places_are_there(random: Random) -> None:
    nodes = [(random.choice((1, 2, 3, 4, 8)), random.randint(0, 2)) for _ in range(random.randint(1, 7))]
    world = cell_with(
        *(joined(f"n{n}", gpus, position=Position(leaf=f"l{leaf}")) for n, (gpus, leaf) in enumerate(nodes))
    )
    workers = random.randint(1, 8)
    slice_ = random.choice((None, *range(1, workers + 1)))
    spec, most = alone(workers, Level.LEAF, slice_), least(nodes, workers, slice_ or workers)
    places = cheapest_places(world.state, world.state.pools["train"], spec)
    units = {nodes[int(place.node[1:])][1] for place in places or ()}
    reaches("slices of a gang are in several units", len(units) > 1)
    assert (places is None) is (most is None)
    if places is None or most is None:
        return
    assert takes_milli(world.state, spec, "gpu") == most * GPU
    assert sum(nodes[int(node[1:])][0] for node in {place.node for place in places}) == most
    assert [place.rank for place in places] == list(range(workers))
    size = slice_ or workers
    for first in range(0, workers, size):
        assert len({nodes[int(place.node[1:])][1] for place in places[first : first + size]}) == 1
