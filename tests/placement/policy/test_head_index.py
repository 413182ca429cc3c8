"""The heads with which a job competes are found whatever was added before, in the order in which they were added."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.queue.head_index import NODES_FEW, HeadIndex
from tests.hypothesis_profile import reaches


@dataclass(frozen=True)
class Waiting:
    reach: dict[str, int]
    under: str | None
    is_due: bool


TENANTS = ("ada", "bob", "lab")
MASKS = st.integers(1, 15) | st.integers(1, 2**12 - 1) | st.sampled_from([1 << node for node in range(12)])
REACHES = st.dictionaries(st.sampled_from(("train", "extra")), MASKS, min_size=1, max_size=2)
HEADS = st.builds(Waiting, REACHES, st.none() | st.none() | st.sampled_from(TENANTS), st.booleans())
JOBS = st.tuples(REACHES, st.lists(st.sampled_from(TENANTS), unique=True, max_size=3))


def nodes_of(reach: dict[str, int]) -> int:
    return sum(f"{mask:b}".count("1") for mask in reach.values())


@given(st.lists(JOBS, min_size=1, max_size=3), st.lists(st.lists(HEADS, max_size=70), min_size=1, max_size=3))
def test_a_job_competes_with_just_those_heads_that_could_be_where_it_could_be(
    jobs: list[tuple[dict[str, int], list[str]]], batches: list[list[Waiting]]
) -> None:
    index = HeadIndex[Waiting]()
    is_some = is_of_both = False
    for heads in batches:
        for head in heads:
            index.add(head)
        for number, (reach, tenants) in enumerate(jobs):
            wanted = []
            for head in index.all:
                is_near = any(reach.get(name, 0) & mask for name, mask in head.reach.items())
                if is_near and (head.under is None or head.under in tenants):
                    wanted.append(head)
            due = [head for head in wanted if head.is_due]
            is_some |= 0 < len(wanted) < len(index.all)
            is_of_both |= {True, False} == {nodes_of(head.reach) <= NODES_FEW for head in wanted}
            assert index.over(number, reach, tenants) == due + [head for head in wanted if not head.is_due]
    reaches("a job competes with some heads, and not with others", is_some)
    reaches("a job competes with heads of few nodes and of many", is_of_both)
