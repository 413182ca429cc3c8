"""A longer lease of the policy counts at once, also for a node that is cut off before it has read it."""

from __future__ import annotations

from tests.executor.leases.test_lease_changes import LONG, SHORT, Cell


def test_a_node_that_is_cut_off_while_the_lease_is_raised_is_lost_by_the_longer_one() -> None:
    cell = Cell(SHORT)
    cell.pass_ms(5_000)
    cell.reads = cell.speaks = False
    cell.change(LONG)
    cell.pass_ms(15_000)
    assert not cell.is_lost
    cell.pass_ms(8_000)
    assert cell.is_lost
