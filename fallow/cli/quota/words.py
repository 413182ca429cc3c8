"""The rules of a quota in words."""

from __future__ import annotations

from fallow.cli.output.durations import duration
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Quota, ReclaimFrom


def quota_rules(quota: Quota) -> list[str]:
    """The rules for borrowing and lending in words, where they are other than those that hold when nothing is said."""
    found = []
    if not quota.borrows:
        found.append("borrows nothing")
    elif quota.borrow_limit_milli is not None:
        found.append(f"borrows at most {_gpus(quota.borrow_limit_milli)}")
    if not quota.lends:
        found.append("lends nothing")
    elif quota.lend_limit_milli is not None:
        found.append(f"lends at most {_gpus(quota.lend_limit_milli)}")
    if quota.reclaim is not ReclaimFrom.ANY:
        found.append("takes back nothing" if quota.reclaim is ReclaimFrom.NEVER else "takes back from lower priority")
    if quota.min_run_ms is not None:
        found.append(f"lets run for {duration(quota.min_run_ms)}")
    if not quota.reclaimable:
        found.append("yields to no other tenant")
    return found


def _gpus(milli: int) -> str:
    return f"{milli / GPU:g} GPUs"
