"""A job that does not say how long it runs is put on nodes that stay open longest: planned maintenance would stop it,
and on nodes that close one after the other it would be stopped again and again.

It never waits for that. It is placed as if its run took until the last of these nodes has closed; where it does not fit
so, until the one before has, and so on. This holds under every placement policy, because no policy is told of it.
"""

from __future__ import annotations

from collections.abc import Callable

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.reasons import PendingReason

AHEAD_MS = 604_800_000
"""Maintenance that is further ahead than a week is not looked at: most jobs are over by then."""

LOOKS_MAX = 8
"""So many times of closing are told apart."""

Found = tuple[WorkerPlace, ...] | PendingReason


def tells_no_time(spec: JobSpec) -> bool:
    """Whether a job says nothing of how long it may run."""
    return spec.max_run_ms is None and spec.estimate_run_ms is None


def place_where_open_longest(state: CellState, spec: JobSpec, search: Callable[[JobSpec], Found]) -> Found:
    """What `search` finds for the job on the nodes that stay open longest, or why it finds nothing on any."""
    found = search(spec)
    if isinstance(found, PendingReason):
        return found
    now_ms = max(state.at_ms, state.clock_ms)
    closes_ms = min(
        (ms for place in found if (ms := state.maintenance_starts.get(place.node)) is not None), default=None
    )
    if closes_ms is None:
        return found
    begins = sorted(
        {ms for ms in state.maintenance_starts.values() if closes_ms <= ms <= now_ms + AHEAD_MS}, reverse=True
    )
    begins = begins[:: -(-len(begins) // LOOKS_MAX)] if begins else []
    fits, fails = len(begins), -1  # by number: the earlier a node closes, the fewer nodes are left out
    while fits - fails > 1:
        middle = (fits + fails) // 2 if fails >= 0 else 0  # nearly always all nodes that close can be done without
        tried = search(replace(spec, estimate_run_ms=begins[middle] - now_ms + 1))
        if isinstance(tried, PendingReason):
            fails = middle
        else:
            found, fits = tried, middle
    return found
