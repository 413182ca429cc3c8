"""The heads with which a job competes are found whatever was added before, in the order in which they were added."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.queue.head_index import BLOCK, NODES_FEW, HeadIndex
from fallow.shared.cluster.capacity.effort import Effort
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
JOBS = st.tuples(REACHES, st.lists(st.sampled_from(TENANTS), unique=True, max_size=3), st.integers(0, 3))


def nodes_of(reach: dict[str, int]) -> int:
    return sum(f"{mask:b}".count("1") for mask in reach.values())


@given(
    st.lists(JOBS, min_size=1, max_size=3),
    st.lists(st.tuples(st.lists(HEADS, max_size=70), st.booleans()), min_size=1, max_size=3),
)
def test_a_job_competes_with_just_those_heads_that_could_be_where_it_could_be(
    jobs: list[tuple[dict[str, int], list[str], int]], batches: list[tuple[list[Waiting], bool]]
) -> None:
    index = HeadIndex[Waiting](Effort())
    is_some = is_of_both = is_asked_on = False
    for heads, is_asked_to_the_end in batches:
        for head in heads:
            index.add(head)
        for number, (reach, tenants, asked) in enumerate(jobs):
            wanted = []
            for head in index.all:
                is_near = any(reach.get(name, 0) & mask for name, mask in head.reach.items())
                if is_near and (head.under is None or head.under in tenants):
                    wanted.append(head)
            due = [head for head in wanted if head.is_due]
            is_some |= 0 < len(wanted) < len(index.all)
            is_of_both |= {True, False} == {nodes_of(head.reach) <= NODES_FEW for head in wanted}
            in_order = due + [head for head in wanted if not head.is_due]
            first = list(islice(index.over(number, reach, tenants), asked))
            assert first == in_order[:asked]
            is_asked_on |= 0 < len(first) < len(in_order)
            if is_asked_to_the_end:
                assert list(index.due_over(number, reach, tenants)) == due
                assert list(index.over(number, reach, tenants)) == in_order
    reaches("a job competes with some heads, and not with others", is_some)
    reaches("a job asks for the first heads alone", is_asked_on)
    reaches("a job competes with heads of few nodes and of many", is_of_both)


MANY = st.tuples(st.sampled_from([0, 1, 5, BLOCK + 1, 70, 200]), st.sampled_from([0.0, 0.1, 0.5, 1.0]))


@given(nodes=st.sampled_from([12, 40, 100, 200]), batches=st.lists(MANY, min_size=1, max_size=5), seed=st.integers(0))
def test_so_it_does_beside_hundreds_of_heads_on_up_to_hundreds_of_nodes(
    nodes: int, batches: list[tuple[int, float]], seed: int
) -> None:
    random, index = Random(seed), HeadIndex[Waiting](Effort())
    jobs = [(_reach(random, nodes), random.sample(TENANTS, random.randrange(4))) for _ in range(4)]
    are_many = False
    for count, of_due in batches:
        for _ in range(count):
            under = random.choice([None, None, None, *TENANTS])
            index.add(Waiting(_reach(random, nodes), under, random.random() < of_due))
        for number, (reach, tenants) in enumerate(jobs):
            near = [head for head in index.all if any(reach.get(name, 0) & mask for name, mask in head.reach.items())]
            wanted = [head for head in near if head.under is None or head.under in tenants]
            in_order = [head for head in wanted if head.is_due] + [head for head in wanted if not head.is_due]
            asked = random.choice([0, 1, 2, BLOCK + 1, 1_000])
            assert list(islice(index.over(number, reach, tenants), asked)) == in_order[:asked]
            is_wide = nodes_of(reach) > NODES_FEW
            are_many |= is_wide and sum(not head.is_due and nodes_of(head.reach) > NODES_FEW for head in near) > BLOCK
    reaches("a job of many nodes competes with more heads of many nodes than a block has", are_many)


def _reach(random: Random, nodes: int) -> dict[str, int]:
    """Few or many of these nodes in a pool or two."""
    found = {}
    for name in random.choice([("train",), ("extra",), ("train", "extra")]):
        count = random.choice([1, 1, 2, 5, 9, 15, 40, 70, nodes])
        found[name] = sum({1 << random.randrange(nodes) for _ in range(count)})
    return found


def test_a_job_is_held_against_no_more_heads_than_it_asks_for() -> None:
    """Each head of a block could be on the node of the job, too; another block is elsewhere."""
    effort = Effort()
    index = HeadIndex[Waiting](effort)
    for number in range(3 * BLOCK):
        node = 100 + number if number < BLOCK else 0
        index.add(Waiting({"train": 1 << node | (2**NODES_FEW - 1) << 200}, None, is_due=False))
    job = {"train": 2 ** (2 * NODES_FEW) - 1}
    next(index.over("job", job, ()))
    assert effort.comparisons == len(("the block elsewhere", "the next block", "its first head"))
    next(index.over("job", job, ()))
    assert effort.comparisons == 3 + len(("the head that is known",))
    assert len(list(index.over("job", job, ()))) == 2 * BLOCK
    assert effort.comparisons == 4 + 2 * BLOCK + len(("the last block",))
