"""Rows of what was touched, put onto the rows before, are the rows of the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.projector.app.apply import Touched, all_rows, rows_of_touched, totals_of, with_parents
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.model.dependencies import ended
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import Account, accounts, charge
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import AfterWhen, Dependency
from fallow.shared.events.operations import Quota
from fallow.shared.view.row_batch import Rows
from fallow.shared.view.row_text import job_row, job_text
from tests.cluster.worlds.examples import cell, enqueued, next_record, node
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


NAMES, TYPES = ("a", "b", "c", "d", "e", "f"), ("h", "v", "w")


@st.composite
def records_of_quotas(draw: st.DrawFn) -> list[e.AnyEffect]:
    """Effects of one record: each names a tenant and a type, and may move it below another one."""
    quota = st.builds(
        Quota,
        tenant=st.sampled_from(NAMES),
        gpu_type=st.sampled_from(TYPES),
        guaranteed_milli=st.integers(0, 3),
        parent=st.none() | st.sampled_from(NAMES),
    )
    removed = st.builds(e.QuotaRemoved, tenant=st.sampled_from(NAMES), gpu_type=st.sampled_from(TYPES))
    effects: list[e.AnyEffect] = draw(st.lists(st.builds(e.QuotaSet, quota=quota) | removed, max_size=8))
    return effects


def decision_of(state: CellState, effects: list[e.AnyEffect]) -> Decision:
    decision = next_record(state, *effects).decision
    assert isinstance(decision, Decision)
    return decision


def taken(state: CellState, effects: list[e.AnyEffect]) -> list[e.AnyEffect]:
    """Those of the effects that the state allows, one after the other; it is as before."""
    found, mark = list[e.AnyEffect](), state.checkpoint()
    for effect in effects:
        try:
            apply(state, effect, 0)
        except IllegalEffect:
            continue
        found.append(effect)
    state.rollback(mark)
    return found


@given(records=st.lists(records_of_quotas(), min_size=1, max_size=8), used=st.lists(st.sampled_from(NAMES), max_size=4))
def test_a_record_of_many_quotas_touches_all_whose_rows_it_changes(
    records: list[list[e.AnyEffect]], used: list[str]
) -> None:
    state, is_above = CellState(CELL), False
    for number, tenant in enumerate(used):
        charge([], state.tree, (tenant, TYPES[number % len(TYPES)]), 1)
    texts = whole(state)
    for effects in records:
        may = taken(state, effects)
        touched = Touched()
        touched.note(state, decision_of(state, may))
        for effect in may:
            apply(state, effect, 0)
        rows = rows_of_touched(state, touched)
        named = {effect.quota.tenant for effect in may if isinstance(effect, e.QuotaSet)}
        named |= {effect.tenant for effect in may if isinstance(effect, e.QuotaRemoved)}
        is_above |= any(name not in named and texts.get(("tenant", name)) != text for name, text in rows.tenants)
        put(texts, rows)
        assert texts == whole(state)
    reaches("a tenant that no quota of the record names has another row", is_above)


@given(records=st.lists(records_of_quotas(), min_size=1, max_size=4), tenants=st.lists(st.sampled_from(NAMES)))
def test_tenants_above_are_those_that_a_climb_for_each_type_finds(
    records: list[list[e.AnyEffect]], tenants: list[str]
) -> None:
    state = CellState(CELL)
    for effects in records:
        for effect in taken(state, effects):
            apply(state, effect, 0)
    lines = [accounts(state.quotas, tenant, gpu_type) for tenant in tenants for gpu_type in TYPES]
    assert {*with_parents(state, tenants)} == {*tenants, *(name for line in lines for name, _ in line)}


class Asked(dict[Account, Quota]):
    """Quotas that count how often one is looked up, or all of them are gone over."""

    looks = 0

    def get(self, key: Account, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Account]:
        self.looks += len(self)
        return super().__iter__()


@pytest.mark.parametrize("others", [0, 2_000])
def test_a_record_of_quotas_is_noted_by_looks_at_their_own_lines(others: int) -> None:
    state = CellState(CELL)
    for number in range(others):
        apply(state, e.QuotaSet(quota=Quota(tenant="other", gpu_type=f"{number}")), 0)
    apply(state, e.QuotaSet(quota=Quota(tenant="a", gpu_type="h", parent="b")), 0)
    state.quotas = quotas = Asked(state.quotas)
    effects: list[e.AnyEffect] = [
        e.QuotaSet(quota=Quota(tenant="a", gpu_type=f"new{number}", parent="b")) for number in range(500)
    ]
    touched = Touched()
    touched.note(state, decision_of(state, [*effects, e.QuotaRemoved(tenant="a", gpu_type="h")]))
    assert [*touched.tenants] == ["a", "b"]
    assert quotas.looks <= 2 * 501


@given(seed=st.integers(0, 2**32))
def test_a_whole_view_has_as_many_rows_as_are_counted(seed: int) -> None:
    history = History(seed)
    history.decisions(60)
    totals, kinds = totals_of(history.state), [kind for kind, _ in whole(history.state)]
    assert (totals.jobs, totals.nodes, totals.tenants) == tuple(map(kinds.count, ("job", "node", "tenant")))


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 30), chars=st.integers(1, 5_000))
def test_a_view_is_put_in_parts_of_a_few_rows_and_characters(seed: int, rows: int, chars: int) -> None:
    history = History(seed)
    history.decisions(40)
    texts = Texts()
    for part in all_rows(history.state, rows, chars):
        last = (part.jobs or part.nodes or part.tenants)[-1]
        assert len(part) <= rows
        assert part.chars - len(last[0]) - len(last[1]) < chars
        put(texts, part)
    assert texts == whole(history.state)
    reaches("parts are as short as their characters tell", chars < 200 * rows)


@given(data=st.data())
def test_a_row_tells_at_any_time_for_whom_its_job_still_waits(data: st.DataObject) -> None:
    """Jobs, and an array, end in any order, alone or in one record. The job is told of that at once, or later."""
    named = data.draw(st.lists(st.sampled_from(["a", "b", "many"]), min_size=1, max_size=3, unique=True))
    after = tuple(Dependency(job=job, when=AfterWhen.ANY) for job in named)
    elements = [enqueued(f"many.{at}", array=2, array_of="many", array_index=at) for at in range(2)]
    state = cell(node("n1"), enqueued("a"), enqueued("b"), *elements, enqueued("last", after=after))
    texts, touched = whole(state), Touched()
    left = data.draw(st.permutations(["a", "b", "many.0", "many.1"]))
    while left:
        count = data.draw(st.integers(1, 2))
        over, left = left[:count], left[count:]
        told = ended(state, state.jobs["last"])
        is_told = data.draw(st.booleans())
        words = [e.WaitShortened(job="last", over=told)] if told and is_told else []
        record = next_record(state, *(e.JobCancelled(job=job) for job in over), *words)
        assert isinstance(record.decision, Decision)
        touched.note(state, record.decision)
        fold(state, record)
        assert put(texts, rows_of_touched(state, touched)) == whole(state)
        touched.clear()
        reaches("some are over, others are waited for", 0 < len(state.jobs["last"].waits_for) < len(named))
        assert job_row(texts["job", "last"]).waits_for == state.jobs["last"].waits_for


JOBS = {"a": 0, "b": 0, "many": 2, "few": 1}
"""Jobs, and arrays with so many elements, for which others may wait."""


def submitted(name: str) -> list[e.Effect]:
    elements = JOBS[name]
    if not elements:
        return [enqueued(name)]
    return [enqueued(f"{name}.{at}", array=elements, array_of=name, array_index=at) for at in range(elements)]


def cancelled(name: str) -> list[e.Effect]:
    return [e.JobCancelled(job=f"{name}.{at}") for at in range(JOBS.get(name, 0))] or [e.JobCancelled(job=name)]


def legal_of(state: CellState, effects: list[e.Effect]) -> list[e.Effect]:
    """Those of the effects that are possible, one after another. The state stays as it is."""
    mark, legal = state.checkpoint(), []
    for effect in effects:
        inner = state.checkpoint()
        try:
            apply(state, effect, state.at_ms)
        except IllegalEffect:
            state.rollback(inner)
        else:
            state.commit(inner)
            legal.append(effect)
    state.rollback(mark)
    return legal


def after_any(job: str) -> Dependency:
    return Dependency(job=job, when=AfterWhen.ANY)


def life_of_waiters(after: dict[str, list[str]]) -> list[list[e.Effect]]:
    """What may happen to jobs, arrays and those that wait for them."""
    waiters: list[list[e.Effect]] = [
        [enqueued(each, after=tuple(map(after_any, jobs)))] for each, jobs in after.items()
    ]
    ready: list[list[e.Effect]] = [[e.JobReady(job=each)] for each in after]
    told: list[list[e.Effect]] = [
        [e.WaitShortened(job=each, over=(job,))] for each, jobs in after.items() for job in jobs
    ]
    elements: list[list[e.Effect]] = [[e.JobCancelled(job=f"many.{at}")] for at in range(2)]
    return [*waiters, *ready, *told, *elements, *map(submitted, JOBS), *map(cancelled, [*JOBS, *after])]


@given(data=st.data())
def test_rows_of_waiters_follow_jobs_and_arrays_that_are_submitted_and_end_in_one_decision(data: st.DataObject) -> None:
    named = st.lists(st.sampled_from([*JOBS]), min_size=1, max_size=4, unique=True)
    life = life_of_waiters({"w": data.draw(named), "v": data.draw(named)})
    state, touched, texts, came_and_went = cell(node("n1")), Touched(), Texts(), False
    texts = whole(state)
    for happens in data.draw(st.lists(st.lists(st.sampled_from(life), min_size=1, max_size=8), max_size=8)):
        effects = legal_of(state, [effect for each in happens for effect in each])
        live = {*state.arrays}
        record = next_record(state, *effects)
        assert isinstance(record.decision, Decision)
        touched.note(state, record.decision)
        fold(state, record)
        new = {effect.spec.array_of for effect in effects if isinstance(effect, e.JobEnqueued)} - {None}
        came_and_went |= bool(new - live - {*state.arrays})
        if data.draw(st.booleans()):
            assert put(texts, rows_of_touched(state, touched)) == whole(state)
            touched.clear()
    reaches("an array comes and goes in one decision", came_and_went)


@given(left=st.permutations([f"many.{at}" for at in range(6)]))
def test_those_that_wait_for_an_array_are_touched_when_they_are_told_that_it_is_over(left: list[str]) -> None:
    elements = [enqueued(f"many.{at}", array=6, array_of="many", array_index=at) for at in range(6)]
    state = cell(*elements, *(enqueued(f"w{at}", after=(after_any("many"), after_any("a"))) for at in range(3)))
    for effect in [*(e.JobCancelled(job=element) for element in left), e.WaitShortened(job="w1", over=("many",))]:
        touched, record = Touched(), next_record(state, effect)
        assert isinstance(record.decision, Decision)
        touched.note(state, record.decision)
        fold(state, record)
        assert {"w0", "w1", "w2"} & {*touched.jobs} == {effect.job} - {*left}


@given(names=st.integers(0, 100), length=st.integers(1, 128))
def test_the_row_of_a_job_that_waits_for_many_names_few_of_them_and_how_many_more(names: int, length: int) -> None:
    long = [f"{'t' * 63}/{at:03}".ljust(64 + length, "y") for at in range(names)]
    state = cell(enqueued("w", after=tuple(Dependency(job=each) for each in long)))
    text = job_text(state, state.jobs["w"])
    row = job_row(text)
    assert list(row.waits_for) == long[: len(row.waits_for)]
    assert len(row.waits_for) + row.waits_for_more == names
    assert len(text.encode()) < 1_000
    assert len(row.waits_for) == min(names, 3)


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


def test_a_job_that_is_over_and_still_remembered_has_no_row_again() -> None:
    state, remembered = CellState(CELL), 0
    for record in log_records(History(4).decisions(80)):
        assert isinstance(record.decision, Decision)
        touched = Touched()
        touched.note(state, record.decision)
        fold(state, record)
        put_again = {job_id for job_id, _ in rows_of_touched(state, touched).jobs}
        oldest = [job_id for job_id in touched.oldest if job_id in state.finished and job_id not in touched.jobs]
        remembered += len(oldest)
        assert put_again.isdisjoint(oldest)
    assert remembered
