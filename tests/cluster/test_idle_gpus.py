"""Which idle GPUs count for quotas."""

from __future__ import annotations

import pytest

from shared.cluster.gpu_types import idle_anywhere_milli, idle_milli
from shared.events.value import replace
from shared.events.values import GPU
from tests.cluster.examples import cell, enqueued, node, place, started, then


@pytest.mark.parametrize("has_others", [False, True])
def test_what_is_idle_on_a_node_that_is_to_become_another_one_is_of_no_use_whatever_types_its_pool_has(
    *, has_others: bool
) -> None:
    big = node("n3")
    others = (replace(big, spec=replace(big.spec, gpu_type="big")),) if has_others else ()
    state = cell(node("n1"), node("n2"), *others, enqueued("job"), started("job", place(0, "n1", 0)))
    assert idle_milli(state, "gpu") == 15 * GPU
    then(state, replace(node("n1"), offered=node("n1", gpus=4).spec))
    assert idle_milli(state, "gpu") == 8 * GPU
    assert idle_anywhere_milli(state, "gpu") == 15 * GPU
