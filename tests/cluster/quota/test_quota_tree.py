"""The tree of quotas, kept by delta, is what the definition says; and no tenant gets more than it may."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fallow.shared.cluster.quota.quota import over_limit, set_quota
from fallow.shared.cluster.quota.room import available
from fallow.shared.events.operations import Quota
from tests.cluster.worlds.quota_worlds import (
    CHANGES,
    MAX,
    NAMES,
    TYPE,
    Use,
    available_by_trying,
    books_of,
    home_idle,
    is_forbidden,
    quotas,
    tree_of,
)
from tests.hypothesis_profile import reaches


@given(listed=quotas(), changes=CHANGES)
def test_a_tree_kept_by_delta_is_what_the_definition_says(listed: list[Quota], changes: list[tuple[str, int]]) -> None:
    use = Use(tree_of(listed))
    assert use.counted() is not None
    for tenant, milli in changes:
        use.force(tenant, milli)
    books, branches = use.books(), use.tree.branches
    reaches("a tenant uses GPUs below another one", any(b.parent and b.used_milli for b in branches.values()))
    assert {at: b.used_milli for at, b in branches.items()} == {at: books.use(at) for at in branches}
    assert {at: b.drawn_milli for at, b in branches.items()} == {at: books.drawn(at) for at in branches}
    assert {at: b.home_milli for at, b in branches.items()} == {at: books.at_home(at) for at in branches}
    assert {at: b.guaranteed_milli for at, b in branches.items()} == {at: books.guaranteed(at) for at in branches}
    assert {at: b.drawn_max_milli for at, b in branches.items()} == {at: books.drawn_max(at) for at in branches}
    assert sum(cohort.home_idle_milli for cohort in use.tree.cohorts.values()) == home_idle(use)


@given(listed=quotas(), changes=CHANGES)
def test_a_tree_made_anew_counts_as_one_kept_by_delta(listed: list[Quota], changes: list[tuple[str, int]]) -> None:
    use = Use(tree_of(listed))
    for tenant, milli in changes:
        use.force(tenant, milli)
    by_delta = (use.counted(), {t: (c.home_idle_milli, c.guaranteed_idle_milli) for t, c in use.tree.cohorts.items()})
    reaches("some cohort has a guarantee that is idle", any(idle for _, idle in by_delta[1].values()))
    use.tree.void()
    anew = (use.counted(), {t: (c.home_idle_milli, c.guaranteed_idle_milli) for t, c in use.tree.cohorts.items()})
    assert by_delta == anew


@given(listed=quotas(), changes=CHANGES, undone=CHANGES)
def test_what_is_undone_leaves_no_trace(
    listed: list[Quota], changes: list[tuple[str, int]], undone: list[tuple[str, int]]
) -> None:
    use = Use(tree_of(listed))
    for tenant, milli in changes:
        use.force(tenant, milli)
    before, usage, mark = use.counted(), dict(use.tree.usage), use.journal.checkpoint()
    for tenant, milli in undone:
        use.force(tenant, milli)
    reaches("use of quotas is undone", use.counted() != before)
    use.journal.rollback(mark)
    assert (use.counted(), use.tree.usage) == (before, usage)


@given(listed=quotas(), changes=CHANGES, tenant=st.sampled_from(NAMES), free=st.integers(0, 2 * MAX))
def test_what_is_available_is_what_can_be_tried(
    listed: list[Quota], changes: list[tuple[str, int]], tenant: str, free: int
) -> None:
    use = Use(tree_of(listed))
    for name, milli in changes:
        use.force(name, milli)
    found = available(use.tree, (tenant, TYPE), free)
    reaches("some of what is free is available, and some is not", 0 < found < free)
    assert found == available_by_trying(use, tenant, free)


@given(listed=quotas(), changes=CHANGES, tenant=st.sampled_from(NAMES), more=st.integers(1, MAX))
def test_a_start_is_refused_exactly_if_it_passes_a_limit_or_a_right_to_borrow(
    listed: list[Quota], changes: list[tuple[str, int]], tenant: str, more: int
) -> None:
    use, account = Use(tree_of(listed)), (tenant, TYPE)
    for name, milli in changes:
        use.force(name, milli)
    after = books_of(use.tree, {**use.own, account: use.own.get(account, 0) + more})
    is_refused = over_limit(use.tree, tenant, TYPE, more) is not None
    reaches("a start is refused by a limit or a right to borrow", is_refused)
    assert is_refused is is_forbidden(use.books(), after, account)


@pytest.mark.parametrize(
    ("rules", "most"),
    [({"limit_milli": 5}, 5), ({"borrow_limit_milli": 2}, 6), ({"borrows": False}, 4)],
    ids=["a limit", "a limit of what is borrowed", "no right to borrow"],
)
@pytest.mark.parametrize("used", [0, 1, 3])
def test_a_tenant_uses_what_it_may_to_the_last(rules: dict[str, Any], most: int, used: int) -> None:
    use = Use(tree_of([Quota(tenant="a", gpu_type=TYPE, guaranteed_milli=4, **rules)]))
    use.force("a", used)
    assert over_limit(use.tree, "a", TYPE, most - used) is None
    assert over_limit(use.tree, "a", TYPE, most - used + 1) == ("a", TYPE)


@given(listed=quotas(), changes=CHANGES)
def test_no_start_leaves_use_above_what_may_be_used(listed: list[Quota], changes: list[tuple[str, int]]) -> None:
    use = Use(tree_of(listed))
    started = [tenant for tenant, milli in changes if use.start(tenant, milli)]
    reaches("quotas let some start, and others not", 0 < len(started) < len(changes))
    assert [wrong for tenant in started if (wrong := use.books().over((tenant, TYPE))) is not None] == []


@given(listed=quotas(), changes=CHANGES, cell=st.integers(0, 6 * MAX))
def test_who_starts_only_what_is_available_never_uses_more_than_the_cell_has_or_what_others_keep(
    listed: list[Quota], changes: list[tuple[str, int]], cell: int
) -> None:
    use = Use(tree_of(listed))
    is_less = False
    assume(home_idle(use) <= cell)
    for tenant, milli in changes:
        free = cell - sum(use.own.values())
        can = available(use.tree, (tenant, TYPE), free)
        is_less |= can < min(milli, free)
        use.force(tenant, min(milli, can))
    reaches("less is available than is free and wanted", is_less)
    assert sum(use.own.values()) + home_idle(use) <= cell


@given(first=quotas(), second=quotas(), changes=CHANGES)
def test_the_order_in_which_quotas_are_set_makes_no_difference(
    first: list[Quota], second: list[Quota], changes: list[tuple[str, int]]
) -> None:
    last = {(quota.tenant, quota.gpu_type): quota for quota in (*first, *second)}
    at_once, one_by_one = Use(tree_of(last.values())), Use(tree_of(first))
    for tenant, milli in changes:
        at_once.force(tenant, milli)
        one_by_one.force(tenant, milli)
    before = one_by_one.counted()
    for quota in second:
        set_quota(one_by_one.journal, one_by_one.tree, quota)
    reaches("a quota that is set changes how use counts", one_by_one.counted() != before)
    assert (one_by_one.counted(), one_by_one.tree.usage) == (at_once.counted(), at_once.tree.usage)
