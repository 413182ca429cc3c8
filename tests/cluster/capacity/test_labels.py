"""What the index over labels says is what each node's own labels say, whatever changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.capacity.constraints import keeps
from fallow.shared.cluster.capacity.labels import Labels
from fallow.shared.cluster.capacity.masks import mask_from
from tests.hypothesis_profile import reaches

KEYS, VALUES = ("rack", "zone", "own"), ("a", "b", "c")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
RULES = tuple(
    f"{rule}"
    for key in (*KEYS, "none")
    for rule in (key, f"!{key}", f"{key}=a", f"{key}=a|b|a", f"{key}!=c", f"{key}!=b|none", f"{key}=none")
)


def naive(labels: list[dict[str, str]], rule: str) -> int:
    return mask_from([number for number, each in enumerate(labels) if keeps(each, rule)], len(labels))


@given(st.lists(LABELS, min_size=1, max_size=12), st.lists(st.tuples(st.integers(0, 11), LABELS), max_size=12))
def test_the_nodes_that_keep_a_rule_are_those_whose_labels_do(
    labels: list[dict[str, str]], changes: list[tuple[int, dict[str, str]]]
) -> None:
    index = Labels(labels)
    is_changed = False
    for at, now in changes:
        number = at % len(labels)
        is_changed |= labels[number] != now
        index.change(number, labels[number], now)
        labels[number] = now
    reaches("the labels of a node change", is_changed)
    assert [index.keeping(rule) for rule in RULES] == [naive(labels, rule) for rule in RULES]


def test_a_wide_pool_keeps_few_nodes_as_lists_and_many_as_masks_and_tells_the_same() -> None:
    labels = [{"own": f"x{number}", "rack": f"r{number // 3}", "zone": f"z{number % 2}"} for number in range(4_100)]
    index = Labels(labels)
    for number in (0, 1, 2, 3, 4_099):
        now = {"rack": "r0", "zone": "z1"}
        index.change(number, labels[number], now)
        labels[number] = now
    rules = ("own", "!own", "own=x7|x9", "rack=r0|r2", "rack!=r0", "zone=z0", "zone!=z1", "!zone")
    assert [index.keeping(rule) for rule in rules] == [naive(labels, rule) for rule in rules]
