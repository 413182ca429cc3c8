"""Rows of what was touched, put onto the rows before, are the rows of the state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.values import Dependency
from fallow.shared.view.apply import Rows, Touched, all_rows, rows_of_touched, totals_of
from fallow.shared.view.row_text import job_row
from tests.cluster.examples import cell, enqueued, next_record, node
from tests.histories import CELL, History, log_records
from tests.hypothesis_profile import reaches

Texts = dict[tuple[str, str], str]


def put(texts: Texts, rows: Rows) -> Texts:
    parts = (("job", rows.jobs, rows.jobs_gone), ("node", rows.nodes, rows.nodes_gone))
    for kind, new, gone in (*parts, ("tenant", rows.tenants, rows.tenants_gone)):
        texts.update(((kind, name), text) for name, text in new)
        for name in gone:
            texts.pop((kind, name), None)
    return texts


def whole(state: CellState) -> Texts:
    texts: Texts = {}
    for rows in all_rows(state, 7):
        put(texts, rows)
    return texts


@given(seed=st.integers(0, 2**32), every=st.sampled_from((1, 1, 2, 5)))
def test_what_is_touched_is_all_that_changes(seed: int, every: int) -> None:
    state, touched, texts = CellState(CELL), Touched(), Texts()
    is_gone = False
    for record in log_records(History(seed).decisions(120)):
        assert isinstance(record.decision, Decision)
        touched.note(state, record.decision)
        fold(state, record)
        if state.version % every == 0:
            rows = rows_of_touched(state, touched)
            is_gone |= bool(rows.jobs_gone or rows.nodes_gone)
            put(texts, rows)
            touched.clear()
            assert texts == whole(state)

    reaches("rows of a view go", is_gone)


@given(seed=st.integers(0, 2**32))
def test_a_whole_view_has_as_many_rows_as_are_counted(seed: int) -> None:
    history = History(seed)
    history.decisions(60)
    totals, kinds = totals_of(history.state), [kind for kind, _ in whole(history.state)]
    assert (totals.jobs, totals.nodes, totals.tenants) == tuple(map(kinds.count, ("job", "node", "tenant")))


@given(data=st.data())
def test_a_row_tells_at_any_time_for_whom_its_job_still_waits(data: st.DataObject) -> None:
    """Jobs, and an array, end in any order, alone or in one record."""
    named = data.draw(st.lists(st.sampled_from(["a", "b", "many"]), min_size=1, max_size=3, unique=True))
    after = tuple(Dependency(job=job) for job in named)
    elements = [enqueued(f"many.{at}", array=2, array_of="many", array_index=at) for at in range(2)]
    state = cell(node("n1"), enqueued("a"), enqueued("b"), *elements, enqueued("last", after=after))
    texts, touched = whole(state), Touched()
    left = data.draw(st.permutations(["a", "b", "many.0", "many.1"]))
    while left:
        count = data.draw(st.integers(1, 2))
        ends, left = [e.JobCancelled(job=job) for job in left[:count]], left[count:]
        record = next_record(state, *ends)
        assert isinstance(record.decision, Decision)
        touched.note(state, record.decision)
        fold(state, record)
        assert put(texts, rows_of_touched(state, touched)) == whole(state)
        touched.clear()
        reaches("some are over, others are waited for", 0 < len(state.jobs["last"].waits_for) < len(named))
        assert job_row(texts["job", "last"]).waits_for == state.jobs["last"].waits_for


def test_an_entity_that_was_touched_twice_has_one_row() -> None:
    state, touched = CellState(CELL), Touched()
    for record in log_records(History(4).decisions(80)):
        assert isinstance(record.decision, Decision)
        touched.note(state, record.decision)
        fold(state, record)
    rows = rows_of_touched(state, touched)
    names = [name for name, _ in rows.jobs + rows.nodes + rows.tenants]
    assert len(names) == len({*names})
    assert {*touched.jobs, *touched.nodes, *touched.tenants} <= {*names, *rows.jobs_gone, *rows.tenants_gone}
    assert len(rows.arguments()) == 6 + 2 * (len(rows.jobs) + len(rows.nodes) + len(rows.tenants)) + len(
        rows.jobs_gone + rows.nodes_gone + rows.tenants_gone
    )
