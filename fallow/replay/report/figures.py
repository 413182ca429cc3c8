"""The figures of a run, computed from the rows of jobs.csv and the sizes of the nodes alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fallow.replay.report.job_history import Hold, JobRow
from fallow.services.metrics.policy.kant.waiting import percentile
from fallow.shared.events.fields.values import GPU


@dataclass(frozen=True, slots=True)
class Figures:
    """How the jobs fared. Waits are in milliseconds of cell time, from submission to first start, without jobs that
    were carried over or never started. `gar_mean` and `gfr_mean` are weighted by time, from the beginning to the last
    end of an attempt (or the last start, where none has ended): the part of all GPUs that was allocated, and the part
    of all nodes of which some GPUs were allocated and some were not.
    """

    submitted: int
    completed: int
    failed: int
    cancelled: int
    rejected: int
    unfinished: int
    wait_ms_mean: float
    wait_ms_p50: int
    wait_ms_p99: int
    gar_mean: float
    gfr_mean: float

    def as_dict(self) -> dict[str, Any]:
        """By their names, in this order."""
        return asdict(self)


def figures_of(rows: Sequence[JobRow], node_gpus: Mapping[str, int]) -> Figures:
    """The figures of these rows, on nodes with so many GPUs. All of them are 0 where there is nothing to count."""
    states = [row.final_state for row in rows]
    ended = {state: states.count(state) for state in ("finished", "failed", "cancelled", "rejected")}
    waits = sorted(row.wait_ms for row in rows if row.wait_ms is not None and not row.is_carried)
    gar_mean, gfr_mean = _allocation(rows, node_gpus)
    return Figures(
        submitted=len(rows),
        completed=ended["finished"],
        failed=ended["failed"],
        cancelled=ended["cancelled"],
        rejected=ended["rejected"],
        unfinished=len(rows) - sum(ended.values()),
        wait_ms_mean=round(sum(waits) / len(waits), 1) if waits else 0.0,
        wait_ms_p50=percentile(waits, 50) or 0,
        wait_ms_p99=percentile(waits, 99) or 0,
        gar_mean=gar_mean,
        gfr_mean=gfr_mean,
    )


def _allocation(rows: Sequence[JobRow], node_gpus: Mapping[str, int]) -> tuple[float, float]:
    """GAR and GFR, by a sweep over all starts and ends. Products of milliseconds are integers, so nothing is lost in
    the sum.
    """
    changes = sorted(_changes(rows), key=lambda change: change[0])
    period_ms = changes[-1][0] if changes else 0
    gpus, nodes = sum(node_gpus.values()), sum(1 for count in node_gpus.values() if count)
    if not period_ms or not gpus:
        return 0.0, 0.0
    used: dict[str, int] = {}
    allocated = fragmented = milli_ms = node_ms = before_ms = 0
    for at_ms, node, milli in changes:
        milli_ms += allocated * (at_ms - before_ms)
        node_ms += fragmented * (at_ms - before_ms)
        before_ms = at_ms
        full = node_gpus[node] * GPU
        fragmented -= 0 < used.get(node, 0) < full
        used[node] = used.get(node, 0) + milli
        allocated += milli
        fragmented += 0 < used[node] < full
    return round(milli_ms / (gpus * GPU * period_ms), 4), round(node_ms / (nodes * period_ms), 4)


def _changes(rows: Iterable[JobRow]) -> Iterator[tuple[int, str, int]]:
    for row in rows:
        for stretch in row.stretches:
            for hold in stretch.holds:
                start_ms = stretch.start_ms if hold.start_ms is None else hold.start_ms
                end_ms = stretch.end_ms if hold.end_ms is None else hold.end_ms
                yield start_ms, hold.node, _milli(hold)
                if end_ms is not None:
                    yield end_ms, hold.node, -_milli(hold)


def _milli(hold: Hold) -> int:
    return len(hold.devices) * hold.milli_each
