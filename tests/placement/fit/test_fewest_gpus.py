"""An exclusive job is counted with the fewest GPUs that any nodes have which hold it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.fit.fewest_gpus import CHOICES_MAX, Offer, _Choice, cheapest
from tests.hypothesis_profile import reaches

Kinds = list[tuple[int, int, int]]


def offers_of(kinds: Kinds) -> list[Offer]:
    """Offers of nodes: GPUs, workers and count of each kind."""
    found, first = [], 0
    for gpus, workers, count in kinds:
        found.append(Offer(gpus, workers, (1 << count) - 1 << first))
        first += count
    return found


def fewest(kinds: Kinds, workers: int) -> int | None:
    """By trying each choice."""
    choices = product(*(range(count + 1) for _, _, count in kinds))
    enough = [
        sum(many * gpus for many, (gpus, _, _) in zip(choice, kinds, strict=True))
        for choice in choices
        if sum(many * each for many, (_, each, _) in zip(choice, kinds, strict=True)) >= workers
    ]
    return min(enough, default=None)


def counted(kinds: Kinds, workers: int) -> int | None:
    found = cheapest(offers_of(kinds), workers)
    assert sum(many * offer.workers for offer, many in found) >= workers or not found
    assert all(0 < many <= offer.nodes.bit_count() for offer, many in found)
    return sum(many * offer.gpus for offer, many in found) if found else None


@pytest.mark.parametrize(
    ("kinds", "workers", "gpus"),
    [
        ([(4, 2, 1), (8, 4, 1)], 3, 8),
        ([(8, 4, 1), (6, 3, 2)], 6, 12),
        ([(8, 4, 2), (6, 3, 2)], 6, 12),
        ([(8, 8, 1), (3, 3, 3)], 9, 9),
        ([(8, 1, 3)], 3, 24),
        ([(8, 2, 3)], 7, None),
    ],
)
def test_the_fewest_gpus_of_a_few_nodes(kinds: Kinds, workers: int, gpus: int | None) -> None:
    assert counted(kinds, workers) == gpus == fewest(kinds, workers)


@given(
    st.lists(st.tuples(st.integers(1, 16), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=5),
    st.integers(1, 60),
)
def test_no_choice_of_nodes_has_fewer_gpus(kinds: Kinds, workers: int) -> None:
    reaches("nodes of several kinds together have the fewest GPUs", len(cheapest(offers_of(kinds), workers)) > 1)
    assert counted(kinds, workers) == fewest(kinds, workers)


@pytest.mark.parametrize(
    ("kinds", "workers"),
    [
        ([(8, 8, 1), (6, 6, 1), (4, 4, 1), (2, 2, 1)] * 3, 31),
        ([(2 * many, many, 30) for many in range(8, 0, -2)], 301),
        ([(7 + 2 * number, 5 + number % 11, 100) for number in range(300)], 10_000),
    ],
)
def test_of_many_kinds_of_nodes_a_bounded_number_of_choices_is_looked_at(kinds: Kinds, workers: int) -> None:
    choice = _Choice(sorted(kinds, key=lambda kind: kind[0] / kind[1]))
    choice.look(0, workers, 0, ())
    assert choice.best
    assert choice._looks <= CHOICES_MAX


def test_the_bound_is_reached_where_no_choice_is_as_good_as_its_parts() -> None:
    choice = _Choice([(2 * many, many, 30) for many in range(8, 0, -2)])
    choice.look(0, 301, 0, ())
    assert choice._looks == CHOICES_MAX
    assert sum(many * gpus for many, (gpus, _, _) in zip(choice.best, choice._kinds, strict=False)) == 604
