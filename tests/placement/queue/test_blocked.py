"""Whose turn it is to be tried again once something has become free, and when a node closes for those that wait."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.queue.lines.blocked import AGAIN_MAX, ANY, ASKS_MAX, OF_A_TENANT, Blocked
from fallow.services.placement.queue.lines.closing import Closing
from fallow.services.placement.queue.lines.row import Ask, Need, Row
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches


def need(tenant: str, ask: Ask = ANY, *, longest_ms: int = 0) -> Need:
    return Need((tenant, longest_ms), tenant, ask)


def gpus(count: int) -> Ask:
    return ((), None, count)


def block(blocked: Blocked, needs: list[Need], first: int = 0) -> list[Need]:
    """In this order they stand in their queue."""
    for number, each in enumerate(needs, first):
        blocked.add(each, each.owner, each.ask, (0, (0, number, 0, str(number))))
    return needs


def owners(taken: list[Need | Row]) -> Counter[str]:
    return Counter(each.owner for each in taken if isinstance(each, Need))


def always(_: Ask) -> bool:
    return True


def test_each_tenant_has_its_turn_however_many_kinds_another_one_has() -> None:
    blocked = Blocked()
    block(blocked, [need("crowd") for _ in range(5 * AGAIN_MAX)])
    few = block(blocked, [need("few") for _ in range(OF_A_TENANT)], 5 * AGAIN_MAX)
    blocked.free()
    assert {*few} <= {*blocked.take(always)}


def test_tenants_of_many_kinds_are_tried_equally_often_walk_by_walk() -> None:
    blocked, total = Blocked(), Counter[str]()
    for tenant in ("ada", "bob", "eve"):
        block(blocked, [need(tenant) for _ in range(2 * AGAIN_MAX)])
    blocked.free()
    for _ in range(3):
        taken = owners(blocked.take(always))
        assert sum(taken.values()) == AGAIN_MAX
        total += taken
        assert max(total.values()) - min(total.values()) <= OF_A_TENANT


def test_a_tenant_that_asks_for_several_things_is_tried_with_each_in_turn() -> None:
    blocked = Blocked()
    block(blocked, [need("ada", gpus(1)) for _ in range(AGAIN_MAX)])
    block(blocked, [need("ada", gpus(8)) for _ in range(AGAIN_MAX)], AGAIN_MAX)
    blocked.free()
    asked = Counter(each.ask for each in blocked.take(always) if isinstance(each, Need))
    assert asked == {gpus(1): AGAIN_MAX // 2, gpus(8): AGAIN_MAX // 2}


def test_one_that_was_tried_in_vain_again_stands_where_its_first_job_stands_now() -> None:
    blocked, moved = Blocked(), need("ada")
    block(blocked, [moved])
    blocked.drop(moved)
    block(blocked, [need("ada") for _ in range(AGAIN_MAX)], 1)
    block(blocked, [moved], 2 * AGAIN_MAX)
    blocked.free()
    taken = blocked.take(always)
    assert (len(taken), moved in taken) == (AGAIN_MAX, False)
    assert blocked.take(always) == [moved]


def test_of_a_tenant_that_asks_for_too_many_things_those_that_are_not_told_apart_are_tried_each_time() -> None:
    blocked = Blocked()
    needs = block(blocked, [need("ada", gpus(number)) for number in range(1, ASKS_MAX + AGAIN_MAX + 1)])
    blocked.free()
    assert blocked.take(lambda ask: ask == ANY) == needs[ASKS_MAX:]


def test_behind_a_walk_nobody_is_due_who_would_be_tried_in_vain() -> None:
    blocked = Blocked()
    block(blocked, [need("ada", gpus(8)) for _ in range(2 * AGAIN_MAX)])
    blocked.free()
    assert blocked.are_due
    assert blocked.take(lambda _: False) == []
    blocked.free()
    blocked.walked(lambda _: False)
    assert not blocked.are_due
    blocked.free()
    assert len(blocked.take(always)) == AGAIN_MAX


TIMES_MS = st.integers(0, 30)


@given(st.lists(TIMES_MS, max_size=6), TIMES_MS, TIMES_MS)
def test_the_next_node_closes_just_when_the_first_run_there_would_not_be_over_in_time(
    begins_ms: list[int], longest_ms: int, now_ms: int
) -> None:
    """A node is open for a run that is over by the begin of its maintenance."""
    waits, is_told = need("ada", longest_ms=longest_ms), need("ada", longest_ms=longest_ms)
    waits.code, is_told.code = PendingReason.NO_FREE_GPUS, PendingReason.QUOTA_REACHED
    open_now = [begin_ms for begin_ms in begins_ms if now_ms + longest_ms <= begin_ms]
    closes_ms = [next(at_ms for at_ms in range(now_ms, 100) if at_ms + longest_ms > begin_ms) for begin_ms in open_now]
    closing = Closing(begins_ms, [waits, is_told], now_ms)
    reaches("a node will close for a job that waits", closing.next_ms is not None)
    assert closing.next_ms == min(closes_ms, default=None)
    if closing.next_ms is not None:
        assert (closing.due(closing.next_ms - 1), closing.due(closing.next_ms)) == ({}, {waits: None})
