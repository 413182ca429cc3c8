"""What a state goes by before its first decision no node was ever told: it makes no lease longer."""

from __future__ import annotations

from fallow.shared.cluster.model.lease import longest_with, patience_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.operations import CellPolicy


def test_the_first_policy_of_a_cell_is_compared_with_none() -> None:
    state, short = CellState("cell-a"), CellPolicy(node_lease_wall_ms=1_000, lease_margin_wall_ms=200)
    assert patience_ms(state.policy) > patience_ms(short)
    assert longest_with(state, short) == 0
    state.version = 1
    assert longest_with(state, short) == patience_ms(CellPolicy())
