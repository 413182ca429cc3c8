"""Draws of knapsacks, and oracles: every combination of choices, and the textbook's table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import strategies as st

from fallow.services.loaning.policy.scaling.knapsack import Group


@st.composite
def groups_of(draw: st.DrawFn) -> Group:
    """Any values: concave or not, falling or not, some choices that weigh nothing or are worth less than nothing."""
    choices = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 30)), max_size=4))
    return Group((0, *(weight for weight, _ in choices)), (0, *(value for _, value in choices)))


KNAPSACKS = st.tuples(
    st.lists(groups_of(), min_size=4, max_size=5) | st.lists(groups_of(), max_size=3), st.integers(0, 30)
)


def value_max(groups: Sequence[Group], capacity: int) -> int:
    """The value of the best combination that fits."""
    combinations = product(*(zip(group.weights, group.values, strict=True) for group in groups))
    return max(sum(v for _, v in chosen) for chosen in combinations if sum(w for w, _ in chosen) <= capacity)


def value_max_by_table(groups: Sequence[Group], capacity: int) -> int:
    """The same by the table of the paper: dp[g][c] = max(dp[g-1][c], max_k dp[g-1][c - weight_k] + value_k)."""
    best = [0] * (capacity + 1)
    for group in groups:
        items = list(zip(group.weights, group.values, strict=True))
        best = [max(best[c - w] + v for w, v in items if w <= c) for c in range(capacity + 1)]
    return best[capacity]
