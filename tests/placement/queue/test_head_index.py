"""What heads keep from a job is found whatever was added or is gone, and the first that keeps something is named."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.queue.head_index import BLOCK, Age, Block, HeadBlocks, KeptNodes
from fallow.shared.cluster.capacity.effort import Effort
from tests.hypothesis_profile import reaches

TENANTS = ("ada", "bob", "lab")
MANY = st.sampled_from([0, 1, 5, BLOCK + 1, 70])
BATCHES = st.lists(st.tuples(MANY, st.sampled_from([0.0, 0.02, 0.5])), min_size=1, max_size=5)


@dataclass(frozen=True)
class Waiting:
    reach: dict[str, int]
    tenant: str
    age: Age


@dataclass(frozen=True)
class OlderOrOwn:
    """Heads that are older than this, and all of one tenant."""

    tenant: str
    age: Age

    def of(self, block: Block[Waiting]) -> bool | None:
        if block.newest < self.age:
            return True
        return False if block.oldest >= self.age and self.tenant not in block.tenants else None

    def holds(self, head: Waiting) -> bool:
        return head.tenant == self.tenant or head.age < self.age


def nodes(reach: dict[str, int]) -> set[tuple[str, int]]:
    return {(name, node) for name, mask in reach.items() for node in range(mask.bit_length()) if mask >> node & 1}


def reach_among(random: Random, most: int) -> dict[str, int]:
    """Few or many of these nodes in a pool or two."""
    found = {}
    for name in random.choice([("train",), ("extra",), ("train", "extra")]):
        count = random.choice([1, 1, 2, 5, 15, most])
        found[name] = sum({1 << random.randrange(most) for _ in range(count)})
    return found


def head_of(random: Random, number: int, most: int) -> Waiting:
    age = number + random.choice([0, 0, 0, random.randrange(-40, 40)])
    return Waiting(reach_among(random, most), random.choice(TENANTS), (age, number))


@given(most=st.sampled_from([4, 12, 100]), batches=BATCHES, seed=st.integers(0))
def test_the_first_head_is_named_and_what_all_of_them_keep_is_left_out(
    most: int, batches: list[tuple[int, float]], seed: int
) -> None:
    """Of a group that some heads keep nothing from, and for jobs for which a part of the heads holds."""
    random, heads = Random(seed), HeadBlocks[Waiting](Effort())
    added, silent = dict[int, Waiting](), set[int]()
    kept = KeptNodes[Waiting](heads, lambda head: {} if head.age[1] in silent else head.reach)
    is_cut = is_part = is_changed = False
    for count, of_gone in batches:
        for _ in range(count):
            head = head_of(random, heads.size, most)
            added[heads.add(head, head.tenant, head.age)] = head
        for number in [each for each in added if random.random() < of_gone]:
            if random.random() < 0.5:
                heads.remove(number)
                del added[number]
            else:
                silent.add(number)
            kept.forget(number)
            is_changed = True
        assert list(heads) == list(added.values())
        for _ in range(4):
            reach = reach_among(random, most)
            part = random.choice([None, OlderOrOwn(random.choice(TENANTS), (random.randrange(heads.size + 1), 0))])
            holding = [
                head for number, head in added.items() if number not in silent and (part is None or part.holds(head))
            ]
            meeting = [head for head in holding if nodes(head.reach) & nodes(reach)]
            left = nodes(reach).difference(*(nodes(head.reach) for head in holding))
            if random.random() < 0.7:
                assert kept.first(reach, part) is (meeting[0] if meeting else None)
            if random.random() < 0.7:
                assert nodes(kept.beside(reach, part)) == left
            is_cut |= set() < left < nodes(reach)
            is_part |= 0 < len(holding) < len(added)
    reaches("heads keep some of the nodes of a job", is_cut)
    reaches("some of the heads hold for a job", is_part)
    reaches("a head is gone, or keeps nothing any more", is_changed)


def test_what_was_asked_once_costs_the_next_job_a_look_at_each_block() -> None:
    """Whatever the next job is, and however many heads there are."""
    effort = Effort()
    heads = HeadBlocks[Waiting](effort)
    for number in range(3 * BLOCK):
        heads.add(Waiting({"train": 1 << number}, "ada", (number, number)), "ada", (number, number))
    kept = KeptNodes[Waiting](heads, lambda head: head.reach)
    assert kept.first({"train": 1 << 3 * BLOCK}) is None
    assert kept.beside({"train": 2 ** (3 * BLOCK + 1) - 1}) == {"train": 1 << 3 * BLOCK}
    begun = effort.comparisons
    for number in range(100):
        assert kept.beside({"train": 1 << 3 * BLOCK | 1 << number % BLOCK}) == {"train": 1 << 3 * BLOCK}
    assert effort.comparisons == begun
    assert kept.first({"train": 1 << 3 * BLOCK + 1}) is None
    assert effort.comparisons == begun + 3


def test_no_more_heads_are_looked_at_than_up_to_the_first_one_that_keeps_something() -> None:
    effort, looked_at = Effort(), list[Waiting]()
    heads = HeadBlocks[Waiting](effort)
    for number in range(3 * BLOCK):
        heads.add(Waiting({"train": 1 << number}, "ada", (number, number)), "ada", (number, number))

    def keeps(head: Waiting) -> dict[str, int]:
        looked_at.append(head)
        return head.reach

    assert KeptNodes[Waiting](heads, keeps).first({"train": 1 << BLOCK - 1}) is not None
    assert len({head.age for head in looked_at}) == BLOCK
