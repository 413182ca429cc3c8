"""A look for places that found none: for which nodes it holds."""

from __future__ import annotations

import pytest

from fallow.services.placement.queue.lines.row import InVain
from fallow.shared.events.reasons import PendingReason


@pytest.mark.parametrize(
    ("beside", "holds"),
    [
        ({"train": 0b011}, True),
        ({"train": 0b001}, True),
        ({}, True),
        ({"train": 0b100}, False),
        ({"train": 0b111}, False),
        ({"train": 0b001, "extra": 0b1}, False),
    ],
)
def test_a_look_holds_for_nodes_that_were_all_looked_at(beside: dict[str, int], *, holds: bool) -> None:
    assert InVain(1, PendingReason.NO_FREE_GPUS, {"train": 0b011}).holds_for(beside) is holds
