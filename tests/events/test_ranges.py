"""Many workers stand in a record as ranges, which name each node once; every reader gets them one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.codec.ranges import ONE_BY_ONE_MAX, places_of, ranges_of
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import AnyEffect, JobResized, JobResizing, JobStarted, ReservationSet, RoomHeld
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, WorkerPlace
from fallow.shared.events.reasons import PreemptionCause
from tests.hypothesis_profile import reaches

Places = tuple[WorkerPlace, ...]


@st.composite
def groups(draw: st.DrawFn) -> list[WorkerPlace]:
    """Some workers on one node that hold the same, with ranks that follow each other or do not."""
    step, devices = draw(st.sampled_from((1, 1, 1, 2))), draw(st.integers(0, 3))
    more: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "cpu_milli": st.integers(1, 3),
                "memory_mib": st.integers(1, 3),
                "turn": st.integers(1, 3),
                "since_ms": st.integers(1, 3),
            },
        )
    )
    first, node, milli = draw(st.integers(0, 9)), draw(st.sampled_from("abc")), draw(st.sampled_from((250, GPU)))
    held = st.lists(st.integers(0, 9), min_size=devices, max_size=devices).map(tuple)
    return [
        WorkerPlace(rank=first + number * step, node=node, devices=draw(held), gpu_milli=milli, **more)
        for number in range(draw(st.integers(1, 5)))
    ]


PLACES = st.lists(groups(), min_size=1, max_size=8).map(lambda found: tuple(chain.from_iterable(found)))
KINDS: list[Callable[[Places], AnyEffect]] = [
    lambda places: JobStarted(job="a", attempt=1, workers=places),
    lambda places: JobResizing(job="a", attempt=1, add=places),
    lambda places: JobResized(job="a", attempt=1, workers=places),
    lambda places: ReservationSet(job="a", workers=places, start_ms=1),
    lambda places: RoomHeld(
        job="a", cause=PreemptionCause.PRIORITY, workers=places, victims=1, until_ms=1, proposal="p"
    ),
]


@given(PLACES)
def test_ranges_hold_the_same_workers_in_the_same_order(places: Places) -> None:
    ranges = ranges_of(places)
    reaches("one range holds several workers, and there are several", 1 < len(ranges) < len(places))
    assert places_of(ranges) == places
    assert ranges_of(places_of(ranges)) == ranges


@pytest.mark.parametrize("made_of", KINDS)
@given(places=PLACES, copies=st.integers(1, 8))
def test_an_effect_is_read_as_it_was_written_however_many_workers_it_names(
    made_of: Callable[[Places], AnyEffect], places: Places, copies: int
) -> None:
    decision = Decision(cell="c", version=1, epoch=1, at_ms=0, effects=(made_of(places * copies),))
    value = encode(decision)
    assert decode(Decision.type, value) == decision
    assert ("ranges" in json.loads(value)["effects"][0]) == (len(places) * copies > ONE_BY_ONE_MAX)


def test_a_node_with_all_of_a_gang_is_named_once() -> None:
    places = tuple(WorkerPlace(rank=rank, node="gpu-7", devices=(rank,), gpu_milli=GPU) for rank in range(100))
    value = encode(JobStarted(job="a", attempt=1, workers=places))
    assert value.count(b"gpu-7") == 1


def in_ranges(devices: list[int], **more: int) -> dict[str, Any]:
    return {"ranges": [{"rank": 0, "node": "n", "devices": devices, "gpu_milli": 1, **more}]}


ONE_BY_ONE = {"workers": [{"rank": 0, "node": "n", "devices": [0], "gpu_milli": 1}]}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({**ONE_BY_ONE, **in_ranges([1])}, "workers stand either in workers or in ranges"),
        (in_ranges([0, 1, 2], workers=2), "3 devices cannot be divided among 2 workers"),
        (in_ranges([0, 1], workers=2, rank=2**53 - 1), "rank 9007199254740991 of 2 workers is too large"),
        (in_ranges([], workers=100_000), "0 devices cannot be divided among 100000 workers"),
    ],
)
def test_workers_that_are_named_in_two_ways_or_cannot_be_divided_are_refused(more: dict[str, Any], why: str) -> None:
    effect = {"kind": "JobStarted", "job": "a", "attempt": 1, **more}
    value = json.dumps({"cell": "c", "version": 1, "epoch": 1, "at_ms": 0, "effects": [effect]}).encode()
    read = decode(Decision.type, value)
    assert isinstance(read, Undecodable)
    assert why in read.rule


@pytest.mark.parametrize("field", ["gpu_milli", "cpu_milli", "memory_mib", "turn", "since_ms"])
def test_neighbours_that_differ_in_one_field_alone_stay_apart(field: str) -> None:
    first = WorkerPlace(rank=0, node="a", devices=(0,), gpu_milli=250)
    places = (first, replace(first, rank=1, devices=(1,), **{field: 500}))
    assert places_of(ranges_of(places)) == places
