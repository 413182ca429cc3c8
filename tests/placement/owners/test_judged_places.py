"""The judge of kept places finds those that are of no use."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.cluster.quota.kept_places import Kept, KeptPlace
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    GPU,
    JobSpec,
    Level,
    Position,
    Resources,
    TopologyRequest,
    Wish,
    WorkerPlace,
)
from tests.placement.oracles.judged_places import useless_places, wrong_places
from tests.placement.worlds.world import World, cell_with, joined, spec_of

ALL = 0b11111111
ON_A_NODE = TopologyRequest(level=Level.NODE, wish=Wish.REQUIRED)
IN_A_LEAF = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
IN_PAIRS = replace(IN_A_LEAF, slice_workers=2)


def cell(*in_use: int) -> World:
    """Nodes of eight GPUs, so many of which are in use on each, two to a leaf."""
    nodes = [joined(f"n{n}", memory_mib=64, position=Position(leaf=f"leaf{n // 2}")) for n in range(len(in_use))]
    world = cell_with(*nodes)
    for number, gpus in enumerate(in_use):
        node = world.state.nodes[f"n{number}"]
        node.held = (1 << gpus) - 1
        node.jobs = {"other": gpus} if gpus else {}
    return world


def place(number: int, devices: int, pool: str = "train", memory_mib: int = 0) -> KeptPlace:
    return KeptPlace(f"n{number}", pool, devices, 0, 0, 0, memory_mib, False)


def own(gpus: int, workers: int = 1, **more: Any) -> JobSpec:
    return spec_of("own", gpus, workers, gpu_type="gpu", **more)


def kept(*places: KeptPlace, gpus: int = 16) -> Kept:
    return Kept(((("ada", "gpu"), gpus * GPU),), places, True)


@pytest.mark.parametrize(
    ("places", "spec", "because"),
    [
        ([place(0, 0b11)], own(1), "are idle and"),
        ([place(0, 0b11110000)], own(4), "is not free"),
        ([place(0, 0b11000000)], own(2, node_labels=("zone=a",)), "may not be on n0"),
        ([place(0, 0b11000000)], own(2, pools=("other",)), "may not be on n0"),
        ([place(0, 0b11000000, "other")], own(2), "may not be on n0"),
        ([place(0, 0b11000000), place(1, 0b11, "other")], own(2, 2), "in several pools"),
        ([place(1, 0b11), place(2, 0b11)], own(2, 2, topology=IN_A_LEAF), "in several units"),
        ([place(1, 0b11), place(2, 0b11)], own(1, 4, topology=IN_PAIRS), None),
        ([place(2, 0b11), place(3, 0b11)], own(2, 2, topology=IN_A_LEAF), None),
        ([place(0, 0b11000000)], own(2), None),
        ([place(0, 0b11000000), place(1, 0b11)], own(2, 2), None),
    ],
)
def test_places_that_the_job_could_not_have_are_found(
    places: list[KeptPlace], spec: JobSpec, because: str | None
) -> None:
    found = wrong_places(cell(6, 0, 0, 0).state, spec, kept(*places))
    assert found is None if because is None else because in str(found)


@pytest.mark.parametrize(
    ("in_use", "spec", "places", "is_right"),
    [
        ((2, 2), own(4, 2), [place(0, 0b1111 << 2), place(1, 0b1111 << 2)], True),
        ((2, 2), own(4, 2), [place(0, 0b111111 << 2)], False),
        ((2, 8), own(4, 2, topology=ON_A_NODE), [place(0, 0b111111 << 2)], True),
        ((2, 8), own(4, 2, topology=ON_A_NODE), [place(0, 0b1111 << 2)], False),
        ((2, 8), own(4, 2), [place(0, 0b111111 << 2)], True),
        ((6, 8, 6, 8), own(8, 2, topology=IN_A_LEAF), [place(0, 0b11 << 6)], True),
        ((6, 6, 8, 8), own(8, 2, topology=IN_A_LEAF), [place(0, 0b11 << 6)], False),
        ((6, 6, 8, 8), own(8, 2, topology=IN_A_LEAF), [place(0, 0b11 << 6), place(1, 0b11 << 6)], True),
        ((0, 1, 0, 1), own(8, 2, topology=IN_PAIRS), [place(0, ALL), place(2, ALL)], False),
        ((0, 1, 0, 1), own(8, 2, topology=IN_PAIRS), [place(0, ALL), place(1, 0b1111111 << 1)], True),
        ((0, 0, 1, 1), own(8, 2, topology=IN_PAIRS), [place(0, ALL), place(1, ALL)], True),
        ((0, 0, 1, 1), own(8, 2, topology=IN_PAIRS), [place(2, 0b1111111 << 1), place(3, 0b1111111 << 1)], False),
        ((8, 8), own(8), [], True),
        ((7, 8), own(8), [], False),
    ],
)
def test_places_in_which_the_job_will_not_start_are_found(
    in_use: tuple[int, ...], spec: JobSpec, places: list[KeptPlace], *, is_right: bool
) -> None:
    found = useless_places(cell(*in_use).state, spec, kept(*places))
    assert (found is None) is is_right, found


def test_memory_counts_as_gpus_do() -> None:
    spec = own(1, 3)
    spec = replace(spec, resources=Resources(gpu_milli=GPU, memory_mib=40))
    state = cell(7, 7, 7).state
    for name in ("n0", "n1"):
        state.nodes[name].memory_used = 40
    last, one = place(2, 1 << 7, memory_mib=40), place(0, 1 << 7, memory_mib=24)
    assert useless_places(state, spec, kept(one, last)) is not None
    assert useless_places(state, spec, kept(one, place(1, 1 << 7, memory_mib=24), last)) is None


def test_a_part_of_a_job_is_not_judged() -> None:
    assert useless_places(cell(2, 2).state, own(4, 2), kept(place(0, 0b1111 << 2), gpus=4)) is None


def test_what_a_job_has_already_comes_to_no_other_worker_of_it() -> None:
    """A worker runs, and four GPUs beside it are free. Where all memory is its own, there is no room for another."""
    spec = replace(own(2), resources=Resources(gpu_milli=2 * GPU, memory_mib=40))
    world = cell(4)
    world.state.nodes["n0"].memory_used = 64
    whole = WorkerPlace(rank=0, node="n0", devices=(0, 1), gpu_milli=2 * GPU, memory_mib=64)
    half = replace(whole, memory_mib=24)
    assert useless_places(world.state, spec, kept(), [whole]) is None
    assert useless_places(world.state, spec, kept(), [half]) is not None
    assert useless_places(world.state, spec, kept(), []) is not None


def test_a_worker_on_a_broken_gpu_takes_nothing_of_those_that_are_healthy() -> None:
    world = cell(7)
    world.state.nodes["n0"].failed = 1
    mine = WorkerPlace(rank=0, node="n0", devices=(0, 1, 2, 3), gpu_milli=4 * GPU)
    assert useless_places(world.state, own(4), kept(), [mine]) is not None
    world.state.nodes["n0"].failed = 1 << 6
    assert useless_places(world.state, own(4), kept(), [mine]) is None
