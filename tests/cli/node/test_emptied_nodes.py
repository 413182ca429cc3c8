"""A node that is to be emptied says how far it is, and when it may be taken out."""

from __future__ import annotations

from dataclasses import replace

from fallow.cli.node.emptying import EMPTY, as_object, to_be_stopped
from fallow.cli.node.node import drain_line
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.view.row_text import node_row, node_text
from fallow.shared.view.rows import NodeRow
from tests.cluster.worlds.examples import cell, enqueued, node, place, started

NOON_MS = 1_800_000_000_000
"""2027-01-15 08:00 UTC."""


def draining(*, is_busy: bool, deadline_ms: int | None = None) -> NodeRow:
    run = [enqueued("job"), started("job", place(0, "n1", 0))] if is_busy else []
    row = node_row(node_text(cell(node("n1"), *run).nodes["n1"]))
    return replace(row, status=NodeStatus.DRAINING, drain_deadline_ms=deadline_ms)


def test_an_emptied_node_may_be_taken_out_whether_or_not_its_deadline_is_over() -> None:
    assert EMPTY == (
        "empty. To take it out: stop its agent (of a virtual node: docs/operations.md, Take a node out), "
        "wait until it is lost, then run `fallow node remove NODE`"
    )
    assert drain_line(draining(is_busy=False)) == EMPTY
    assert drain_line(draining(is_busy=False, deadline_ms=NOON_MS)) == EMPTY


def test_while_jobs_are_left_it_is_told_how_many_and_until_when() -> None:
    assert drain_line(draining(is_busy=True)) == "it is being emptied: 1 job left"
    assert drain_line(draining(is_busy=True, deadline_ms=NOON_MS)) == (
        "1 job left; what runs at 2027-01-15 08:00:00.000Z is stopped"
    )


def test_a_drain_names_the_jobs_that_it_stops_and_when() -> None:
    busy = replace(draining(is_busy=True), jobs=(("a", 1), ("b", 2), ("c", 1), ("d", 1)))
    assert to_be_stopped(busy, None) == "Stopped there now, and queued again: jobs a, b, c and 1 more."
    assert to_be_stopped(draining(is_busy=True), NOON_MS) == (
        "Stopped there at 2027-01-15 08:00:00.000Z, and queued again, if not over before: job job."
    )
    assert to_be_stopped(draining(is_busy=False), None) == f"It is {EMPTY}."
    assert as_object(busy, None) == {"jobs": ["a", "b", "c", "d"], "stop_ms": None}
    assert as_object(None, NOON_MS) == {"jobs": None, "stop_ms": NOON_MS}
    assert as_object(busy, NOON_MS, is_refused=True) == {"jobs": [], "stop_ms": None}


def test_of_a_node_that_is_not_to_be_emptied_nothing_is_said() -> None:
    assert not drain_line(replace(draining(is_busy=False), status=NodeStatus.READY))
