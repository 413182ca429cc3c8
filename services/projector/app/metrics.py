"""What the projector counts."""

from __future__ import annotations

from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

APPLY_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
REBUILD_SECONDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


class ProjectorMetrics:
    """The projector's metrics, by cell."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lag_records = Gauge("fallow_view_lag_records", "Records behind the log", ["cell"], registry=registry)
        self.lag_seconds = Gauge("fallow_view_lag_seconds", "For how long it is behind", ["cell"], registry=registry)
        self.steps = Counter(
            "fallow_view_steps_total",
            "Steps by how they went: applied, further (DUP), behind (GAP), not_ready, rebuilt, busy, away, ...",
            ["cell", "outcome"],
            registry=registry,
        )
        self.rows = Counter("fallow_view_rows_total", "Rows put or dropped", ["cell"], registry=registry)
        self.apply_seconds = Histogram(
            "fallow_view_apply_seconds", "Making and applying one batch", buckets=APPLY_SECONDS, registry=registry
        )
        self.rebuild_seconds = Histogram(
            "fallow_view_rebuild_seconds", "Building a whole view", buckets=REBUILD_SECONDS, registry=registry
        )


class CellMetrics:
    """The metrics of one cell. Labels are looked up once, and not for each step."""

    def __init__(self, metrics: ProjectorMetrics, cell: str) -> None:
        self.lag_records, self.lag_seconds = metrics.lag_records.labels(cell), metrics.lag_seconds.labels(cell)
        self.rows = metrics.rows.labels(cell)
        self.apply_seconds, self.rebuild_seconds = metrics.apply_seconds, metrics.rebuild_seconds
        self._steps = cache(partial(metrics.steps.labels, cell))

    def step(self, outcome: str) -> None:
        """Count a step by how it went."""
        self._steps(outcome).inc()
