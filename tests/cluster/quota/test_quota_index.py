"""What is kept of quotas by delta is what a walk over all of them tells."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.fold.undo_log import UndoLog
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import remove_quota, set_quota
from fallow.shared.cluster.quota.rules import contradiction, fault_among, fault_in_pools, guaranteed_by_type
from fallow.shared.cluster.quota.tree import Account, Quotas, QuotaTree
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Quota
from tests.hypothesis_profile import reaches

NAMES, TYPES = ("a", "b", "c", "d", "e"), ("h", "v")


@st.composite
def quotas_of(draw: st.DrawFn) -> Quota:
    """A quota of one of few tenants and types, with a parent that may be any name."""
    return Quota(
        tenant=draw(st.sampled_from(NAMES)),
        gpu_type=draw(st.sampled_from(TYPES)),
        guaranteed_milli=draw(st.integers(0, 3)) * GPU,
        parent=draw(st.none() | st.sampled_from([*NAMES, "absent"])),
    )


STEPS = st.lists(quotas_of() | st.tuples(st.sampled_from(NAMES), st.sampled_from(TYPES)), max_size=20)
"""Quotas that are set, and accounts whose quotas are removed."""


def take(journal: UndoLog, tree: QuotaTree, steps: list[Any]) -> None:
    for step in steps:
        if isinstance(step, Quota):
            if contradiction(tree.quotas, step) is None:
                set_quota(journal, tree, step)
        elif step in tree.quotas and not below(tree.quotas)[step]:
            remove_quota(journal, tree, step)


def below(quotas: Quotas) -> Counter[Account]:
    return Counter((quota.parent, quota.gpu_type) for quota in quotas.values() if quota.parent is not None)


def is_right(tree: QuotaTree) -> bool:
    types = {name: {kind for tenant, kind in tree.quotas if tenant == name} for name in NAMES}
    return tree.index.children == below(tree.quotas) and {name: {*tree.index.types_of(name)} for name in NAMES} == types


@given(first=STEPS, undone=STEPS, last=STEPS, when=st.integers(0, 3))
def test_it_is_right_after_every_change_and_when_changes_are_undone(
    first: list[Any], undone: list[Any], last: list[Any], when: int
) -> None:
    tree, journal = QuotaTree({}, {}), UndoLog()
    for number, steps in enumerate((first, undone, last)):
        if number == when:
            assert is_right(tree)
        mark = journal.checkpoint()
        take(journal, tree, steps)
        if steps is undone:
            reaches("quotas are undone", bool(journal.entries))
            journal.rollback(mark)
        else:
            journal.commit(mark)
    assert is_right(tree)


@given(steps=STEPS)
def test_a_state_that_is_read_from_its_rows_has_it_too(steps: list[Any]) -> None:
    state = CellState("main")
    take(state.undo_log, state.tree, steps)
    again = state_from(rows_of(state))
    assert is_right(again.tree)
    assert check_state(again) == []


def test_an_index_that_is_wrong_is_told() -> None:
    state = CellState("main")
    apply(state, e.QuotaSet(quota=Quota(tenant="a", gpu_type="h", parent="b")), 0)
    state.tree.index.children.clear()
    assert [offence.text[:8] for offence in check_state(state)] == ["quotas: "]


@given(steps=STEPS, changed=st.lists(quotas_of(), min_size=1, max_size=5))
def test_quotas_of_other_types_have_no_part_in_the_rules(steps: list[Any], changed: list[Quota]) -> None:
    tree, names = QuotaTree({}, {}), NAMES[:2]
    take(UndoLog(), tree, steps)
    assume(fault_among(tree.quotas, tuple(tree.quotas.values()), NAMES) is None)
    new = {(quota.tenant, quota.gpu_type): quota for quota in changed}
    merged = {**tree.quotas, **new}
    of_types = {account: quota for account, quota in merged.items() if account[1] in {kind for _, kind in new}}
    fault = fault_among(merged, tuple(new.values()), names)
    reaches(
        "quotas of one type break a rule beside those of another", fault is not None and len(of_types) < len(merged)
    )
    assert fault_among(of_types, tuple(new.values()), names) == fault


def together_milli(quotas: Quotas, gpu_type: str) -> int:
    """What is guaranteed of a type at the top of its trees, each asked from the top down."""

    def guaranteed(tenant: str) -> int:
        own = quotas.get((tenant, gpu_type))
        children = [q.tenant for q in quotas.values() if (q.parent, q.gpu_type) == (tenant, gpu_type)]
        return max(0 if own is None else own.guaranteed_milli, sum(map(guaranteed, children)))

    named = {q.tenant: q.parent for q in quotas.values() if q.gpu_type == gpu_type}
    tops = {name for name, parent in named.items() if parent is None}
    tops |= {parent for parent in named.values() if parent is not None and parent not in named}
    return sum(map(guaranteed, tops))


@given(steps=STEPS, there=st.integers(0, 8))
def test_what_is_guaranteed_is_summed_for_all_types_as_for_each(steps: list[Any], there: int) -> None:
    tree = QuotaTree({}, {})
    take(UndoLog(), tree, steps)
    too_much = [kind for kind in TYPES if together_milli(tree.quotas, kind) > there * GPU]
    fault = fault_in_pools(guaranteed_by_type(tree.quotas), TYPES, dict.fromkeys(TYPES, there))
    reaches("too much is guaranteed of some type, and not of another", len(too_much) == 1)
    assert (fault and fault.gpu_type) == (too_much[0] if too_much else None)
