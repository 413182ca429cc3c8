"""A state stands in the same order however it came about: whether the log was folded from its beginning or a snapshot,
and whatever was tried and undone meanwhile. Who walks a table decides the same.
"""

from __future__ import annotations

from dataclasses import fields
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of, rows_of, state_from
from fallow.shared.cluster.fold.undo_log import UndoLog
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeSpec, NodeStatus
from tests.cluster.fold.test_fold_properties import CHANCES, DECISIONS
from tests.cluster.worlds.histories import CELL, Historian, folded, history
from tests.cluster.worlds.table_orders import INDICES, TABLES, orders, shuffle_indices
from tests.hypothesis_profile import reaches


@given(chance=CHANCES, decisions=DECISIONS, cut=st.integers(0, 60))
def test_a_snapshot_keeps_the_order_of_every_table(chance: Random, decisions: int, cut: int) -> None:
    records = history(chance, decisions).records
    straight, restored = folded(records), state_from(rows_of(folded(records[:cut])))
    assert orders(folded(records[cut:], restored)) == orders(straight)
    reaches("nodes stand in another order than their names", sorted(straight.nodes) != list(straight.nodes))
    reaches("jobs stand in another order than their names", sorted(straight.jobs) != list(straight.jobs))


@given(chance=CHANCES, decisions=DECISIONS, moves=st.integers(1, 30), kept=st.integers(0, 5))
def test_what_is_undone_leaves_every_table_in_its_order(chance: Random, decisions: int, moves: int, kept: int) -> None:
    historian = history(chance, decisions)
    state = historian.state
    before, rows = orders(state), list(rows_of(state))
    outer = state.checkpoint()
    _move(historian, kept)
    between, inner = orders(state), state.checkpoint()
    _move(historian, moves)
    gone = {name for name, keys in between.items() if not {*keys} <= {*orders(state).get(name, ())}}
    state.rollback(inner)
    assert orders(state) == between
    kept_mark = state.checkpoint()
    _move(historian, kept)
    state.commit(kept_mark)
    state.rollback(outer)
    assert orders(state) == before
    assert list(rows_of(state)) == rows
    reaches("what is undone has taken something out of a table", bool(gone))


@given(chance=CHANCES, decisions=DECISIONS)
def test_rows_do_not_go_by_the_order_of_indices(chance: Random, decisions: int) -> None:
    state = history(chance, decisions).state
    before = digest_of(state)
    shuffle_indices(state, chance)
    assert digest_of(state) == before


@given(st.data())
def test_a_table_gets_its_order_back_whatever_went_and_came(data: st.DataObject) -> None:
    table = dict.fromkeys(data.draw(st.lists(st.integers(0, 9), unique=True)), 0)
    journal, open_marks = UndoLog(), list[tuple[int, list[tuple[int, int]]]]()
    for step in data.draw(st.lists(st.sampled_from(("put", "drop", "begin", "commit", "undo")), max_size=40)):
        if step == "begin":
            open_marks.append((journal.checkpoint(), list(table.items())))
        elif step == "put":
            journal.put(table, data.draw(st.integers(0, 9)), data.draw(st.integers(0, 3)))
        elif step == "drop" and table:
            journal.drop(table, data.draw(st.sampled_from(list(table))))
        elif step == "commit" and open_marks:
            journal.commit(open_marks.pop()[0])
        elif step == "undo" and open_marks:
            mark, before = open_marks.pop()
            journal.rollback(mark)
            assert list(table.items()) == before
    for mark, before in reversed(open_marks):
        journal.rollback(mark)
        assert list(table.items()) == before


@given(st.data())
def test_a_table_gets_its_order_back_from_an_undo_that_stands_around_others(data: st.DataObject) -> None:
    table = dict.fromkeys(data.draw(st.lists(st.integers(0, 9), unique=True, min_size=4)), 0)
    journal, before = UndoLog(), list(table.items())
    outer = journal.checkpoint()
    for keeps in data.draw(st.lists(st.booleans(), min_size=1, max_size=4)):
        mark, between = journal.checkpoint(), list(table.items())
        _take_some(data, journal, table)
        if keeps:
            journal.commit(mark)
        else:
            journal.rollback(mark)
            assert list(table.items()) == between
            reaches("something goes behind an inner undo", _take_some(data, journal, table))
    journal.rollback(outer)
    assert list(table.items()) == before


def _take_some(data: st.DataObject, journal: UndoLog, table: dict[int, int]) -> bool:
    """Whether a key was taken out that was not the last one."""
    keys = data.draw(st.lists(st.sampled_from(list(table)), unique=True, max_size=2)) if table else []
    is_any = any(key != next(reversed(table)) for key in keys)
    for key in keys:
        journal.drop(table, key)
    return is_any


def test_a_removed_node_whose_removal_is_undone_stands_where_it_stood() -> None:
    state = CellState(CELL)
    for name in ("z", "m", "a"):
        spec = NodeSpec(id=name, pool="train", gpus=8)
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    mark = state.checkpoint()
    apply(state, e.LeaseExpired(node="z", boot="boot-1"), 0)
    apply(state, e.NodeRemoved(node="z"), 0)
    state.rollback(mark)
    assert list(state.nodes) == list(state_from(rows_of(state)).nodes) == ["z", "m", "a"]


def test_every_table_of_the_state_is_said_to_have_an_order_or_none() -> None:
    state = CellState(CELL)
    tables = {each.name for each in fields(state) if isinstance(getattr(state, each.name), dict)}
    assert tables == {*TABLES, *INDICES}


def _move(historian: Historian, moves: int) -> None:
    for _ in range(moves):
        historian.move(historian.state.at_ms + 9_000)
