"""A job that is alone on its nodes: the fold, the invariants and the audit keep all others off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fallow.shared.cluster.checks.audit import Ledger, ledger_of
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from tests.cluster.worlds.examples import cell, enqueued, node, place, started, then
from tests.cluster.worlds.histories import CELL

LONE = (
    node("n1"),
    node("n2"),
    enqueued("lone", workers=2, workers_min=1, exclusive=True),
    started("lone", place(0, "n1", 0)),
    e.JobRunning(job="lone", attempt=1),
    enqueued("other"),
)


def told(*effects: Any) -> str | None:
    """What the audit says of a log of these effects."""
    offence = Ledger().take(Decision(cell=CELL, version=1, epoch=1, at_ms=0, effects=effects))
    return None if offence is None else offence.invariant


def test_a_node_is_held_alone_until_the_job_has_left_it() -> None:
    state = cell(*LONE)
    assert (state.nodes["n1"].alone, state.nodes["n2"].alone) == ("lone", None)
    assert state.pools["train"].free_whole == 8
    then(state, e.JobFinished(job="lone", attempt=1))
    assert state.nodes["n1"].alone is None
    assert state.pools["train"].free_whole == 16
    assert check_state(state) == []


def test_it_grows_onto_its_own_nodes_and_onto_empty_ones() -> None:
    own = then(cell(*LONE), e.JobResizing(job="lone", attempt=1, add=(place(1, "n1", 1),)))
    more = then(cell(*LONE), e.JobResizing(job="lone", attempt=1, add=(place(1, "n2", 1),)))
    assert (own.nodes["n2"].alone, more.nodes["n2"].alone) == (None, "lone")
    less = then(more, e.JobResized(job="lone", attempt=1, workers=(place(0, "n1", 0),)))
    assert (less.nodes["n1"].alone, less.nodes["n2"].alone) == ("lone", None)
    assert [check_state(state) for state in (own, more)] == [[], []]


def test_a_snapshot_keeps_who_is_alone() -> None:
    state = cell(*LONE)
    again = state_from(rows_of(state))
    assert again.nodes["n1"].alone == "lone"
    assert digest_of(again) == digest_of(state)
    assert again.pools == state.pools


TAMPERED: dict[str, Callable[[CellState], None]] = {
    "a node that has forgotten": lambda state: setattr(state.nodes["n1"], "alone", None),
    "a node that claims it": lambda state: setattr(state.nodes["n2"], "alone", "lone"),
    "another job on the node": lambda state: state.nodes["n1"].jobs.update({"other": 1}),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=list(TAMPERED))
def test_a_tampered_state_is_caught(tamper: Callable[[CellState], None]) -> None:
    state = cell(*LONE)
    tamper(state)
    assert "I1" in {offence.invariant for offence in check_state(state)}


def test_the_audit_finds_who_joins_a_lone_job_and_a_lone_job_that_joins_others() -> None:
    assert told(*LONE, started("other", place(0, "n2", 0))) is None
    assert told(*LONE, started("other", place(0, "n1", 1))) == "I1"
    late = (enqueued("late", exclusive=True), started("late", place(0, "n2", 1)))
    assert told(*LONE, started("other", place(0, "n2", 0)), *late) == "I1"
    assert told(*LONE, *late) is None
    assert told(*LONE, e.JobFinished(job="lone", attempt=1), started("other", place(0, "n1", 1))) is None


def test_the_audit_goes_on_from_a_state_in_which_a_job_is_alone() -> None:
    ledger = ledger_of(cell(*LONE))
    joins = Decision(cell=CELL, version=2, epoch=1, at_ms=0, effects=(started("other", place(0, "n1", 1)),))
    offence = ledger.take(joins)
    assert offence is not None
    assert offence.invariant == "I1"
