"""Who yields, by looking at every set of running jobs: on rows of numbers, with rules of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from fallow.shared.events.operations import ReclaimFrom
from tests.loaning.worlds.crowded import NOW_MS, Crowd, Row

Set = tuple[int, ...]


def fits(crowd: Crowd, gone: Set) -> bool:
    """Whether the waiting job has room, and may have it, once these have gone."""
    share, used = crowd.shares[crowd.tenant], used_by(crowd, crowd.tenant, gone)
    if share.limit is not None and used + crowd.workers * crowd.gpus > share.limit:
        return False
    free = [*crowd.nodes]
    for number, row in enumerate(crowd.rows):
        if number not in gone:
            for node in row.nodes:
                free[node] -= row.gpus
    leaves = set(crowd.leaves) if crowd.in_leaf else {None}
    return any(
        sum(left // crowd.gpus for left, at in zip(free, crowd.leaves, strict=True) if leaf in (None, at))
        >= crowd.workers
        for leaf in leaves
    )


def used_by(crowd: Crowd, tenant: int, gone: Set = ()) -> int:
    """The GPUs of a tenant without these jobs."""
    return sum(size(row) for number, row in enumerate(crowd.rows) if row.tenant == tenant and number not in gone)


def size(row: Row) -> int:
    return len(row.nodes) * row.gpus


def may_take(crowd: Crowd, cause: str, gone: Set) -> bool:
    """Whether the rules let all of these yield together."""
    if cause == "share" and crowd.shares[crowd.tenant].guaranteed:
        return False
    return (cause != "reclaim" or _is_owner(crowd)) and all(
        _may_yield(crowd, cause, crowd.rows[number]) for number in gone
    ) and all(_keeps_its_own(crowd, cause, tenant, gone) for tenant in range(len(crowd.shares)))  # fmt: skip


def _is_owner(crowd: Crowd) -> bool:
    share = crowd.shares[crowd.tenant]
    wants = used_by(crowd, crowd.tenant) + crowd.workers * crowd.gpus
    return share.guaranteed > 0 and wants <= share.guaranteed and share.reclaim is not ReclaimFrom.NEVER


def _may_yield(crowd: Crowd, cause: str, row: Row) -> bool:
    if not row.preemptible:
        return False
    theirs = crowd.shares[row.tenant]
    if row.tenant != crowd.tenant and (not theirs.reclaimable or row.age_s < theirs.min_run_s):
        return False
    if row.tenant == crowd.tenant and row.age_s < theirs.min_run_s:
        return False
    if cause == "priority":
        is_newer = NOW_MS - 1000 * row.age_s > NOW_MS // 2
        return row.priority < crowd.priority or (crowd.takes_newer and row.priority == crowd.priority and is_newer)
    if row.tenant == crowd.tenant:
        return False
    if cause == "share":
        return not theirs.guaranteed
    return crowd.shares[crowd.tenant].reclaim is ReclaimFrom.ANY or row.priority < crowd.priority


def _keeps_its_own(crowd: Crowd, cause: str, tenant: int, gone: Set) -> bool:
    lost = [size(crowd.rows[number]) for number in gone if crowd.rows[number].tenant == tenant]
    if not lost or tenant == crowd.tenant:
        return True
    used, owns = used_by(crowd, tenant), crowd.shares[tenant].guaranteed
    if cause == "share":
        ours = crowd.shares[crowd.tenant]
        has = used_by(crowd, crowd.tenant) + crowd.workers * crowd.gpus
        return has * crowd.shares[tenant].weight <= (used - sum(lost)) * ours.weight
    if cause == "priority":
        return used - sum(lost) >= owns
    borrows_to_the_last = used - sum(lost) + max(lost) > owns
    idle = sum(crowd.nodes) - sum(size(row) for number, row in enumerate(crowd.rows) if number not in gone)
    return borrows_to_the_last and used - sum(lost) + idle - crowd.workers * crowd.gpus >= owns


def all_sets(crowd: Crowd, cause: str) -> Iterator[Set]:
    """Every set that may yield together and lets the job start."""
    numbers = range(len(crowd.rows))
    for count in range(1, len(crowd.rows) + 1):
        for gone in combinations(numbers, count):
            if fits(crowd, gone) and may_take(crowd, cause, gone):
                yield gone


def is_minimal(crowd: Crowd, gone: Set) -> bool:
    """Whether the set can do without none of them."""
    return not any(fits(crowd, tuple(other for other in gone if other != each)) for each in gone)


def cost(crowd: Crowd, gone: Sequence[int]) -> tuple[object, ...]:
    """What a set costs: who is dearest, how many, work lost, starts."""
    left = [used_by(crowd, tenant) for tenant in range(len(crowd.shares))]
    levels = []
    for number in sorted(gone, key=lambda each: (crowd.rows[each].priority, -size(crowd.rows[each]))):
        row = crowd.rows[number]
        is_owned = row.tenant != crowd.tenant and left[row.tenant] - size(row) < crowd.shares[row.tenant].guaranteed
        left[row.tenant] -= size(row)
        levels.append((is_owned, row.priority))
    lost = sum(crowd.rows[each].age_s % (crowd.rows[each].checkpoint_s or 1) for each in gone)
    return (sorted(levels, reverse=True), lost, sorted((crowd.rows[each].age_s for each in gone), reverse=True))
